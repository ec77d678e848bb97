"""Counts of one log directory's file operations, and of its slow operations (D13).

The code that runs an operation (`core.ports.Lane`) also counts and times the operation. A
measurement by the caller would include the wait for other operations and for the loop, and not only
the disk's time. Only writes and reads are counted. Writes are appends and other short operations,
for which clients and followers wait. Only reads from the device count as reads, not reads from the
page cache. Syncs, deletions and recovery are not counted, because their time depends on their size.

Counting an operation costs a comparison and an addition. Each kind of count has one writer at a
time: writes run on the loop or on one thread, and reads on another thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

#: A threshold so long that no operation counts as slow.
NO_LIMIT_NS: Final = 1 << 62


class OperationCounts(NamedTuple):
    """Number of operations, and number of slow operations among them, by kind."""

    writes: int = 0
    slow_writes: int = 0
    reads: int = 0
    slow_reads: int = 0
    #: Total time of the slow writes, including writes that have not ended.
    slow_write_ns: int = 0
    #: Total time of the slow reads, including reads that have not ended.
    slow_read_ns: int = 0

    def since(self, earlier: OperationCounts) -> OperationCounts:
        """Return how much each count has grown since `earlier`."""
        return OperationCounts(*(now - then for now, then in zip(self, earlier, strict=True)))

    @property
    def operations(self) -> int:
        """Number of writes and reads together."""
        return self.writes + self.reads

    @property
    def slow(self) -> int:
        """Number of slow writes and slow reads together."""
        return self.slow_writes + self.slow_reads


class OpenAges(NamedTuple):
    """How long ago the write, the read and the other operation under way began.

    An age is 0 if no operation of the kind is under way. An operation that waits for a thread is
    under way with an age of at least 1 ns. `other_ns` is for syncs, deletions and further
    operations that are not counted.
    """

    write_ns: int = 0
    read_ns: int = 0
    other_ns: int = 0


class OperationTimes:
    """Operation counts of one log directory, updated by its thread and read by the loop."""

    __slots__ = (
        "is_report_due",
        "limit_ns",
        "longest_ns",
        "on_open",
        "on_slow",
        "open_ages",
        "reads",
        "slow_read_ns",
        "slow_reads",
        "slow_write_ns",
        "slow_writes",
        "writes",
    )

    def __init__(self) -> None:
        #: Duration from which an operation counts as slow.
        self.limit_ns = NO_LIMIT_NS
        self.writes = 0
        self.reads = 0
        self.slow_writes = 0
        self.slow_reads = 0
        #: Total time of the slow writes that have ended.
        self.slow_write_ns = 0
        #: Total time of the slow reads that have ended.
        self.slow_read_ns = 0
        #: The duration of the longest slow operation since the watch on the directory's speed last
        #: set `longest_ns` to 0.
        self.longest_ns = 0
        #: Whether a slow operation has ended since the loop last called `report`.
        self.is_report_due = False
        #: Function that is called on the loop after a slow operation has ended.
        self.on_slow: Callable[[], None] | None = None
        #: Function that is called on the loop when an operation begins on a thread.
        self.on_open: Callable[[], None] | None = None
        #: Function that returns the ages of the operations under way; set by the code that runs
        #: operations.
        self.open_ages: Callable[[], OpenAges] = OpenAges

    def wrote(self, time_ns: int) -> None:
        """Count a write."""
        self.writes += 1
        if time_ns >= self.limit_ns:
            self.was_slow_write(time_ns)

    def was_slow_write(self, time_ns: int) -> None:
        """Count a write as slow; `writes` already includes it."""
        self.slow_writes += 1
        self.slow_write_ns += time_ns
        self._was_slow(time_ns)

    def read(self, time_ns: int) -> None:
        """Count a read."""
        self.reads += 1
        if time_ns >= self.limit_ns:
            self.slow_reads += 1
            self.slow_read_ns += time_ns
            self._was_slow(time_ns)

    def report(self) -> None:
        """Call `on_slow` if a slow operation has ended. Loop only."""
        if self.is_report_due:
            self.is_report_due = False
            if self.on_slow is not None:
                self.on_slow()

    @property
    def counts(self) -> OperationCounts:
        """The counts so far; the total times include slow operations that are under way."""
        ages = self.open_ages()
        return OperationCounts(
            self.writes,
            self.slow_writes,
            self.reads,
            self.slow_reads,
            self.slow_write_ns + (ages.write_ns if ages.write_ns >= self.limit_ns else 0),
            self.slow_read_ns + (ages.read_ns if ages.read_ns >= self.limit_ns else 0),
        )

    @property
    def is_stuck(self) -> bool:
        """Whether the write or the read under way has already taken `limit_ns` or longer."""
        ages = self.open_ages()
        return max(ages.write_ns, ages.read_ns) >= self.limit_ns

    def _was_slow(self, time_ns: int) -> None:
        self.longest_ns = max(self.longest_ns, time_ns)
        self.is_report_due = True
