"""ingest: writes of a topic into a table, exactly once, with a proof after each run.

A run takes the committed records after the end of the last run. Spark writes files of the records
of the run, a proof counts the rows of the files, and one manifest adds the files to the table
(`table.py`). A run is committed only if its proof holds. `ingest` is one run. `follow` repeats runs
until stopped; each batch has its own manifest, so no separate checkpoint can differ from the table.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tidelog.core.dataclass import dataclass
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.pipelines.compact import KEEP_MS, compact_table, plan_merges
from tidelog.spark.pipelines.continuity import ContinuityProof
from tidelog.spark.pipelines.job_progress import Progress
from tidelog.spark.pipelines.landing import (
    ROWS_PER_FILE,
    BadRecordsError,
    LandingOptions,
    Place,
    ProofError,
    Transform,
    columns_of,
    data_files,
    land,
)
from tidelog.spark.pipelines.manifests import DataFile, TableError
from tidelog.spark.pipelines.new_offsets import limited, new_ranges, origin_of
from tidelog.spark.pipelines.table import ORPHAN_MS, TopicTable, now_ms, open_table
from tidelog.spark.pipelines.table_access import files_at, prove_table, read_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = [
    "BadRecordsError",
    "IngestReport",
    "ProofError",
    "follow",
    "ingest",
    "prove_table",
    "read_table",
]

#: Maximum number of offsets in a batch of `follow`, about ten files: a crash repeats one batch.
OFFSETS_PER_BATCH: Final = 20_000_000
_LETTERS: Final = "run"


@dataclass(frozen=True, slots=True)
class IngestReport:
    """The result of one run; a run without new records has no proof and no manifest."""

    topic: str
    directory: str
    proof: ContinuityProof
    files: tuple[DataFile, ...]
    manifest: int | None
    seconds: float
    dead_letters: tuple[str, ...] = ()


class TopicIngest:
    """An open table with a client, for consecutive runs of an ingest."""

    def __init__(
        self,
        spark: SparkSession,
        client: BlockingClient,
        bootstrap: str,
        topic: str,
        table: TopicTable,
        options: LandingOptions,
    ) -> None:
        self._spark = spark
        self._client = client
        self._bootstrap = bootstrap
        self._topic = topic
        self.table = table
        self._options = options
        self._schema: StructType | None = None

    def run(self, most: int | None = None) -> IngestReport:
        """Ingest at most `most` new offsets; raise the errors of `ingest`."""
        started = time.monotonic()
        table, options = self.table, self._options
        origin, partitions = origin_of(self._client, self._topic)
        table.belongs_to(origin)
        ranges = new_ranges(self._client, partitions, table.state.next_offsets())
        if most is not None:
            ranges = limited(ranges, most)
        if not ranges:
            seconds = time.monotonic() - started
            return IngestReport(
                self._topic, table.directory, ContinuityProof(()), (), None, seconds
            )
        self._check_columns()
        run, folder = table.new_run()
        dead_folder = f"{_LETTERS}-{table.table_id[:12]}-{run}"
        letters = (
            None if options.dead_letter is None else files_at(self._spark, options.dead_letter)
        )
        dead_place = None if letters is None else Place(letters, dead_folder)
        try:
            landing = land(
                self._spark,
                self._client,
                self._bootstrap,
                ranges,
                options,
                Place(table.files, folder),
                dead_place,
            )
            if letters is not None and not landing.dead_letters:
                letters.delete(dead_folder)
            elif letters is not None:
                letters.sync(dead_folder)
            files = data_files(table.files, folder, self._topic)
        except BaseException:  # even after a second Ctrl-C, delete the run's files
            table.discard(run)
            if letters is not None:
                letters.delete(dead_folder)
            raise
        manifest = table.commit(run, origin, landing.runs, files, dead_letters=landing.dead_letters)
        if not files:
            table.discard(run)
        seconds = time.monotonic() - started
        return IngestReport(
            self._topic,
            table.directory,
            landing.proof,
            manifest.files,
            manifest.number,
            seconds,
            landing.dead_letters,
        )

    def compact(self, after: int) -> None:
        """Merge the table's small files if there are at least `after` of them."""
        size = self._options.rows_per_file
        groups = plan_merges(self.table.state.files.values(), size)
        if sum(map(len, groups)) >= after:
            compact_table(self._spark, self.table, rows_per_file=size, keep_ms=KEEP_MS)

    def clear_letters(self, *, alone: bool) -> None:
        """Delete dead letters of this table's uncommitted runs."""
        if self._options.dead_letter is None:
            return
        letters = files_at(self._spark, self._options.dead_letter)
        letters.make_folder("")
        prefix = f"{_LETTERS}-{self.table.table_id[:12]}-"
        found = [each for each in letters.entries("") if each.name.startswith(prefix)]
        if not found:
            return
        kept = {path.rpartition("/")[2] for path in self.table.state.dead_letters}
        oldest = now_ms() - ORPHAN_MS
        for entry in found:
            if entry.name not in kept and (alone or entry.modified_ms < oldest):
                letters.delete(entry.name)

    def _check_columns(self) -> None:
        """Raise TableError if the rows do not fit the table's columns."""
        if self._schema is not None or not self.table.state.files:
            return
        new = columns_of(self._spark, self._bootstrap, self._topic, self._options)
        offered = {each.name: each.dataType for each in new.schema}
        some = next(reversed(self.table.state.files))
        self._schema = self._spark.read.parquet(self.table.files.path(some)).schema
        held = {each.name: each.dataType for each in self._schema}
        for name in [*held, *offered]:
            if name not in offered or name not in held or held[name] != offered[name]:
                has = held[name].simpleString() if name in held else "no such column"
                gets = offered[name].simpleString() if name in offered else "no such column"
                self._schema = None
                raise TableError(
                    f"{self.table.directory}: column {name!r} is {has} in the table and {gets} in"
                    " this run; ingest to another directory, or change the transform"
                )


