"""Progress of moves from samples: bytes, rates, the time that is left, and when there is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.move_progress import MoveProgress, MoveSample, MoveState, ProgressMeter
from tidelog.client.moving import MoveUnderWay
from tidelog.core.types import TopicPartition

TP = TopicPartition("t", 0)
#: t-0 moves from 1 and 2 to 3 and 1.
MOVE = MoveUnderWay((3, 1, 2), (3,), (2,), (1, 2))


def sample(
    leader_bytes: int | None,
    added_bytes: int | None,
    *isr: int,
    move: MoveUnderWay = MOVE,
) -> MoveSample:
    sizes = {1: leader_bytes, 3: added_bytes}
    return MoveSample(
        move, 1, isr or (1, 2), {broker: size for broker, size in sizes.items() if size is not None}
    )


def observed(meter: ProgressMeter, now_ms: int, it: MoveSample) -> MoveProgress:
    (progress,) = meter.observe(now_ms, {TP: it})
    return progress


def test_bytes_are_those_of_the_added_replica_against_the_leaders() -> None:
    progress = observed(ProgressMeter(), 0, sample(1_000, 400))
    assert (progress.done_bytes, progress.left_bytes, progress.total_bytes) == (400, 600, 1_000)
    assert (progress.rate, progress.left_ms, progress.is_never) == (None, None, False)
    assert progress.state is MoveState.ADDING


def test_the_rate_and_the_time_that_is_left() -> None:
    meter = ProgressMeter()
    observed(meter, 1_000, sample(1_000, 100))
    progress = observed(meter, 3_000, sample(1_000, 400))
    assert (progress.rate, progress.left_ms) == (150.0, 4_000)


def test_what_is_produced_meanwhile_lengthens_the_move() -> None:
    meter = ProgressMeter()
    observed(meter, 0, sample(1_000, 0))
    progress = observed(meter, 1_000, sample(1_100, 300))
    assert (progress.rate, progress.left_ms) == (300.0, 4_000)


@pytest.mark.parametrize("leader_bytes", [1_300, 1_500])
def test_a_copy_that_is_not_faster_than_the_producers_never_ends(leader_bytes: int) -> None:
    meter = ProgressMeter(window_ms=2_000)
    observed(meter, 0, sample(1_000, 0))
    progress = observed(meter, 1_000, sample(leader_bytes, 300))
    assert (progress.left_ms, progress.is_never) == (None, True)
    assert progress.rate == 300.0


def test_a_short_look_does_not_say_never() -> None:
    meter = ProgressMeter(window_ms=10_000)
    observed(meter, 0, sample(1_000, 0))
    assert not observed(meter, 4_999, sample(1_000, 0)).is_never
    assert observed(meter, 5_000, sample(1_000, 0)).is_never


def test_only_the_window_counts() -> None:
    meter = ProgressMeter(window_ms=2_000)
    for at_ms, done in ((0, 0), (1_000, 900), (2_000, 910), (3_000, 920), (4_000, 930)):
        progress = observed(meter, at_ms, sample(1_000, done))
    assert (progress.rate, progress.left_ms) == (10.0, 7_000)


def test_a_replica_in_sync_has_everything() -> None:
    progress = observed(ProgressMeter(), 0, sample(1_000, 990, 1, 2, 3))
    assert (progress.left_bytes, progress.left_ms) == (0, 0)
    assert progress.state is MoveState.COMPLETING


def test_a_replica_has_no_more_than_its_leader() -> None:
    assert observed(ProgressMeter(), 0, sample(1_000, 1_200)).done_bytes == 1_000


@pytest.mark.parametrize(("leader", "added"), [(None, 5), (5, None)])
def test_without_a_report_nothing_is_known(leader: int | None, added: int | None) -> None:
    progress = observed(ProgressMeter(), 0, sample(leader, added))
    assert (progress.done_bytes, progress.left_bytes, progress.total_bytes) == (None, None, None)
    assert (progress.rate, progress.left_ms, progress.is_never) == (None, None, False)


def test_states_without_added_replicas() -> None:
    back = MoveUnderWay((1, 2, 3), (), (3,), (1, 2))
    progress = observed(ProgressMeter(), 0, sample(5, 5, move=back))
    assert (progress.state, progress.left_bytes) == (MoveState.CANCELLING, 0)
    fewer = MoveUnderWay((1, 2), (), (2,), (1, 2))
    assert observed(ProgressMeter(), 0, sample(5, 5, move=fewer)).state is MoveState.REMOVING


def test_another_target_begins_again() -> None:
    meter = ProgressMeter()
    observed(meter, 0, sample(1_000, 500))
    other = MoveUnderWay((4, 1, 2), (4,), (2,), (1, 2))
    moved = MoveSample(other, 1, (1, 2), {1: 1_000, 4: 0})
    progress = observed(meter, 1_000, moved)
    assert (progress.done_bytes, progress.rate) == (0, None)


def test_a_move_that_is_over_is_forgotten() -> None:
    meter = ProgressMeter()
    observed(meter, 0, sample(1_000, 0))
    assert meter.observe(1_000, {}) == []
    assert observed(meter, 2_000, sample(1_000, 500)).rate is None


@given(
    st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 900), st.integers(0, 900)), min_size=1)
)
def test_numbers_are_never_negative(steps: list[tuple[int, int, int]]) -> None:
    meter, now_ms = ProgressMeter(), 0
    for passed_ms, leader, added in steps:
        now_ms += passed_ms
        progress = observed(meter, now_ms, sample(leader, added))
        assert progress.done_bytes is not None and progress.left_bytes is not None
        assert progress.done_bytes + progress.left_bytes == leader
        assert min(progress.done_bytes, progress.left_bytes) >= 0
        assert progress.rate is None or progress.rate >= 0
        assert progress.left_ms is None or progress.left_ms >= 0
        assert not (progress.is_never and progress.left_ms is not None)
