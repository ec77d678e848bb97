"""When a log directory counts as slow, and when as fast again (D13).

The p99 of a kind of operations is over the threshold if more than one in a hundred of them took
that long. So two counters decide, and no times are kept. Writes and reads are judged apart:
thousands of writes into the page cache must not hide that every read waits.

A window is judged when it has enough operations; until then it goes on. The slower a disk is, the
fewer operations end in a window, so time counts as well: a window is over the threshold if slow
operations took half of it. Those that have not ended count with their age. A directory turns slow
after `SLOW_WINDOWS` windows in a row over the threshold, and fast after `FAST_WINDOWS` under it.
More windows are needed for the way back, so that a directory at the threshold does not alternate.
A directory that is not slow is watched only from its first slow operation to its first good window.

Decides only: reads no clock, makes no call. Source: D13 (open ground).
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from tidelog.core.operation_times import OperationCounts

#: Operations of one kind that a window needs: one slow operation among them is a p99 over the
#: threshold.
LEAST_OPERATIONS: Final = 10
SLOW_WINDOWS: Final = 3
FAST_WINDOWS: Final = 6
#: A watch without a slow operation for so many windows ends: an idle directory is not slow.
MOST_UNDECIDED: Final = 6
#: More than one operation in this number is slow: the p99 is over the threshold.
_ONE_IN: Final = 100


class SlowVerdict(Enum):
    """What follows from a window."""

    #: Watch another window.
    WATCH = "watch"
    #: The window lacks operations: watch on, and make operations if the directory is slow.
    UNDECIDED = "undecided"
    #: Watch no longer, until the next slow operation.
    REST = "rest"
    TURNED_SLOW = "turned slow"
    TURNED_FAST = "turned fast"


class SlowDirectory:
    """Whether one log directory is slow."""

    __slots__ = ("_counts", "_run", "_undecided", "is_slow")

    def __init__(self) -> None:
        self.is_slow = False
        #: Windows in a row that contradict `is_slow`.
        self._run = 0
        #: Windows in a row without enough operations and without a slow one.
        self._undecided = 0
        #: Operations of all windows since the last one with enough.
        self._counts = OperationCounts()

    def ended(self, window: OperationCounts, window_ns: int = 0) -> SlowVerdict:
        """Judge a window that has ended, by the operations in it; length 0: by numbers alone."""
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
        """Forget everything: the directory is not slow."""
        self.is_slow = False
        self._run = self._undecided = 0
        self._counts = OperationCounts()

    def _lacks_operations(self, window: OperationCounts) -> SlowVerdict:
        # Where each operation takes longer than a window, few of them end.
        is_stuck = window.slow or window.slow_write_ns or window.slow_read_ns
        self._undecided = 0 if is_stuck else self._undecided + 1
        if self.is_slow or self._undecided < MOST_UNDECIDED:
            return SlowVerdict.UNDECIDED
        self.reset()
        return SlowVerdict.REST


def is_over(counts: OperationCounts) -> bool:
    """Return whether the p99 of a kind with enough operations is over the threshold."""
    return _is_kind_over(counts.writes, counts.slow_writes) or _is_kind_over(
        counts.reads, counts.slow_reads
    )


def takes_up(window: OperationCounts, window_ns: int) -> bool:
    """Return whether slow operations of one kind took at least half of a window."""
    return 0 < window_ns <= 2 * max(window.slow_write_ns, window.slow_read_ns)


def proves_fast(counts: OperationCounts) -> bool:
    """Return whether a directory with these operations is fast; an idle one proves nothing."""
    return counts.operations >= LEAST_OPERATIONS and counts.slow * _ONE_IN <= counts.operations


def _is_open(counts: OperationCounts) -> bool:
    """Return whether more operations may still prove a kind slow, or the directory fast."""
    return (
        max(counts.writes, counts.reads) < LEAST_OPERATIONS
        or 0 < counts.slow_writes <= counts.writes < LEAST_OPERATIONS
        or 0 < counts.slow_reads <= counts.reads < LEAST_OPERATIONS
    )


def _is_kind_over(operations: int, slow: int) -> bool:
    return operations >= LEAST_OPERATIONS and slow * _ONE_IN > operations
