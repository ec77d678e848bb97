"""The next step by which a future replica becomes a copy of its broker's present replica (D11).

The future replica copies the present replica as a follower copies its leader. The two logs are
compared by leader epoch (V32): the future replica truncates records that the present replica has
truncated. If the present log begins above the end of the future log, the future replica drops its
records and begins at the start of the present log (V67). The future replica copies records up to
the log end, not the high watermark, because it will replace the whole present replica. This module
gets only the offsets and leader epochs of the logs. Source: ReplicaAlterLogDirsThread.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from tidelog.core.dataclass import dataclass
from tidelog.core.epochs import LeaderEpochs
from tidelog.core.errors import KafkaError
from tidelog.replication import truncation


class StepKind(Enum):
    """The action that a step takes on the future replica."""

    #: Append records of the present replica, from the step's offset on, to the future replica.
    COPY = "copy"
    #: Remove the future replica's records at or beyond the step's offset.
    TRUNCATE = "truncate"
    #: Drop all records of the future replica, and restart it at the step's offset.
    RESTART = "restart"
    #: Do nothing: the future replica has every record of the present replica, and no other record.
    CAUGHT_UP = "caught up"


class Step(NamedTuple):
    """One step of the copy of a replica to another directory, with the step's offset."""

    kind: StepKind
    offset: int


@dataclass(frozen=True, slots=True)
class LogExtent:
    """The offsets and leader epochs of a log, on which the next step depends."""

    log_start_offset: int
    log_end_offset: int
    epochs: LeaderEpochs


def next_step(present: LogExtent, future: LogExtent) -> Step:
    """Return the step that brings the future replica closer to the present replica."""
    start, end = present.log_start_offset, present.log_end_offset
    if future.log_end_offset < start or future.log_start_offset > start:
        return Step(StepKind.RESTART, start)
    latest_epoch = future.epochs.latest_epoch
    try:
        diverging = truncation.diverging_epoch(
            present.epochs, end, latest_epoch, future.log_end_offset
        )
    except KafkaError:
        # The leader epochs of the two logs show no record that both logs have, so the future
        # replica starts over.
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
    """Return whether the remaining bytes of a replica fit into a directory.

    `copied_bytes` of the replica are already in the directory; `awaited_bytes` are the remaining
    bytes of other moves to the directory.
    """
    return awaited_bytes + max(0, replica_bytes - copied_bytes) <= usable_bytes
