"""Reads of Iceberg tables and commits to them, with the library pyiceberg.

A commit succeeds only on top of the snapshot that it expects. The version of a table is Iceberg's
last sequence number: each commit of a snapshot raises it, and a rollback does not lower it. A
commit records its offsets (`CommitNote`) in the summary of its snapshot, so that a rollback undoes
offsets and rows together. A second copy of the offsets is in the table's properties, in case
another tool expires all snapshots with offsets.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from tidelog.runtime.extras import install_command
from tidelog.spark.lake.field_ids import plain_types
from tidelog.spark.lake.iceberg_manifests import (
    IDENTITY,
    ancestors,
    bound,
    bounds,
    entries,
    hidden_rows,
    reachable,
    values_of,
)
from tidelog.spark.lake.protocol import NO_VERSION, CommitAnswer
from tidelog.spark.lake.state import (
    MARK,
    OFFSET_COLUMNS,
    CommitNote,
    HiddenRowsError,
    LakeCommit,
    LakeFile,
    LakeState,
    Origin,
    TableChange,
    TableError,
)
from tidelog.spark.lake.stores import LakeStore, location_of, reason_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.types import IcebergType

_ORIGIN: Final = f"{MARK}.origin"
#: The property with the last commit's offsets; `_NOTE_VERSION` is the property with the sequence
#: number of this commit's snapshot.
_NOTE: Final = f"{MARK}.note"
_NOTE_VERSION: Final = f"{MARK}.note-version"
_RETRIES: Final = "commit.retry.num-retries"
_PROPERTIES: Final = {
    "format-version": "2",
    # With retries, pyiceberg would commit on top of another run's commit, and two runs would land
    # the same offsets.
    _RETRIES: "0",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}
#: Pattern of field ids in the text of a type.
_IDS: Final = re.compile(r"-?[0-9]+: ")
#: Parts of the error messages of requests that would fail again if they were retried.
_REFUSED: Final = (
    "Permission denied",
    "Read-only file system",
    "readonly database",
    "No space left",
    "disk is full",
    "AccessDenied",
    "ACCESS_DENIED",
)


#: The field id of a table's first partition column.
_FIRST_PARTITION_ID: Final = 1000
#: The time of a commit may lie at most this far before the time of the previous commit: readers of
#: Iceberg refuse a table whose times go back further.
_CLOCK_TOLERANCE_MS: Final = 60_000


class IcebergLake:
    """An Iceberg table of a catalog."""

    commit_noun = "snapshot"
    keeps_partition_columns = True
    batch_interval_s = 60.0

    def __init__(self, identifier: str, options: Mapping[str, str] | None = None) -> None:
        self.location = f"iceberg:{identifier}"
        self._identifier = tuple(identifier.split("."))
        if len(self._identifier) < 2 or not all(self._identifier):
            raise TableError(f"{self.location} is not like iceberg:NAMESPACE.TABLE")
        self._options = dict(options or {})
        self._catalog: Catalog | None = None
        self._table: Table | None = None

    @property
    def store(self) -> LakeStore:
        """The store of the table's files. Raises TableError."""
        from tidelog.spark.lake.iceberg_library import store_options

        table = self._at_head()
        return LakeStore(location_of(table.location()), store_options(table.io.properties))

    def read(self) -> LakeState:
        """Read the state of the newest version. Raises TableError."""
        table = self._open()
        if table is None:
            return LakeState()
        text = table.properties.get(_ORIGIN)
        if text is None:
            raise TableError(
                f"{self.location} is an Iceberg table that no ingest has made; ingest to another"
                " table, or prove it with --partition-column and --offset-column"
            )
        origin = Origin(**json.loads(text))
        note = self._last_note(table)
        partitions = () if note is None else note.partitions
        return LakeState(
            _version(table),
            origin,
            {run.partition: run for run in partitions},
            0 if note is None else note.fence,
            True if note is None else note.is_whole,
            str(table.metadata.table_uuid),
            partition_by=self._partition_columns(table),
            head=_head(table),
        )

    def create(
        self, origin: Origin, schema: pa.Schema, partition_by: Sequence[str] = ()
    ) -> CommitAnswer:
        """Create an empty table of these columns, with partition columns. Raises TableError."""
        from pyiceberg.exceptions import TableAlreadyExistsError
        from pyiceberg.partitioning import PartitionField, PartitionSpec
        from pyiceberg.schema import assign_fresh_schema_ids
        from pyiceberg.transforms import IdentityTransform

        for name in partition_by:
            if "." in name:
                raise TableError(
                    f"{self.location}: Iceberg reads the partition column {name!r} as nested"
                )
        catalog = self._known_catalog()
        self._check_folder()
        converted = assign_fresh_schema_ids(self._converted(schema))
        ids = {field.name: field.field_id for field in converted.fields}
        spec = PartitionSpec(
            *(
                PartitionField(ids[name], _FIRST_PARTITION_ID + place, IdentityTransform(), name)
                for place, name in enumerate(partition_by)
            )
        )
        properties = {**_PROPERTIES, _ORIGIN: json.dumps(asdict(origin))}
        with self._asking("be created"):
            try:
                catalog.create_namespace_if_not_exists(self._identifier[:-1])
                catalog.create_table(
                    self._identifier, converted, partition_spec=spec, properties=properties
                )
            except TableAlreadyExistsError:
                return CommitAnswer.CONFLICT
            except Exception:
                if self._open() is not None:  # this run created the table, and the answer was lost
                    return CommitAnswer.CONFLICT
                raise
        return CommitAnswer.COMMITTED

    def commit(self, state: LakeState, change: TableChange) -> CommitAnswer:
        """Commit a change on top of `state`; raise TableError if the catalog refuses it."""
        note = CommitNote.after(state, change)
        return self._sent(state, lambda table: self._commit(table, note, change))

    def _sent(self, state: LakeState, send: Callable[[Table], None]) -> CommitAnswer:
        """Send a commit on top of `state`. Raises TableError."""
        from pyiceberg.exceptions import CommitFailedException, ValidationException

        from tidelog.spark.lake.iceberg_commits import HeadTransaction
        from tidelog.spark.lake.iceberg_library import CATALOG_ERRORS

        table = self._at_head()
        if (_version(table), _head(table)) != (state.version, state.head):
            return CommitAnswer.CONFLICT
        self._check_clock(table)
        try:
            if table.properties.get(_RETRIES) != "0":
                HeadTransaction(table).set_properties({_RETRIES: "0"}).commit_transaction()
                return CommitAnswer.CONFLICT  # another commit may have come first
            send(table)
        except (CommitFailedException, ValidationException):
            return CommitAnswer.CONFLICT
        except FileNotFoundError as error:
            raise TableError(f"{self.location} lacks a file to commit: {error}") from error
        except CATALOG_ERRORS as error:
            return self._answer_of(error)
        return CommitAnswer.COMMITTED

    def _commit(self, table: Table, note: CommitNote, change: TableChange) -> None:
        from pyiceberg.table.snapshots import Operation

        from tidelog.spark.lake.iceberg_commits import HeadTransaction, ReplacedFiles, data_file

        if change.removed:
            self._check_rows(table, table.current_snapshot())
        transaction = HeadTransaction(table)
        transaction.set_properties(
            {
                _NOTE: note.to_json(),
                _NOTE_VERSION: str(table.metadata.next_sequence_number()),
            }
        )
        noted = {MARK: note.to_json()}
        update = transaction.update_snapshot(snapshot_properties=noted)
        producer: Any = update.overwrite() if change.removed else update.merge_append()
        if change.removed and not change.offsets:
            producer = ReplacedFiles(
                Operation.OVERWRITE, transaction, table.io, snapshot_properties=noted
            )
        root = table.location()
        for file in change.added:
            path = f"{root}/{file.path}"
            producer.append_data_file(data_file(table.io, table.metadata, path, file.values))
        removed = {file.path for file in change.removed}
        if removed:
            for entry in entries(table, table.current_snapshot()):
                path = self._path_of(table, entry.data_file)
                if path in removed:
                    producer.delete_data_file(entry.data_file)
                    removed.remove(path)
        if removed:
            raise TableError(f"{self.location} has no file {min(removed)} to replace")
        producer.commit()
        transaction.commit_transaction()

    def newest(self) -> int:
        """Return the newest version; NO_VERSION without a table. Raises TableError."""
        table = self._open()
        return NO_VERSION if table is None else _version(table)

    def commits(self, after: int | None = None) -> list[LakeCommit]:
        """Return the commits after a version, or all that the table still has, newest first."""
        table = self._at_head()
        found = []
        for snapshot in ancestors(table):
            version = snapshot.sequence_number or 0
            if after is not None and version <= after:
                break
            note = self._note_of(snapshot)
            found.append(LakeCommit(version, snapshot.timestamp_ms, note))
        return found

    def history(self) -> Iterator[tuple[int, int]]:
        """Yield (time in ms, version), newest first; each version became current at that time.

        A rolled-back snapshot has its snapshot id in place of the version. Raises TableError.
        """
        table = self._at_head()
        versions = {each.snapshot_id: each.sequence_number or 0 for each in ancestors(table)}
        for entry in reversed(table.history()):
            yield entry.timestamp_ms, versions.get(entry.snapshot_id, entry.snapshot_id)

    def files(
        self, version: int | None = None, bounded: tuple[str, str] = OFFSET_COLUMNS
    ) -> list[LakeFile]:
        """Return the data files of a version, of the newest by default.

        `bounded` names the partition and offset columns whose bounds the files have. Raises
        TableError.
        """
        table = self._at_head()
        snapshot = self._snapshot(table, version)
        with self._asking("be read"):
            return [
                self._file_of(table, entry.data_file, bounded) for entry in entries(table, snapshot)
            ]

    def referenced(self) -> set[str]:
        """Return the paths of the data files of all snapshots, also of branches and tags."""
        table = self._at_head()
        root = f"{location_of(table.location())}/"
        with self._asking("be read"):
            files = reachable(table, table.snapshots())
        return {location_of(path).removeprefix(root) for path, is_data in files.items() if is_data}

    def schema(self, version: int | None = None) -> pa.Schema:
        """Return the columns of a version, of the newest by default. Raises TableError."""
        table = self._at_head()
        return plain_types(self._iceberg_schema(table, version).as_arrow())

    def field_ids(self) -> Mapping[str, int]:
        """Return the field id of each column; data files contain these ids."""
        from pyiceberg.schema import index_by_name

        return dict(index_by_name(self._at_head().schema()))

    def check_files_are_rows(self, version: int | None = None) -> None:
        """Raise TableError if the files, read by column name, have other rows than the version."""
        table = self._at_head()
        self._check_rows(table, self._snapshot(table, version))

    def added_in(self, paths: Collection[str]) -> dict[str, tuple[int, ...]]:
        """Return the ids of the snapshots that added each of these files.

        A returned snapshot may be expired. A file may have been added more than once.
        """
        table = self._at_head()
        added: dict[str, tuple[int, ...]] = {}
        for entry in entries(table, table.current_snapshot()):
            path = self._path_of(table, entry.data_file)
            if path in paths and entry.snapshot_id is not None:
                added[path] = (*added.get(path, ()), entry.snapshot_id)
        return added

    def types(self, schema: pa.Schema | None = None) -> dict[str, str]:
        """Return the types of the newest version's columns, or of `schema`, as Iceberg writes them.

        Raises TableError for a type that Iceberg does not have.
        """
        found = self._at_head().schema() if schema is None else self._converted(schema)
        return {field.name: _type_text(field.field_type) for field in found.fields}

    def add_columns(self, state: LakeState, columns: pa.Schema) -> CommitAnswer:
        """Commit new columns, without a new version; return CONFLICT if the schema changed.

        Raises TableError.
        """

        def send(table: Table) -> None:
            with table.update_schema() as update:
                update.union_by_name(columns)

        return self._sent(state, send)

    def vacuum(self, keep_hours: int) -> int:
        """Expire snapshots that were replaced over `keep_hours` ago; count the deleted data files.

        Raises TableError.
        """
        from tidelog.spark.lake.iceberg_vacuum import vacuum

        table = self._at_head()
        self._check_clock(table)
        with self._asking("be vacuumed"):
            return vacuum(table, self.store, keep_hours)

    def _check_clock(self, table: Table) -> None:
        """Raise TableError if a commit by this machine's clock would make the table unreadable."""
        last_ms = table.metadata.last_updated_ms
        behind_ms = last_ms - time.time_ns() // 1_000_000
        if behind_ms <= _CLOCK_TOLERANCE_MS:
            return
        last = datetime.fromtimestamp(last_ms / 1_000, UTC)
        raise TableError(
            f"{self.location} has version {_version(table)} of {last:%Y-%m-%d %H:%M:%S} UTC, and"
            f" the clock of this machine is {behind_ms // 1_000} seconds behind it. Spark and other"
            " readers refuse a table whose times go back, so nothing was committed: set the clocks"
            " of all machines that write the table"
        )

    def _check_rows(self, table: Table, snapshot: Snapshot | None) -> None:
        for feature in hidden_rows(table, snapshot):
            raise HiddenRowsError(
                f"{self.location} has {feature}: read it with Iceberg's own reader"
            )

    def _converted(self, schema: pa.Schema) -> Schema:
        """Convert Arrow columns to Iceberg columns without field ids. Raises TableError."""
        from pyiceberg.io.pyarrow import (
            UnsupportedPyArrowTypeException,
            _pyarrow_to_schema_without_ids,
        )

        try:
            return _pyarrow_to_schema_without_ids(schema)
        except (UnsupportedPyArrowTypeException, ValueError) as error:
            raise TableError(f"{self.location}: Iceberg has no such column: {error}") from error

    def _snapshot(self, table: Table, version: int | None) -> Snapshot | None:
        """Return the snapshot whose version or snapshot id is `version`. Raises TableError."""
        newest = _version(table)
        if version is None or version == newest:
            return table.current_snapshot()
        if version == 0:
            return None
        found = table.metadata.snapshot_by_id(version)
        matches = (each for each in ancestors(table) if each.sequence_number == version)
        found = found or next(matches, None)
        if found is None:
            raise TableError(
                f"{self.location} has no version {version}: it was expired, or is yet to come (the"
                f" newest is {newest})"
            )
        return found

    def _iceberg_schema(self, table: Table, version: int | None) -> Schema:
        if version is None or version == _version(table):
            return table.schema()
        snapshot = self._snapshot(table, version)
        number = None if snapshot is None else snapshot.schema_id
        return table.schema() if number is None else table.schemas()[number]

    def _last_note(self, table: Table) -> CommitNote | None:
        """Return the newest offsets in a snapshot, or else their copy in the table's properties."""
        head = table.current_snapshot()
        for snapshot in ancestors(table):
            note = self._note_of(snapshot)
            if note is not None:
                return note
        text = table.properties.get(_NOTE)
        if text is None:
            return None
        note = CommitNote.from_json(text, self.location)
        is_older = head is None or (head.sequence_number or 0) < int(
            table.properties[_NOTE_VERSION]
        )
        if is_older or (not note.origin.upsert_key and _rows_of(head) < _rows_in(note)):
            raise TableError(
                f"{self.location}: no snapshot has an ingest's offsets any more, and the newest"
                " one has fewer rows than have landed: it was rolled back, or another tool has"
                " deleted rows. Ingest to another table"
            )
        return note

    def _note_of(self, snapshot: Snapshot) -> CommitNote | None:
        text = None if snapshot.summary is None else snapshot.summary[MARK]
        return None if text is None else CommitNote.from_json(text, self.location)

    def _file_of(self, table: Table, file: DataFile, bounded: tuple[str, str]) -> LakeFile:
        """Return a data file of the table; offset bounds that its manifest lacks are -1."""
        schema = table.schema()
        lowest, highest = (bound(schema, bounded[1], each) for each in bounds(file))
        partition, last = (bound(schema, bounded[0], each) for each in bounds(file))
        return LakeFile(
            path=self._path_of(table, file),
            partition=-1 if partition is None or partition != last else partition,
            start=-1 if lowest is None else lowest,
            end=-1 if highest is None else highest + 1,
            rows=file.record_count,
            size_bytes=file.file_size_in_bytes,
            values=values_of(table, file),
        )

    def _partition_columns(self, table: Table) -> tuple[str, ...]:
        """Return the table's partition columns. Raises TableError if the table
        is partitioned by a transform of a column, such as `bucket`.
        """
        for field in table.spec().fields:
            if str(field.transform) != IDENTITY:
                raise TableError(
                    f"{self.location} is partitioned by {field.transform} of a column, which"
                    " ingests do not support; ingest to another table"
                )
        return tuple(field.name for field in table.spec().fields)

    def _path_of(self, table: Table, file: DataFile) -> str:
        """Return a file's path below the table's location. Raises TableError for a file
        elsewhere.
        """
        root, path = location_of(table.location()), location_of(file.file_path)
        if not path.startswith(f"{root}/"):
            raise TableError(f"{self.location} has a file outside of {root}: {path}")
        return path.removeprefix(f"{root}/")

    def _answer_of(self, error: Exception) -> CommitAnswer:
        from requests import RequestException

        from tidelog.spark.lake.iceberg_library import REFUSALS

        text = reason_of(error)
        is_refused = isinstance(error, REFUSALS) and not isinstance(error, RequestException)
        if is_refused or any(word in text for word in _REFUSED):
            raise TableError(f"{self.location} cannot be written: {text}") from error
        return CommitAnswer.LOST

    def _check_folder(self) -> None:
        """Raise TableError if the table's folder has files, but its embedded catalog lacks it."""
        from tidelog.spark.lake.iceberg_library import embedded_warehouse

        warehouse = embedded_warehouse(self._options)
        if warehouse is None or self.newest() != NO_VERSION:
            return
        for file in LakeStore("/".join([warehouse, *self._identifier])).listed():
            raise TableError(
                f"{self.location} is not in the catalog of {warehouse}, which holds files of such a"
                f" table, such as {file.path!r}; ingest to another table"
            )

    def _known_catalog(self) -> Catalog:
        if self._catalog is None:
            try:
                from tidelog.spark.lake.iceberg_library import open_catalog
            except ImportError as error:
                raise TableError(
                    f"{self.location} needs pyiceberg: {install_command('iceberg')}"
                ) from error
            self._catalog = open_catalog(self._options, self.location)
        return self._catalog

    def _open(self) -> Table | None:
        """Return the table at its newest version; None without a table. Raises TableError."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        with self._asking("be read"):
            try:
                if self._table is None:
                    self._table = self._known_catalog().load_table(self._identifier)
                else:
                    self._table = self._table.refresh()
            except (NoSuchTableError, NoSuchNamespaceError):
                self._table = None
            return self._table

    def _at_head(self) -> Table:
        table = self._open()
        if table is None:
            raise TableError(f"{self.location} does not exist in its catalog")
        return table

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        """Raise TableError with one sentence for an error of the catalog or of the store."""
        from tidelog.spark.lake.iceberg_library import CATALOG_ERRORS

        try:
            yield
        except CATALOG_ERRORS as error:
            raise TableError(f"{self.location} cannot {what}: {reason_of(error)}") from error


def _type_text(kind: IcebergType) -> str:
    """Return a type's text without ids and `required`, which may differ between equal columns."""
    return _IDS.sub("", str(kind)).replace("required ", "optional ")


def _version(table: Table) -> int:
    """Return the newest version of a table. Raises TableError for Iceberg's format version 1."""
    from pyiceberg.table.metadata import TableMetadataV1

    if isinstance(table.metadata, TableMetadataV1):
        name = ".".join(table.name())
        raise TableError(f"iceberg:{name} has format version 1; upgrade it to 2 with another tool")
    return table.metadata.last_sequence_number


def _head(table: Table) -> str:
    """Return the id of the newest snapshot of the branch, "none" without one."""
    head = table.current_snapshot()
    return "none" if head is None else str(head.snapshot_id)


def _rows_of(snapshot: Snapshot | None) -> int:
    """Return the number of a snapshot's rows, 0 if its summary does not have it."""
    summary = None if snapshot is None else snapshot.summary
    return 0 if summary is None else int(summary["total-records"] or 0)


def _rows_in(note: CommitNote) -> int:
    return sum(run.rows for run in note.partitions)
