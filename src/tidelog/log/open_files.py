"""The open files of a log directory, as an LRU: ten thousand partitions have more files than a
process may keep open.

The event loop owns the LRU. The code that submits a file operation pins the operation's file, and
unpins the file when the operation is done, so that no file is closed during an operation. The
operation opens its file if needed, on the thread on which the operation runs (`OpenFile.handle`).
If two operations open a file at the same time, the second handle is closed at once.
"""

from __future__ import annotations

from tidelog.core.ports import Files, Handle, Lane, Work

#: Default number of files kept open per log directory.
DEFAULT_MAX_OPEN_FILES = 1024


class OpenFile:
    """A file that may be open. File operations call `handle`; the code that submits them pins the
    file.
    """

    __slots__ = ("_opened", "doomed", "path", "pins", "write_failed")

    def __init__(self, path: str) -> None:
        self.path = path
        self.pins = 0
        #: Whether to close the file when its last pin is removed.
        self.doomed = False
        #: Whether a failed write may have left bytes at the end of the file; the next write removes
        #: them.
        self.write_failed = False
        self._opened: dict[str, Handle] = {}

    def renamed(self, path: str) -> None:
        """Note the file's new path; errors of a handle that is open name this path from now on."""
        self.path = path
        handle = self._opened.get("handle")
        if handle is not None:
            handle.path = path

    @property
    def opened_path(self) -> str | None:
        """The path that appears in errors of the open handle; None if the file is not open."""
        handle = self._opened.get("handle")
        return None if handle is None else handle.path

    @property
    def is_open(self) -> bool:
        """Whether the file is already open."""
        return "handle" in self._opened

    def handle(self, files: Files, *, create: bool = False) -> Handle:
        """Return the open handle, or open the file; only file operations may call this method."""
        handle = self._opened.get("handle")
        if handle is None:
            handle = files.open(self.path, write=True, create=create)
            # `setdefault` is atomic under the interpreter's lock, so the first of two threads wins.
            winner = self._opened.setdefault("handle", handle)
            if winner is not handle:
                files.close(handle)
                handle = winner
        return handle

    def take(self) -> Handle | None:
        """Return the open handle and drop it from this object; the caller must close the handle."""
        return self._opened.pop("handle", None)


class OpenFiles:
    """The LRU of open files of one directory; all calls are on the event loop."""

    __slots__ = ("_lane", "_latest", "_limit", "_used")

    def __init__(self, lane: Lane, limit: int = DEFAULT_MAX_OPEN_FILES) -> None:
        self._lane = lane
        self._limit = limit
        #: Unpinned open files in the order of last use, oldest first.
        self._used: dict[OpenFile, None] = {}
        self._latest: OpenFile | None = None

    def __len__(self) -> int:
        return len(self._used)

    def pin(self, file: OpenFile) -> None:
        """Protect a file from being closed (pin it), because an operation is about to use it."""
        file.pins += 1
        if file is not self._latest:
            self._latest = file
            self._used.pop(file, None)
            self._used[file] = None
            if len(self._used) > self._limit:
                self._evict()

    def unpin(self, file: OpenFile) -> None:
        """Allow a file to be closed again (unpin it), because an operation on it is done."""
        file.pins -= 1
        assert file.pins >= 0, f"{file.path} was unpinned more often than pinned"
        if file.doomed and not file.pins:
            self._close(file)

    def forget(self, file: OpenFile) -> None:
        """Close a file that is no longer needed as soon as no operation uses it."""
        file.doomed = True
        if not file.pins:
            self._close(file)

    def _evict(self) -> None:
        for file in self._used:
            if not file.pins:
                self._close(file)
                return

    def _close(self, file: OpenFile) -> None:
        self._used.pop(file, None)
        if self._latest is file:
            self._latest = None
        handle = file.take()
        if handle is not None:
            self._lane.submit(lambda files: files.close(handle), Work.FAST, "close")
