"""Decisions whether a log directory is slow or fast again (D13).

Reads and writes are judged by their p99 latency: it is over the threshold if more than one in a
hundred operations took longer than the threshold. The decision therefore needs only the numbers of
all operations and of slow operations, not their durations. Writes and reads are counted separately,
because thousands of fast writes into the page cache must not hide slow reads.

A window of time is extended until it has enough operations for a decision. Because few operations
end in a window on a very slow disk, a window is also over the threshold if slow operations took
half of its time, including operations that are still under way. A directory becomes slow after
`SLOW_WINDOWS` consecutive windows over the threshold, and fast after `FAST_WINDOWS` under it.
`FAST_WINDOWS` is larger, so that a directory at the threshold does not change its state often. A
fast directory is watched from its first slow operation to its first window under the threshold.

This module reads no clock and makes no system call. Source: D13; Kafka has no such decision.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from tidelog.core.operation_times import OperationCounts

#: Number of reads, or of writes, that a window needs for a decision. Among ten operations, a single
#: slow operation puts the p99 over the threshold.
LEAST_OPERATIONS: Final = 10
SLOW_WINDOWS: Final = 3
FAST_WINDOWS: Final = 6
#: Number of windows of time without a slow operation after which a watch ends, because an idle
#: directory is not slow.
MOST_UNDECIDED: Final = 6
#: The p99 is over the threshold if more than one in `_ONE_IN` operations is slow.
_ONE_IN: Final = 100


class SlowVerdict(Enum):
    """The decision about a log directory at the end of a window of time."""

    #: The watch on the directory continues for another window of time.
    WATCH = "watch"
    #: The window of time had too few operations for a decision: the watch continues, with probes
    #: (test writes) if the directory is slow.
    UNDECIDED = "undecided"
    #: The watch on the directory ends, and begins again with the next slow operation.
    REST = "rest"
    TURNED_SLOW = "turned slow"
    TURNED_FAST = "turned fast"


class SlowDirectory:
    """The decision whether one log directory is slow."""

    __slots__ = ("_counts", "_run", "_undecided", "is_slow")

    def __init__(self) -> None:
        self.is_slow = False
        #: Number of consecutive windows whose result contradicts `is_slow`: over the threshold
        #: while fast, or under it while slow.
        self._run = 0
        #: Number of consecutive windows without enough operations and without a slow operation.
        self._undecided = 0
        #: Counts of the operations since the last window with enough operations for a decision.
        self._counts = OperationCounts()

    def ended(self, window: OperationCounts, window_ns: int = 0) -> SlowVerdict:
        """Decide whether the directory is slow, at the end of a window of `window_ns` (0 if
        unknown).
        """
        counts = self._counts = OperationCounts(
            *(before + now for before, now in zip(self._counts, window, strict=True))
        )
        is_over_now = is_over(counts) or takes_up(window, window_ns)
        if not is_over_now and _is_open(counts):
            return self._lacks_operations(window)
        self._undecided = 0
        self._counts = OperationCounts()
        if is_over_now == self.is_slow:
            self._run = 0
            return SlowVerdict.WATCH if self.is_slow else SlowVerdict.REST
        self._run += 1
        if self._run < (FAST_WINDOWS if self.is_slow else SLOW_WINDOWS):
            return SlowVerdict.WATCH
        self._run = 0
        self.is_slow = not self.is_slow
        return SlowVerdict.TURNED_SLOW if self.is_slow else SlowVerdict.TURNED_FAST

    def reset(self) -> None:
        """Forget all windows of operations; the directory counts as fast."""
        self.is_slow = False
        self._run = self._undecided = 0
        self._counts = OperationCounts()

    def _lacks_operations(self, window: OperationCounts) -> SlowVerdict:
        # A window with slow operations resets the number of undecided windows: such operations may
        # be few only because each takes longer than a window.
        is_stuck = window.slow or window.slow_write_ns or window.slow_read_ns
        self._undecided = 0 if is_stuck else self._undecided + 1
        if self.is_slow or self._undecided < MOST_UNDECIDED:
            return SlowVerdict.UNDECIDED
        self.reset()
        return SlowVerdict.REST


def is_over(counts: OperationCounts) -> bool:
    """Return whether reads or writes are numerous enough for a decision and have a p99 over the
    threshold.
    """
    return _is_kind_over(counts.writes, counts.slow_writes) or _is_kind_over(
        counts.reads, counts.slow_reads
    )


def takes_up(window: OperationCounts, window_ns: int) -> bool:
    """Return whether slow reads or slow writes took at least half of a window."""
    return 0 < window_ns <= 2 * max(window.slow_write_ns, window.slow_read_ns)


def proves_fast(counts: OperationCounts) -> bool:
    """Return whether the operations prove a directory fast; too few operations prove nothing."""
    return counts.operations >= LEAST_OPERATIONS and counts.slow * _ONE_IN <= counts.operations


def _is_open(counts: OperationCounts) -> bool:
    """Return whether too few operations were counted for a decision."""
    return (
        max(counts.writes, counts.reads) < LEAST_OPERATIONS
        or 0 < counts.slow_writes <= counts.writes < LEAST_OPERATIONS
        or 0 < counts.slow_reads <= counts.reads < LEAST_OPERATIONS
    )


def _is_kind_over(operations: int, slow: int) -> bool:
    return operations >= LEAST_OPERATIONS and slow * _ONE_IN > operations
