"""Limits on disk reads for fetches, so that no log directory takes the whole response budget.

The response budget limits the bytes of responses in memory (`response_budget`). A disk read holds
part of this budget until the read ends. A read on a device that hangs never ends, so the reads of
one directory hold a bounded part of the budget, and all reads together at most half. A directory is
blocked while its reads use up its part of the budget, or while its reads have made no progress for
`HUNG_MS`. Fetches from a blocked directory get only records that are in the page cache. If records
of a blocked directory are only on the disk, a fetch responds without these records, or tries again
when a read of the directory ends. This module accesses no log and no disk: fetches report their
reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tidelog.core.ports import Clock

#: A log directory counts as hung if it has pending reads and none has ended for this time. Fetches
#: begin no further reads in the directory until a read ends. A fetch that has waited for `HUNG_MS`
#: responds without the missing records. `HUNG_MS` is below the timeouts of clients and followers
#: (`request.timeout.ms`, `replica.socket.timeout.ms`: 30 s).
HUNG_MS: Final = 10_000


#: A function that retries a fetch that lacks records of a blocked directory.
LookAgain = Callable[[], object]


class _Directory:
    """The disk reads in one log directory that have not ended."""

    __slots__ = ("count", "progress_ms", "size_bytes")

    def __init__(self, now_ms: int) -> None:
        self.count = 0
        self.size_bytes = 0
        #: Time at which the last read ended; if no read has ended, the time at which the first
        #: pending read began.
        self.progress_ms = now_ms


class DiskReads:
    """The pending disk reads, by log directory, of the fetches that share one response budget."""

    __slots__ = ("_clock", "_directories", "_max_bytes", "_waiting")

    def __init__(self, clock: Clock, max_bytes: int) -> None:
        """A directory with `max_bytes` or more of pending reads may begin no further read."""
        self._clock = clock
        self._max_bytes = max_bytes
        self._directories: dict[str, _Directory] = {}
        self._waiting: dict[str, dict[LookAgain, None]] = {}

    def may_begin(self, directory: str) -> bool:
        """Return whether a fetch may begin a read from this directory's disk."""
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
        # Let each waiting fetch try once; a fetch that must wait again goes to the end of the
        # queue.
        for _ in range(len(waiting or ())):
            if not waiting or not self.may_begin(directory):
                break
            look_again = next(iter(waiting))
            del waiting[look_again]
            look_again()
        if not waiting:
            self._waiting.pop(directory, None)

    def wait(self, directory: str, look_again: LookAgain) -> None:
        """Call `look_again` when the directory may be read."""
        self._waiting.setdefault(directory, {})[look_again] = None

    def leave(self, directory: str, look_again: LookAgain) -> None:
        """Forget a fetch that no longer waits."""
        waiting = self._waiting.get(directory, {})
        waiting.pop(look_again, None)
        if not waiting:
            self._waiting.pop(directory, None)
