"""Planned appends: what an append will be once it is written, and how to take it back.

A plan holds its caller's buffer until it is written: the caller keeps the memory valid until the
completion is done. Pure values; `partition_log` moves them on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tidelog.core.completion import Completion
from tidelog.core.ports import Buffer
from tidelog.log.producer_state import Undo


@dataclass(slots=True)
class AppendInfo:
    """What became of an append."""

    base_offset: int
    last_offset: int
    #: Timestamp that the log gave all records, -1 unless the topic says LogAppendTime.
    log_append_time_ms: int
    record_count: int
    size_bytes: int
    leader_epoch: int
    #: An idempotent producer had sent it before: offsets are those of the original (V38).
    duplicate: bool = False


class PlannedBatch(NamedTuple):
    """What applying a batch needs of it."""

    base_offset: int
    last_offset: int
    size_bytes: int
    max_timestamp_ms: int


class Plan:
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


class BatchStarts:
    """Where the newest batches of the written segment start: reads at the log's end begin and end
    there, so that most need no search. Bounded; older ones are found through the index."""

    __slots__ = ("_offsets", "_positions")

    _LIMIT = 1024

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._positions: list[int] = []

    def add(self, offset: int, position: int) -> None:
        """A batch with this base offset starts at `position`, behind all others."""
        self._offsets.append(offset)
        self._positions.append(position)
        if len(self._offsets) > self._LIMIT:
            del self._offsets[: self._LIMIT // 2], self._positions[: self._LIMIT // 2]

    def position_of(self, offset: int) -> int:
        """Where the batch with this base offset starts, -1 when it is not remembered."""
        offsets = self._offsets
        low, high = 0, len(offsets)
        # The newest are asked for most.
        if high and offsets[-1] <= offset:
            return self._positions[-1] if offsets[-1] == offset else -1
        while low < high:
            middle = (low + high) // 2
            if offsets[middle] < offset:
                low = middle + 1
            else:
                high = middle
        if low < len(offsets) and offsets[low] == offset:
            return self._positions[low]
        return -1

    def clear(self) -> None:
        """Forget all: another segment is written, or the log was cut."""
        self._offsets.clear()
        self._positions.clear()
