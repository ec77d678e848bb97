"""Reads of Delta tables and commits to them, with the library delta-rs.

A commit succeeds only if its version does not exist yet. An ingest commits an application
transaction for each partition; the version of the application transaction is the partition's next
offset. Delta keeps application transactions as long as the table exists, while the metadata of
commits may be cleaned with the log. The library delta-rs must not start in a process that forks
later, so Spark's worker daemon must not import this module.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import unquote

from tidelog.spark.lake.commits import first_known
from tidelog.spark.lake.delta_features import (
    check_folder,
    hidden_rows,
    log_reason,
    needs_delta,
    types_of,
    unsupported_features,
)
from tidelog.spark.lake.protocol import NO_VERSION, CommitAnswer
from tidelog.spark.lake.rollbacks import NotedCommits, noted_commits, rollback_of
from tidelog.spark.lake.state import (
    MARK,
    OFFSET_COLUMNS,
    CommitNote,
    HiddenRowsError,
    LakeCommit,
    LakeFile,
    LakeState,
    Origin,
    PartitionRun,
    TableChange,
    TableError,
)
from tidelog.spark.lake.stores import LakeStore, reason_of, sync_file
from tidelog.spark.option_values import whole_number

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable, Schema

T = TypeVar("T")
_log = logging.getLogger("tidelog.spark")
_LOG: Final = "_delta_log"
#: Maximum number of attempts to read a table; an attempt fails if a commit comes during the read.
_LOOKS_AT_ONE_VERSION: Final = 100
_FENCE: Final = "tidelog-fence"
#: The search for an ingest's last commit reads the last commit, then the last 20, then more.
_LOOKS: Final = (1, 20, 1_000, None)
#: Parts of the error messages of requests that would fail again if they were retried.
_REFUSALS: Final = (
    "Permission denied",
    "Read-only file system",
    "401 Unauthorized",
    "403 Forbidden",
    "AccessDenied",
    "No space left",
)
#: Parts of the error messages of commits whose version another commit has taken.
_CONFLICTS: Final = ("already exists", "ersion conflict", "oncurrent")
#: Maximum number of attempts of a vacuum; each fails if another commit comes first.
_VACUUMS: Final = 5
#: A read of the table's state reads all commits since the last checkpoint. With delta-rs's default
#: of 100 commits between checkpoints, a read takes three times as long as with 20. With 10, the log
#: would be twice as large.
_CONFIGURATION: Final = {"delta.checkpointInterval": "20"}
#: The search for transactions ends after this number of consecutive partitions that have none.
_NO_MORE: Final = 100


class DeltaLake:
    """A Delta table at a path or URI."""

    commit_noun = "version"
    keeps_partition_columns = False
    batch_interval_s = 1.0

    def __init__(self, location: str, options: Mapping[str, str] | None = None) -> None:
        self.location = location
        self._options = dict(options or {})
        self._table: DeltaTable | None = None

    @property
    def store(self) -> LakeStore:
        """The store of the table's files."""
        return LakeStore(self.location, self._options)

    def read(self) -> LakeState:
        """Read the newest version. Raises TableError, also for unsupported table features."""
        if self._open() is None:
            return LakeState()
        return self._settled(self._read)

    def _read(self, table: DeltaTable) -> LakeState:
        noted = self._noted(table)
        note = None if noted.newest is None else noted.newest.note
        origin = self._described(table) if note is None else note.origin
        if origin is None:
            raise TableError(
                f"{self.location} is a Delta table that no ingest has made; ingest to another path,"
                " or prove it with --partition-column and --offset-column"
            )
        for feature in unsupported_features(table):
            raise TableError(
                f"{self.location} has {feature}, which ingests do not support; ingest to another"
                " table"
            )
        if note is None:
            partitions = self._followed(table, origin)
        else:
            partitions = {run.partition: run for run in note.partitions}
        return LakeState(
            table.version(),
            origin,
            partitions,
            table.transaction_version(_FENCE) or 0,
            not partitions if note is None else note.is_whole,
            str(table.metadata().id),
            rollback_of(noted, self.location) or self._contradiction(table, origin, note),
            tuple(table.metadata().partition_columns),
        )

    def _contradiction(self, table: DeltaTable, origin: Origin, note: CommitNote | None) -> str:
        """Return an error message if the newest commit's offsets and transactions disagree.

        A commit writes offsets and transactions. If a commit file was truncated, or mixed with
        another file, the recorded offsets or a transaction are missing.
        """
        expires = "delta.setTransactionRetentionDuration" in table.metadata().configuration
        for run in () if note is None else note.partitions:
            end = table.transaction_version(_app_id(origin, run.partition))
            if end != run.end and not (end is None and expires):
                return (
                    f"{self.location}: the newest commit says that partition {run.partition} has"
                    f" landed up to offset {run.end}, its transactions say {end}: a commit was"
                    " damaged, or put back from a backup. Put the table's log right, or ingest to"
                    " another table; `tidelog pipeline prove` names the rows"
                )
        return ""

    def _settled(self, look: Callable[[DeltaTable], T]) -> T:
        """Return the result of `look` at the newest version; repeat it after a concurrent commit.

        `look` may see a newer commit, because `DeltaTable.history` also returns commits that are
        newer than the version of the `DeltaTable` object.
        Raises TableError.
        """
        from deltalake.exceptions import DeltaError

        for _ in range(_LOOKS_AT_ONE_VERSION):
            table = self._at(None)
            version = table.version()
            try:
                found = look(table)
            except (DeltaError, OSError) as error:
                raise TableError(f"{self.location} cannot be read: {log_reason(error)}") from error
            if self._at(None).version() == version:
                return found
        raise TableError(f"{self.location} changes faster than it can be read; run it again")

    def create(
        self, origin: Origin, schema: pa.Schema, partition_by: Sequence[str] = ()
    ) -> CommitAnswer:
        """Create an empty table of these columns, with partition columns. Raises TableError."""
        from deltalake.exceptions import DeltaError
        from deltalake.transaction import create_table_with_add_actions

        check_folder(self.location)
        description = json.dumps({MARK: asdict(origin)})
        try:
            create_table_with_add_actions(
                self.location,
                self._converted(schema),
                [],
                mode="error",
                partition_by=list(partition_by),
                name=origin.topic,
                description=description,
                configuration=_CONFIGURATION,
                storage_options=self._options,
                commit_properties=_properties(()),
            )
        except (DeltaError, OSError) as error:
            # Another run created the table, or this run did and the answer was lost.
            if self._open() is not None:
                return CommitAnswer.CONFLICT
            raise TableError(f"{self.location} cannot be created: {reason_of(error)}") from error
        return CommitAnswer.COMMITTED

    def commit(self, state: LakeState, change: TableChange) -> CommitAnswer:
        """Commit a change on top of `state`; raise TableError if the store refuses it for good."""
        from deltalake.transaction import AddAction, RemoveAction

        assert state.origin is not None
        now_ms = time.time_ns() // 1_000_000
        is_merge = not change.offsets
        actions: list[Any] = [
            AddAction(
                path=file.path,
                size=file.size_bytes,
                partition_values=file.values,
                modification_time=now_ms,
                data_change=not is_merge,
                stats=file.stats,
            )
            for file in change.added
        ]
        actions += [
            RemoveAction(
                path=file.path,
                data_change=not is_merge,
                deletion_timestamp=now_ms,
                size=file.size_bytes,
                partition_values=dict(file.values),
            )
            for file in change.removed
        ]
        note = CommitNote.after(state, change)
        pairs = [(_app_id(state.origin, run.partition), run.end) for run in change.offsets]
        if change.fence:
            pairs.append((_FENCE, note.fence))
        properties = _properties(pairs, note)
        return self._sent(
            state,
            lambda table: table.create_write_transaction(
                actions,
                "append",
                table.schema(),
                list(state.partition_by),
                commit_properties=properties,
            ),
        )

    def add_columns(self, state: LakeState, columns: pa.Schema) -> CommitAnswer:
        """Commit new columns on top of `state`; raise TableError if the store refuses them."""
        fields = self._converted(columns).fields
        note = CommitNote.after(state, TableChange(""))
        return self._sent(
            state,
            lambda table: table.alter.add_columns(fields, commit_properties=_properties((), note)),
        )

    def _sent(self, state: LakeState, send: Callable[[DeltaTable], None]) -> CommitAnswer:
        """Send a commit on top of `state`. Raises TableError, also if the table was rolled back."""
        from deltalake.exceptions import CommitFailedError, DeltaError

        if state.rollback:
            raise TableError(state.rollback)
        table = self._at(None)
        if table.version() != state.version:
            return CommitAnswer.CONFLICT
        try:
            send(table)
        except CommitFailedError as error:
            if self._at(None).version() != state.version:
                return CommitAnswer.CONFLICT
            if any(word in str(error) for word in _CONFLICTS):
                return CommitAnswer.LOST  # another run's commit may not be visible yet
            raise TableError(f"{self.location} takes no commit: {reason_of(error)}") from error
        except (DeltaError, OSError) as error:
            if self._at(None).version() != state.version:
                return CommitAnswer.LOST  # a version was committed, maybe by this call
            return _answer_of(error, self.location)
        _sync_log(self.location, state.version + 1)
        return CommitAnswer.COMMITTED

    def newest(self) -> int:
        """Return the newest version; NO_VERSION if there is no Delta table. Raises TableError."""
        table = self._open()
        return NO_VERSION if table is None else int(table.version())

    def commits(self, after: int | None = None) -> list[LakeCommit]:
        """Return the commits after a version, or all that the log still has, from the newest on.

        Raises TableError.
        """

        def look(table: DeltaTable) -> list[LakeCommit]:
            count = None if after is None else table.version() - after
            if count is not None and count <= 0:
                return []
            return self._commits(table, count)

        return self._settled(look)

    def history(self) -> Iterator[tuple[int, int]]:
        """Yield (time in ms, version) of each version that the log still has, newest first.

        Because of a wrong clock, a commit may have an earlier time than an older commit. The time
        of such a commit is then returned as 1 ms after the time of the older commit, as by Delta's
        own reader. Raises TableError.
        """
        commits = self.commits()
        times = accumulate(
            (commit.time_ms for commit in reversed(commits)),
            lambda before, time_ms: max(before + 1, time_ms),
        )
        for commit, time_ms in zip(commits, reversed(list(times)), strict=True):
            yield time_ms, commit.version

    def files(
        self, version: int | None = None, bounded: tuple[str, str] = OFFSET_COLUMNS
    ) -> list[LakeFile]:
        """Return the data files of a version, of the newest by default.

        `bounded` names the partition and offset columns whose bounds the files have. Raises
        TableError.
        """
        import pyarrow as pa

        actions = pa.table(self._at(version).get_add_actions(flatten=True))
        sought = {"path", "size_bytes", "num_records"}
        sought |= {f"{bound}.{name}" for bound in ("min", "max") for name in bounded}
        places = [
            place
            for place, name in enumerate(actions.column_names)
            if name in sought or name.startswith("partition.")
        ]
        try:
            rows = actions.select(places).to_pylist()
        except (OverflowError, ValueError) as error:
            raise TableError(
                f"{self.location} has a partition value outside the years 1 to 9999, which this"
                f" reader lacks: {reason_of(error)}"
            ) from error
        return [_file_of(row, bounded) for row in rows]

    def referenced(self) -> set[str]:
        """Return the paths of the newest version's files; `vacuum` deletes older files."""
        return {file.path for file in self.files()}

    def schema(self, version: int | None = None) -> pa.Schema:
        """Return the columns of a version, of the newest by default. Raises TableError."""
        import pyarrow as pa

        return pa.schema(self._at(version).schema().to_arrow())

    def field_ids(self) -> Mapping[str, int]:
        """Return no field ids, because Delta's readers find columns by name."""
        return {}

    def check_files_are_rows(self, version: int | None = None) -> None:
        """Raise TableError if a version's rows differ from the rows in its data files."""
        table = self._at(version)
        for feature in hidden_rows(table):
            raise HiddenRowsError(needs_delta(self.location, feature))

    def added_in(self, paths: Collection[str]) -> dict[str, tuple[int, ...]]:
        """Return, by path, the last version that added the file, if the log has that commit."""
        opened = self.store.open()
        wanted, found = set(paths), dict[str, tuple[int, ...]]()
        for version in range(self.newest(), first_known(self) - 1, -1):
            if not wanted - set(found):
                break
            try:
                with opened.open_input_stream(f"{_LOG}/{version:020}.json") as log:
                    actions = [json.loads(line) for line in log.read().splitlines()]
            except FileNotFoundError:
                continue
            added = (unquote(action["add"]["path"]) for action in actions if "add" in action)
            found |= {path: (version,) for path in added if path in wanted - set(found)}
        return found

    def types(self, schema: pa.Schema | None = None) -> dict[str, str]:
        """Return the types of the newest version's columns, or of `schema`, as Delta writes them.

        Raises TableError for a type that Delta does not have.
        """
        return types_of(self._at(None).schema() if schema is None else self._converted(schema))

    def vacuum(self, keep_hours: int) -> int:
        """Delete data files that commits removed over `keep_hours` ago; return their number.

        Raises TableError. Files that no commit ever added stay. A vacuum is a commit, too, and
        fails if another commit comes first. After _VACUUMS failures the files stay until the next
        vacuum.
        """
        from deltalake.exceptions import CommitFailedError, DeltaError

        there: dict[str, None] = {}
        try:
            for _ in range(_VACUUMS):
                table = self._at(None)
                # delta-rs also lists files that an earlier vacuum has deleted.
                removed = table.vacuum(keep_hours, enforce_retention_duration=False)
                there |= dict.fromkeys(self.store.existing(removed))
                try:
                    table.vacuum(keep_hours, dry_run=False, enforce_retention_duration=False)
                    break
                except CommitFailedError as error:
                    if not any(word in str(error) for word in _CONFLICTS):
                        raise
            else:
                _log.info("%s: other commits overtook a vacuum; the next goes on", self.location)
        except (DeltaError, OSError) as error:
            raise TableError(f"{self.location} cannot be vacuumed: {reason_of(error)}") from error
        return len(there) - len(self.store.existing(there))

    def _converted(self, schema: pa.Schema) -> Schema:
        """Convert Arrow columns to Delta columns. Raises TableError."""
        from deltalake import Schema

        try:
            return Schema.from_arrow(schema)
        except Exception as error:  # delta-rs raises `Exception` itself
            raise TableError(
                f"{self.location}: Delta has no such column: {reason_of(error)}"
            ) from error

    def _noted(self, table: DeltaTable) -> NotedCommits:
        """Return the newest commit with offsets, and the newest whose offsets match the rows."""
        noted = NotedCommits()
        for limit in _LOOKS:
            noted = noted_commits(self._commits(table, limit))
            if noted.effective is not None or (limit is not None and limit > table.version()):
                break
        return noted

    def _commits(self, table: DeltaTable, limit: int | None) -> list[LakeCommit]:
        """Return the last `limit` commits, newest first; all commits for None."""
        return [
            LakeCommit(
                table.version() - place,
                commit["timestamp"],
                self._note_of(commit),
                _restored_by(commit),
            )
            for place, commit in enumerate(table.history(limit))
        ]

    def _note_of(self, commit: Mapping[str, Any]) -> CommitNote | None:
        text = commit.get(MARK)
        return None if text is None else CommitNote.from_json(text, self.location)

    def _described(self, table: DeltaTable) -> Origin | None:
        """Return the origin from the table's description, which outlives old log files."""
        with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError):
            return Origin(**json.loads(table.metadata().description or "")[MARK])
        return None

    def _followed(self, table: DeltaTable, origin: Origin) -> dict[int, PartitionRun]:
        """Return each partition's next offset from transactions, if no commit has recorded offsets.

        An ingest commits a transaction for each partition of its topic.
        """
        found: dict[int, PartitionRun] = {}
        number = missed = 0
        while missed < _NO_MORE:
            end = table.transaction_version(_app_id(origin, number))
            if end is None:
                missed += 1
            else:
                found[number] = PartitionRun(number, end, end, 0)
                missed = 0
            number += 1
        # `file_uris` reads the same version as the transactions, even if another commit came since.
        if not found and table.file_uris():
            raise TableError(
                f"{self.location} has files, and its log has no offsets of an ingest; ingest to"
                " another table"
            )
        return found

    def _open(self) -> DeltaTable | None:
        """Open the newest version; return None if there is no table. Raises TableError."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            if self._table is None:
                self._table = DeltaTable(self.location, storage_options=self._options)
            else:
                self._table.update_incremental()
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise TableError(f"{self.location} cannot be read: {log_reason(error)}") from error
        return self._table

    def _at(self, version: int | None) -> DeltaTable:
        """Return the table at a version, by default at the newest. Raises TableError."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        if version is None:
            table = self._open()
            if table is None:
                raise TableError(f"{self.location} is no Delta table")
            return table
        if self._table is not None and self._table.version() == version:
            return self._table
        try:
            return DeltaTable(self.location, version=version, storage_options=self._options)
        except (DeltaError, OSError) as error:
            raise TableError(
                f"{self.location} cannot be read at version {version}: {reason_of(error)}"
            ) from error


