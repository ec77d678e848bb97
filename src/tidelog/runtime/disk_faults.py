"""Faults of log directories for tests: with a fault, a broker's file calls fail or take longer.

One file per broker has the faults as JSON, and a counter of changes, which is 0 until the first
fault is set. The broker maps this file into its memory. A fault applies to every operation that
begins after `put` has returned. While the counter is unchanged, the broker reads only this one byte
of the mapped file per operation. A broker that is down gets the fault when it starts.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tidelog.core.dataclass import dataclass
from tidelog.core.ports import Buffer, Handle, VolumePlace, VolumeSize
from tidelog.runtime.files import CallError, OsFiles

_SIZE_BYTES: Final = 65_536
_MOST_CHANGES: Final = 255
#: The kind of fault with which every operation fails.
FAIL: Final = "fail"
#: The kind of fault with which only the operations that need space fail.
FILL: Final = "fill"
#: The kind of fault with which reads, writes and syncs take longer.
SLOW: Final = "slow"
#: Names of the errors of a failing device (D1).
DEVICE_ERRORS: Final = ("EIO", "EROFS", "EACCES", "ENOENT", "ENXIO", "ESTALE")


@dataclass(frozen=True, slots=True)
class DiskFault:
    """A fault of one log directory."""

    #: The kind of the fault: FAIL, FILL or SLOW.
    kind: str
    #: The error of every operation of a failed directory, for example EIO.
    error: str = "EIO"
    #: Additional time of each read, write and sync in a slow directory.
    delay_ms: int = 0


class DiskFaultControl:
    """The control with which a test sets the faults of one broker's log directories."""

    def __init__(self, path: str) -> None:
        self._path = path

    def put(self, directory: str, fault: DiskFault | None) -> None:
        """Set the fault of a directory, replacing an earlier fault; None ends the fault."""
        faults = self.faults()
        faults.pop(directory, None)
        if fault is not None:
            faults[directory] = fault
        text = json.dumps(
            {path: [each.kind, each.error, each.delay_ms] for path, each in faults.items()}
        ).encode()
        if len(text) + 1 >= _SIZE_BYTES:
            raise ValueError(f"faults of {len(faults)} log directories need {len(text)} bytes")
        with _opened(self._path) as shared:
            change = shared[0] % _MOST_CHANGES + 1
            # A broker reads the faults when the counter changes, so the faults must be written
            # first.
            shared[1:] = text.ljust(_SIZE_BYTES - 1, b"\0")
            shared[0] = change

    def faults(self) -> dict[str, DiskFault]:
        """Return the current faults, by directory."""
        if not os.path.exists(self._path):
            return {}
        with _opened(self._path) as shared:
            return _read(shared)


class DiskFaults:
    """The faults of a broker's log directories, as the broker reads them."""

    def __init__(self, path: str) -> None:
        #: The mapped file, whose first byte counts changes.
        self.shared = _opened(path)
        #: The value that the change counter had when the faults were last read.
        self.change = 0
        self._faults: Mapping[str, DiskFault] = {}

    def of(self, directory: str) -> DiskFault | None:
        """Return the current fault of a directory; None if it has no fault."""
        while (change := self.shared[0]) != self.change:
            try:
                faults = _read(self.shared)
            except ValueError:
                continue  # a test is writing new faults
            if self.shared[0] == change:
                self._faults, self.change = faults, change
        return self._faults.get(directory)


