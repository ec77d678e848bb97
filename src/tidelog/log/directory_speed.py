"""The watch on the speed of one log directory: slow periods, probes and hangs (D13).

The directory's queue of file operations counts slow operations (`core.operation_times`), and
`slow_directories` decides whether the directory is slow. The watch begins with a slow operation,
and then evaluates one window of time after another, by a timer. A timer also checks operations that
have not ended. If a write takes longer than the hang limit, the device counts as hanging: the
directory and all waiting operations fail. Time during which the process was stopped (SIGSTOP) does
not count. Reads have no hang limit: slow reads remove no follower from the ISR (F5), and writes
reveal a hang. A sync or a deletion may take longer than the hang limit because it is large. In that
case, a small test write shows whether the device hangs.

If a slow directory has too few operations to measure its speed, for example because it has no
leaders, probes write, sync and read a small file. A probe syncs the file, because a write to the
page cache would not test the device. A failed sync of a probe fails the directory (D17), and a
probe on a full disk makes the directory read-only (D14). All calls are on the event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from tidelog.core.completion import Completion
from tidelog.core.operation_times import NO_LIMIT_NS, OperationCounts
from tidelog.core.ports import Files, Work
from tidelog.log import names
from tidelog.log.directory_disk import DirectoryDisk
from tidelog.log.directory_space import DirectorySpace
from tidelog.log.slow_directories import LEAST_OPERATIONS, SlowDirectory, SlowVerdict

_NS_PER_MS: Final = 1_000_000
#: The file that probes write to measure the disk; the next start removes it like any temporary
#: file.
_PROBE_FILE: Final = f"speed-probe{names.TEMPORARY}"
_PROBE: Final = bytes(4096)
#: The file that the broker writes to detect a hang while an operation without a hang limit runs.
_TOUCHED_FILE: Final = f"hang-probe{names.TEMPORARY}"
#: Number of checks of operations under way in each window of time.
_LOOKS_PER_WINDOW: Final = 4
_LOOKS_PER_HANG: Final = 10


class DirectorySpeed:
    """The watch on the speed of one log directory."""

    __slots__ = (
        "_began",
        "_counts_from_ms",
        "_decision",
        "_disk",
        "_hang_ms",
        "_is_looking",
        "_is_touching",
        "_is_watching",
        "_probes_left",
        "_slow_since_ms",
        "_space",
        "_touched_ms",
        "_window_ms",
        "last",
        "on_change",
        "on_still_slow",
        "periods",
        "threshold_ms",
    )

    def __init__(self, disk: DirectoryDisk, space: DirectorySpace) -> None:
        """The watch measures nothing before `configure`."""
        self._disk = disk
        self._space = space
        self._decision = SlowDirectory()
        self.threshold_ms = 0
        self._window_ms = 0
        self._is_watching = False
        #: If a write has not ended after this time in ms, the directory counts as hanging and
        #: fails; 0 for no limit.
        self._hang_ms = 0
        #: Whether a timer for the next check of operations under way is set.
        self._is_looking = False
        #: Time at which this process last continued after a stop (SIGSTOP). Time before
        #: `_counts_from_ms` is not part of the age of an operation.
        self._counts_from_ms = 0
        #: Whether a test write that detects hangs is under way. `_touched_ms` is the start time of
        #: the last such write.
        self._is_touching = False
        self._touched_ms = 0
        #: The counts of operations when the current window of time began.
        self._began = OperationCounts()
        self._probes_left = 0
        self._slow_since_ms = 0
        #: The counts of operations in the last window of time.
        self.last = OperationCounts()
        #: Number of times that the directory has become slow in this process.
        self.periods = 0
        #: Called when the directory becomes slow, and when it becomes fast again.
        self.on_change: Callable[[], None] | None = None
        #: Called after each window of time in which the directory stays slow.
        self.on_still_slow: Callable[[], None] | None = None
        disk.lane.times.on_slow = self._met_slow_operation
        disk.lane.times.on_open = self._operation_opened

    @property
    def is_slow(self) -> bool:
        """Whether the directory is slow."""
        return self._decision.is_slow

    @property
    def counts(self) -> OperationCounts:
        """The counts of the directory's operations so far."""
        return self._disk.lane.times.counts

    @property
    def slow_ms(self) -> int:
        """How long the directory has been slow, in ms; valid only while it is slow."""
        return self._disk.clock.monotonic_ms() - self._slow_since_ms

    @property
    def longest_ms(self) -> int:
        """The duration of the longest operation since the watch began."""
        return self._disk.lane.times.longest_ns // _NS_PER_MS

    @property
    def is_stuck(self) -> bool:
        """Whether an operation is under way that already counts as slow."""
        return self._disk.lane.times.is_stuck

    def configure(self, threshold_ms: int, window_ms: int, hang_ms: int = 0) -> None:
        """Set the threshold of slow operations (0 ends the watch) and the length of windows.

        If a write has not ended after `hang_ms`, the directory fails; 0 for no limit.
        """
        times = self._disk.lane.times
        self._window_ms, self._hang_ms = window_ms, hang_ms
        if threshold_ms == self.threshold_ms:
            return
        self.threshold_ms = threshold_ms
        times.limit_ns = threshold_ms * _NS_PER_MS if threshold_ms else NO_LIMIT_NS
        # Drop the earlier counts, because the old threshold determined which operations counted as
        # slow.
        was_slow = self.is_slow
        self._decision.reset()
        self._began, times.longest_ns = times.counts, 0
        if was_slow:
            self._turned_fast("log.dir.slow.threshold.ms was changed")

    def _is_over(self) -> bool:
        disk = self._disk
        return disk.is_closed or disk.failure is not None

    def _met_slow_operation(self) -> None:
        """Begin to watch the directory's speed after a slow operation."""
        if self._is_watching or self._is_over() or not self.threshold_ms:
            return
        now, before = self._disk.lane.times.counts, self._began
        # Let the first window also count the slow operations that came before the watch began.
        writes, reads = now.slow_writes - before.slow_writes, now.slow_reads - before.slow_reads
        self._began = OperationCounts(
            now.writes - writes, before.slow_writes, now.reads - reads, before.slow_reads,
            before.slow_write_ns, before.slow_read_ns,
        )  # fmt: skip
        self._watch()

    def _operation_opened(self) -> None:
        """Check operations on threads periodically until all have ended."""
        is_watched = self.threshold_ms or self._hang_ms
        if self._is_looking or self._disk.failure is not None or not is_watched:
            return
        self._is_looking = True
        clock = self._disk.clock
        interval_ms = self._look_interval_ms()
        due_ms = clock.monotonic_ms() + interval_ms
        clock.call_later(interval_ms, lambda: self._look(due_ms, interval_ms))

    def _look_interval_ms(self) -> int:
        intervals = []
        if self.threshold_ms:
            intervals.append(self._window_ms // _LOOKS_PER_WINDOW)
        if self._hang_ms:
            intervals.append(self._hang_ms // _LOOKS_PER_HANG)
        return max(1, min(intervals))

    def _look(self, due_ms: int, interval_ms: int) -> None:
        self._is_looking = False
        if self._disk.failure is not None:
            return
        now_ms = self._disk.clock.monotonic_ms()
        if now_ms - due_ms > 2 * interval_ms:
            self._counts_from_ms = now_ms
        times = self._disk.lane.times
        ages = times.open_ages()
        if not max(ages):
            return
        if self.threshold_ms and times.is_stuck:
            times.longest_ns = max(times.longest_ns, ages.write_ns, ages.read_ns)
            self._met_slow_operation()
        counts_ms = now_ms - self._counts_from_ms
        counted_ms = min(ages.write_ns // _NS_PER_MS, counts_ms)
        if self._hang_ms and counted_ms >= self._hang_ms:
            self._disk.tracer.mark("hanging_directory_given_up")
            self._disk.give_up_hanging(
                f"a write in {self._disk.path} has not answered for {counted_ms:,} ms"
                " (metadata.session.timeout.ms): the device hangs"
            )
            return
        if self._hang_ms and min(ages.other_ns // _NS_PER_MS, counts_ms) >= self._hang_ms:
            self._touch(now_ms)
        self._operation_opened()

    def _touch(self, now_ms: int) -> None:
        """Write a file to detect a hang, because the operations under way have no hang limit."""
        if self._is_touching or now_ms - self._touched_ms < self._hang_ms:
            return
        self._is_touching, self._touched_ms = True, now_ms
        path = f"{self._disk.path}/{_TOUCHED_FILE}"

        def done(touch: Completion[None]) -> None:
            self._is_touching = False
            if touch.error is not None:
                self._disk.failed(touch.error)

        self._disk.tracer.mark("quiet_directory_written_to")
        self._disk.lane.submit(
            lambda files: _write_and_remove(files, path), Work.FAST, "look for a hang"
        ).then(done)

    def _watch(self) -> None:
        self._is_watching = True
        self._disk.clock.call_later(self._window_ms, self._window_ended)

    def _window_ended(self) -> None:
        self._is_watching = False
        if self._is_over() or not self.threshold_ms:
            return
        times = self._disk.lane.times
        now = times.counts
        self.last, self._began = now.since(self._began), now
        verdict = self._decision.ended(self.last, self._window_ms * _NS_PER_MS)
        if verdict is SlowVerdict.REST:
            times.longest_ns = 0
            return
        self._watch()
        if verdict is SlowVerdict.TURNED_SLOW:
            self._turned_slow()
        elif verdict is SlowVerdict.TURNED_FAST:
            times.longest_ns = 0
            self._turned_fast(f"{self.last.slow} of {self.last.operations} operations are slow")
        elif self.is_slow:
            if verdict is SlowVerdict.UNDECIDED:
                self._probe()
            if self.on_still_slow is not None:
                self.on_still_slow()

    def _turned_slow(self) -> None:
        disk, last = self._disk, self.last
        self.periods += 1
        self._slow_since_ms = disk.clock.monotonic_ms()
        disk.tracer.mark("directory_slow")
        disk.tracer.event(
            "log_directory_slow", directory=disk.path, operations=last.operations, slow=last.slow,
            longest_ms=self.longest_ms,
        )  # fmt: skip
        disk.log_note(
            logging.WARNING,
            f"log directory {disk.path} is slow: {last.slow_writes} of {last.writes} writes and"
            f" {last.slow_reads} of {last.reads} reads of the last {self._window_ms:,} ms took"
            f" {self.threshold_ms} ms or longer (log.dir.slow.threshold.ms), up to"
            f" {self.longest_ms:,} ms",
        )
        if self.on_change is not None:
            self.on_change()

    def _turned_fast(self, why: str) -> None:
        disk, slow_ms = self._disk, self.slow_ms
        disk.tracer.mark("directory_fast_again")
        disk.tracer.event("log_directory_fast_again", directory=disk.path, slow_ms=slow_ms)
        disk.log_note(
            logging.WARNING,
            f"log directory {disk.path} is fast again after {slow_ms:,} ms: {why}",
        )
        if self.on_change is not None:
            self.on_change()

    def _probe(self) -> None:
        """Begin as many test writes (probes) as a decision needs, unless the disk is full."""
        if not self._probes_left and not self._space.is_full:
            self._probes_left = LEAST_OPERATIONS
            self._next_probe()

    def _next_probe(self) -> None:
        if not self._probes_left or self._is_over() or not self.is_slow:
            self._probes_left = 0
            return
        path = f"{self._disk.path}/{_PROBE_FILE}"

        def done(probe: Completion[None]) -> None:
            self._probes_left -= 1
            if probe.error is not None:
                self._probes_left = 0
                self._disk.failed(probe.error)
            self._next_probe()

        self._disk.lane.submit(
            lambda files: _write_and_read(files, path), Work.READ, "probe speed"
        ).then(done)


def _write_and_remove(files: Files, path: str) -> None:
    """Write and remove an empty file. Raises OSError."""
    files.replace_file(path, b"", sync=False)
    files.unlink(path)


def _write_and_read(files: Files, path: str) -> None:
    """Write, sync, read and remove a small file. Raises OSError."""
    files.replace_file(path, _PROBE, sync=True)
    files.read_file(path)
    files.unlink(path)
