"""A directory of Parquet files that belongs to one topic, with a manifest for each commit.

    DIR/_tidelog/table.json            the table's id
    DIR/_tidelog/000001.json           manifest of a commit: offset ranges, rows, files
    DIR/_tidelog/data/RUN/*.parquet    files of a run, never renamed
    DIR/flights-0-FROM-TO.parquet      the same files with readable names (local file systems only)

A run writes files into its own folder, then commits by the exclusive creation of its manifest. A
folder without a manifest belongs to a dead run, and is deleted. The links with readable names are
restored from the manifests. After any crash, each offset is therefore in the table once or not at
all. The module does not use Spark.
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Final

from tidelog.spark.pipelines.manifests import (
    DataFile,
    Manifest,
    Origin,
    PartitionRun,
    TableError,
    TableState,
    check_numbers,
    check_origin,
    manifest_name,
    numbers_of,
)
from tidelog.spark.pipelines.table_files import LocalFiles, TableFiles

BOOK: Final = "_tidelog"
_IDENTITY: Final = f"{BOOK}/table.json"
_DATA: Final = f"{BOOK}/data"
#: Age in ms at which a folder without a manifest counts as left by a dead run, if the table has no
#: lock.
ORPHAN_MS: Final = 24 * 3_600_000
#: Age in ms at which a torn manifest counts as left by a dead run; a write is far faster.
_TORN_MS: Final = 60_000
#: Number of commits after which a manifest has the entire table, so that readers read few files.
_WHOLE_EVERY: Final = 100


class TopicTable:
    """The table of one topic; `open_table` opens it for writes, `read_only` for reads."""

    def __init__(self, files: TableFiles) -> None:
        self.files = files
        self.state = TableState()
        #: The last manifest with the entire table, and all later manifests.
        self.manifests: list[Manifest] = []
        self.table_id = ""
        #: The last manifest if it is incomplete: a run is writing it, or died while writing.
        self.torn: str | None = None

    @property
    def directory(self) -> str:
        """The table's directory."""
        return self.files.root

    def load(self) -> None:
        """Read the manifests. Raises TableError."""
        identity = self.files.read(_IDENTITY)
        try:
            self.table_id = str(json.loads(identity)["id"])
        except (ValueError, KeyError, TypeError) as error:
            raise TableError(
                f"{self.directory}/{_IDENTITY} is not of a table: {error!r}"
            ) from error
        numbers = numbers_of(entry.name for entry in self.files.entries(BOOK))
        check_numbers(numbers, f"{self.directory}/{BOOK}")
        self.torn = None
        if numbers and not self.files.creates_whole and not self._is_whole_file(numbers[-1]):
            self.torn = f"{BOOK}/{manifest_name(numbers.pop())}"
        if numbers and numbers[0] != 1 and not self._read(numbers[0]).is_whole:
            raise TableError(
                f"{self.directory}/{BOOK} begins with {manifest_name(numbers[0])}, which is not"
                " whole: restore the manifests before it from a copy of the directory"
            )
        kept: list[Manifest] = []
        for number in reversed(numbers):
            kept.append(self._read(number))
            if kept[-1].is_whole:
                break
        self.state, self.manifests = TableState(), []
        for manifest in reversed(kept):
            self.state.apply(manifest)
            self.manifests.append(manifest)

    def _read(self, number: int) -> Manifest:
        name = f"{BOOK}/{manifest_name(number)}"
        return Manifest.from_json(self.files.read(name), f"{self.directory}/{name}")

    def _is_whole_file(self, number: int) -> bool:
        """Return whether a manifest, which is written in one piece, has its last character."""
        return self.files.read(f"{BOOK}/{manifest_name(number)}").endswith("}\n")

    def clear_torn(self) -> None:
        """Delete the torn manifest of a dead run; raise TableError if the run may be alive."""
        if self.torn is None:
            return
        age = [
            now_ms() - entry.modified_ms
            for entry in self.files.entries(BOOK)
            if f"{BOOK}/{entry.name}" == self.torn
        ]
        if age and age[0] < _TORN_MS:
            raise TableError(
                f"{self.directory}/{self.torn} is not whole: another run writes it now, or it died"
                f" {age[0] // 1000} s ago. Run this again after {_TORN_MS // 1000} s"
            )
        self.files.delete(self.torn)
        self.torn = None

    def all_manifests(self) -> list[Manifest]:
        """Read all existing manifests in order."""
        return [
            self._read(number)
            for number in numbers_of(entry.name for entry in self.files.entries(BOOK))
            if f"{BOOK}/{manifest_name(number)}" != self.torn
        ]

    def recover(self, *, alone: bool) -> None:
        """Delete files of dead runs, and restore the links with readable names.

        With `alone` there is no other writer, so any folder without a manifest is of a dead run.
        """
        self.restore_view()
        for entry in self.files.entries(BOOK) if alone else ():
            if entry.name.startswith("."):
                self.files.delete(f"{BOOK}/{entry.name}")
        live = {path.split("/")[2] for path in self.state.files}
        unknown = [entry for entry in self.files.entries(_DATA) if entry.name not in live]
        if unknown:
            # Files that compaction replaced stay for readers; manifests still name the files' runs.
            kept = {manifest.run for manifest in self.all_manifests()}
            kept |= {
                gone.path.split("/")[2] for each in self.all_manifests() for gone in each.removed
            }
            oldest = now_ms() - ORPHAN_MS
            for entry in unknown:
                if entry.name not in kept and (alone or entry.modified_ms < oldest):
                    self.files.delete(f"{_DATA}/{entry.name}")

    def restore_view(self) -> None:
        """Restore the readable names: one link for each file of the table."""
        if not self.files.has_view:
            return
        wanted = {each.name: each.path for each in self.state.files.values()}
        present = {
            entry.name
            for entry in self.files.entries("")
            if not entry.is_folder and not entry.name.startswith(("_", "."))
        }
        surplus = present - set(wanted)
        if surplus:
            known = {gone.name for each in self.all_manifests() for gone in each.removed}
            foreign = sorted(surplus - known)
            if foreign:
                raise TableError(
                    f"{self.directory} holds {foreign[0]}, which no ingest wrote: move it away, or"
                    " ingest to another directory"
                )
            for name in sorted(surplus):
                self.files.delete(name)
        for name in sorted(set(wanted) - present):
            self.files.show(wanted[name], name)

    def belongs_to(self, origin: Origin) -> None:
        """Raise TableError if the table was filled from another topic."""
        if self.state.origin is not None:
            check_origin(self.state.origin, origin, self.directory)

    def new_run(self) -> tuple[str, str]:
        """Return the name of a new run and its folder, which does not exist yet."""
        run = uuid.uuid4().hex[:16]
        return run, f"{_DATA}/{run}"

    def discard(self, run: str) -> None:
        """Delete the files of a run that is not committed."""
        self.files.delete(f"{_DATA}/{run}")

    def commit(
        self,
        run: str,
        origin: Origin,
        partitions: Sequence[PartitionRun],
        added: Sequence[DataFile],
        removed: Sequence[DataFile] = (),
        dead_letters: Sequence[str] = (),
        *,
        whole: bool = False,
    ) -> Manifest:
        """Add a run's files to the table, and remove `removed`. Raises TableError.

        A run is committed when its manifest exists under its final name. The readable names follow.
        """
        manifest = Manifest(
            number=self.state.number + 1,
            run=run,
            origin=origin,
            written_ms=now_ms(),
            partitions=tuple(partitions),
            files=tuple(added),
            dead_letters=tuple(dead_letters),
            removed=tuple(removed),
        )
        folders = sorted({each.path.rpartition("/")[0] for each in added})
        for folder in folders:
            self.files.sync(folder)
        written = manifest
        if whole or manifest.number % _WHOLE_EVERY == 0:
            written = self.state.whole(manifest)
        self._create(written, folders)
        self.state.apply(written)
        self.manifests.append(written)
        self._update_view(manifest)
        return manifest

    def _create(self, manifest: Manifest, folders: Sequence[str]) -> None:
        """Create a manifest's file exclusively; `folders` hold the run's files. Raises TableError.

        If the outcome of the creation is unknown, the run's files stay, because the manifest may
        exist. An existing manifest may come from this run's first attempt, whose response was lost.
        """
        name = f"{BOOK}/{manifest_name(manifest.number)}"
        try:
            self.files.create(name, manifest.to_json())
        except FileExistsError as error:
            if self._read(manifest.number).run != manifest.run:
                for folder in folders:
                    self.files.delete(folder)
                raise TableError(
                    f"another run has committed to {self.directory} meanwhile (manifest"
                    f" {manifest.number}); nothing of this one was added. Run it again"
                ) from error
        except OSError as error:
            raise TableError(f"{self.directory}/{name} cannot be written: {error}") from error
        if self._read(manifest.number).run != manifest.run:
            raise TableError(
                f"another run has replaced {name} in {self.directory}: its file system creates no"
                " file exclusively, so let one run at a time write there"
            )

    def _update_view(self, manifest: Manifest) -> None:
        if not self.files.has_view:
            return
        for gone in manifest.removed:
            self.files.delete(gone.name)
        for data_file in manifest.files:
            self.files.show(data_file.path, data_file.name)

    def clean(self, keep_ms: int) -> int:
        """Delete files and manifests that the table has not needed for `keep_ms`.

        Returns the number of deleted data files. Data files are deleted before manifests, so that
        after a crash a manifest names each remaining file.
        """
        limit = now_ms() - keep_ms
        manifests = self.all_manifests()
        present = {
            f"{_DATA}/{folder.name}/{entry.name}"
            for folder in self.files.entries(_DATA)
            for entry in self.files.entries(f"{_DATA}/{folder.name}")
        }
        gone = {
            each.path
            for manifest in manifests
            if manifest.written_ms <= limit
            for each in manifest.removed
        }
        deleted = sorted(path for path in gone - set(self.state.files) if path in present)
        for path in deleted:
            self.files.delete(path)
        left = {path.split("/")[2] for path in present - set(deleted) if path.endswith(".parquet")}
        for folder in {path.split("/")[2] for path in deleted} - left:
            self.files.delete(f"{_DATA}/{folder}")
        whole = [each for each in manifests if each.is_whole and each.written_ms <= limit]
        for manifest in manifests if whole else ():
            if manifest.number < whole[-1].number:
                self.files.delete(f"{BOOK}/{manifest_name(manifest.number)}")
        return len(deleted)


