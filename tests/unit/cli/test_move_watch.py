"""`tidelog reassign list`, once and as a watch: bars, lines, and JSON of every sample."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress
from tests.support.cli import check
from tests.support.client.fake_placement import FakePlacement
from tests.unit.cli.test_commands import Shell

from tidelog.cli import documents
from tidelog.cli.move_watch import _Bars, duration_text, progress_text
from tidelog.client.move_progress import MoveProgress, MoveState
from tidelog.client.moving import MoveUnderWay
from tidelog.core.types import TopicPartition

T0, T1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
MOVE = MoveUnderWay((3, 1), (3,), (1,), (1,))
#: Samples come at once, so that rates are those of a clock of the tests.
WATCH = ("reassign", "list", "--watch", "--interval", "0.1")


@pytest.fixture
def cluster() -> Iterator[FakePlacement]:
    """flights-0 moves from broker 1 to 3, and flights-1 loses its replica on 2."""
    made = FakePlacement(3)
    made.place("flights", (1,), (1, 2))
    made.moves = {T0: ((3,), (3,)), T1: ((), (1,))}
    made.sizes[T0, 3] = 250
    yield made
    made.close()


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capfd: Any, cluster: FakePlacement) -> Shell:
    return Shell(monkeypatch, capfd, cluster.bootstrap)


def steps(cluster: FakePlacement, *changes: Callable[[], None]) -> None:
    """Each change happens before one look; the last look finds nothing."""
    left = [*changes, cluster.finish]

    def step() -> None:
        if left:
            left.pop(0)()

    cluster.before_list = step


def nothing() -> None:
    """Nothing changes before this look."""


def test_one_look_has_states_and_bytes(shell: Shell) -> None:
    first, second = shell.json(list[documents.MoveListed], "reassign", "list")
    assert (first["state"], first["done_bytes"], first["left_bytes"]) == ("adding", 250, 750)
    assert (first["bytes_per_s"], first["left_ms"], first["never"]) == (None, None, False)
    assert (second["state"], second["left_bytes"]) == ("removing", 0)
    assert "750 B" in shell("reassign", "list")


def test_a_watch_prints_lines_until_the_moves_end(shell: Shell, cluster: FakePlacement) -> None:
    def copied() -> None:
        cluster.sizes[T0, 3] = 1_000
        del cluster.moves[T1]

    steps(cluster, nothing, copied)
    lines = shell(*WATCH).splitlines()
    assert lines[0] == "flights-0 adding 3: 250 B of 1000 B"
    assert lines[1] == "flights-1 removing 2: nothing to copy"
    assert lines[2] == "flights-1 ended"
    assert lines[3].startswith("flights-0 adding 3: 1000 B of 1000 B, ")
    assert lines[3].endswith("/s, 0 s left")
    assert lines[4:] == ["flights-0 ended"]
    assert "no partition is being moved" in shell.err


def test_every_sample_is_a_line_of_json(shell: Shell, cluster: FakePlacement) -> None:
    steps(cluster, nothing, nothing)
    lines = shell(*WATCH, "-o", "json").splitlines()
    samples = [json.loads(line) for line in lines]
    for sample in samples:
        check(sample, documents.MovesSampled)
    assert [len(sample["moves"]) for sample in samples] == [2, 2, 0]
    assert samples[1]["moves"][0]["bytes_per_s"] == 0


def test_a_broker_without_an_answer_is_named_once(shell: Shell, cluster: FakePlacement) -> None:
    cluster.dead = {3}
    steps(cluster, nothing, nothing)
    assert "flights-0 adding 3: bytes not known" in shell(*WATCH)
    assert shell.err.count("broker 3 does not report its bytes") == 1


def test_bars_on_a_terminal(
    shell: Shell, cluster: FakePlacement, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps(cluster, nothing)

    def terminal() -> Console:
        return Console(force_terminal=True, width=100, no_color=True)

    monkeypatch.setattr("tidelog.cli.move_watch.Console", terminal)
    drawn = shell(*WATCH)
    assert "flights-0 adding 3" in drawn and "250 B of 1000 B" in drawn
    assert "flights-0 ended" in drawn


def test_bars_of_moves_that_ended_make_room_for_others(
    shell: Shell, cluster: FakePlacement, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal cuts what is below its last line: moves under way would not be seen."""
    monkeypatch.setattr("tidelog.cli.move_watch._MOST_BARS", 2)
    progress = Progress(console=Console(width=100, no_color=True, file=io.StringIO()))
    bars = _Bars(progress)

    def drawn(*numbers: int) -> list[str]:
        moves = [
            MoveProgress(TopicPartition("t", each), MoveState.ADDING, MOVE, 1, 9, None, None, False)
            for each in numbers
        ]
        bars.show(moves)
        return [task.fields["title"] for task in progress.tasks]

    assert drawn(0, 1, 2, 3) == ["t-0 adding 3", "t-1 adding 3", "and 2 more"]
    assert drawn(1, 3) == ["t-1 adding 3", "t-3 adding 3"]
    ended = progress.console.file
    assert isinstance(ended, io.StringIO)
    assert ended.getvalue() == "t-0 ended\nt-2 ended\n"
    assert drawn() == []


@pytest.mark.parametrize(
    ("rate", "left_ms", "is_never", "text"),
    [
        (None, None, False, "250 B of 1000 B"),
        (100.4, 7_500, False, "250 B of 1000 B, 100 B/s, 8 s left"),
        (0.0, None, False, "250 B of 1000 B, 0 B/s"),
        (
            100.0,
            None,
            True,
            "250 B of 1000 B, 100 B/s, never done: producers write as fast as it copies",
        ),
    ],
)
def test_progress_in_words(
    rate: float | None, left_ms: int | None, is_never: bool, text: str
) -> None:
    progress = MoveProgress(T0, MoveState.ADDING, MOVE, 250, 750, rate, left_ms, is_never)
    assert progress_text(progress) == text


def test_a_throttle_is_named() -> None:
    move = replace(MOVE, throttle=2048)
    progress = MoveProgress(T0, MoveState.ADDING, move, 250, 750, 100.0, 7_500, False)
    assert progress_text(progress) == (
        "250 B of 1000 B, 100 B/s, throttled to 2.0 KiB/s for each broker, 8 s left"
    )


def test_a_watch_waits_for_queued_moves(shell: Shell, cluster: FakePlacement) -> None:
    cluster.moves.clear()
    cluster.queued = {T0: (3,)}

    def begin() -> None:
        cluster.moves, cluster.queued = {T0: ((3,), (3,))}, {}

    steps(cluster, nothing, begin)
    assert shell(*WATCH).splitlines()[-1] == "flights-0 ended"


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (0, "0 s"),
        (1, "1 s"),
        (59_000, "59 s"),
        (60_000, "1 min 0 s"),
        (3_599_000, "59 min 59 s"),
        (3_661_000, "1 h 1 min"),
        (90_000_000, "1 d 1 h"),
    ],
)
def test_durations_in_words(duration_ms: int, text: str) -> None:
    assert duration_text(duration_ms) == text


def test_a_watch_takes_an_interval_above_zero(shell: Shell) -> None:
    shell("reassign", "list", "--watch", "--interval", "0", code=2)
    assert "--interval" in shell.err
