"""What a future replica does next to become a copy of the present one of its broker (D11).

The future replica follows the present one as a follower does its leader. Histories are compared by
leader epoch (V32): it truncates what the present one has truncated. Where that one begins later
than it ends, it starts over (V67). It copies up to the log end, not the high watermark: the copy
takes the place of the original as a whole. Knows logs by their offsets and epoch histories only.
Source: ReplicaAlterLogDirsThread.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from tidelog.core.epochs import LeaderEpochs
from tidelog.core.errors import KafkaError
from tidelog.replication import truncation


class StepKind(Enum):
    """What to do with the future replica."""

    #: Append the records of the present one from the offset on.
    COPY = "copy"
    #: Remove what lies at or beyond the offset.
    TRUNCATE = "truncate"
    #: Drop everything, and begin at the offset.
    RESTART = "restart"
    #: Nothing: it has every record of the present one, and no other.
    CAUGHT_UP = "caught up"


class Step(NamedTuple):
    """One step, and the offset that it is about."""

    kind: StepKind
    offset: int


@dataclass(frozen=True, slots=True)
class LogExtent:
    """A log as the comparison sees it; both offsets are those of `LogState`."""

    log_start_offset: int
    log_end_offset: int
    epochs: LeaderEpochs


def next_step(present: LogExtent, future: LogExtent) -> Step:
    """Return what brings the future replica closer to the present one."""
    start, end = present.log_start_offset, present.log_end_offset
    if future.log_end_offset < start or future.log_start_offset > start:
        return Step(StepKind.RESTART, start)
    latest_epoch = future.epochs.latest_epoch
    try:
        diverging = truncation.diverging_epoch(
            present.epochs, end, latest_epoch, future.log_end_offset
        )
    except KafkaError:
        # The present replica knows nothing of these records.
        return Step(StepKind.RESTART, start)
    if diverging is not None:
        offset = truncation.truncation_offset(diverging, future.epochs, future.log_end_offset)
        if offset < max(start, future.log_start_offset):
            return Step(StepKind.RESTART, start)
        return Step(StepKind.TRUNCATE, offset)
    if future.log_end_offset > end:
        return Step(StepKind.TRUNCATE, end)
    if future.log_end_offset < end:
        return Step(StepKind.COPY, future.log_end_offset)
    return Step(StepKind.CAUGHT_UP, end)


def fits(replica_bytes: int, copied_bytes: int, awaited_bytes: int, usable_bytes: int) -> bool:
    """Return whether the rest of a replica fits into a directory.

    `copied_bytes` of it are there; `awaited_bytes` are the rest of other moves to the directory.
    """
    return awaited_bytes + max(0, replica_bytes - copied_bytes) <= usable_bytes
