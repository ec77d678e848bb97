"""The reads from the disk of one fetch: what they hold of the budget, and of their directories.

A fetch holds the bytes that its reads will bring until the response leaves, or its connection is
gone: no part of the broker then keeps what is read. A directory counts a read until the disk is
done with it.
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
    """A read from the disk for one partition, under the leadership in which it began."""

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
        """`size_bytes`: what it brings at most."""
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
        """Count the read among those of its leadership (F11)."""
        leadership = self._role.leadership
        if leadership is not None:
            self._number = leadership.reads_under_way.begin(now_ms)

    def end(self) -> None:
        """Count the read no longer."""
        leadership = self._role.leadership
        if leadership is not None and self._number:
            leadership.reads_under_way.end(self._number)

    @property
    def is_over(self) -> bool:
        """Whether that leadership has ended."""
        return self._partition.role is not self._role


class FetchReads:
    """The reads under way for one fetch."""

    __slots__ = ("_reserved_bytes", "_room", "under_way")

    def __init__(self, room: ResponseRoom) -> None:
        self._room = room
        #: Bytes that count in the room until they are sent.
        self._reserved_bytes = 0
        #: Number of reads that are not done.
        self.under_way = 0

    def begin(
        self, reads: Sequence[DiskRead], size_bytes: int, done: Callable[[DiskRead], None]
    ) -> None:
        """Await reads, which bring `size_bytes` at most with what is read already."""
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
            # From here on the connection counts the bytes that its peer has not taken.
            self.release()
        done(read)
        # Fetches that wait for the directory come after this one's response.
        self._room.reads.ended(read.directory, read.size_bytes)

    def release(self) -> None:
        """Hold nothing of the room any more: the response leaves, or no client waits for it."""
        reserved_bytes, self._reserved_bytes = self._reserved_bytes, 0
        if reserved_bytes:
            self._room.take(-reserved_bytes)
