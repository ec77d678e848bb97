"""ingest: appends a topic's records to a Delta table exactly once; each run proves its records.

A run takes the committed records after the table's last offsets. The run stages these records as
files, proves the files, and commits files and offsets together (`lake`). `ingest` is one run.
`follow` repeats runs until it is stopped; it needs no checkpoint, because the table itself has the
offsets.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import TidelogError
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.lake.evolution import add_columns
from tidelog.spark.lake.places import lake_at
from tidelog.spark.lake.runs import commit_run, opened
from tidelog.spark.lake.staging import (
    TARGET_FILE_BYTES,
    FilePlan,
    StagingFolder,
    discard,
    new_run,
    run_folder,
    staged_files,
)
from tidelog.spark.lake.state import (
    LakeFile,
    LakeState,
    Origin,
    TableChange,
    TableError,
    check_origin,
)
from tidelog.spark.lake.stores import LakeStore, location_of
from tidelog.spark.lake.table import Lake
from tidelog.spark.lake.vacuum import vacuum_staged
from tidelog.spark.pipelines.compact import KEEP_HOURS, check_keep_hours
from tidelog.spark.pipelines.continuity import ContinuityProof
from tidelog.spark.pipelines.file_upkeep import COMPACT_AFTER, FileUpkeep
from tidelog.spark.pipelines.job_progress import Progress
from tidelog.spark.pipelines.landed import prove_table, read_landed
from tidelog.spark.pipelines.landing import (
    BadRecordsError,
    Landing,
    LandingOptions,
    ProofError,
    RunRows,
    Transform,
    land,
    rows_of,
)
from tidelog.spark.pipelines.new_offsets import (
    NewOffsets,
    is_compacted,
    limited,
    new_ranges,
    origin_of,
)
from tidelog.spark.pipelines.upserts import upsert_files
from tidelog.spark.planning import DataLossError, OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "BadRecordsError",
    "IngestReport",
    "ProofError",
    "follow",
    "ingest",
    "prove_table",
    "read_landed",
]

#: Maximum number of offsets in a batch of `follow`, about ten files: a crash repeats one batch.
OFFSETS_PER_BATCH: Final = 20_000_000
NOTHING: Final = Landing(ContinuityProof(()), ())


@dataclass(frozen=True, slots=True)
class IngestReport:
    """The result of one run of an ingest; a run without new records has no proof and no version."""

    topic: str
    table: str
    proof: ContinuityProof
    files: tuple[LakeFile, ...]
    #: The table version that the run's commit made; None if the run committed nothing.
    version: int | None
    seconds: float
    #: Paths of the run's dead-letter files, in the form in which Spark opens them.
    dead_letters: tuple[str, ...] = ()
    #: Columns that the run has added to the table.
    new_columns: tuple[str, ...] = ()
    #: Number of files that continue a file which the task closed early, because it may have only
    #: MOST_OPEN files open.
    reopened: int = 0

    def is_full(self, most: int) -> bool:
        """Return whether the run took about `most` offsets, so that there may be more."""
        parts = self.proof.partitions
        return sum(each.wanted.size + 1 for each in parts) > most


class TopicIngest:
    """A table and a client of the cluster, for consecutive runs of an ingest."""

    def __init__(
        self,
        spark: SparkSession,
        client: BlockingClient,
        bootstrap: str,
        topic: str,
        table: Lake,
        options: LandingOptions,
    ) -> None:
        self._spark = spark
        self._client = client
        self._bootstrap = bootstrap
        self._topic = topic
        self._table = table
        self._options = options
        self._state: LakeState | None = None

    def run(self, most: int | None = None) -> IngestReport:
        """Ingest at most `most` new offsets; raise the errors of `ingest`."""
        started = time.monotonic()
        new_columns: tuple[str, ...] = ()
        origin, partitions = self._origin()
        if self._state is None or self._state.origin != origin:
            wanted = self._options.partition_by
            self._state = opened(
                self._table, origin, lambda: self._rows(wanted).schema, partition_by=wanted
            )
            self._check_letters()
            self._clear_letters()
            self._state = self._table.read()
        while True:
            state = self._state
            new = self._new_offsets(partitions)
            ranges = new.ranges if most is None else tuple(limited(new.ranges, most))
            if not ranges and not new.unseen:
                return self._report(started, NOTHING)
            rows = self._rows(state.partition_by, ranges)
            added = add_columns(self._table, rows.schema)
            if added:
                new_columns += added
                self._state = self._table.read()
                continue  # another run may have committed offsets first
            run = new_run()
            place = run_folder(self._table, run, state.version)
            letters = self._letters(place.folder)
            try:
                landing = self._landed(origin, rows, place, letters)
            except TidelogError:
                if not self._has_lost_files(state):
                    raise
                self._state = self._table.read()
                continue
            paths = self._letter_paths(letters, landing)
            offsets = (*landing.runs, *new.unseen)
            change = TableChange(run, offsets, landing.files, landing.replaced, dead_letters=paths)
            # After an error the commit may still succeed, so its files stay; if it fails, a vacuum
            # deletes them.
            outcome = commit_run(self._table, state, change)
            self._state = outcome.state
            if outcome.obstacle is None:
                return self._report(started, landing, paths, new_columns)
            _discard_all(place, letters)

    def _new_offsets(self, partitions: Sequence[TopicPartition]) -> NewOffsets:
        """Return the offsets to ingest.

        If offsets seem to be lost, the table is read again first: another run may have ingested
        them.
        """
        assert self._state is not None
        try:
            return new_ranges(self._client, partitions, self._state.following())
        except DataLossError:
            self._state = self._table.read()
        try:
            return new_ranges(self._client, partitions, self._state.following())
        except DataLossError as error:
            raise DataLossError(f"{self._at_version()}: {error}") from error

    def _landed(
        self,
        origin: Origin,
        rows: RunRows,
        place: StagingFolder,
        letters: StagingFolder | None,
    ) -> Landing:
        """Stage and prove the run's files, and delete the files of failed tasks.

        An error deletes all files of the run.
        """
        if not rows.ranges:
            return NOTHING
        options = self._options
        if options.upsert_by and not options.compacted and is_compacted(self._client, self._topic):
            options = replace(options, compacted=True)
        try:
            landing = land(
                self._spark,
                self._client,
                self._bootstrap,
                rows,
                options,
                place,
                letters,
            )
            check_origin(origin, self._origin()[0], self._table.location)
            if self._options.upsert_by:
                landing = self._upserted(landing, place)
            discard(place, landing.files)
            if letters is not None:
                discard(letters, landing.letters)
            return landing
        except ProofError as error:
            _discard_all(place, letters)
            raise ProofError(f"{self._at_version()}: {error}") from error
        except BaseException:  # even after a second Ctrl-C, delete the run's files
            _discard_all(place, letters)
            raise

    def _at_version(self) -> str:
        """Return the start of an error message: the table, and the version at which it stays."""
        assert self._state is not None
        return f"{self._table.location} stays at version {self._state.version}"

    def _has_lost_files(self, state: LakeState) -> bool:
        """Return whether other commits have replaced files of the version that an upsert read."""
        if not self._options.upsert_by:
            return False
        kept = {file.path for file in self._table.files()}
        return any(file.path not in kept for file in self._table.files(state.version))

    def _upserted(self, landing: Landing, place: StagingFolder) -> Landing:
        """Replace the staged files by the files that an upsert adds to the table."""
        assert self._state is not None
        version = self._state.version
        files = upsert_files(
            self._spark,
            FilePlan(
                place,
                self._topic,
                self._table.schema(version),
                self._options.target_file_bytes,
                self._state.partition_by,
            ),
            self._options.upsert_by,
            self._table.files(version),
            landing.files,
            is_marked=self._options.is_marked,
        )
        return replace(landing, files=files.added, replaced=files.removed)

    def _origin(self) -> tuple[Origin, list[TopicPartition]]:
        """Return the table's origin, and the topic's partitions. Raises KafkaError."""
        origin, partitions = origin_of(self._client, self._topic)
        return replace(origin, upsert_key=",".join(self._options.upsert_by)), partitions

    def _letter_paths(self, letters: StagingFolder | None, landing: Landing) -> tuple[str, ...]:
        if letters is None:
            return ()
        return tuple(letters.store.url(file.path) for file in landing.letters)

    def _report(
        self,
        started: float,
        landing: Landing,
        letters: tuple[str, ...] = (),
        new_columns: tuple[str, ...] = (),
    ) -> IngestReport:
        assert self._state is not None
        return IngestReport(
            self._topic,
            self._table.location,
            landing.proof,
            landing.files,
            self._state.version if landing.proof.partitions else None,
            time.monotonic() - started,
            letters,
            new_columns,
            landing.reopened,
        )

    def _rows(self, partition_by: tuple[str, ...], ranges: Sequence[OffsetRange] = ()) -> RunRows:
        spark, topic = self._spark, self._topic
        return rows_of(
            spark,
            self._bootstrap,
            topic,
            ranges,
            self._options,
            partition_by,
            empty_is_null=not self._table.keeps_partition_columns,
        )

    def _letter_store(self) -> LakeStore | None:
        """Return the store of this table's dead letters: a folder of the path `dead_letter`."""
        path = self._options.dead_letter
        if path is None:
            return None
        assert self._state is not None
        return LakeStore(f"{location_of(path)}/{self._state.table_id}", self._table.store.options)

    def _letters(self, folder: str) -> StagingFolder | None:
        store = self._letter_store()
        return None if store is None else StagingFolder(store, folder)

    def _check_letters(self) -> None:
        """Raise TableError if dead letters lie where a vacuum of the table would delete them."""
        path = self._options.dead_letter
        table = self._table.store.location
        if path is not None and f"{location_of(path)}/".startswith(f"{table}/"):
            raise TableError(f"dead letters at {path} would be files of the table {table}")

    def _clear_letters(self) -> None:
        """Delete the dead letters and all other files of this table's dead runs."""
        store = self._letter_store()
        if store is not None and staged_files(store):
            vacuum_staged(self._table, [store, self._table.store])


