"""Number of file operations of one log directory, and of those that took a limit or longer (D13).

The lane of a directory counts, because only the lane knows how long the disk took: an operation
also waits for other operations and for the loop. Two kinds count. Writes are appends and other
short operations, which clients and followers wait for. Reads wait for the device. Syncs, deletions
and recovery do not count, because their time depends on their size.

An operation costs a comparison and an addition. Each kind has one writer at a time: writes run on
the loop or on one thread, reads on another one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

#: No operation takes so long: nothing is slow.
NO_LIMIT_NS: Final = 1 << 62


class OperationCounts(NamedTuple):
    """Number of operations, and of slow ones among them, by kind."""

    writes: int = 0
    slow_writes: int = 0
    reads: int = 0
    slow_reads: int = 0

    def since(self, earlier: OperationCounts) -> OperationCounts:
        """Return what was added to an earlier count."""
        return OperationCounts(*(now - then for now, then in zip(self, earlier, strict=True)))

    @property
    def operations(self) -> int:
        """Number of operations of both kinds."""
        return self.writes + self.reads

    @property
    def slow(self) -> int:
        """Number of slow operations of both kinds."""
        return self.slow_writes + self.slow_reads


class OperationTimes:
    """The counts of one lane. Its thread counts; the loop reads, and calls `report`."""

    __slots__ = (
        "is_report_due",
        "limit_ns",
        "longest_ns",
        "on_slow",
        "reads",
        "slow_reads",
        "slow_writes",
        "writes",
    )

    def __init__(self) -> None:
        #: Time from which on an operation is slow.
        self.limit_ns = NO_LIMIT_NS
        self.writes = 0
        self.reads = 0
        self.slow_writes = 0
        self.slow_reads = 0
        #: The longest time of a slow operation since the owner reset it.
        self.longest_ns = 0
        #: A slow operation has ended, and the loop has not called `report` since.
        self.is_report_due = False
        #: Called on the loop after slow operations.
        self.on_slow: Callable[[], None] | None = None

    def wrote(self, time_ns: int) -> None:
        """Count a write."""
        self.writes += 1
        if time_ns >= self.limit_ns:
            self.was_slow_write(time_ns)

    def was_slow_write(self, time_ns: int) -> None:
        """Count a write, which `writes` contains, as a slow one."""
        self.slow_writes += 1
        self._was_slow(time_ns)

    def read(self, time_ns: int) -> None:
        """Count a read."""
        self.reads += 1
        if time_ns >= self.limit_ns:
            self.slow_reads += 1
            self._was_slow(time_ns)

    def report(self) -> None:
        """Call `on_slow` if a slow operation has ended. Loop only."""
        if self.is_report_due:
            self.is_report_due = False
            if self.on_slow is not None:
                self.on_slow()

    @property
    def counts(self) -> OperationCounts:
        """The counts so far."""
        return OperationCounts(self.writes, self.slow_writes, self.reads, self.slow_reads)

    def _was_slow(self, time_ns: int) -> None:
        self.longest_ns = max(self.longest_ns, time_ns)
        self.is_report_due = True