def _properties(pairs: Sequence[tuple[str, int]], note: CommitNote | None = None) -> Any:
    """Return properties of a commit: transactions, offsets, and no retries by delta-rs."""
    from deltalake import CommitProperties, Transaction

    return CommitProperties(
        custom_metadata=None if note is None else {MARK: note.to_json()},
        max_commit_retries=0,
        app_transactions=[Transaction(app_id, version) for app_id, version in pairs],
    )


def _app_id(origin: Origin, partition: int) -> str:
    return f"tidelog-{origin.topic_id}-{partition}"


def _file_of(row: Mapping[str, Any], bounded: tuple[str, str]) -> LakeFile:
    """Return a data file that the table's log lists.

    If another tool added the file, its range of offsets may be unknown (-1).
    """
    lowest, highest, partition = (
        row.get(name) if isinstance(row.get(name), int) else None
        for name in (f"min.{bounded[1]}", f"max.{bounded[1]}", f"min.{bounded[0]}")
    )
    if partition != row.get(f"max.{bounded[0]}"):
        partition = None  # another tool has merged files of several partitions
    values = {
        name.removeprefix("partition."): _value_text(value)
        for name, value in row.items()
        if name.startswith("partition.")
    }
    number = values.get(bounded[0])
    if number is not None and number.isdecimal():
        partition = int(number)
    return LakeFile(
        path=unquote(row["path"]),
        partition=-1 if partition is None else partition,
        start=-1 if lowest is None else lowest,
        end=-1 if highest is None else highest + 1,
        rows=-1 if row["num_records"] is None else row["num_records"],
        size_bytes=row["size_bytes"],
        values=values,
    )


