"""Files of one run: the records of offset ranges as Parquet, counted and proved, not yet committed.

A run writes rows to a folder that no reader knows before the commit. The reading tasks write the
files; after a transform, or for a remote file system, Spark's writer writes the files. Rows with
the column `error` are bad records, which go to the dead-letter path. Bad records are read a second
time, so that a run without bad records costs no more. A proof that does not hold raises ProofError.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import TidelogError
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.options import COLUMNS, HEADERS, offsets_json
from tidelog.spark.pipelines.continuity import (
    ContinuityProof,
    LogGaps,
    PartitionCount,
    PartitionProof,
    gaps_within,
    no_rows,
    prove_ranges,
)
from tidelog.spark.pipelines.counting import parquet_names, spans_of_files
from tidelog.spark.pipelines.direct_files import write_files
from tidelog.spark.pipelines.job_progress import Progress, reported
from tidelog.spark.pipelines.manifests import DataFile, PartitionRun, TableError
from tidelog.spark.pipelines.table import file_name
from tidelog.spark.pipelines.table_files import TableFiles
from tidelog.spark.planning import OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

#: The column in which a transform gives the reason for a bad record; null for a good one.
ERROR_COLUMN: Final = "error"
#: Approximate maximum of rows in one file: efficient for Parquet, and small enough for one task.
ROWS_PER_FILE: Final = 2_000_000
_PLACE: Final = ("topic", "partition", "offset")
_LETTER: Final = (*_PLACE, "key", "value", ERROR_COLUMN)
#: Maximum number of offset gaps to look up in the log: more gaps are probably bad records, not
#: transaction markers.
_GAPS_LOOKED_AT: Final = 1_000

Transform = Callable[["DataFrame"], "DataFrame"]


class ProofError(TidelogError):
    """Written files that differ from the log; nothing was committed."""


class BadRecordsError(TidelogError):
    """Bad records without a path for dead letters; nothing was committed."""


class TasksFailedError(TidelogError):
    """A Spark job that failed outside tidelog's code; nothing was committed."""


@dataclass(frozen=True, slots=True)
class LandingOptions:
    """Options of the conversion of records into rows."""

    include_headers: bool = False
    transform: Transform | None = None
    #: Columns of the transform's result that the table leaves out.
    without: tuple[str, ...] = ()
    #: The path to which Spark writes bad records; with None a bad record ends the run.
    dead_letter: str | None = None
    #: Whether the topic is compacted, so that offsets missing from its log are no loss.
    compacted: bool = False
    rows_per_file: int = ROWS_PER_FILE
    progress: Progress | None = None

    @property
    def dropped(self) -> tuple[str, ...]:
        """Columns of the transform's result that the table leaves out."""
        return self.without if self.transform is None else (*self.without, ERROR_COLUMN)


@dataclass(frozen=True, slots=True)
class Place:
    """The folder of a table's files into which the tasks of a run write."""

    files: TableFiles
    folder: str

    @property
    def path(self) -> str:
        """The folder for Spark."""
        return self.files.path(self.folder)

    def spans(self, spark: SparkSession) -> pa.Table:
        """Return the spans of offsets in the folder's files."""
        return spans_of_files(spark, self.files, parquet_names(self.files, self.folder))


@dataclass(frozen=True, slots=True)
class Landing:
    """Written and proved files."""

    proof: ContinuityProof
    #: Paths of the folders of dead letters, in the form that Spark reads.
    dead_letters: tuple[str, ...] = ()
    runs: tuple[PartitionRun, ...] = field(default=())


