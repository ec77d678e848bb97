"""The reads from disk of one fetch, and their bytes in the response budget.

A fetch reserves room in the response budget for its reads until the response is sent or the
connection is closed. A read counts as a pending read of its directory until the disk has completed
it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from tidelog.core.completion import Completion

if TYPE_CHECKING:
    from tidelog.broker.replicas.fetching.fetch_sessions import SessionPartition
    from tidelog.core.response_budget import ResponseRoom
    from tidelog.log.segment_reads import LogSlice
    from tidelog.wire.messages.fetch import PartitionData


class DiskRead:
    """A read from disk for one partition; it remembers the leadership in which it began."""

    __slots__ = (
        "_number", "_partition", "_role", "answer", "completion", "directory", "item", "size_bytes",
    )  # fmt: skip

    def __init__(
        self,
        item: SessionPartition,
        answer: PartitionData,
        completion: Completion[LogSlice],
        size_bytes: int,
    ) -> None:
        """`size_bytes` is the maximum size of the read."""
        assert item.watched is not None, "what is read is watched"
        self.item = item
        self.answer = answer
        self.completion = completion
        self.size_bytes = size_bytes
        self.directory = item.watched.directory.path
        self._partition = item.watched
        self._role = item.watched.role
        self._number = 0

    def begin(self, now_ms: int) -> None:
        """Count the read among the pending reads of its leadership (F11)."""
        leadership = self._role.leadership
        if leadership is not None:
            self._number = leadership.reads_under_way.begin(now_ms)

    def end(self) -> None:
        """Remove the read from the pending reads of its leadership."""
        leadership = self._role.leadership
        if leadership is not None and self._number:
            leadership.reads_under_way.end(self._number)

    @property
    def is_over(self) -> bool:
        """Whether the leadership in which the read began has ended."""
        return self._partition.role is not self._role


class FetchReads:
    """The disk reads of one fetch, and the room that they reserve in the response budget."""

    __slots__ = ("_reserved_bytes", "_room", "under_way")

    def __init__(self, room: ResponseRoom) -> None:
        self._room = room
        #: Bytes reserved in the response budget until the response is sent.
        self._reserved_bytes = 0
        #: Number of reads that are not complete.
        self.under_way = 0

    def begin(
        self, reads: Sequence[DiskRead], size_bytes: int, done: Callable[[DiskRead], None]
    ) -> None:
        """Call `done` when each of these reads ends.

        These reads and the fetch's earlier reads together return at most `size_bytes`.
        """
        self.under_way = len(reads)
        self._reserved_bytes = size_bytes
        self._room.take(size_bytes)
        for read in reads:
            self._room.reads.begin(read.directory, read.size_bytes)
        for read in reads:
            read.completion.then(partial(self._done, read, done))

    def _done(
        self, read: DiskRead, done: Callable[[DiskRead], None], _: Completion[LogSlice]
    ) -> None:
        self.under_way -= 1
        if not self.under_way:
            # From here on the connection counts these bytes, as bytes that its peer has not
            # received.
            self.release()
        done(read)
        # Call this only after `done`: this fetch responds before others that wait for the
        # directory.
        self._room.reads.ended(read.directory, read.size_bytes)

    def release(self) -> None:
        """Release the reserved bytes, because the response was sent or the connection closed."""
        reserved_bytes, self._reserved_bytes = self._reserved_bytes, 0
        if reserved_bytes:
            self._room.take(-reserved_bytes)
