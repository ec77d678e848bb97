"""Open files of one log directory: an LRU, because ten thousand partitions have more files.

Owned by the loop. The submitter of an operation pins its file, and unpins it when the result is
there, so that a file is never closed under an operation. The operation itself opens the file if
need be, on whichever thread it runs (`OpenFile.handle`). Should two operations do so at once, one
of the two handles is closed again.
"""

from __future__ import annotations

from tidelog.core.ports import Files, Handle, Lane, Work

#: Files kept open per log directory unless the composition says otherwise.
DEFAULT_MAX_OPEN_FILES = 1024


class OpenFile:
    """A file that may be open; operations use `handle`, their submitter pins."""

    __slots__ = ("_opened", "doomed", "path", "pins", "write_failed")

    def __init__(self, path: str) -> None:
        self.path = path
        self.pins = 0
        #: To be closed when the last pin goes.
        self.doomed = False
        #: A failed write may have left bytes behind the end; the next write removes them.
        self.write_failed = False
        self._opened: dict[str, Handle] = {}

    def renamed(self, path: str) -> None:
        """Take over that the file has another name; errors of an open handle name it, too."""
        self.path = path
        handle = self._opened.get("handle")
        if handle is not None:
            handle.path = path

    @property
    def opened_path(self) -> str | None:
        """The path that errors of the open handle name, None without one."""
        handle = self._opened.get("handle")
        return None if handle is None else handle.path

    @property
    def is_open(self) -> bool:
        """Whether `handle` would open nothing."""
        return "handle" in self._opened

    def handle(self, files: Files, *, create: bool = False) -> Handle:
        """Return the open handle; open the file first if it is not open. For operations only."""
        handle = self._opened.get("handle")
        if handle is None:
            handle = files.open(self.path, write=True, create=create)
            # One step under the interpreter's lock: the first of two threads wins.
            winner = self._opened.setdefault("handle", handle)
            if winner is not handle:
                files.close(handle)
                handle = winner
        return handle

    def take(self) -> Handle | None:
        """Forget the handle and return it; the caller closes it."""
        return self._opened.pop("handle", None)


class OpenFiles:
    """The LRU of one directory. Loop only."""

    __slots__ = ("_lane", "_latest", "_limit", "_used")

    def __init__(self, lane: Lane, limit: int = DEFAULT_MAX_OPEN_FILES) -> None:
        self._lane = lane
        self._limit = limit
        #: In order of last use, oldest first.
        self._used: dict[OpenFile, None] = {}
        self._latest: OpenFile | None = None

    def __len__(self) -> int:
        return len(self._used)

    def pin(self, file: OpenFile) -> None:
        """Pin the file of an operation that is about to be submitted."""
        file.pins += 1
        if file is not self._latest:
            self._latest = file
            self._used.pop(file, None)
            self._used[file] = None
            if len(self._used) > self._limit:
                self._evict()

    def unpin(self, file: OpenFile) -> None:
        """Unpin the file of an operation whose result is here."""
        file.pins -= 1
        assert file.pins >= 0, f"{file.path} was unpinned more often than pinned"
        if file.doomed and not file.pins:
            self._close(file)

    def forget(self, file: OpenFile) -> None:
        """Close the file as soon as no operation uses it: it will not be used again."""
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
