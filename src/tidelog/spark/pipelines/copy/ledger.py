"""The directory of a copy: its clusters and topics, and the offset table.

    DIR/copy.json                 clusters, topics with their ids, the producer id of the copy
    DIR/offsets/000007.parquet    pieces of the offset table from one round (`-whole`: all rounds)

A file is written under a temporary name, then renamed to its final name. A round copies each
partition up to the log end at the round's begin. A round is done when its Parquet file exists;
without the file, `tail` finds the records of the round in the target. Only one copy at a time has
the lock of the directory. Any program may read the offset table as Parquet: each source offset lies
in the range of one row.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import TidelogError
from tidelog.core.types import TopicPartition
from tidelog.spark.pipelines.copy.offset_map import OffsetTable, Piece
from tidelog.spark.pipelines.directory_lock import directory_lock, whole_file

_ABOUT: Final = "copy.json"
_OFFSETS: Final = "offsets"
_FORMAT: Final = 1
_WHOLE: Final = "-whole"
#: Maximum number of files of the offset table; more files are merged into one.
_MOST_FILES: Final = 50

SCHEMA: Final = pa.schema(
    [
        ("source_topic", pa.string()),
        ("partition", pa.int32()),
        ("source_from", pa.int64()),
        ("source_to", pa.int64()),
        ("target_topic", pa.string()),
        ("target_from", pa.int64()),
        ("target_to", pa.int64()),
        ("records", pa.int64()),
        ("kind", pa.string()),
    ]
)


class LedgerError(TidelogError):
    """The error for an unusable directory of a copy; the message states the remedy."""


@dataclass(frozen=True, slots=True)
class CopiedTopic:
    """A topic and its copy, with ids as hexadecimal text."""

    source: str
    source_id: str
    target: str
    target_id: str


@dataclass(slots=True)
class About:
    """The content of `copy.json`: the clusters, topics and producer id of a copy."""

    source_cluster: str
    target_cluster: str
    producer_id: int
    producer_epoch: int
    topics: dict[str, CopiedTopic] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the text of `copy.json`."""
        topics = [asdict(each) for each in self.topics.values()]
        return json.dumps({**asdict(self), "topics": topics, "format": _FORMAT}, indent=1) + "\n"

    @classmethod
    def of(cls, text: str, path: Path) -> About:
        """Return the content of a `copy.json` from its text. Raises LedgerError with the path."""
        try:
            found: dict[str, Any] = json.loads(text)
            if found.pop("format") != _FORMAT:
                raise ValueError("another format")
            topics = [CopiedTopic(**each) for each in found.pop("topics")]
            return cls(**found, topics={each.source: each for each in topics})
        except (ValueError, TypeError, KeyError) as error:
            raise LedgerError(
                f"{path} is no description of a copy ({error!r}); copy into a new topic, with a"
                " new directory"
            ) from error


class CopyLedger:
    """The directory in which one copy keeps its clusters, topics and offset table."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._offsets = directory / _OFFSETS
        #: The offset table of each source partition.
        self.maps: dict[TopicPartition, OffsetTable] = {}

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Create the directory and hold its lock; raise LedgerError if another copy has it."""
        with directory_lock(self._directory, LedgerError, "the offset table", "another copy"):
            try:
                self._offsets.mkdir(exist_ok=True)
            except OSError as error:
                raise LedgerError(f"{self._offsets} is no directory: {error.strerror}") from error
            yield

    def about(self) -> About | None:
        """Return the content of `copy.json`; None for a new directory."""
        path = self._directory / _ABOUT
        try:
            return About.of(path.read_text(encoding="utf-8"), path)
        except FileNotFoundError:
            return None

    def describe(self, about: About) -> None:
        """Write `copy.json`."""
        with whole_file(self._directory / _ABOUT) as file:
            file.write(about.to_json().encode())

    def load(self) -> None:
        """Read the offset table from disk.

        Raises LedgerError for a file that does not belong to this offset table, and OffsetMapError
        for a gap.
        """
        paths = self._files()
        rows: list[dict[str, Any]] = []
        for path in paths:
            rows += _read(path)
        rows.sort(key=lambda row: (row["source_topic"], row["partition"], row["source_from"]))
        self.maps = {}
        for row in rows:
            tp = TopicPartition(row["source_topic"], row["partition"])
            piece = Piece(row["source_from"], row["source_to"], row["target_from"], row["kind"])
            self.maps.setdefault(tp, OffsetTable()).add(piece)

    def add(self, round_: Mapping[TopicPartition, Sequence[Piece]], about: About) -> None:
        """Add the pieces of one round of the copy to the offset table, also on disk."""
        rows = [
            _row(tp, about.topics[tp.topic].target, piece)
            for tp, pieces in round_.items()
            for piece in pieces
        ]
        if not rows:
            return
        for tp, pieces in round_.items():
            known = self.maps.setdefault(tp, OffsetTable())
            for piece in pieces:
                known.add(piece)
        numbers = [int(path.stem[:6]) for path in self._offsets.glob("*.parquet")]
        number = max(numbers, default=0) + 1
        _write(self._offsets / f"{number:06d}.parquet", rows)
        if len(numbers) + 1 > _MOST_FILES:
            self._compact(number + 1, about)

    def _compact(self, number: int, about: About) -> None:
        rows = [
            _row(tp, about.topics[tp.topic].target, piece)
            for tp, known in sorted(self.maps.items())
            for piece in known.pieces
        ]
        _write(self._offsets / f"{number:06d}{_WHOLE}.parquet", rows)
        self._files()

    def _files(self) -> list[Path]:
        """Return the valid files; delete files whose pieces a later `-whole` file contains."""
        paths = sorted(self._offsets.glob("*.parquet"))
        whole = [path for path in paths if path.stem.endswith(_WHOLE)]
        if not whole:
            return paths
        for path in paths:
            if path < whole[-1]:
                path.unlink()
        return [path for path in paths if path >= whole[-1]]


def _row(tp: TopicPartition, target: str, piece: Piece) -> dict[str, Any]:
    return {
        "source_topic": tp.topic,
        "partition": tp.partition,
        "source_from": piece.start,
        "source_to": piece.end,
        "target_topic": target,
        "target_from": piece.target,
        "target_to": piece.target_end,
        "records": piece.records,
        "kind": piece.kind,
    }


def _write(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with whole_file(path) as file:
        pq.write_table(pa.Table.from_pylist(list(rows), SCHEMA), file, compression="zstd")


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise LedgerError(f"{path} is no part of an offset table: {error}") from error
    if table.schema.names != SCHEMA.names:
        raise LedgerError(f"{path} is no part of an offset table: it has other columns")
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows
