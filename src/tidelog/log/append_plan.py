"""One append from its plan to its result.

A plan says what an append will be once it is written, and how to undo it. It holds its caller's
buffer: the caller keeps the memory valid until the completion is done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tidelog.core.completion import Completion
from tidelog.core.errors import StorageError
from tidelog.core.ports import Buffer
from tidelog.log.producer_state import Undo
from tidelog.log.refused_batches import SentBatch


@dataclass(slots=True)
class AppendInfo:
    """The result of an append."""

    base_offset: int
    last_offset: int
    #: Timestamp that the log gave all records, -1 unless the topic says LogAppendTime.
    log_append_time_ms: int
    record_count: int
    size_bytes: int
    leader_epoch: int
    #: An idempotent producer had sent the batch before: offsets are those of the original (V38).
    duplicate: bool = False
    #: The batch among those of its idempotent producer; None of another producer, or of a leader.
    sent: SentBatch | None = None


class NotFlushedError(StorageError):
    """A batch is stored, and the flush that it needed has failed; `sent` as in AppendInfo."""

    def __init__(self, error: StorageError, sent: SentBatch | None) -> None:
        super().__init__(error.directory, error.operation, error.path, error.errno, error.at_ms)
        self.args = error.args
        self.sent = sent


class PlannedBatch(NamedTuple):
    """The fields of a batch that applying it needs."""

    base_offset: int
    last_offset: int
    size_bytes: int
    max_timestamp_ms: int


class AppendPlan:
    """One append between `plan_*` and the end of its write."""

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
        #: Where the log ended before: below the first batch where the leader's log has a gap.
        self.start_offset = info.base_offset
        #: The leader's log has gaps before or between these batches.
        self.has_gap = False
        self.completion: Completion[AppendInfo] = Completion()
        #: Producer entries before each batch, in order.
        self.undos: list[Undo] = []
        #: Leader epochs before this append, where it added one.
        self.epochs_before: list[tuple[int, int]] | None = None