def file_name(topic: str, partition: int, start: int, end: int) -> str:
    """Return a data file's name, topic-partition-from-to, so that names sort by offset."""
    return f"{topic}-{partition}-{start:020}-{end:020}.parquet"


def now_ms() -> int:
    """Return the time in ms since 1970."""
    return time.time_ns() // 1_000_000


@contextlib.contextmanager
def open_table(files: TableFiles, *, create: bool) -> Iterator[TopicTable]:
    """Open a table to write: recover it, and lock it if the file system can. Raises TableError."""
    entries = files.entries("")
    names = [entry.name for entry in files.entries(BOOK)]
    if "table.json" not in names:
        if not create:
            raise TableError(f"{files.root} holds no table: there is no {_IDENTITY} in it")
        if any(entry.name != BOOK for entry in entries) or numbers_of(names):
            raise TableError(f"{files.root} holds other files; ingest to an empty or new directory")
    files.make_folder(BOOK)
    with files.locked() as alone:
        if "table.json" not in names:
            identity = json.dumps({"id": uuid.uuid4().hex}) + "\n"
            try:
                with contextlib.suppress(FileExistsError):  # another run created the file
                    files.create(_IDENTITY, identity)
            except OSError as error:
                raise TableError(f"{files.root} cannot be used: {error}") from error
        table = TopicTable(files)
        table.load()
        table.clear_torn()
        table.recover(alone=alone)
        yield table


def read_only(files: TableFiles) -> TopicTable:
    """Open a table for reads; a writer may continue meanwhile. Raises TableError."""
    if not any(entry.name == "table.json" for entry in files.entries(BOOK)):
        raise TableError(f"{files.root} holds no table: there is no {_IDENTITY} in it")
    table = TopicTable(files)
    table.load()
    return table


def local_files(directory: str) -> LocalFiles | None:
    """Return the files of a path without a scheme or with `file:`; None for other schemes."""
    if directory.startswith("file:"):
        return LocalFiles("/" + directory.removeprefix("file:").lstrip("/"))
    return None if "://" in directory else LocalFiles(directory)
