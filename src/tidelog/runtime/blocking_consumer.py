"""Blocking consumers over `tidelog.client.consuming`: poll, commit, close.

A consumer makes its calls through a BlockingClient, which the caller closes after the consumer. A
group member has an extra thread, with connections of its own, that sends heartbeats between polls.
A member that does not poll for `max_poll_interval_ms` loses its membership and its uncommitted
progress.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from typing import Protocol

from tidelog.client.consuming import ConsumedRecord, GroupConsumer, PartitionConsumer, Skip
from tidelog.client.steps import Operation, T
from tidelog.core.errors import TidelogError
from tidelog.core.types import TopicPartition

_NO_LIMIT = sys.maxsize


class _Driver(Protocol):
    """A runner of operations, such as BlockingClient."""

    def run(self, operation: Operation[T]) -> T:
        """Execute the calls of an operation until it returns."""
        ...


class BlockingConsumer:
    """A consumer of partitions from the offsets given to `seek`."""

    def __init__(self, client: _Driver, partitions: PartitionConsumer) -> None:
        self._client = client
        self._partitions = partitions

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The offset of the next record that `poll` returns, by partition."""
        return self._partitions.positions

    @property
    def is_at_end(self) -> bool:
        """Whether `poll` has returned all records that were readable at the last fetch."""
        return self._partitions.is_at_end

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Set the position of a partition."""
        self._partitions.seek(tp, offset)

    def poll(self, max_records: int = _NO_LIMIT, max_wait_ms: int = 500) -> list[ConsumedRecord]:
        """Return the next records; empty if no record arrives in time.

        Raises BlockingClient's errors.
        """
        return self._client.run(self._partitions.poll(max_records, max_wait_ms))

    def take_skips(self) -> list[Skip]:
        """Return the offsets skipped as unreadable since the last call."""
        skips = list(self._partitions.skips)
        self._partitions.skips.clear()
        return skips


class Background:
    """A thread that calls `beat` repeatedly; `beat` returns the pause in ms to the next call."""

    def __init__(self, beat: Callable[[], int], close: Callable[[], None]) -> None:
        self._beat = beat
        self._close = close
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start the thread unless it runs."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """End the thread and wait for its end; the wait is short, as each call has a timeout."""
        if self._thread is not None:
            self._ending.set()
            self._thread.join()
            self._thread = None
            self._ending.clear()

    def _run(self) -> None:
        try:
            delay_ms = 0
            while not self._ending.wait(delay_ms / 1000):
                delay_ms = self._beat()
        finally:
            self._close()


class BlockingGroupConsumer(BlockingConsumer):
    """A consumer of the partitions that its group assigns to it.

    The context manager commits and leaves the group at the end; after an exception in the block, it
    leaves without a commit.
    """

    def __init__(self, client: _Driver, consumer: GroupConsumer, background: Background) -> None:
        super().__init__(client, consumer.partitions)
        self._consumer = consumer
        self._background = background

    def __enter__(self) -> BlockingGroupConsumer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._background.end()
            with contextlib.suppress(TidelogError):  # report only the `with` block's error
                self._client.run(self._consumer.member.leave())

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the group has assigned to this member."""
        return self._consumer.member.assignment

    @property
    def generation(self) -> int:
        """The group generation of this member; -1 without a membership."""
        return self._consumer.member.generation

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Set the position of an assigned partition; raise ValueError for any other partition."""
        if tp not in self.assignment:
            raise ValueError(f"{tp} is not assigned to this member of the group")
        super().seek(tp, offset)

    def poll(self, max_records: int = _NO_LIMIT, max_wait_ms: int = 500) -> list[ConsumedRecord]:
        """Rejoin the group if due, mark the member as alive, and return records."""
        records = self._client.run(self._consumer.poll(max_records, max_wait_ms))
        if self._consumer.member.options.heartbeat_interval_ms:
            self._background.begin()
        return records

    def commit(self) -> bool:
        """Commit the offsets of returned records; return False if the membership was lost."""
        return self._client.run(self._consumer.commit())

    def close(self) -> None:
        """Commit and leave the group."""
        try:
            self._client.run(self._consumer.close())
        finally:
            self._background.end()
