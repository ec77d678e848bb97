"""File operations of a table: a small interface, and its implementation for local file systems.

The interface has no rename, because object stores have no atomic rename. A commit needs only
uniquely named files, and one file that is created exclusively. `LocalFiles` syncs its writes, locks
the directory, and gives data files readable names by hard links. `hadoop_files.py` implements the
interface for other file systems.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from tidelog.core.dataclass import dataclass
from tidelog.spark.pipelines.manifests import TableError


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a folder: a file or a folder."""

    name: str
    is_folder: bool
    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Footer:
    """A Parquet file's number of rows, and the extremes of its integer columns."""

    rows: int
    bounds: dict[str, tuple[int, int]]


class TableFiles(Protocol):
    """Files below a table's directory; names are relative to it, with slashes."""

    #: The path of the directory, for messages and for Spark.
    root: str
    #: Whether programs that list the directory see data files under readable names.
    has_view: bool
    #: Whether a created file appears only when complete.
    creates_whole: bool

    def entries(self, folder: str) -> list[Entry]:
        """Return the entries of a folder, sorted by name; empty if the folder does not exist."""
        ...

    def read(self, name: str) -> str:
        """Return the text of a file. Raises TableError."""
        ...

    def create(self, name: str, text: str) -> None:
        """Create a file with this text, durably. Raises FileExistsError if the name is taken."""
        ...

    def make_folder(self, folder: str) -> None:
        """Create a folder and its parents; raise TableError if that fails."""
        ...

    def sync(self, folder: str) -> None:
        """Make the files of a folder durable."""
        ...

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with its content; do nothing if it does not exist."""
        ...

    def show(self, name: str, visible: str) -> None:
        """Show a file under the name `visible` to programs that list the directory."""
        ...

    def footer(self, name: str, columns: tuple[str, ...]) -> Footer:
        """Return a Parquet file's footer."""
        ...

    def locked(self) -> contextlib.AbstractContextManager[bool]:
        """Lock the table for a writer; yield whether other writers are excluded.

        Raises TableError if another writer has the lock.
        """
        ...

    def path(self, name: str) -> str:
        """Return the path of a file, in the form that Spark reads."""
        ...


class LocalFiles:
    """Files of a local file system with hard links and locks."""

    has_view = True
    creates_whole = True

    def __init__(self, directory: str) -> None:
        self._base = Path(directory).absolute()
        self.root = str(self._base)

    def entries(self, folder: str) -> list[Entry]:
        """Return the entries of a folder, sorted by name; empty if the folder does not exist."""
        found = []
        try:
            with os.scandir(self._base / folder) as listing:
                for entry in listing:
                    status = entry.stat()
                    modified = status.st_mtime_ns // 1_000_000
                    found.append(Entry(entry.name, entry.is_dir(), status.st_size, modified))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise TableError(f"{self._base / folder} cannot be read: {error}") from error
        return sorted(found, key=lambda entry: entry.name)

    def read(self, name: str) -> str:
        """Return the text of a file. Raises TableError."""
        try:
            return (self._base / name).read_text()
        except OSError as error:
            raise TableError(f"{self._base / name} cannot be read: {error}") from error

    def create(self, name: str, text: str) -> None:
        """Create a file with this text durably; it appears only when complete."""
        final = self._base / name
        half = final.with_name(f".{final.name}.{os.getpid()}")
        with half.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(half, final)
        finally:
            half.unlink()
        _sync(final.parent)

    def make_folder(self, folder: str) -> None:
        """Create a folder and its parents."""
        try:
            (self._base / folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TableError(f"{self._base} cannot be used: {error}") from error

    def sync(self, folder: str) -> None:
        """Make the Parquet files of a folder and the folder's own name durable."""
        place = self._base / folder
        for path in sorted(place.glob("*.parquet")):
            _sync(path)
        _sync(place)
        _sync(place.parent)

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with its content; do nothing if it does not exist."""
        path = self._base / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def show(self, name: str, visible: str) -> None:
        """Link a file into the directory under the name `visible`."""
        try:
            os.link(self._base / name, self._base / visible)
        except FileNotFoundError as error:
            raise TableError(
                f"{self._base / name} belongs to the table and does not exist: restore it from a"
                " copy of the directory"
            ) from error
        except OSError as error:
            raise TableError(f"{self._base / visible} cannot be linked: {error}") from error

    def footer(self, name: str, columns: tuple[str, ...]) -> Footer:
        """Return a Parquet file's footer, read by Arrow."""
        from pyarrow import parquet

        found = parquet.read_metadata(self._base / name)
        names = [found.schema.column(place).path for place in range(len(found.schema))]
        bounds = {}
        for column in columns if found.num_rows else ():
            place = names.index(column)
            parts = [
                found.row_group(group).column(place).statistics
                for group in range(found.num_row_groups)
            ]
            bounds[column] = (min(part.min for part in parts), max(part.max for part in parts))
        return Footer(found.num_rows, bounds)

    @contextlib.contextmanager
    def locked(self) -> Iterator[bool]:
        """Lock the directory for a `with` block."""
        try:
            lock = os.open(self._base / "_tidelog" / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise TableError(f"{self._base} cannot be used: {error}") from error
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise TableError(f"another ingest is writing to {self._base}") from error
            yield True
        finally:
            os.close(lock)

    def path(self, name: str) -> str:
        """Return the path of a file, in the form that Spark reads."""
        return f"file://{self._base / name}"


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