def land(
    spark: SparkSession,
    client: BlockingClient,
    bootstrap: str,
    ranges: Sequence[OffsetRange],
    options: LandingOptions,
    place: Place,
    letters: Place | None,
) -> Landing:
    """Write the rows of `ranges` to one folder, and bad records to another.

    Raises ProofError, BadRecordsError, TasksFailedError, TableError (columns that are missing), or
    PySparkException.
    """
    frame = None
    if options.transform is None and place.files.has_view:
        _write_in_tasks(spark, bootstrap, ranges, options, place)
    else:
        frame = rows_of(spark, bootstrap, ranges, options)
        _write_by_spark(spark, frame, options, place)
    topic = ranges[0].tp.topic
    spans = place.spans(spark)
    counts = _counts(topic, ranges, spans)
    look = LogGaps(client).look
    dead: dict[TopicPartition, int] = {}
    set_aside: tuple[str, ...] = ()
    judged = frame if frame is not None and _is_judged(frame, options) else None
    if judged is not None and _may_miss_records(counts, ranges, client):
        bad = judged.where(f"{ERROR_COLUMN} is not null")
        if letters is None:
            _refuse(bad, topic)
        else:
            with _sentence():
                bad.select(*_LETTER).write.option("compression", "zstd").parquet(letters.path)
            of_letters = letters.spans(spark)
            dead = {tp: count.rows for tp, count in _counts(topic, ranges, of_letters).items()}
            counts = _counts(topic, ranges, spans, of_letters)
            set_aside = (letters.path,) if any(dead.values()) else ()
    proof = prove_ranges(counts, ranges, look, compacted=options.compacted, dead=dead)
    if not proof.holds:
        raise ProofError(describe_failure(proof))
    return Landing(proof, set_aside, tuple(run_of(each) for each in proof.partitions))


def _write_in_tasks(
    spark: SparkSession,
    bootstrap: str,
    ranges: Sequence[OffsetRange],
    options: LandingOptions,
    place: Place,
) -> None:
    """Let the reading tasks write the files, which is several times as fast as Spark's writer."""
    place.files.make_folder(place.folder)
    offered = (*COLUMNS, HEADERS) if options.include_headers else COLUMNS
    with reported(spark, options.progress), _sentence():
        write_files(
            spark,
            bootstrap,
            ranges,
            Path(place.files.root) / place.folder,
            columns=[name for name in offered if name not in options.dropped],
            rows_per_file=options.rows_per_file,
        )


def _write_by_spark(
    spark: SparkSession, frame: DataFrame, options: LandingOptions, place: Place
) -> None:
    """Write the rows of a DataFrame that have no error."""
    rows = frame
    if _is_judged(frame, options):
        rows = frame.where(f"{ERROR_COLUMN} is null").drop(ERROR_COLUMN)
    with reported(spark, options.progress), _sentence():
        rows.drop(*options.dropped).write.option("compression", "zstd").parquet(place.path)


def _is_judged(frame: DataFrame, options: LandingOptions) -> bool:
    return options.transform is not None and ERROR_COLUMN in frame.columns


