"""The read-only state of a log directory whose disk is full, and the test writes (probes) that end
this state (D14).

A read-only directory accepts no records and no new replicas. Reads, retention, deletions and writes
of small files go on in a read-only directory. Small files use the reserve of free space; if the
write of a small file fails, the writer retries as after any other error. A probe checks the
volume's free space and writes a file. Probes run at growing intervals up to `PROBE_MS`, and
whenever files were removed. The first successful probe makes the directory writable again. A
writable directory has no timers.

A full disk is not a failed device, so the broker keeps the directory's replicas (D1). `free_space`
decides when a directory is full. All calls are on the event loop.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from errno import ENOSPC
from typing import Final

from tidelog.core.completion import Completion
from tidelog.core.errors import FULL_ERRNOS, StorageError
from tidelog.core.ports import Files, VolumeSize, Work
from tidelog.log import names
from tidelog.log.directory_disk import DirectoryDisk
from tidelog.log.free_space import PROBE_BYTES, FreeSpace

#: Time in ms before the first probe of a full directory. Each further probe waits twice as long, at
#: most `PROBE_MS`.
FIRST_PROBE_MS: Final = 50
PROBE_MS: Final = 1_000
#: The file of the test writes (probes), which the next start removes like any temporary file.
_PROBE_FILE: Final = f"space-probe{names.TEMPORARY}"
#: The content of the probe's file. It cannot be compressed, so it needs space even on a compressing
#: file system.
_PROBE: Final = hashlib.shake_128(b"space").digest(PROBE_BYTES)


class DirectorySpace:
    """The watch on the free space of one log directory."""

    __slots__ = ("_disk", "_is_looking", "_is_probing", "free", "on_change", "on_still_full")

    def __init__(self, disk: DirectoryDisk, reserve_bytes: int = 0) -> None:
        self._disk = disk
        disk.on_no_space = self.refused
        self.free = FreeSpace(reserve_bytes)
        #: Called when the directory becomes read-only, and when it becomes writable again.
        self.on_change: Callable[[], None] | None = None
        #: Called after each probe that finds the directory full.
        self.on_still_full: Callable[[], None] | None = None
        self._is_looking = False
        self._is_probing = False

    @property
    def is_full(self) -> bool:
        """Whether the directory is read-only because its disk is full."""
        return self.free.full_since_ms is not None

    def error(self) -> StorageError:
        """The error with which a full directory rejects operations."""
        disk = self._disk
        return StorageError(
            disk.path, "write", disk.path, ENOSPC, disk.clock.wall_ms(),
            "the directory is read-only until space returns",
        )  # fmt: skip

    def wrote(self, size_bytes: int) -> None:
        """Count written bytes of records, and check the volume if a check is due."""
        if self.free.is_look_due(size_bytes, self._disk.clock.monotonic_ms()):
            self.look()

    def look(self) -> Completion[None]:
        """Check the volume; make the directory read-only if less than the reserve is free."""
        disk = self._disk
        completion: Completion[None] = Completion()
        if self._is_looking or disk.failure is not None:
            return Completion.of(None)
        self._is_looking = True

        def seen(done: Completion[VolumeSize]) -> None:
            self._is_looking = False
            if done.error is not None:
                disk.failed(done.error)
            elif self.free.looked(done.result(), disk.clock.monotonic_ms()):
                self._turned_full(
                    f"{done.result().usable_bytes:,} usable bytes are less than the reserve of"
                    f" {self.free.reserve_of(done.result()):,} (log.dir.reserve.bytes)"
                )
            completion.resolve(None)

        disk.lane.submit(_volume_size(disk.path), Work.SLOW, "volume_size").then(seen)
        return completion

    def refused(self, error: StorageError) -> None:
        """Note that the disk refused a write for lack of space (ENOSPC or EDQUOT)."""
        if self.free.refused(self._disk.clock.monotonic_ms()):
            self._turned_full(str(error))

    def freed(self) -> None:
        """Probe a full directory at once, because files were removed."""
        if self.is_full:
            self._probe()

    def _turned_full(self, why: str) -> None:
        disk, volume = self._disk, self.free.volume
        disk.tracer.mark("directory_full")
        disk.tracer.event(
            "log_directory_full", directory=disk.path,
            usable_bytes=-1 if volume is None else volume.usable_bytes,
        )  # fmt: skip
        disk.log_note(
            logging.ERROR,
            f"log directory {disk.path} is full and read-only: {why}; it serves reads, and"
            " refuses records and new replicas until space returns",
        )
        self._tick_later(FIRST_PROBE_MS)
        if self.on_change is not None:
            self.on_change()

    def _is_over(self) -> bool:
        return self._disk.is_closed or self._disk.failure is not None or not self.is_full

    def _tick_later(self, delay_ms: int) -> None:
        """Set a timer for a test write (probe) after `delay_ms`; each further probe waits twice as
        long.
        """
        since_ms = self.free.full_since_ms

        def tick() -> None:
            if not self._is_over() and self.free.full_since_ms == since_ms:
                self._tick_later(min(2 * delay_ms, PROBE_MS))
                self._probe()

        self._disk.clock.call_later(delay_ms, tick)

    def _probe(self) -> None:
        if self._is_probing or self._is_over():
            return
        self._is_probing = True
        disk, free = self._disk, self.free
        path = f"{disk.path}/{_PROBE_FILE}"

        def probe(files: Files) -> tuple[VolumeSize, bool]:
            volume = files.volume_size(disk.path)
            return volume, free.may_be_writable(volume) and _can_write(files, path)

        disk.lane.submit(probe, Work.SLOW, "probe space").then(self._probed)

    def _probed(self, done: Completion[tuple[VolumeSize, bool]]) -> None:
        self._is_probing = False
        disk, free = self._disk, self.free
        if done.error is not None:
            disk.failed(done.error)
            return
        if self._is_over():
            return
        volume, is_writable = done.result()
        now_ms = disk.clock.monotonic_ms()
        free.looked(volume, now_ms)
        if not is_writable:
            if self.on_still_full is not None:
                self.on_still_full()
            return
        full_ms = free.healed(now_ms)
        disk.tracer.mark("directory_writable_again")
        disk.tracer.event(
            "log_directory_writable", directory=disk.path, usable_bytes=volume.usable_bytes,
            full_ms=full_ms,
        )  # fmt: skip
        disk.log_note(
            logging.WARNING,
            f"log directory {disk.path} is writable again after {full_ms:,} ms:"
            f" {volume.usable_bytes:,} usable bytes",
        )
        if self.on_change is not None:
            self.on_change()


def _volume_size(path: str) -> Callable[[Files], VolumeSize]:
    return lambda files: files.volume_size(path)


def _can_write(files: Files, path: str) -> bool:
    """Write and remove a file; return whether the disk had room for it. Raises OSError.

    The test file is not synced, because a failed sync would fail the directory (D17).
    """
    written = 0
    try:
        handle = files.open(path, write=True, create=True)
        try:
            while written < PROBE_BYTES:
                written += files.pwritev(handle, [_PROBE[written:]], written)
        finally:
            files.close(handle)
    except OSError as error:
        if error.errno not in FULL_ERRNOS:
            raise
    if files.exists(path):
        files.unlink(path)
    return written == PROBE_BYTES
