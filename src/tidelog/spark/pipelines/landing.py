"""Landing of a run: the records of offset ranges as staged files, counted and proved.

No reader knows the files before their commit. The proof reads the offsets of the files back from
the store; a proof that does not hold raises ProofError.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Final

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import TidelogError
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.lake.partitioning import DAY, TIMESTAMP, derives_day, with_partitions
from tidelog.spark.lake.staging import TARGET_FILE_BYTES, FilePlan, StagingFolder
from tidelog.spark.lake.state import LakeFile, PartitionRun, TableError
from tidelog.spark.options import COLUMNS, HEADERS, OptionError, offsets_json
from tidelog.spark.pipelines.continuity import (
    ContinuityProof,
    LogGaps,
    PartitionCount,
    PartitionProof,
    no_rows,
    prove_ranges,
)
from tidelog.spark.pipelines.counting import count_files
from tidelog.spark.pipelines.job_progress import Progress, reported
from tidelog.spark.pipelines.latest_rows import BEFORE_COLUMN, TOMBSTONE_COLUMN, check_key
from tidelog.spark.pipelines.writing import (
    ERROR_COLUMN,
    LETTER,
    BadRecord,
    WrittenFiles,
    table_schema,
    write_frame,
    write_ranges,
)
from tidelog.spark.planning import OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

#: Approximate maximum number of offsets in one task. A task thus takes seconds, and after the loss
#: of an executor Spark repeats only seconds of work.
OFFSETS_PER_TASK: Final = 2_000_000
_PLACE: Final = LETTER[:3]

Transform = Callable[["DataFrame"], "DataFrame"]


class ProofError(TidelogError):
    """The error for written files that differ from the log; nothing was committed."""


class BadRecordsError(TidelogError):
    """The error for bad records if there is no path for dead letters; nothing was committed."""


class TasksFailedError(TidelogError):
    """The error for a Spark job that failed outside tidelog's code; nothing was committed."""


@dataclass(frozen=True, slots=True)
class LandingOptions:
    """Options of the conversion of records into rows."""

    include_headers: bool = False
    transform: Transform | None = None
    #: Columns of the transform's result that the table leaves out.
    without: tuple[str, ...] = ()
    #: The path or URI of bad records; with None a bad record ends the run.
    dead_letter: str | None = None
    #: Whether the topic is compacted, so that offsets missing from its log are no loss.
    compacted: bool = False
    #: Approximate size of a full file.
    target_file_bytes: int = TARGET_FILE_BYTES
    progress: Progress | None = None
    offsets_per_task: int = OFFSETS_PER_TASK
    #: Key columns, for a table with the latest row of each key; empty for a table with all records.
    upsert_by: tuple[str, ...] = ()
    #: Partition columns of a new table: `partition`, `day`, or columns of the transform.
    partition_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise OptionError for options that do not fit each other."""
        check_target(self.target_file_bytes)
        if self.dead_letter is not None and self.transform is None:
            raise OptionError("dead_letter needs a transform: without one every record fits")
        for name in self.partition_by:
            if name in self.without or self.partition_by.count(name) > 1:
                raise OptionError(
                    f"partition_by is {', '.join(self.partition_by)}; expected columns that the"
                    " table keeps, each once"
                )
        for name in _PLACE[1:]:
            if name in self.without:
                raise OptionError(f"without is {name!r}; a table keeps it, because proofs count it")
        for name in self.upsert_by:
            if name in self.without or "," in name:
                raise OptionError(f"upsert_by is {name!r}, which is no column of the table")
        if self.upsert_by and self.transform is None and "value" in self.without:
            raise OptionError("without is 'value'; an upsert finds tombstones by it")

    @property
    def is_marked(self) -> bool:
        """Whether staged files have a column of tombstones, which the table does not get."""
        return bool(self.upsert_by) and self.transform is not None

    @property
    def dropped(self) -> tuple[str, ...]:
        """Columns of the transform's result that the table leaves out."""
        own = () if self.transform is None else (ERROR_COLUMN,)
        return (*self.without, *own, *((TOMBSTONE_COLUMN,) if self.is_marked else ()))