class FaultyFiles(OsFiles):
    """The file calls of one log directory, with the faults that a test sets."""

    def __init__(self, directory: str, faults: DiskFaults) -> None:
        super().__init__()
        self._directory = directory
        self._faults = faults
        self._shared = faults.shared
        #: The change counter at the last call that found no fault of this directory.
        self._healthy_change = -1

    def _strike(self, call: str, path: str, *, needs_space: bool = False) -> None:
        fault = self._faults.of(self._directory)
        if fault is None:
            self._healthy_change = self._faults.change
            return
        if fault.kind == SLOW:
            time.sleep(fault.delay_ms / 1000)
        elif fault.kind == FAIL or needs_space:
            number = getattr(errno, fault.error) if fault.kind == FAIL else errno.ENOSPC
            raise CallError.of(OSError(number, os.strerror(number)), call, path)

    def open(self, path: str, *, write: bool = False, create: bool = False) -> Handle:
        """Open a file for reading, or reading and writing; create the file if `create`."""
        self._strike("open", path)
        return super().open(path, write=write, create=create)

    def pwritev(self, handle: Handle, buffers: Sequence[Buffer], position: int) -> int:
        """Write buffers at a position; return the number of bytes written."""
        if self._shared[0] != self._healthy_change:
            self._strike("pwrite", handle.path, needs_space=True)
        return super().pwritev(handle, buffers, position)

    def pread(self, handle: Handle, size_bytes: int, position: int) -> bytes:
        """Return up to `size_bytes` from a position; fewer only at the end of the file."""
        self._strike("pread", handle.path)
        return super().pread(handle, size_bytes, position)

    def pread_cached(self, handle: Handle, size_bytes: int, position: int) -> Buffer | None:
        """Read like `pread`, but return None if the read would wait for the disk."""
        if self._shared[0] != self._healthy_change:
            fault = self._faults.of(self._directory)
            if fault is not None and fault.kind == SLOW:
                return None
            self._strike("pread", handle.path)
        return super().pread_cached(handle, size_bytes, position)

    def set_modified(self, path: str, modified_ms: int) -> None:
        """Set the time of a file's last modification."""
        self._strike("utime", path)
        super().set_modified(path, modified_ms)

    def truncate(self, handle: Handle, size_bytes: int) -> None:
        """Truncate or extend the file."""
        self._strike("ftruncate", handle.path)
        super().truncate(handle, size_bytes)

    def fsync(self, handle: Handle) -> None:
        """Make the file's data durable."""
        self._strike("fsync", handle.path)
        super().fsync(handle)

    def fsync_directory(self, path: str) -> None:
        """Make the directory's entries durable."""
        self._strike("fsync", path)
        super().fsync_directory(path)

    def sync_volume(self, path: str) -> None:
        """Make everything on the volume of a path durable."""
        self._strike("fsync", path)
        super().sync_volume(path)

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing an existing file."""
        self._strike("rename", old)
        super().rename(old, new)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        self._strike("unlink", path)
        super().unlink(path)

    def mkdir(self, path: str, *, exist_ok: bool = True) -> None:
        """Make a directory and its parents; EEXIST if it exists and `exist_ok` is false."""
        self._strike("mkdir", path, needs_space=not os.path.isdir(path))
        super().mkdir(path, exist_ok=exist_ok)

    def remove_tree(self, path: str) -> None:
        """Remove a directory with its content, if it exists."""
        self._strike("unlink", path)
        super().remove_tree(path)

    def listdir(self, path: str) -> list[str]:
        """Return the sorted names in a directory."""
        self._strike("listdir", path)
        return super().listdir(path)

    def exists(self, path: str) -> bool:
        """Return whether the path exists."""
        self._strike("stat", path)
        return super().exists(path)

    def read_file(self, path: str) -> bytes:
        """Return the content of the whole file."""
        self._strike("read", path)
        return super().read_file(path)

    def replace_file(self, path: str, data: bytes, *, sync: bool) -> None:
        """Replace a file's content atomically by a temporary file, which is synced if `sync`."""
        self._strike("write", path, needs_space=True)
        super().replace_file(path, data, sync=sync)

    def volume_size(self, path: str) -> VolumeSize:
        """Return the size of the volume that holds a path, and its free bytes."""
        self._strike("statvfs", path)
        found = super().volume_size(path)
        fault = self._faults.of(self._directory)
        return found._replace(usable_bytes=0) if fault and fault.kind == FILL else found

    def volume_place(self, path: str) -> VolumePlace:
        """Return the volume that holds a path, with its mount point."""
        self._strike("stat", path)
        return super().volume_place(path)


def _opened(path: str) -> mmap.mmap:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(descriptor).st_size < _SIZE_BYTES:
            os.ftruncate(descriptor, _SIZE_BYTES)
        return mmap.mmap(descriptor, _SIZE_BYTES)
    finally:
        os.close(descriptor)


def _read(shared: mmap.mmap) -> dict[str, DiskFault]:
    text = shared[1:].rstrip(b"\0")
    found: Mapping[str, list[Any]] = json.loads(text) if text else {}
    return {path: DiskFault(*values) for path, values in found.items()}