def rows_of(
    spark: SparkSession, bootstrap: str, ranges: Sequence[OffsetRange], options: LandingOptions
) -> DataFrame:
    """Return the transformed records of `ranges`; raise TableError for missing columns."""
    offsets = sum(each.size for each in ranges)
    topic = ranges[0].tp.topic
    frame = (
        spark.read.format("tidelog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.client.id", "tidelog-ingest")
        .option("assign", json.dumps({topic: [each.tp.partition for each in ranges]}))
        .option("startingOffsets", offsets_json({each.tp: each.start for each in ranges}))
        .option("endingOffsets", offsets_json({each.tp: each.end for each in ranges}))
        .option("includeHeaders", str(options.include_headers).lower())
        .option("minPartitions", str(max(1, -(-offsets // options.rows_per_file))))
        .load()
    )
    if options.transform is None:
        return frame
    frame = options.transform(frame)
    needed = _PLACE if options.dead_letter is None else _LETTER
    missing = [name for name in needed if name not in frame.columns]
    if missing:
        why = "a dead letter holds it" if missing[0] in _LETTER[3:] else "the proof counts it"
        raise TableError(
            f"the transform returns no column {missing[0]!r}: {why}. It returns"
            f" {', '.join(frame.columns)}"
        )
    return frame


def columns_of(
    spark: SparkSession, bootstrap: str, topic: str, options: LandingOptions
) -> DataFrame:
    """Return an empty DataFrame with the table's columns; read no record."""
    nothing = [OffsetRange(TopicPartition(topic, 0), 0, 0)]
    return rows_of(spark, bootstrap, nothing, options).drop(*options.dropped)


def data_files(files: TableFiles, folder: str, topic: str) -> list[DataFile]:
    """Return the files that Spark wrote to a folder, with names made from their offsets."""
    found = []
    for entry in files.entries(folder):
        if not entry.name.endswith(".parquet"):
            continue
        path = f"{folder}/{entry.name}"
        footer = files.footer(path, ("partition", "offset"))
        if footer.rows == 0:
            continue
        (partition, same), (low, high) = footer.bounds["partition"], footer.bounds["offset"]
        if partition != same:
            raise ProofError(f"{files.path(path)} mixes partitions {partition} to {same}")
        name = file_name(topic, partition, low, high + 1)
        found.append(DataFile(path, name, partition, low, high + 1, footer.rows))
    return sorted(found, key=lambda each: (each.partition, each.start))


def describe_failure(proof: ContinuityProof) -> str:
    """Return the partitions whose proof failed, with the reasons, as text."""
    lines = [
        f"{each.wanted.tp} from {each.wanted.start} to {each.wanted.end}: {each.lost} lost,"
        f" {each.doubled} doubled, {each.stray} stray"
        for each in proof.partitions
        if not each.holds
    ]
    return "nothing was committed: " + "; ".join(lines)


def run_of(proof: PartitionProof) -> PartitionRun:
    """Return a partition's part of the manifest, from the counts of its proof."""
    wanted = proof.wanted
    return PartitionRun(
        wanted.tp.partition,
        wanted.start,
        wanted.end,
        proof.rows,
        proof.control,
        proof.compacted,
        proof.dead,
    )


def _counts(
    topic: str, ranges: Sequence[OffsetRange], *spans: pa.Table
) -> dict[TopicPartition, PartitionCount]:
    import pyarrow as pa

    from tidelog.spark.pipelines.spans import counts_of

    return {**no_rows(ranges), **counts_of(topic, pa.concat_tables(spans))}


def _may_miss_records(
    counts: dict[TopicPartition, PartitionCount],
    ranges: Sequence[OffsetRange],
    client: BlockingClient,
) -> bool:
    """Return whether the rows may lack records of the log, such as bad records."""
    gaps = {each.tp: gaps_within(counts[each.tp], each) for each in ranges}
    if sum(len(each) for each in gaps.values()) > _GAPS_LOOKED_AT:
        return True
    look = LogGaps(client).look
    return any(look(tp, each).records > 0 for tp, each in gaps.items() if each)


def _refuse(bad: DataFrame, topic: str) -> None:
    """Raise BadRecordsError naming the first bad record, if there is one."""
    first = bad.orderBy("partition", "offset").select("partition", "offset", ERROR_COLUMN).first()
    if first is None:
        return
    raise BadRecordsError(
        f"{topic}-{first['partition']} at offset {first['offset']} does not fit:"
        f" {first[ERROR_COLUMN]}. Nothing was committed; a dead-letter path sets such records aside"
    )


@contextmanager
def _sentence() -> Iterator[None]:
    """Convert the failure of a Java job (for example, after a worker died) to one sentence."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    try:
        yield
    except Py4JJavaError as error:
        cause, reason = error.java_exception, ""
        while cause is not None:
            if cause.getClass().getName().startswith("org.apache.spark") or not reason:
                reason = str(cause.getMessage()).splitlines()[0]
            cause = cause.getCause()
        raise TasksFailedError(
            f"Spark's tasks failed: {reason}. Nothing was committed; run it again"
        ) from error
