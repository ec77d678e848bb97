"""The interface of lake tables, which each table format implements with its own library.

An implementation reads states and commits changes. An implementation retries nothing: `runs` looks
at the table after any answer but a success.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from tidelog.spark.lake.protocol import CommitAnswer
from tidelog.spark.lake.state import (
    OFFSET_COLUMNS,
    LakeCommit,
    LakeFile,
    LakeState,
    Origin,
    TableChange,
)
from tidelog.spark.lake.stores import LakeStore

if TYPE_CHECKING:
    import pyarrow as pa


class Lake(Protocol):
    """The interface of a Delta or Iceberg table that tidelog fills from one topic."""

    #: The table's path, URI or identifier, for messages.
    location: str
    #: What the numbers that `added_in` returns identify: "version" (Delta) or "snapshot" (Iceberg).
    commit_noun: str
    #: Whether data files contain the partition columns, or only the table's log has their values.
    keeps_partition_columns: bool
    #: Default time in seconds between the batches of an ingest that follows a topic. Each commit to
    #: an Iceberg table rewrites the list of all snapshots, and a batch a minute adds ten thousand
    #: snapshots in a week.
    batch_interval_s: float

    @property
    def store(self) -> LakeStore:
        """The store of the table's files."""
        ...

    def read(self) -> LakeState:
        """Return the state of the newest version; without a table its version is NO_VERSION."""
        ...

    def create(
        self, origin: Origin, schema: pa.Schema, partition_by: Sequence[str] = ()
    ) -> CommitAnswer:
        """Create an empty table of these columns, some of which are its partition columns."""
        ...

    def commit(self, state: LakeState, change: TableChange) -> CommitAnswer:
        """Commit a change on top of a state; send the commit only once."""
        ...

    def newest(self) -> int:
        """Return the newest version, whichever tool committed it; NO_VERSION without a table."""
        ...

    def commits(self, after: int | None = None) -> list[LakeCommit]:
        """Return the commits after a version, or all that the log still has, from the newest on."""
        ...

    def history(self) -> Iterable[tuple[int, int]]:
        """Yield (time in ms, version), newest first; each version became current at that time."""
        ...

    def files(
        self, version: int | None = None, bounded: tuple[str, str] = OFFSET_COLUMNS
    ) -> list[LakeFile]:
        """Return the data files of a version, of the newest by default.

        `bounded` names the partition and offset columns, whose bounds each returned file has.
        """
        ...

    def referenced(self) -> set[str]:
        """Return the paths of the files of the newest version, and of older versions that are
        kept.
        """
        ...

    def schema(self, version: int | None = None) -> pa.Schema:
        """Return the columns of a version, of the newest by default."""
        ...

    def field_ids(self) -> Mapping[str, int]:
        """Return the ids that files carry for their columns, by column path."""
        ...

    def check_files_are_rows(self, version: int | None = None) -> None:
        """Raise TableError if the files, read by column name, have other rows than the version."""
        ...

    def added_in(self, paths: Collection[str]) -> dict[str, tuple[int, ...]]:
        """Return, by path, the versions that added the file, if they are known.

        A format whose commits have ids returns the ids.
        """
        ...

    def types(self, schema: pa.Schema | None = None) -> dict[str, str]:
        """Return the types of the newest version's columns, or of `schema`, as the format's text.

        Raise TableError for a type that the format does not have.
        """
        ...

    def add_columns(self, state: LakeState, columns: pa.Schema) -> CommitAnswer:
        """Commit new columns on top of a state; send the commit only once.

        The columns are null in all existing rows.
        """
        ...

    def vacuum(self, keep_hours: int) -> int:
        """Delete data files that commits removed over `keep_hours` ago; return their number."""
        ...
