"""The plan of one append, until its result is known.

A plan holds the result of an append that is not written yet, and how to undo the append. A plan
refers to the caller's buffer, which the caller must not reuse before the append's completion is
done.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.core.completion import Completion
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import StorageError
from tidelog.core.ports import Buffer
from tidelog.log.producer_state import Undo
from tidelog.log.refused_batches import SentBatch


@dataclass(slots=True)
class AppendInfo:
    """The result of one append: the offsets and the timestamp that the records got."""

    base_offset: int
    last_offset: int
    #: Timestamp that the log gave all records; -1 unless the topic uses LogAppendTime.
    log_append_time_ms: int
    record_count: int
    size_bytes: int
    leader_epoch: int
    #: Whether the batch repeats a stored batch of an idempotent producer; the offsets are then the
    #: offsets of the stored batch (V38).
    duplicate: bool = False
    #: Producer id, epoch and sequence numbers of an idempotent producer's batch; None if the
    #: producer is not idempotent, or if the append copies a leader's batch.
    sent: SentBatch | None = None


class NotFlushedError(StorageError):
    """The error of an append whose batch was written, but whose required flush failed; for `sent`
    see AppendInfo.
    """

    def __init__(self, error: StorageError, sent: SentBatch | None) -> None:
        super().__init__(error.directory, error.operation, error.path, error.errno, error.at_ms)
        self.args = error.args
        self.sent = sent


class PlannedBatch(NamedTuple):
    """The fields of a batch that the log needs to apply the batch after the write."""

    base_offset: int
    last_offset: int
    size_bytes: int
    max_timestamp_ms: int


class AppendPlan:
    """One append, from its planning until the end of its write."""

    __slots__ = (
        "batches",
        "buffer",
        "completion",
        "epochs_before",
        "has_gap",
        "info",
        "max_timestamp_ms",
        "now_ms",
        "start_offset",
        "undos",
    )

    def __init__(
        self,
        buffer: Buffer,
        batches: list[PlannedBatch],
        info: AppendInfo,
        max_timestamp_ms: int,
        now_ms: int,
    ) -> None:
        self.buffer = buffer
        self.batches = batches
        self.info = info
        self.max_timestamp_ms = max_timestamp_ms
        self.now_ms = now_ms
        #: The log end before this append. It is smaller than the first batch's base offset if the
        #: leader's log has a gap before that batch.
        self.start_offset = info.base_offset
        #: Whether the leader's log has gaps before or between the planned batches.
        self.has_gap = False
        self.completion: Completion[AppendInfo] = Completion()
        #: For each batch, the argument of `ProducerState.undo`, which undoes the batch's change of
        #: the producer state.
        self.undos: list[Undo] = []
        #: The log's leader epochs before this append; None if the append added no epoch.
        self.epochs_before: list[tuple[int, int]] | None = None
