"""What a future replica does next, and whether it has room (D11)."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.epochs import LeaderEpochs
from tidelog.replication.directory_move import LogExtent, Step, StepKind, fits, next_step

COPY, TRUNCATE, RESTART = StepKind.COPY, StepKind.TRUNCATE, StepKind.RESTART
CAUGHT_UP = StepKind.CAUGHT_UP


def extent(start: int, end: int, *epochs: tuple[int, int]) -> LogExtent:
    return LogExtent(start, end, LeaderEpochs(epochs))


@pytest.mark.rule("D11")
@pytest.mark.parametrize(
    ("present", "future", "step"),
    [
        # Nothing was copied yet, something, everything.
        (extent(0, 9, (1, 0)), extent(0, 0), Step(COPY, 0)),
        (extent(0, 9, (1, 0), (3, 5)), extent(0, 7, (1, 0), (3, 5)), Step(COPY, 7)),
        (extent(0, 9, (1, 0), (3, 5)), extent(0, 9, (1, 0), (3, 5)), Step(CAUGHT_UP, 9)),
        # An epoch that was led without a record.
        (extent(0, 9, (1, 0), (4, 9)), extent(0, 9, (1, 0)), Step(CAUGHT_UP, 9)),
        (extent(0, 0), extent(0, 0), Step(CAUGHT_UP, 0)),
        # The present replica was truncated: shorter, or with other records at the same offsets.
        (extent(0, 4, (1, 0)), extent(0, 7, (1, 0)), Step(TRUNCATE, 4)),
        (extent(0, 9, (1, 0), (4, 5)), extent(0, 7, (1, 0)), Step(TRUNCATE, 5)),
        (extent(0, 9, (1, 0), (4, 5)), extent(0, 9, (1, 0), (2, 6)), Step(TRUNCATE, 5)),
        (extent(0, 3), extent(0, 5), Step(TRUNCATE, 3)),
        # It begins later than the copy ends, or earlier than the copy begins.
        (extent(8, 9, (1, 0)), extent(0, 7, (1, 0)), Step(RESTART, 8)),
        (extent(2, 9, (1, 0)), extent(4, 7, (1, 0)), Step(RESTART, 2)),
        # It knows nothing of these records, or nothing that both could keep.
        (extent(0, 9, (1, 0)), extent(0, 7, (1, 0), (5, 6)), Step(RESTART, 0)),
        (extent(6, 9, (4, 0)), extent(0, 8, (1, 0), (2, 7)), Step(RESTART, 6)),
    ],
)
def test_the_step_that_brings_the_copy_closer(
    present: LogExtent, future: LogExtent, step: Step
) -> None:
    assert next_step(present, future) == step


@dataclass
class Records:
    """A log as a test sees it: where it begins, and the leader epoch of each record."""

    start: int
    epochs: list[int]

    @property
    def extent(self) -> LogExtent:
        epochs = LeaderEpochs()
        for offset, epoch in enumerate(self.epochs, self.start):
            epochs.assign(epoch, offset)
        return LogExtent(self.start, self.start + len(self.epochs), epochs)


@st.composite
def two_logs(draw: st.DrawFn) -> tuple[Records, Records]:
    """Two logs of one partition: each leader goes on from a part of an earlier leader's log."""
    histories: list[list[int]] = [[]]
    for epoch in range(1, draw(st.integers(1, 4)) + 1):
        before = draw(st.sampled_from(histories))
        kept = before[: draw(st.integers(0, len(before)))]
        histories.append(kept + [epoch] * draw(st.integers(1, 4)))

    def log() -> Records:
        whole = draw(st.sampled_from(histories))
        end = draw(st.integers(0, len(whole)))
        start = draw(st.integers(0, end))
        return Records(start, whole[start:end])

    return log(), log()


@pytest.mark.rule("D11")
@given(two_logs())
def test_the_steps_end_with_a_copy(logs: tuple[Records, Records]) -> None:
    """Whatever the future replica had before."""
    present, future = logs
    for _ in range(40):
        step = next_step(present.extent, future.extent)
        if step.kind is CAUGHT_UP:
            assert future.start <= present.start
            assert future.epochs[present.start - future.start :] == present.epochs
            return
        if step.kind is RESTART:
            future = Records(step.offset, [])
        elif step.kind is TRUNCATE:
            del future.epochs[step.offset - future.start :]
        else:
            future.epochs.append(present.epochs[step.offset - present.start])
    raise AssertionError(f"{present} is not reached, the copy is {future}")


@pytest.mark.rule("D11")
@pytest.mark.parametrize(
    ("copied", "awaited", "usable", "holds"),
    [
        (0, 0, 100, True),
        (0, 0, 99, False),
        (60, 0, 40, True),
        (0, 1, 100, False),
        (200, 5, 5, True),
    ],
)
def test_only_the_rest_of_a_replica_must_fit(
    copied: int, awaited: int, usable: int, holds: bool
) -> None:
    assert fits(100, copied, awaited, usable) == holds
