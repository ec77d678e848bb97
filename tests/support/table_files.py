"""File systems for tables: one that stops before any step, and one like an object store."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tidelog.spark.pipelines.table_files import Entry, Footer, TableFiles


class Crash(BaseException):
    """The program ends here."""


class StoppingFiles:
    """Another file system; it counts what changes files and crashes before step `crash_at`."""

    def __init__(self, inner: TableFiles, crash_at: int = -1) -> None:
        self._inner = inner
        self.root = inner.root
        self.has_view = inner.has_view
        self.creates_whole = inner.creates_whole
        self.crash_at = crash_at
        self.taken: list[str] = []

    def _step(self, name: str) -> None:
        if len(self.taken) == self.crash_at:
            raise Crash
        self.taken.append(name)

    def entries(self, folder: str) -> list[Entry]:
        return self._inner.entries(folder)

    def read(self, name: str) -> str:
        return self._inner.read(name)

    def create(self, name: str, text: str) -> None:
        self._step("create")
        self._inner.create(name, text)

    def make_folder(self, folder: str) -> None:
        self._step("make_folder")
        self._inner.make_folder(folder)

    def sync(self, folder: str) -> None:
        self._step("sync")
        self._inner.sync(folder)

    def delete(self, name: str) -> None:
        self._step("delete")
        self._inner.delete(name)

    def show(self, name: str, visible: str) -> None:
        self._step("show")
        self._inner.show(name, visible)

    def footer(self, name: str, columns: tuple[str, ...]) -> Footer:
        return self._inner.footer(name, columns)

    def locked(self) -> contextlib.AbstractContextManager[bool]:
        return self._inner.locked()

    def path(self, name: str) -> str:
        return self._inner.path(name)


class ObjectStore:
    """Objects by name, without folders, renames or locks; `torn` cuts the next created object."""

    has_view = False
    creates_whole = False
    root = "store://bucket/table"

    def __init__(self) -> None:
        self.objects: dict[str, str] = {}
        self.times: dict[str, int] = {}
        self.now_ms = 0
        self.torn = False

    def entries(self, folder: str) -> list[Entry]:
        prefix = f"{folder}/" if folder else ""
        below = [name.removeprefix(prefix) for name in self.objects if name.startswith(prefix)]
        found = {}
        for name in below:
            first, slash, _ = name.partition("/")
            time = self.times[prefix + name]
            found[first] = Entry(first, bool(slash), 0, time)
        return [found[name] for name in sorted(found)]

    def read(self, name: str) -> str:
        return self.objects[name]

    def create(self, name: str, text: str) -> None:
        if name in self.objects:
            raise FileExistsError(name)
        self.put(name, text[: len(text) // 2] if self.torn else text)
        if self.torn:
            raise Crash

    def put(self, name: str, text: str) -> None:
        """Write an object as Spark's tasks do."""
        self.objects[name], self.times[name] = text, self.now_ms

    def make_folder(self, folder: str) -> None:
        """Do nothing: there are no folders."""

    def sync(self, folder: str) -> None:
        """Do nothing: an object that exists is durable."""

    def delete(self, name: str) -> None:
        for each in [key for key in self.objects if key == name or key.startswith(f"{name}/")]:
            del self.objects[each]

    def show(self, name: str, visible: str) -> None:
        raise AssertionError("an object store has no view")

    def footer(self, name: str, columns: tuple[str, ...]) -> Footer:
        raise AssertionError("objects here are no Parquet files")

    @contextlib.contextmanager
    def locked(self) -> Iterator[bool]:
        yield False

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"