def ingest(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    directory: str,
    *,
    include_headers: bool = False,
    transform: Transform | None = None,
    without: tuple[str, ...] = (),
    dead_letter: str | None = None,
    compacted: bool = False,
    rows_per_file: int = ROWS_PER_FILE,
    progress: Progress | None = None,
) -> IngestReport:
    """Append the new records of `topic` to the table in `directory`.

    `transform` turns the source's columns into the table's; it must keep one row for each record
    and the columns topic, partition and offset. A record for which the transform sets the column
    `error` goes to `dead_letter`; the transform must keep the key and value of such a record. The
    table does not get the columns in `without`. `compacted` states that the topic is compacted, so
    that offsets missing from its log are no loss. `progress` gets the numbers of done tasks and of
    all tasks. Raises TableError, KafkaError, DataLossError, BadRecordsError, ProofError (nothing
    committed), or Spark's errors.
    """
    options = LandingOptions(
        include_headers, transform, without, dead_letter, compacted, rows_per_file, progress
    )
    with opened(spark, bootstrap, topic, directory, options) as runs:
        return runs.run()


def follow(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    directory: str,
    *,
    stop: threading.Event,
    interval_s: float = 1.0,
    offsets_per_batch: int = OFFSETS_PER_BATCH,
    compact_after: int = 0,
    on_batch: Callable[[IngestReport], None] | None = None,
    options: LandingOptions | None = None,
) -> int:
    """Ingest until `stop` is set, and return the number of batches.

    A batch that runs when `stop` is set is completed. `on_batch` gets the report of each batch. The
    function looks for new offsets every `interval_s`; a batch takes at most `offsets_per_batch`.
    The table stays locked, so this function also compacts it between batches, when `compact_after`
    small files can be merged (0 for never). Raises the errors of `ingest`; committed batches stay,
    and a later call continues.
    """
    batches = 0
    with opened(spark, bootstrap, topic, directory, options or LandingOptions()) as runs:
        while not stop.is_set():
            report = runs.run(offsets_per_batch)
            if report.manifest is None:
                stop.wait(interval_s)
                continue
            batches += 1
            if on_batch is not None:
                on_batch(report)
            if compact_after:
                runs.compact(compact_after)
    return batches


@contextmanager
def opened(
    spark: SparkSession, bootstrap: str, topic: str, directory: str, options: LandingOptions
) -> Iterator[TopicIngest]:
    """Open the table in `directory` for runs of an ingest. Raises TableError, KafkaError."""
    files = files_at(spark, directory)
    with (
        BlockingClient(bootstrap, "tidelog-ingest") as client,
        open_table(files, create=True) as table,
    ):
        runs = TopicIngest(spark, client, bootstrap, topic, table, options)
        runs.clear_letters(alone=files.has_view)
        yield runs