@dataclass(frozen=True, slots=True)
class RunRows:
    """The rows of a run and their columns in the table."""

    ranges: tuple[OffsetRange, ...]
    schema: pa.Schema
    #: The rows as a DataFrame. None if the ingest has no transform: each task then writes the
    #: records that it reads.
    frame: DataFrame | None = None
    partition_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Landing:
    """The files of one run, staged and proved but not committed yet."""

    proof: ContinuityProof
    files: tuple[LakeFile, ...]
    letters: tuple[LakeFile, ...] = ()
    runs: tuple[PartitionRun, ...] = field(default=())
    #: Files of the table that an upsert replaces.
    replaced: tuple[LakeFile, ...] = ()
    #: Number of files that continue a file which the task closed early, because it may have only
    #: MOST_OPEN files open.
    reopened: int = 0


def land(
    spark: SparkSession,
    client: BlockingClient,
    bootstrap: str,
    rows: RunRows,
    options: LandingOptions,
    place: StagingFolder,
    letters: StagingFolder | None,
) -> Landing:
    """Write the rows of a run to one folder, and bad records to another.

    Raises ProofError, BadRecordsError, TasksFailedError, or PySparkException.
    """
    ranges = rows.ranges
    topic = ranges[0].tp.topic
    with reported(spark, options.progress), _sentence():
        written = _write(spark, bootstrap, rows, options, place, letters)
    if written.bad is not None:
        raise BadRecordsError(_refusal(topic, written.bad))
    spans = _spans(spark, place, written.files)
    counts = _counts(topic, ranges, spans)
    dead: dict[TopicPartition, int] = {}
    if letters is not None and written.letters:
        of_letters = _spans(spark, letters, written.letters)
        dead = {tp: count.rows for tp, count in _counts(topic, ranges, of_letters).items()}
        counts = _counts(topic, ranges, spans, of_letters)
    look = LogGaps(client).look
    proof = prove_ranges(counts, ranges, look, compacted=options.compacted, dead=dead)
    if not proof.holds:
        raise ProofError(describe_failure(proof))
    runs = tuple(run_of(each) for each in proof.partitions)
    return Landing(proof, written.files, written.letters, runs, reopened=written.reopened)


def _write(
    spark: SparkSession,
    bootstrap: str,
    rows: RunRows,
    options: LandingOptions,
    place: StagingFolder,
    letters: StagingFolder | None,
) -> WrittenFiles:
    import pyarrow as pa

    topic = rows.ranges[0].tp.topic
    plan = FilePlan(place, topic, rows.schema, options.target_file_bytes, rows.partition_by)
    if rows.frame is None:
        per_task = options.offsets_per_task
        return write_ranges(spark, bootstrap, rows.ranges, plan, offsets_per_task=per_task)
    schema = rows.schema
    if options.is_marked:
        schema = schema.append(pa.field(TOMBSTONE_COLUMN, pa.bool_()))
    is_judged = ERROR_COLUMN in rows.frame.columns
    of_letters = None
    if letters is not None:
        columns = rows.frame.select(*LETTER).limit(0).toArrow().schema
        of_letters = FilePlan(letters, topic, columns, options.target_file_bytes)
    return write_frame(rows.frame, replace(plan, schema=schema), of_letters, is_judged=is_judged)


def offered(options: LandingOptions) -> tuple[str, ...]:
    """Return the columns of a record that the source must read for these options."""
    return (*COLUMNS, HEADERS) if options.include_headers else COLUMNS


def rows_of(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    ranges: Sequence[OffsetRange],
    options: LandingOptions,
    partition_by: tuple[str, ...] = (),
    *,
    empty_is_null: bool = True,
) -> RunRows:
    """Return the rows of `ranges`, not read yet; without ranges, return only the columns.

    `empty_is_null` states that the table stores an empty text of a partition column as null. Raises
    TableError for columns that are missing, or that no table can have.
    """
    frame = None
    if options.transform is None:
        from tidelog.spark.columns import arrow_schema

        names = [name for name in offered(options) if name not in options.dropped]
        schema = arrow_schema(names)
    else:
        taken = ranges or [OffsetRange(TopicPartition(topic, 0), 0, 0)]
        frame = _loaded(spark, bootstrap, taken, options)
        nulled = partition_by if empty_is_null else ()
        frame = _transformed(frame, options, options.transform, nulled)
        schema = table_schema(frame, options.dropped)
        if derives_day(schema.names, partition_by):
            _check_time(frame)
    check_key(schema, options.upsert_by)
    return RunRows(tuple(ranges), with_partitions(schema, partition_by), frame, partition_by)


