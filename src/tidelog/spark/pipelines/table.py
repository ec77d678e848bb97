"""A directory of Parquet files that belongs to one topic, with manifests of its runs.

    DIR/flights-0-00000000000000000000-00000000000000056130.parquet   topic-partition-from-to
    DIR/_tidelog/000001.json    manifest of one run: offset ranges, rows, files
    DIR/_tidelog/staging/       files that a run has written and not yet committed

A run writes to staging, then its manifest as `.pending`: from here on the run counts. Then it moves
the files and renames the manifest. `recover` finishes a run with a pending manifest and discards a
run without one. So after any crash each offset is in the table once or not at all. Spark ignores
names that begin with an underscore. Local file systems only; one run at a time (a lock on the
directory). No Spark in here.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from tidelog.core.errors import TidelogError

BOOK: Final = "_tidelog"
_STAGING: Final = "staging"
_PENDING: Final = ".pending"
_FORMAT: Final = 1


class TableError(TidelogError):
    """An unusable directory; the message has the reason, and the right form."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file; `start` is its first offset, `end` lies after its last."""

    name: str
    partition: int
    start: int
    end: int
    rows: int


@dataclass(frozen=True, slots=True)
class PartitionRun:
    """A run's part of a partition: offsets `[start, end)` hold `rows` records.

    The other offsets are transaction markers (`control`) or were removed by compaction.
    """

    partition: int
    start: int
    end: int
    rows: int
    control: int = 0
    compacted: int = 0


@dataclass(frozen=True, slots=True)
class Manifest:
    """One committed run."""

    number: int
    topic: str
    topic_id: str
    cluster_id: str
    partitions: tuple[PartitionRun, ...]
    files: tuple[DataFile, ...]
    format: int = field(default=_FORMAT)

    def to_json(self) -> str:
        """Return the text of the manifest's file."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str, path: Path) -> Manifest:
        """Parse the text of `to_json`. Raises TableError naming the file."""
        try:
            fields: dict[str, Any] = json.loads(text)
            if fields["format"] != _FORMAT:
                raise TableError(f"{path} has format {fields['format']}, this version reads 1")
            fields["partitions"] = tuple(PartitionRun(**each) for each in fields["partitions"])
            fields["files"] = tuple(DataFile(**each) for each in fields["files"])
            return cls(**fields)
        except (ValueError, KeyError, TypeError) as error:
            raise TableError(f"{path} is no manifest of an ingest: {error!r}") from error


class TopicTable:
    """The directory of one topic's table. Make it with `open_table`, which holds its lock."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._book = directory / BOOK
        self.staging = self._book / _STAGING
        self.manifests: list[Manifest] = []

    def recover(self) -> None:
        """Finish or undo an interrupted run, and read the manifests."""
        for pending in sorted(self._book.glob(f"*{_PENDING}")):
            self._finish(Manifest.from_json(pending.read_text(), pending), pending)
        shutil.rmtree(self.staging, ignore_errors=True)
        paths = sorted(self._book.glob("[0-9]*.json"))
        self.manifests = [Manifest.from_json(path.read_text(), path) for path in paths]
        numbers = [manifest.number for manifest in self.manifests]
        if numbers != list(range(1, len(numbers) + 1)):
            raise TableError(f"{self._book} should hold manifests 1 to {len(numbers)}: {numbers}")

    def belongs_to(self, topic: str, topic_id: str, cluster_id: str) -> None:
        """Raise TableError when the table was filled from another topic."""
        for before in self.manifests[:1]:
            if before.topic != topic:
                raise TableError(
                    f"{self.directory} holds topic {before.topic!r}, not {topic!r}; ingest to"
                    " another directory"
                )
            if (before.topic_id, before.cluster_id) != (topic_id, cluster_id):
                raise TableError(
                    f"{self.directory} was filled from a topic {topic!r} with id"
                    f" {before.topic_id} in cluster {before.cluster_id}; this one has id"
                    f" {topic_id} in cluster {cluster_id}: it was recreated, or it is another"
                    " cluster. Ingest to another directory"
                )

    def next_offsets(self) -> dict[int, int]:
        """Return the next offset of each partition."""
        following: dict[int, int] = {}
        for manifest in self.manifests:
            for run in manifest.partitions:
                following[run.partition] = run.end
        return following

    def commit(
        self,
        topic: str,
        topic_id: str,
        cluster_id: str,
        partitions: Sequence[PartitionRun],
        staged: Mapping[Path, DataFile],
    ) -> Manifest:
        """Make staged files part of the table; `staged` maps their paths to their final names."""
        manifest = Manifest(
            number=len(self.manifests) + 1,
            topic=topic,
            topic_id=topic_id,
            cluster_id=cluster_id,
            partitions=tuple(partitions),
            files=tuple(staged.values()),
        )
        for path, data_file in staged.items():
            _sync(path)
            path.rename(self.staging / data_file.name)
        _sync(self.staging)
        pending = self._book / f"{manifest.number:06}.json{_PENDING}"
        half = pending.with_suffix(".half")
        half.write_text(manifest.to_json())
        _sync(half)
        half.rename(pending)
        _sync(self._book)
        self._finish(manifest, pending)
        self.manifests.append(manifest)
        shutil.rmtree(self.staging, ignore_errors=True)
        return manifest

    def _finish(self, manifest: Manifest, pending: Path) -> None:
        """Move the files of a run whose pending manifest is written; may be repeated."""
        for data_file in manifest.files:
            staged, final = self.staging / data_file.name, self.directory / data_file.name
            if staged.exists():
                staged.rename(final)
            elif not final.exists():
                raise TableError(f"{pending} names {data_file.name}, which does not exist")
        _sync(self.directory)
        pending.rename(pending.with_name(pending.name.removesuffix(_PENDING)))
        _sync(self._book)


def file_name(topic: str, partition: int, start: int, end: int) -> str:
    """Return topic-partition-from-to, so that names sort by offset."""
    return f"{topic}-{partition}-{start:020}-{end:020}.parquet"


@contextlib.contextmanager
def open_table(directory: str, *, create: bool) -> Iterator[TopicTable]:
    """Open the table in a directory: recovered, and locked while in use. Raises TableError."""
    if "://" in directory:
        raise TableError(f"{directory}: only directories of a local file system are supported")
    path = Path(directory).absolute()
    book = path / BOOK
    if not create and not book.is_dir():
        raise TableError(f"{path} holds no table: there is no {BOOK} in it")
    try:
        if not book.is_dir() and path.is_dir() and any(path.iterdir()):
            raise TableError(f"{path} holds other files; ingest to an empty or new directory")
        book.mkdir(parents=True, exist_ok=True)
        lock = os.open(book / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise TableError(f"{path} cannot be used: {error}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        table = TopicTable(path)
        table.recover()
        yield table
    except BlockingIOError as error:
        raise TableError(f"another ingest is writing to {path}") from error
    finally:
        os.close(lock)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
