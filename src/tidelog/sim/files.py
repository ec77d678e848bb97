"""`core.ports.Files` on a simulated disk, for one incarnation of a node.

At each file operation, which counts as a call of a port (`core.ports`), the node may die. If the
node dies at a write, a part of the bytes may have reached the page cache. Failed calls raise
OSError with errno and path. `last_call` names the failed call for `lanes`, the queue of file
operations.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import NodeDead
from tidelog.core.ports import Buffer, FileStatus, Handle, VolumePlace, VolumeSize
from tidelog.sim.disk import Directory, File, SimDisk, os_error
from tidelog.sim.process import PortOwner

#: Share of `pread_cached` calls that return None, as if the pages were not in memory.
_COLD_READS = 0.02


@dataclass(slots=True, eq=False)
class SimHandle:
    """An open file."""

    #: The path by which the file was opened, or its name after a rename.
    path: str
    file: File
    writable: bool
    closed: bool = False


class SimFiles:
    """File calls of one incarnation on one disk."""

    def __init__(self, process: PortOwner, disk: SimDisk, draw: random.Random) -> None:
        self._process = process
        self.disk = disk
        self._draw = draw
        #: Name of the last file call, and in `last_path` its path; after a failure, the failed
        #: call.
        self.last_call = ""
        self.last_path = ""

    def _begin(self, call: str, path: str) -> None:
        self.last_call = call
        self.last_path = path
        self._process.port_call("files." + call)
        if path != self.disk.root and not path.startswith(self.disk.root + "/"):
            raise ValueError(f"{path} is not in the log directory {self.disk.root}")
        self._fail_if_planned(call, path)

    def _fail_if_planned(self, call: str, path: str) -> None:
        fault = self.disk.fault
        if fault is not None:
            number = fault(call, path)
            if number:
                error = f"{errno.errorcode.get(number, number)} {call}"
                self.disk.count(error)
                self.disk.failed_calls += 1
                self.disk.call_errors[error] = self.disk.call_errors.get(error, 0) + 1
                raise os_error(number, path)

    @staticmethod
    def _of(handle: Handle) -> SimHandle:
        if not isinstance(handle, SimHandle):
            raise TypeError("a handle of another file system")
        if handle.closed:
            raise os_error(errno.EBADF, handle.path)
        return handle

    def open(self, path: str, *, write: bool = False, create: bool = False) -> Handle:
        """Open a file; create a missing file if `create` is true."""
        self._begin("open", path)
        entry = self.disk.find(path)
        if isinstance(entry, Directory):
            raise os_error(errno.EISDIR, path)
        if entry is None:
            if not create:
                raise os_error(errno.ENOENT, path)
            entry = self.disk.create(path)
            entry.modified_ms = entry.synced_ms = self._process.clock.wall_ms()
        return SimHandle(path, entry, write or create)

    def close(self, handle: Handle) -> None:
        """Close a file; raise EBADF if the file is closed already."""
        opened = self._of(handle)
        self._begin("close", opened.path)
        opened.closed = True

    def pwritev(self, handle: Handle, buffers: Sequence[Buffer], position: int) -> int:
        """Write at a position; return the number of bytes written."""
        opened = self._of(handle)
        if not opened.writable:
            raise os_error(errno.EBADF, opened.path)
        lived = self._process.alive
        self.last_call = "pwritev"
        self.last_path = opened.path
        try:
            self._process.port_call("files.pwritev")
        except NodeDead:
            if lived:
                self._write_struck(opened, buffers, position)
            raise
        self._fail_if_planned("pwritev", opened.path)
        if self.disk.short_writes:
            buffers = self._shortened(buffers)
        return self._write(opened, buffers, position)

    def _write(self, opened: SimHandle, buffers: Sequence[Buffer], position: int) -> int:
        written = self.disk.write(opened.file, opened.path, buffers, position)
        opened.file.modified_ms = self._process.clock.wall_ms()
        return written

    def _shortened(self, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
        """Return a random first part of the buffers; a real write may also write only a part."""
        content = b"".join(buffers)
        if len(content) < 2:
            return buffers
        self.disk.short_writes -= 1
        self.disk.count("short write")
        return [content[: self._draw.randrange(1, len(content))]]

    def _write_struck(self, opened: SimHandle, buffers: Sequence[Buffer], position: int) -> None:
        """Write a random first part of the buffers, because the process died in the call.

        After a power loss nothing is written, because the page cache is lost, too.
        """
        if not self._process.died_with_page_cache:
            return
        content = b"".join(buffers)
        part = self._draw.randrange(len(content) + 1)
        if part:
            self._write(opened, [content[:part]], position)

    def pread(self, handle: Handle, size_bytes: int, position: int) -> bytes:
        """Read at a position; return fewer bytes only at the end of the file."""
        opened = self._of(handle)
        self._begin("pread", opened.path)
        return bytes(memoryview(opened.file.data)[position : position + size_bytes])

    def pread_cached(self, handle: Handle, size_bytes: int, position: int) -> bytes | None:
        """Read like `pread`; return None at times, as if the pages were not in memory."""
        opened = self._of(handle)
        self._begin("pread_cached", opened.path)
        if self.disk.read_ns is not None:
            return None
        if self._draw.random() < _COLD_READS:
            return None
        return bytes(memoryview(opened.file.data)[position : position + size_bytes])

    def size(self, handle: Handle) -> int:
        """Return the file's size in bytes."""
        opened = self._of(handle)
        self._begin("size", opened.path)
        return len(opened.file.data)

    def status(self, handle: Handle) -> FileStatus:
        """Return the file's size in bytes, and when it was last modified."""
        opened = self._of(handle)
        self._begin("size", opened.path)
        return FileStatus(len(opened.file.data), opened.file.modified_ms)

    def set_modified(self, path: str, modified_ms: int) -> None:
        """Set the time of a file's last modification.

        This call is no crash point, because a crash here has the same effect as a crash at the next
        call.
        """
        self._process.check_alive()
        self.disk.file(path).modified_ms = modified_ms

    def truncate(self, handle: Handle, size_bytes: int) -> None:
        """Truncate the file, or extend it with zeros."""
        opened = self._of(handle)
        self._begin("truncate", opened.path)
        if not opened.writable:
            raise os_error(errno.EBADF, opened.path)
        self.disk.truncate(opened.file, size_bytes)
        opened.file.modified_ms = self._process.clock.wall_ms()

    def fsync(self, handle: Handle) -> None:
        """Make the file's content durable, but not its name. A failed fsync drops dirty pages."""
        opened = self._of(handle)
        try:
            self._begin("fsync", opened.path)
        except OSError:
            if opened.file.fail_sync():
                self.disk.has_dropped = True
                self.disk.count("pages dropped")
            raise
        opened.file.sync()

    def fsync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        self._begin("fsync_directory", path)
        self.disk.sync_directory(path)

    def sync_volume(self, path: str) -> None:
        """Make everything durable. A failed `sync_volume` drops all dirty pages."""
        try:
            self._begin("sync_volume", path)
        except OSError:
            for _, file in self.disk.files():
                if file.fail_sync():
                    self.disk.has_dropped = True
                    self.disk.count("pages dropped")
            raise
        self.disk.sync_everything()

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory atomically."""
        self._begin("rename", old)
        self.disk.rename(old, new)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        self._begin("unlink", path)
        self.disk.unlink(path)

    def mkdir(self, path: str, *, exist_ok: bool = True) -> None:
        """Create a directory and its parents; raise EEXIST if it exists and `exist_ok` is false."""
        self._begin("mkdir", path)
        if not exist_ok and self.disk.find(path) is not None:
            raise os_error(errno.EEXIST, path)
        self.disk.make_directories(path)

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        self._begin("rmdir", path)
        self.disk.remove_directory(path)

    def remove_tree(self, path: str) -> None:
        """Remove a directory and its content."""
        self._begin("remove_tree", path)
        self.disk.remove_tree(path)

    def listdir(self, path: str) -> list[str]:
        """Return the names in the directory, sorted."""
        self._begin("listdir", path)
        return sorted(self.disk.directory(path).entries)

    def exists(self, path: str) -> bool:
        """Return whether the path exists."""
        try:
            self._begin("exists", path)
        except OSError as error:
            if error.errno == errno.ENOENT:
                return False  # nothing exists below a missing directory
            raise
        return self.disk.find(path) is not None

    def read_file(self, path: str) -> bytes:
        """Return the whole content of a file."""
        self._begin("read_file", path)
        return bytes(self.disk.file(path).data)

    def replace_file(self, path: str, data: bytes, *, sync: bool) -> None:
        """Write `path + ".tmp"`, sync that file if `sync` is true, and rename it over `path`."""
        temporary = path + ".tmp"
        handle = self.open(temporary, write=True, create=True)
        try:
            self.truncate(handle, 0)
            written = 0
            while written < len(data):
                written += self.pwritev(handle, [data[written:]], written)
            if sync:
                self.fsync(handle)
        except OSError:
            # `close` overwrites `last_call`; restore it, because the failed call determines what
            # the failure means (D17).
            failed = self.last_call, self.last_path
            self.close(handle)
            self.last_call, self.last_path = failed
            raise
        self.close(handle)
        self.rename(temporary, path)
        if sync:
            self.fsync_directory(path.rpartition("/")[0])

    def volume_size(self, path: str) -> VolumeSize:
        """Return the size of the disk and its free bytes."""
        self._begin("volume_size", path)
        capacity = self.disk.capacity_bytes
        return VolumeSize(capacity, max(0, capacity - self.disk.used_bytes))

    def volume_place(self, path: str) -> VolumePlace:
        """Return the volume of a path: in the simulation, each log directory is the mount point of
        its own disk.
        """
        self._begin("volume_place", path)
        return VolumePlace(id(self.disk), self.disk.root)
