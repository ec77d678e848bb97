"""Data files of a lake table in the table's own store: a local path, or a URI with options.

Options have delta-rs's names (`AWS_ENDPOINT_URL`, `AWS_REGION`, ...), so that data files and the
table's log use the same store and the same credentials. A LakeStore can be pickled for tasks.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

from tidelog.core.dataclass import dataclass
from tidelog.spark.lake.state import TableError

if TYPE_CHECKING:
    from pyarrow import fs

#: Folder of small files that tidelog writes to learn the store's clock from their modification
#: times; readers of tables skip names that begin with `_`.
_PROBES: Final = "_tidelog"
_PROBE_BUFFER_BYTES: Final = 64
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
#: Pattern of the beginning of a stack trace, or of an SQL statement, that follows an error message.
_STACK: Final = re.compile(r"\n +0: |\n?\[SQL: ")
_S3_ERROR: Final = re.compile(r"<Error>.*?<Code>(.*?)</Code>.*?<Message>(.*?)</Message>", re.DOTALL)


def location_of(place: str) -> str:
    """Return a place as a location: an absolute local path, or a URI of an object store.

    Raises TableError for a `file:` URI of another host, or without an absolute path.
    """
    if place.startswith("file:"):
        path = place.removeprefix("file:")
        is_absolute = path.startswith("///") or (path[:1] == "/" and path[:2] != "//")
        if not is_absolute:
            raise TableError(f"{place} is no local path; write it as file:///directory/table")
        place = "/" + path.lstrip("/")
    return place.rstrip("/") if "://" in place else os.path.abspath(place)


def reason_of(error: Exception) -> str:
    """Return the message of a store's library in one line, without colours, XML and stacks."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = _STACK.split(_COLOUR.sub("", str(error)))[0]
    found = _S3_ERROR.search(text)
    if found is not None:
        return f"{found[1]}: {found[2]}"
    return ": ".join(line.strip().removeprefix("↳ ") for line in text.splitlines() if line.strip())


def lost_file(location: str, path: str, which: str) -> TableError:
    """Return the error for a missing file of a table; `which` names the table's version."""
    return TableError(
        f"{location} has lost {path}, a file of {which}: a vacuum deleted it, or it was removed by"
        " hand. Read a version of which no file is gone, or see `tidelog pipeline prove`"
    )


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file below the table's location; `path` is relative to it."""

    path: str
    size_bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class LakeStore:
    """The local directory or the object store in which a table's files lie."""

    location: str
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        """Whether the location is a path of a local file system."""
        return "://" not in self.location

    def url(self, path: str) -> str:
        """Return the full path or URI of a file, as readers of the store open it."""
        return f"{self.location}/{path}"

    def open(self) -> fs.FileSystem:
        """Return the file system whose root is the location."""
        from pyarrow import fs

        if self.is_local:
            return fs.SubTreeFileSystem(os.path.abspath(self.location), fs.LocalFileSystem())
        from deltalake.fs import DeltaStorageHandler

        handler: Any = DeltaStorageHandler(self.location, options=dict(self.options))
        return fs.PyFileSystem(handler)

    def listed(self, folder: str = "") -> Iterator[ListedFile]:
        """Yield all files below a folder, by path. Raises TableError."""
        from pyarrow import fs

        selector = fs.FileSelector(folder, allow_not_found=True, recursive=True)
        try:
            found = self.open().get_file_info(selector)
        except OSError as error:
            raise TableError(f"{self.location} cannot be listed: {reason_of(error)}") from error
        for info in sorted(found, key=lambda each: each.path):
            if info.type == fs.FileType.File:
                modified_ms = 0 if info.mtime_ns is None else info.mtime_ns // 1_000_000
                yield ListedFile(info.path, info.size, modified_ms)

    def existing(self, paths: Iterable[str]) -> list[str]:
        """Return the paths of the files that exist."""
        from pyarrow import fs

        found = self.open().get_file_info(list(paths))
        return [info.path for info in found if info.type == fs.FileType.File]

    def delete(self, paths: Iterable[str]) -> int:
        """Delete files, and their folders that became empty; return the number of files."""
        opened = self.open()
        deleted = 0
        folders: dict[str, None] = {}
        for path in paths:
            try:
                opened.delete_file(path)
            except FileNotFoundError:
                continue
            deleted += 1
            folders[os.path.dirname(path)] = None
        if self.is_local:
            for folder in folders:
                _remove_empty(self.location, folder)
        return deleted

    def now_ms(self) -> int:
        """Return the time in ms by the clock that dates the store's files. Raises TableError."""
        path = f"{_PROBES}/{uuid.uuid4().hex}"
        opened = self.open()
        try:
            if self.is_local:
                opened.create_dir(_PROBES)
            # Without buffer_size Arrow passes a Buffer, which delta-rs refuses.
            with opened.open_output_stream(path, buffer_size=_PROBE_BUFFER_BYTES) as probe:
                probe.write(b"tidelog")
            info = opened.get_file_info(path)
            self.delete([path])
        except OSError as error:
            raise TableError(f"{self.location} cannot be written: {reason_of(error)}") from error
        return int(info.mtime_ns) // 1_000_000


def sync_file(path: str) -> None:
    """Make a local file and its name durable."""
    for each in (path, os.path.dirname(path)):
        descriptor = os.open(each, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _remove_empty(root: str, folder: str) -> None:
    """Remove a folder and its parents below `root` as long as they are empty."""
    while folder:
        try:
            os.rmdir(os.path.join(root, folder))
        except OSError:
            return
        folder = os.path.dirname(folder)