def _discard_all(place: StagingFolder, letters: StagingFolder | None) -> None:
    discard(place)
    if letters is not None:
        discard(letters)


def ingest(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    table: str,
    *,
    include_headers: bool = False,
    transform: Transform | None = None,
    without: tuple[str, ...] = (),
    dead_letter: str | None = None,
    compacted: bool = False,
    target_file_bytes: int = TARGET_FILE_BYTES,
    partition_by: str | Sequence[str] = (),
    progress: Progress | None = None,
    storage_options: Mapping[str, str] | None = None,
    upsert_by: str | Sequence[str] = (),
) -> IngestReport:
    """Append the new records of `topic` to the Delta table at the path or URI `table`.

    `transform` turns the source's columns into the table's; it must keep one row for each record
    and the columns topic, partition and offset. A record for which the transform sets the column
    `error` goes to `dead_letter`; the transform must keep the key and value of such a record. The
    table does not get the columns in `without`. `compacted` states that the topic is compacted, so
    that offsets missing from its log are no loss. A full file has about `target_file_bytes`. A new
    table is partitioned by the columns `partition_by`: `partition` of the topic, `day` in UTC of
    the timestamp, or columns of the transform; a table that exists keeps its partition columns.
    `progress` gets the numbers of done tasks and of all tasks. `storage_options` has the options of
    an object store, with delta-rs's names.

    With `upsert_by`, columns of a key such as `("key",)`, the table has the latest row of each key
    instead of all records. With `upsert_by`, the topic counts as compacted also if its
    cleanup.policy says so. A transform marks tombstones with the column `tombstone`, or keeps
    `value`, which is null for a tombstone. Raises TableError, KafkaError, DataLossError,
    BadRecordsError, ProofError, UpsertKeyError (nothing committed), or Spark's errors.
    """
    options = LandingOptions(
        include_headers=include_headers,
        transform=transform,
        without=without,
        dead_letter=dead_letter,
        compacted=compacted,
        target_file_bytes=target_file_bytes,
        progress=progress,
        partition_by=(partition_by,) if isinstance(partition_by, str) else tuple(partition_by),
        upsert_by=(upsert_by,) if isinstance(upsert_by, str) else tuple(upsert_by),
    )
    with topic_ingest(spark, bootstrap, topic, table, options, storage_options) as runs:
        return runs.run()