def _restored_by(commit: Mapping[str, Any]) -> int | None:
    """Return the version that a RESTORE brought back; None if the commit is no RESTORE.

    Returns NO_VERSION for a RESTORE that names a time instead of a version.
    """
    if commit.get("operation") != "RESTORE":
        return None
    version = whole_number(str(commit.get("operationParameters", {}).get("version")))
    return NO_VERSION if version is None else version


def _value_text(value: Any) -> str | None:
    """Return a partition value as the text that Delta's log contains."""
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)


def _answer_of(error: Exception, location: str) -> CommitAnswer:
    """Return LOST for an error after which the commit may exist; raise TableError for a refusal."""
    text = reason_of(error)
    if any(word in text for word in _REFUSALS):
        raise TableError(f"{location} cannot be written: {text}") from error
    return CommitAnswer.LOST


def _sync_log(location: str, version: int) -> None:
    """Make a commit of a local table durable; delta-rs leaves that to the kernel.

    The commit exists and readers see it, so a failure of the sync is logged, not raised.
    """
    if "://" in location:
        return
    path = os.path.join(location, _LOG, f"{version:020}.json")
    try:
        sync_file(path)
    except OSError as error:
        _log.warning(
            "%s is committed, but not durable yet: %s; after a power failure the next run lands"
            " its offsets again",
            path,
            reason_of(error),
        )
