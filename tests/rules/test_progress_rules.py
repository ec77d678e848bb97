"""The progress of a move from what brokers report: R16."""

from __future__ import annotations

import pytest

from tidelog.client.move_progress import MoveProgress, MoveSample, MoveState, ProgressMeter
from tidelog.client.moving import MoveUnderWay
from tidelog.core.types import TopicPartition

TP = TopicPartition("t", 0)
#: t-0 moves from broker 1 to brokers 2 and 3.
MOVE = MoveUnderWay((2, 3, 1), (2, 3), (1,), (1,))


def look(
    meter: ProgressMeter,
    now_ms: int,
    sizes: dict[int, int],
    isr: tuple[int, ...] = (1,),
    move: MoveUnderWay = MOVE,
) -> MoveProgress:
    (progress,) = meter.observe(now_ms, {TP: MoveSample(move, 1, isr, sizes)})
    return progress


@pytest.mark.rule("R16")
def test_bytes_done_and_left_of_all_added_replicas() -> None:
    progress = look(ProgressMeter(), 0, {1: 1_000, 2: 400, 3: 100})
    assert (progress.done_bytes, progress.left_bytes) == (500, 1_500)


@pytest.mark.rule("R16")
def test_the_time_that_is_left_counts_what_is_produced_meanwhile() -> None:
    meter = ProgressMeter()
    look(meter, 0, {1: 1_000, 2: 0, 3: 0})
    progress = look(meter, 1_000, {1: 1_100, 2: 300, 3: 300})
    assert (progress.rate, progress.left_bytes, progress.left_ms) == (600.0, 1_600, 4_000)


@pytest.mark.rule("R16")
def test_a_copy_no_faster_than_the_producers_never_ends() -> None:
    meter = ProgressMeter(window_ms=1_000)
    look(meter, 0, {1: 1_000, 2: 0, 3: 0})
    progress = look(meter, 1_000, {1: 1_300, 2: 300, 3: 300})
    assert (progress.left_ms, progress.is_never) == (None, True)


@pytest.mark.rule("R16")
def test_the_state_of_each_move() -> None:
    sizes = {1: 10, 2: 10, 3: 10}
    assert look(ProgressMeter(), 0, sizes).state is MoveState.ADDING
    assert look(ProgressMeter(), 0, sizes, (1, 2, 3)).state is MoveState.COMPLETING
    back = MoveUnderWay((1, 2, 3), (), (2, 3), (1,))
    assert look(ProgressMeter(), 0, sizes, move=back).state is MoveState.CANCELLING


@pytest.mark.rule("R16")
def test_what_is_not_reported_is_not_guessed() -> None:
    progress = look(ProgressMeter(), 0, {1: 1_000, 2: 400})
    assert (progress.done_bytes, progress.left_bytes, progress.left_ms) == (None, None, None)
