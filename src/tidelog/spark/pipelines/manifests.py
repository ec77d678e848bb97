"""Manifests: the added and removed files of each commit, and the table that they make up.

    DIR/_tidelog/000017.json

A manifest is a commit: the same file names a run's offsets and its data files, so neither exists
without the other. Numbers have no gaps. A *whole* manifest has the entire table instead of a
change, so that readers need no earlier manifest. The module uses neither files nor Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, field
from typing import Any, Final

from tidelog.core.dataclass import dataclass
from tidelog.spark.lake.state import Origin, PartitionRun, TableError, check_origin

__all__ = [
    "DataFile",
    "Manifest",
    "Origin",
    "PartitionRun",
    "TableError",
    "TableState",
    "check_numbers",
    "check_origin",
    "manifest_name",
    "numbers_of",
]

FORMAT: Final = 2


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file; `start` is its first offset, `end` lies after its last.

    `path` is relative to the table's directory. `name` is the file's readable name.
    """

    path: str
    name: str
    partition: int
    start: int
    end: int
    rows: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """One commit."""

    number: int
    #: The name of the folder of the run's files, unique for each run.
    run: str
    origin: Origin
    written_ms: int
    partitions: tuple[PartitionRun, ...]
    files: tuple[DataFile, ...]
    #: Paths of dead letters, as Spark reads them.
    dead_letters: tuple[str, ...] = ()
    #: Files that are no longer part of the table.
    removed: tuple[DataFile, ...] = ()
    #: Whether the manifest has the whole table, not a change.
    is_whole: bool = False
    format: int = field(default=FORMAT)

    def to_json(self) -> str:
        """Return the text of the manifest's file."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str, path: str) -> Manifest:
        """Parse the text of `to_json`. Raises TableError naming the file."""
        try:
            fields: dict[str, Any] = json.loads(text)
            if fields["format"] != FORMAT:
                raise TableError(
                    f"{path} has format {fields['format']}, this version reads {FORMAT}"
                )
            fields["origin"] = Origin(**fields["origin"])
            fields["partitions"] = tuple(PartitionRun(**each) for each in fields["partitions"])
            fields["dead_letters"] = tuple(fields["dead_letters"])
            for name in ("files", "removed"):
                fields[name] = tuple(DataFile(**each) for each in fields[name])
            return cls(**fields)
        except (ValueError, KeyError, TypeError) as error:
            raise TableError(f"{path} is no manifest of an ingest: {error!r}") from error


@dataclass(slots=True)
class TableState:
    """The content of a table after all manifests up to one number."""

    number: int = 0
    origin: Origin | None = None
    runs: dict[int, PartitionRun] = field(default_factory=dict)
    files: dict[str, DataFile] = field(default_factory=dict)
    dead_letters: list[str] = field(default_factory=list)

    def apply(self, manifest: Manifest) -> None:
        """Apply `manifest`, which must be the next manifest, or have the entire table."""
        if manifest.is_whole:
            self.runs, self.files, self.dead_letters = {}, {}, []
        self.number, self.origin = manifest.number, manifest.origin
        for run in manifest.partitions:
            before = self.runs.get(run.partition)
            self.runs[run.partition] = run if before is None else before.followed_by(run)
        if not manifest.is_whole:
            for gone in manifest.removed:
                self.files.pop(gone.path, None)
        for data_file in manifest.files:
            self.files[data_file.path] = data_file
        self.dead_letters += manifest.dead_letters

    def next_offsets(self) -> dict[int, int]:
        """Return the next offset of each partition."""
        return {run.partition: run.end for run in self.runs.values()}

    def whole(self, manifest: Manifest) -> Manifest:
        """Return `manifest` as a whole manifest, with the entire table instead of a change."""
        after = TableState(
            self.number, self.origin, dict(self.runs), dict(self.files), list(self.dead_letters)
        )
        after.apply(manifest)
        return Manifest(
            number=manifest.number,
            run=manifest.run,
            origin=manifest.origin,
            written_ms=manifest.written_ms,
            partitions=tuple(after.runs[number] for number in sorted(after.runs)),
            files=tuple(after.files.values()),
            dead_letters=tuple(after.dead_letters),
            removed=manifest.removed,
            is_whole=True,
        )


def manifest_name(number: int) -> str:
    """Return the file name of a manifest; names sort by number."""
    return f"{number:06}.json"


def numbers_of(names: Iterable[str]) -> list[int]:
    """Return the numbers of the manifests among file names, in order."""
    found = (name.removesuffix(".json") for name in names if name.endswith(".json"))
    return sorted(int(number) for number in found if number.isdigit())


def check_numbers(numbers: Sequence[int], folder: str) -> None:
    """Raise TableError if a manifest is missing between the first and the last number."""
    if numbers and list(numbers) != list(range(numbers[0], numbers[-1] + 1)):
        missing = sorted(set(range(numbers[0], numbers[-1])) - set(numbers))
        raise TableError(
            f"{folder} lacks the manifest {manifest_name(missing[0])}: without it the table is"
            " unknown; restore it from a copy of the directory"
        )
