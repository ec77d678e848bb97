"""The return of memory to the system while a broker is idle.

Load makes the process grow, because the broker keeps buffers for reuse and the C library's
allocator keeps free memory. By default, each allocating thread gets its own arena of 64 MiB of
addresses, which grows with the thread's largest reads. A broker uses `MAX_ARENAS` for all threads,
and releases unused buffers and free pages at rest.

A process is at rest if it used little processor time during `LOOK_MS`. Without glibc, a release
frees only the buffers kept for reuse. A release blocks the loop, for 0.2 s with 10,000 replicas.
Because light traffic soon needs the released memory again, releases take at most 1 / `MIN_PAUSE` of
the loop's time.
"""

from __future__ import annotations

import ctypes
import gc
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tidelog.core.limits import MIB
from tidelog.core.ports import Clock

#: Time in ms between two checks of the process's load.
LOOK_MS: Final = 10_000
#: Share of a processor below which the process is at rest.
REST_LOAD: Final = 0.1
#: Growth of the process since the last release of memory, below which no release is worthwhile.
GROWTH_BYTES: Final = 4 * MIB
#: Minimum pause after a release of memory, as a multiple of the release's duration.
MIN_PAUSE: Final = 500
_PAGE_BYTES: Final = resource.getpagesize()
#: Number of malloc arenas that all threads share. With a single arena, threads wait for each other:
#: a broker that replicates batches of 1 KiB records takes a sixth more CPU time
#: (docs/measurements.md).
MAX_ARENAS: Final = 2
#: Option of mallopt: the number of arenas that threads share (malloc.h of glibc).
_M_ARENA_MAX: Final = -8
#: Argument of malloc_trim: bytes that stay free at the end of the heap.
_KEPT_BYTES: Final = MIB


def limit_arenas() -> bool:
    """Make all threads share `MAX_ARENAS` malloc arenas, if called before the first thread starts.

    Returns whether the C library can limit the number of arenas.
    """
    try:
        return bool(ctypes.CDLL(None).mallopt(_M_ARENA_MAX, MAX_ARENAS))
    except AttributeError:
        return False


def trim_heap() -> None:
    """Return free pages of the C library's allocator to the system."""
    try:
        ctypes.CDLL(None).malloc_trim(_KEPT_BYTES)
    except AttributeError:
        return


def resident_bytes() -> int:
    """Return the resident set size of this process in bytes; 0 if unknown."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


class MemoryAtRest:
    """A periodic check that releases memory when the process is at rest and has grown."""

    def __init__(
        self,
        clock: Clock,
        log: Callable[[str], None],
        *,
        trim: Callable[[], None] = trim_heap,
        resident: Callable[[], int] = resident_bytes,
        processor_s: Callable[[], float] = time.process_time,
    ) -> None:
        """`log` gets a line for operators; tests replace `trim`, `resident` and `processor_s`."""
        self._clock = clock
        self._log = log
        self._trim = trim
        self._resident = resident
        self._processor_s = processor_s
        self._releases: list[Callable[[], None]] = []
        self._floor_bytes = 0
        self._used_s = 0.0
        self._not_before_ns = 0

    def add(self, release: Callable[[], None]) -> None:
        """Register a function that releases buffers kept for reuse."""
        self._releases.append(release)

    def start(self) -> None:
        """Begin the periodic checks, which continue while the loop runs."""
        self._used_s = self._processor_s()
        self._clock.call_later(LOOK_MS, self._look)

    def _look(self) -> None:
        used_s = self._processor_s()
        load = (used_s - self._used_s) * 1000 / LOOK_MS
        before_bytes = self._resident()
        begin_ns = self._clock.monotonic_ns()
        has_grown = before_bytes >= self._floor_bytes + GROWTH_BYTES
        if load < REST_LOAD and has_grown and begin_ns >= self._not_before_ns:
            # An idle broker allocates too little to start a garbage collection, so data read for
            # closed connections would stay in reference cycles. The collection skips the objects
            # that the broker froze at its start.
            gc.collect()
            for release in self._releases:
                release()
            self._trim()
            self._floor_bytes = self._resident()
            end_ns = self._clock.monotonic_ns()
            self._not_before_ns = end_ns + MIN_PAUSE * (end_ns - begin_ns)
            took_ms = (end_ns - begin_ns) / 1e6
            self._log(
                f"memory at rest: gave back {(before_bytes - self._floor_bytes) / MIB:,.0f} MiB in "
                f"{took_ms:,.1f} ms; {self._floor_bytes / MIB:,.0f} MiB are resident"
            )
        self._floor_bytes = min(self._floor_bytes, before_bytes)
        self._used_s = self._processor_s()
        self._clock.call_later(LOOK_MS, self._look)
