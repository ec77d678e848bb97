"""Reads from the disk for waiting fetches, by log directory, so that one cannot take all the room.

A read holds part of the budget of unread responses until it is done. On a device that hangs it is
never done. So the reads of one directory hold a bounded part, all directories together half of the
budget. While a directory has used up its part, or has finished no read for `HUNG_MS`, fetches get
of it only what the page cache has. They respond with records of other directories, and look again
when a read of that directory has ended. Knows no log and no disk: fetches report their reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tidelog.core.ports import Clock

#: A directory that finishes no read for this time gets no read of a fetch until it finishes one. A
#: fetch that has waited for this time responds without the missing records. The time is below the
#: timeouts of clients and followers (`request.timeout.ms`, `replica.socket.timeout.ms`: 30 s).
HUNG_MS: Final = 10_000


#: Has a fetch look again that lacks records of a directory, which may not be read for it now.
LookAgain = Callable[[], object]


class _Directory:
    """The reads under way of one directory."""

    __slots__ = ("count", "progress_ms", "size_bytes")

    def __init__(self, now_ms: int) -> None:
        self.count = 0
        self.size_bytes = 0
        #: When the last read ended, or the first of the pending reads began.
        self.progress_ms = now_ms


class DiskReads:
    """The pending reads, by directory, for the fetches of one budget."""

    __slots__ = ("_clock", "_directories", "_max_bytes", "_waiting")

    def __init__(self, clock: Clock, max_bytes: int) -> None:
        """`max_bytes`: with so many under way, a directory gets no further read."""
        self._clock = clock
        self._max_bytes = max_bytes
        self._directories: dict[str, _Directory] = {}
        self._waiting: dict[str, dict[LookAgain, None]] = {}

    def may_begin(self, directory: str) -> bool:
        """Return whether a fetch may have records read from this directory's disk."""
        reads = self._directories.get(directory)
        return reads is None or (
            reads.size_bytes < self._max_bytes
            and self._clock.monotonic_ms() - reads.progress_ms < HUNG_MS
        )

    def begin(self, directory: str, size_bytes: int) -> None:
        """Note the beginning of a read of at most `size_bytes`."""
        reads = self._directories.get(directory)
        if reads is None:
            reads = self._directories[directory] = _Directory(self._clock.monotonic_ms())
        reads.count += 1
        reads.size_bytes += size_bytes

    def ended(self, directory: str, size_bytes: int) -> None:
        """Note the end of a read; fetches that wait for the directory try again."""
        reads = self._directories[directory]
        reads.count -= 1
        reads.size_bytes -= size_bytes
        reads.progress_ms = self._clock.monotonic_ms()
        if not reads.count:
            assert not reads.size_bytes, "what was read is given back"
            del self._directories[directory]
        waiting = self._waiting.get(directory)
        # Each looks once: one that has to wait on comes behind the others.
        for _ in range(len(waiting or ())):
            if not waiting or not self.may_begin(directory):
                break
            look_again = next(iter(waiting))
            del waiting[look_again]
            look_again()
        if not waiting:
            self._waiting.pop(directory, None)

    def wait(self, directory: str, look_again: LookAgain) -> None:
        """Let a fetch look again when the directory may be read."""
        self._waiting.setdefault(directory, {})[look_again] = None

    def leave(self, directory: str, look_again: LookAgain) -> None:
        """Forget a fetch that waits no longer."""
        waiting = self._waiting.get(directory, {})
        waiting.pop(look_again, None)
        if not waiting:
            self._waiting.pop(directory, None)