def follow(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    table: str,
    *,
    stop: threading.Event,
    interval_s: float | None = None,
    offsets_per_batch: int = OFFSETS_PER_BATCH,
    compact_after: int = COMPACT_AFTER,
    keep_hours: int = KEEP_HOURS,
    on_batch: Callable[[IngestReport], None] | None = None,
    options: LandingOptions | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> int:
    """Ingest until `stop` is set, and return the number of batches.

    A batch that runs when `stop` is set is completed. `on_batch` gets the report of each batch. The
    function takes new offsets every `interval_s`, by default every second, for Iceberg tables every
    minute. A batch has at most `offsets_per_batch`; after a full batch the next one follows at
    once. Once a partition has `compact_after` small files, `follow` merges them while batches go on
    (0 for never), and deletes files that merges replaced over `keep_hours` ago. Raises the errors
    of `ingest` and of `compact`; committed batches stay, and a later call continues.
    """
    batches = 0
    check_keep_hours(keep_hours)
    landing = options or LandingOptions()
    lake = lake_at(table, storage_options)
    wait_s = lake.batch_interval_s if interval_s is None else interval_s
    upkeep = FileUpkeep(
        spark,
        lake,
        after=compact_after,
        target_file_bytes=landing.target_file_bytes,
        keep_hours=keep_hours,
        is_beside=not landing.upsert_by,
    )
    with upkeep, topic_ingest(spark, bootstrap, topic, table, landing, storage_options) as runs:
        while not stop.is_set():
            report = runs.run(offsets_per_batch)
            if report.version is not None:
                batches += 1
                if on_batch is not None:
                    on_batch(report)
            if compact_after:
                upkeep.added(report.files)
            if not report.is_full(offsets_per_batch):
                stop.wait(max(0.0, wait_s - report.seconds))
    return batches


@contextmanager
def topic_ingest(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    table: str,
    options: LandingOptions,
    storage_options: Mapping[str, str] | None = None,
) -> Iterator[TopicIngest]:
    """Yield an ingest into the Delta table at a path or URI. Raises TableError, KafkaError."""
    lake = lake_at(table, storage_options)
    with BlockingClient(bootstrap, "tidelog-ingest") as client:
        yield TopicIngest(spark, client, bootstrap, topic, lake, options)