def _loaded(
    spark: SparkSession, bootstrap: str, ranges: Sequence[OffsetRange], options: LandingOptions
) -> DataFrame:
    """Return the records of `ranges` as the source yields them."""
    offsets = sum(each.size for each in ranges)
    topic = ranges[0].tp.topic
    return (
        spark.read.format("tidelog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.client.id", "tidelog-ingest")
        .option("kafka.isolation.level", "read_committed")
        .option("assign", json.dumps({topic: [each.tp.partition for each in ranges]}))
        .option("startingOffsets", offsets_json({each.tp: each.start for each in ranges}))
        .option("endingOffsets", offsets_json({each.tp: each.end for each in ranges}))
        .option("includeHeaders", str(options.include_headers).lower())
        .option("minPartitions", str(max(1, -(-offsets // options.offsets_per_task))))
        .load()
    )


def _transformed(
    frame: DataFrame, options: LandingOptions, transform: Transform, nulled: Sequence[str]
) -> DataFrame:
    """Return the transformed records; raise TableError for missing columns.

    `nulled` are columns whose empty texts the table stores as null.
    """
    frame = transform(frame)
    _check_names(frame)
    if options.upsert_by:
        frame = with_tombstones(frame, options, nulled)
    frame = frame.drop(BEFORE_COLUMN)
    needed = _PLACE if options.dead_letter is None else LETTER
    missing = [name for name in needed if name not in frame.columns]
    if missing:
        why = "a dead letter holds it" if missing[0] in LETTER[3:] else "the proof counts it"
        raise TableError(
            f"the transform returns no column {missing[0]!r}: {why}. It returns"
            f" {', '.join(frame.columns)}"
        )
    _check_numbers(frame)
    return frame


def with_tombstones(
    frame: DataFrame, options: LandingOptions, nulled: Sequence[str] = ()
) -> DataFrame:
    """Return rows with tombstones marked, and with an error in rows without a key.

    An empty text of one of the columns `nulled` is no key. A key that differs from the former key
    in BEFORE_COLUMN is an error, too, because the former key's row would stay. Raises TableError
    for missing columns.
    """
    from pyspark.sql import functions as F  # noqa: N812 - how all of Spark names it
    from pyspark.sql.types import StringType

    missing = [name for name in options.upsert_by if name not in frame.columns]
    if missing:
        raise TableError(
            f"there is no column {missing[0]!r} for the key; there are {', '.join(frame.columns)}"
        )
    if TOMBSTONE_COLUMN in frame.columns:
        is_tombstone = F.coalesce(F.col(TOMBSTONE_COLUMN).cast("boolean"), F.lit(False))
    elif "value" in frame.columns:
        is_tombstone = F.col("value").isNull()
    else:
        raise TableError(
            f"the transform returns neither {TOMBSTONE_COLUMN!r} nor 'value': an upsert finds the"
            " tombstones by one of them"
        )
    reasons = [F.col(ERROR_COLUMN)] if ERROR_COLUMN in frame.columns else []
    known = frame.select(f"{BEFORE_COLUMN}.*").columns if BEFORE_COLUMN in frame.columns else []
    for name in options.upsert_by:
        value = F.col(f"`{name}`")
        text = f"{name} is null, and an upsert needs a key"
        reasons.append(F.when(value.isNull(), F.lit(text)))
        if name in nulled and isinstance(frame.schema[name].dataType, StringType):
            text = f"{name} is empty, which is null in a partition column; an upsert needs a key"
            reasons.append(F.when(value == "", F.lit(text)))
        if name in known:
            former = F.col(BEFORE_COLUMN).getField(name)
            text = f"{name} changes in an update, and the former row would stay: upsert by the key"
            text = f"{text} of Debezium's records"
            reasons.append(F.when(~is_tombstone & (former != value), F.lit(text)))
    error = F.coalesce(*reasons).cast("string")
    return frame.withColumn(TOMBSTONE_COLUMN, is_tombstone).withColumn(ERROR_COLUMN, error)


def _check_names(frame: DataFrame) -> None:
    """Raise TableError for columns whose names differ only in case.

    Names of mark columns, such as `tombstone`, must be in lower case: Spark ignores case, but a run
    does not.
    """
    names = [name.lower() for name in frame.columns]
    for name in frame.columns:
        if name.lower() in (TOMBSTONE_COLUMN, ERROR_COLUMN) and name != name.lower():
            raise TableError(
                f"the transform returns column {name!r}: the mark is {name.lower()!r}; write it so,"
                " or give the column another name"
            )
        if names.count(name.lower()) > 1:
            raise TableError(f"the transform returns column {name!r} twice; rename one of them")


def _check_numbers(frame: DataFrame) -> None:
    """Raise TableError if a transform changed the types of the columns that the proof counts."""
    from pyspark.sql.types import IntegralType

    for name in _PLACE[1:]:
        kind = frame.schema[name].dataType
        if not isinstance(kind, IntegralType):
            raise TableError(
                f"the transform returns column {name!r} as {kind.simpleString()}: the proof counts"
                " it as a whole number; keep the column as it is"
            )


def _check_time(frame: DataFrame) -> None:
    """Raise TableError for rows without the timestamp from which the table's `day` is derived."""
    from pyspark.sql.types import TimestampType

    kinds = {field.name: field.dataType for field in frame.schema}
    if not isinstance(kinds.get(TIMESTAMP), TimestampType):
        has = kinds[TIMESTAMP].simpleString() if TIMESTAMP in kinds else "no such column"
        raise TableError(
            f"a table by {DAY} needs the record's {TIMESTAMP!r} in the transform's columns, which"
            f" has {has} there; keep it, or return a column {DAY!r}"
        )


def check_target(target_file_bytes: int) -> None:
    """Raise OptionError for an impossible file size."""
    if target_file_bytes < 1:
        raise OptionError(f"target_file_bytes is {target_file_bytes}; expected 1 or more")


def describe_failure(proof: ContinuityProof) -> str:
    """Return the partitions whose proof failed, with the reasons, as text."""
    lines = [
        f"{each.wanted.tp} from {each.wanted.start} to {each.wanted.end}: {each.lost} lost,"
        f" {each.doubled} doubled, {each.stray} stray"
        for each in proof.partitions
        if not each.holds
    ]
    return (
        f"nothing was committed: {'; '.join(lines)}. A transform keeps one row for each record, and"
        " marks what does not fit in a column 'error'; offsets that compaction removed need the"
        " option compacted"
    )


def run_of(proof: PartitionProof) -> PartitionRun:
    """Return the offsets and counts of a partition that the commit records, from its proof."""
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


def _spans(spark: SparkSession, place: StagingFolder, files: Sequence[LakeFile]) -> pa.Table:
    """Return the spans of a run's files; raise ProofError for a file with a fault."""
    counted = count_files(spark, place.store, files)
    for fault in counted.faults:
        url = place.store.url(fault.path)
        raise ProofError(f"nothing was committed: {url} {fault.reason}")
    return counted.spans


def _counts(
    topic: str, ranges: Sequence[OffsetRange], *spans: pa.Table
) -> dict[TopicPartition, PartitionCount]:
    import pyarrow as pa

    from tidelog.spark.pipelines.spans import counts_of

    return {**no_rows(ranges), **counts_of(topic, pa.concat_tables(spans))}


def _refusal(topic: str, bad: BadRecord) -> str:
    return (
        f"{topic}-{bad.partition} at offset {bad.offset} does not fit: {bad.error}. Nothing was"
        " committed; a dead-letter path sets such records aside"
    )


@contextmanager
def _sentence() -> Iterator[None]:
    """In a `with` block, replace the error of a failed Spark job by a TasksFailedError of one
    sentence.
    """
    try:
        yield
    except _java_errors() as error:
        cause, reason = error.java_exception, ""
        while cause is not None:
            if cause.getClass().getName().startswith("org.apache.spark") or not reason:
                reason = str(cause.getMessage()).partition("\n")[0]
            cause = cause.getCause()
        raise TasksFailedError(
            f"Spark's tasks failed: {reason}. Nothing was committed; run it again"
        ) from error


def _java_errors() -> tuple[Any, ...]:
    """Return the class of Java's errors; none if PySpark came as the package pyspark-client."""
    try:
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        return ()
    return (Py4JJavaError,)
