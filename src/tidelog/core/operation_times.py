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
    #: How long the slow ones have taken together, those included that have not ended yet.
    slow_write_ns: int = 0
    slow_read_ns: int = 0

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


class OpenAges(NamedTuple):
    """For how long the write, the read and the other operation under way have been so.

    0 where no operation is open, at least 1 where one waits for a thread. Others are syncs,
    deletions and what else does not count.
    """

    write_ns: int = 0
    read_ns: int = 0
    other_ns: int = 0


class OperationTimes:
    """The counts of one lane. Its thread counts; the loop reads, and calls `report`."""

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
        #: Time from which on an operation is slow.
        self.limit_ns = NO_LIMIT_NS
        self.writes = 0
        self.reads = 0
        self.slow_writes = 0
        self.slow_reads = 0
        #: Time of the slow operations that have ended.
        self.slow_write_ns = 0
        self.slow_read_ns = 0
        #: The longest time of a slow operation since the owner reset it.
        self.longest_ns = 0
        #: A slow operation has ended, and the loop has not called `report` since.
        self.is_report_due = False
        #: Called on the loop after slow operations.
        self.on_slow: Callable[[], None] | None = None
        #: Called on the loop when an operation begins that the loop does not wait for.
        self.on_open: Callable[[], None] | None = None
        #: Returns the ages of the operations under way; set by the lane.
        self.open_ages: Callable[[], OpenAges] = OpenAges

    def wrote(self, time_ns: int) -> None:
        """Count a write."""
        self.writes += 1
        if time_ns >= self.limit_ns:
            self.was_slow_write(time_ns)

    def was_slow_write(self, time_ns: int) -> None:
        """Count a write, which `writes` contains, as a slow one."""
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
        """The counts so far. Operations that are open count with their age."""
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
        """Whether the write or the read under way has taken the limit already."""
        ages = self.open_ages()
        return max(ages.write_ns, ages.read_ns) >= self.limit_ns

    def _was_slow(self, time_ns: int) -> None:
        self.longest_ns = max(self.longest_ns, time_ns)
        self.is_report_due = True
