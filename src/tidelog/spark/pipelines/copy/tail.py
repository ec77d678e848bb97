"""The end of a target partition that the offset table does not cover, left by an aborted run.

Only the copy writes to the target, so each record of the tail must equal the next record of the
source in key, value, headers and timestamp. A record that differs from the source comes from
another program. The copy stops at a record that differs, so that no copied record gets an
unexpected offset.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from tidelog.core.errors import TidelogError
from tidelog.core.types import TopicPartition
from tidelog.records.reader import Record


class ForeignRecordsError(TidelogError):
    """The error for records in the target that the copy did not write."""


class TargetTail:
    """Records `[start, end)` of a target partition, read while they are compared."""

    def __init__(
        self, tp: TopicPartition, start: int, end: int, read: Callable[[int], Iterator[Record]]
    ) -> None:
        """Prepare a comparison; `read` yields the partition's next records from an offset on."""
        self._tp = tp
        self._position = start
        self._end = end
        self._read = read
        self._ahead: deque[Record] = deque()

    @property
    def is_over(self) -> bool:
        """Whether every record of the target's tail has been compared."""
        return self._position >= self._end

    def take(self, expected: Sequence[Record]) -> int:
        """Return how many records at the start of `expected` the tail of the target holds.

        Raises ForeignRecordsError if a record of the tail differs from the expected record.
        """
        for count, record in enumerate(expected):
            if self.is_over:
                return count
            found = self._next()
            if _content(found) != _content(record):
                raise ForeignRecordsError(
                    f"{self._tp} offset {found.offset} of the target is not the copy of source"
                    f" offset {record.offset}: another program writes to the target, or compaction"
                    " changed the source while no copy ran. Copy into a new topic, with a new"
                    " directory of the copy"
                )
        return len(expected)

    def _next(self) -> Record:
        if not self._ahead:
            self._ahead.extend(self._read(self._position))
        record = self._ahead.popleft() if self._ahead else None
        if record is None or record.offset != self._position:
            got = "none" if record is None else record.offset
            raise ForeignRecordsError(
                f"{self._tp} of the target has no record at offset {self._position} (the next is"
                f" {got}): markers of transactions or compaction changed the target. Copy into a"
                " topic that only the copy writes to, without compaction until the copy is done"
            )
        self._position += 1
        return record


def _content(record: Record) -> tuple[object, ...]:
    return record.key, record.value, record.timestamp_ms, list(record.headers)
