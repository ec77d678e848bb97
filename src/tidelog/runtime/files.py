"""The real `Files` port: system calls, whose errors name the failed call.

An `OsFiles` has no state but a thread-safe pool of buffers, so the loop and a log directory's
threads may use it at the same time. `pread_cached` reads only from the page cache (RWF_NOWAIT,
Linux) and returns None if the read would wait for the disk. On other systems, `pread_cached` always
reads. Python retries EINTR. This module also has the lock that keeps a second broker out of a log
directory.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import time
from collections.abc import Sequence

from tidelog.core.buffers import BufferPool
from tidelog.core.errors import ConfigError, StorageError
from tidelog.core.limits import KIB, READ_POOL_BYTES
from tidelog.core.ports import Buffer, FileStatus, Handle, VolumePlace, VolumeSize

_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)
#: Errors of preadv2 if the kernel or the file system does not support RWF_NOWAIT.
_NO_SUCH_FLAG = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
_ROUNDING = 64 * KIB - 1
_NS_PER_MS = 1_000_000
_LOCK_NAME = ".lock"


class CallError(OSError):
    """An OSError whose `call` and `filename` name the failed operation."""

    call: str

    @classmethod
    def of(cls, error: OSError, call: str, path: str) -> CallError:
        """Return an OSError as a CallError, with the failed call and its path."""
        made = cls(error.errno, error.strerror, path)
        made.call = call
        return made


class OpenDescriptor:
    """An open file descriptor and its path."""

    __slots__ = ("descriptor", "path")

    def __init__(self, descriptor: int, path: str) -> None:
        self.descriptor = descriptor
        self.path = path


class OsFiles:
    """The port `core.ports.Files` on functions of `os`; every failure is a CallError."""

    def __init__(self) -> None:
        self._nowait = _NOWAIT
        self._pool = BufferPool(READ_POOL_BYTES)

    def release_buffers(self) -> None:
        """Release the buffers that are kept for later reads."""
        self._pool.release()

    def open(self, path: str, *, write: bool = False, create: bool = False) -> Handle:
        """Open a file for reading, or reading and writing; create the file if `create`."""
        flags = os.O_CLOEXEC | (os.O_RDWR if write else os.O_RDONLY) | (os.O_CREAT if create else 0)
        try:
            return OpenDescriptor(os.open(path, flags, 0o644), path)
        except OSError as error:
            raise CallError.of(error, "open", path) from error

    def close(self, handle: Handle) -> None:
        """Close a file."""
        try:
            os.close(_descriptor(handle))
        except OSError as error:
            raise CallError.of(error, "close", handle.path) from error

    def pwritev(self, handle: Handle, buffers: Sequence[Buffer], position: int) -> int:
        """Write buffers at a position; return the number of bytes written."""
        try:
            return os.pwritev(handle.descriptor, buffers, position)  # type: ignore[attr-defined]
        except OSError as error:
            raise CallError.of(error, "pwrite", handle.path) from error

    def pread(self, handle: Handle, size_bytes: int, position: int) -> bytes:
        """Return up to `size_bytes` from a position; fewer only at the end of the file."""
        try:
            data = os.pread(_descriptor(handle), size_bytes, position)
            while data and len(data) < size_bytes:
                more = os.pread(_descriptor(handle), size_bytes - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise CallError.of(error, "pread", handle.path) from error
        return data

    def pread_cached(self, handle: Handle, size_bytes: int, position: int) -> Buffer | None:
        """Read like `pread`, but return None if the read would wait for the disk."""
        if not self._nowait:
            return self.pread(handle, size_bytes, position)
        # Sizes are rounded up, so that reads of similar sizes share buffers.
        buffer = self._pool.take((size_bytes + _ROUNDING) & ~_ROUNDING)
        wanted = memoryview(buffer)[:size_bytes]
        try:
            size = os.preadv(_descriptor(handle), [wanted], position, self._nowait)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno in _NO_SUCH_FLAG:
                self._nowait = 0
                return self.pread(handle, size_bytes, position)
            raise CallError.of(error, "pread", handle.path) from error
        if size == size_bytes:
            return wanted
        if position + size < os.fstat(_descriptor(handle)).st_size:
            return None
        return wanted[:size]

    def size(self, handle: Handle) -> int:
        """Return the size of the file in bytes."""
        try:
            return os.fstat(_descriptor(handle)).st_size
        except OSError as error:
            raise CallError.of(error, "fstat", handle.path) from error

    def status(self, handle: Handle) -> FileStatus:
        """Return size and modification time of an open file."""
        try:
            found = os.fstat(_descriptor(handle))
        except OSError as error:
            raise CallError.of(error, "fstat", handle.path) from error
        return FileStatus(found.st_size, found.st_mtime_ns // _NS_PER_MS)

    def set_modified(self, path: str, modified_ms: int) -> None:
        """Set the time of a file's last modification."""
        try:
            os.utime(path, ns=(modified_ms * _NS_PER_MS, modified_ms * _NS_PER_MS))
        except OSError as error:
            raise CallError.of(error, "utime", path) from error

    def truncate(self, handle: Handle, size_bytes: int) -> None:
        """Truncate or extend the file."""
        try:
            os.ftruncate(_descriptor(handle), size_bytes)
        except OSError as error:
            raise CallError.of(error, "ftruncate", handle.path) from error

    def fsync(self, handle: Handle) -> None:
        """Make the file's data durable."""
        try:
            os.fsync(_descriptor(handle))
        except OSError as error:
            raise CallError.of(error, "fsync", handle.path) from error

    def fsync_directory(self, path: str) -> None:
        """Make the directory's entries durable."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise CallError.of(error, "fsync", path) from error

    def sync_volume(self, path: str) -> None:
        """Make everything on the volume of a path durable."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                _syncfs(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise CallError.of(error, "fsync", path) from error

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing an existing file."""
        try:
            os.rename(old, new)
        except OSError as error:
            raise CallError.of(error, "rename", old) from error

    def unlink(self, path: str) -> None:
        """Remove a file."""
        try:
            os.unlink(path)
        except OSError as error:
            raise CallError.of(error, "unlink", path) from error

    def mkdir(self, path: str, *, exist_ok: bool = True) -> None:
        """Make a directory and its parents; EEXIST if it exists and `exist_ok` is false."""
        try:
            os.makedirs(path, exist_ok=exist_ok)
        except OSError as error:
            raise CallError.of(error, "mkdir", path) from error

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        try:
            os.rmdir(path)
        except OSError as error:
            raise CallError.of(error, "rmdir", path) from error

    def remove_tree(self, path: str) -> None:
        """Remove a directory with its content, if it exists."""
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            if os.path.exists(path):
                raise
        except OSError as error:
            raise CallError.of(error, "unlink", path) from error

    def listdir(self, path: str) -> list[str]:
        """Return the sorted names in a directory."""
        try:
            return sorted(os.listdir(path))
        except OSError as error:
            raise CallError.of(error, "listdir", path) from error

    def exists(self, path: str) -> bool:
        """Return whether the path exists."""
        try:
            os.stat(path)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise CallError.of(error, "stat", path) from error
        return True

    def read_file(self, path: str) -> bytes:
        """Return the content of the whole file."""
        try:
            with open(path, "rb") as file:
                return file.read()
        except OSError as error:
            raise CallError.of(error, "read", path) from error

    def replace_file(self, path: str, data: bytes, *, sync: bool) -> None:
        """Replace a file's content atomically by a temporary file, which is synced if `sync`."""
        beside = path + ".tmp"
        call = "write"
        try:
            with open(beside, "wb") as file:
                file.write(data)
                file.flush()
                if sync:
                    call = "fsync"
                    os.fsync(file.fileno())
            call = "rename"
            os.rename(beside, path)
        except OSError as error:
            raise CallError.of(error, call, path) from error
        if sync:
            self.fsync_directory(os.path.dirname(path))

    def volume_size(self, path: str) -> VolumeSize:
        """Return the size of the volume that holds a path, and its free bytes."""
        try:
            found = os.statvfs(path)
        except OSError as error:
            raise CallError.of(error, "statvfs", path) from error
        return VolumeSize(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def volume_place(self, path: str) -> VolumePlace:
        """Return the volume that holds a path, with its mount point."""
        try:
            device = os.stat(path).st_dev
            mount_point = os.path.realpath(path)
            while not os.path.ismount(mount_point):
                mount_point = os.path.dirname(mount_point)
        except OSError as error:
            raise CallError.of(error, "stat", path) from error
        return VolumePlace(device, mount_point)


def _syncfs(descriptor: int) -> None:
    """Call syncfs(2), which Python lacks, and which reports failed writes since Linux 5.8."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "syncfs"):
        os.sync()
        return
    if libc.syncfs(descriptor) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _descriptor(handle: Handle) -> int:
    assert isinstance(handle, OpenDescriptor)
    return handle.descriptor


def lock_directory(path: str) -> int:
    """Lock a log directory against other brokers while the returned descriptor is open.

    Creates the directory if it is missing. Raises ConfigError if another process has locked the
    directory, and StorageError if the directory cannot be used.
    """
    lock = os.path.join(path, _LOCK_NAME)
    try:
        os.makedirs(path, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        # EEXIST means that a file is in place of the directory.
        number = errno.ENOTDIR if error.errno == errno.EEXIST else error.errno or 0
        raise StorageError(
            path, "open", str(error.filename or path), number, int(time.time() * 1000),
            f"log.dirs={path}: {os.strerror(number)}; a directory that this broker may write"
            " expected",
        ) from error  # fmt: skip
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        if holder == str(os.getpid()):
            raise ConfigError(
                f"log.dirs={path} is another of this broker's directories, mounted twice;"
                " directories that are apart expected"
            ) from error
        raise ConfigError(
            f"log.dirs={path}: in use by the process {holder}; every broker needs directories of"
            " its own"
        ) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor
