"""The end of a target partition that no log entry covers: what a run that ended early had stored.

Only the copy writes to the target, so each record of the tail must be the next record of the
source: same key, value, headers and timestamp. Anything else is the writing of another program, and
the copy stops before it stores a record at an offset that the table does not expect.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from tidelog.core.errors import TidelogError
from tidelog.core.types import TopicPartition
from tidelog.records.reader import Record


class ForeignRecordsError(TidelogError):
    """Records in the target that the copy did not write."""


class TargetTail:
    """Records `[start, end)` of a target partition, read while they are compared."""

    def __init__(
        self, tp: TopicPartition, start: int, end: int, read: Callable[[int], Iterator[Record]]
    ) -> None:
        """`read` yields at least one record from an offset on, if there is one."""
        self._tp = tp
        self._position = start
        self._end = end
        self._read = read
        self._ahead: deque[Record] = deque()

    @property
    def is_over(self) -> bool:
        """Whether every record of the tail was compared."""
        return self._position >= self._end

    def take(self, expected: Sequence[Record]) -> int:
        """Return how many of the next source records the tail holds, the first ones.

        Raises ForeignRecordsError for a record that is another one.
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
