"""Landed tables: their rows as a DataFrame, without any jar, and a second proof of their offsets.

Readers take no lock. A reader takes the files of one version from the table's log, so it sees no
uncommitted file, even if a listing of the directory shows the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, Final

from tidelog.core.dataclass import dataclass
from tidelog.core.types import TopicPartition
from tidelog.spark.lake.commits import dead_letters, version_at, version_with
from tidelog.spark.lake.partitioning import Values
from tidelog.spark.lake.places import lake_at
from tidelog.spark.lake.protocol import NO_VERSION
from tidelog.spark.lake.state import LakeCommit, LakeFile, LakeState, PartitionRun, TableError
from tidelog.spark.lake.stores import LakeStore, lost_file
from tidelog.spark.lake.table import Lake
from tidelog.spark.option_values import OptionError, whole_number
from tidelog.spark.pipelines.continuity import (
    ContinuityProof,
    PartitionCount,
    PartitionProof,
    gaps_within,
    no_rows,
)
from tidelog.spark.pipelines.counting import FileFault, count_files
from tidelog.spark.pipelines.offset_faults import (
    FileSpan,
    OffsetFault,
    OffsetFaultKind,
    offset_faults,
)
from tidelog.spark.planning import OffsetRange
from tidelog.spark.shipping import shipped

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

#: If a table has more combinations of partition values than this, Python tasks read its files.
_MOST_SPLITS: Final = 64


@dataclass(frozen=True, slots=True)
class TableProof:
    """The proof of a whole table at one version."""

    version: int
    offsets: ContinuityProof
    #: Files that readers cannot read, or that differ from the table's log.
    faults: tuple[FileFault, ...] = ()
    #: Offsets with several rows, offsets of rows outside the ranges of all commits, and offsets
    #: without a row in partitions that have lost records.
    ranges: tuple[OffsetFault, ...] = ()
    #: A sentence that says why the offsets in commits are not true; empty without a rollback.
    rollback: str = ""

    @property
    def holds(self) -> bool:
        """Whether each offset is in the table once, and each file is as the table's log says."""
        return self.offsets.holds and not self.faults and not self.rollback


def read_landed(
    spark: SparkSession,
    table: str,
    *,
    version: int | None = None,
    timestamp: datetime | None = None,
    offset: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the rows of a Delta table, which needs no jar of Delta.

    At most one option chooses an earlier state: `version`, the newest version at `timestamp`, or
    the first version with all records of a partition below an offset, as in `offset="0:1200"`.
    Files of an object store are read by the tasks themselves, with `storage_options` as in
    `ingest`. Raises TableError, also for a table with features that this reader lacks (deletion
    vectors, column mapping), and OptionError.
    """
    from tidelog.spark.plan_schema import frame_schema

    lake = lake_at(table, storage_options)
    if [version, timestamp, offset].count(None) < 2:
        raise OptionError("version, timestamp and offset exclude each other")
    if timestamp is not None:
        version = version_at(lake, int(timestamp.timestamp() * 1000))
    elif offset is not None:
        version = version_with(lake, *_offset_of(offset))
    lake.check_files_are_rows(version)
    schema, store, files = lake.schema(version), lake.store, lake.files(version)
    _check_present(lake, version, [file.path for file in files])
    columns = frame_schema(schema)
    if not files:
        return spark.createDataFrame([], columns)
    splits: dict[tuple[tuple[str, str | None], ...], list[str]] = {}
    for file in files:
        splits.setdefault(tuple(file.values.items()), []).append(file.path)
    # Spark reads some characters of a path as a pattern, and plans slowly for many partition
    # values.
    is_plain = store.is_local and not any(sign in store.location for sign in "[]{}*?\\")
    if not is_plain or len(splits) > _MOST_SPLITS:
        places = [(file.path, file.values) for file in files]
        return _read_in_tasks(spark, store, schema, columns, places)
    frames = [
        _read_split(spark, columns, values, [store.url(path) for path in paths])
        for values, paths in splits.items()
    ]
    return reduce(lambda frame, other: frame.unionAll(other), frames)


def _check_present(lake: Lake, version: int | None, files: Sequence[str]) -> None:
    """Raise TableError for a file that is gone.

    Files of the newest version in an object store are not looked up one by one.
    """
    from pyarrow import fs

    store, sought = lake.store, list(files)
    if not store.is_local:
        newest = {file.path for file in lake.files()} if version is not None else {*files}
        sought = [path for path in files if path not in newest]
    for info in store.open().get_file_info(sought) if sought else ():
        if info.type == fs.FileType.NotFound:
            which = "the newest version" if version is None else f"version {version}"
            raise lost_file(lake.location, info.path, which)


def _read_split(
    spark: SparkSession,
    columns: StructType,
    values: tuple[tuple[str, str | None], ...],
    urls: list[str],
) -> DataFrame:
    """Return the rows of files with the same values of the table's partition columns.

    Spark treats the values as constants, and skips files if a filter excludes their values.
    """
    from pyspark.sql import functions as F  # noqa: N812 - how all of Spark names it
    from pyspark.sql.types import StructType

    known = dict(values)
    in_files = StructType([field for field in columns if field.name not in known])
    frame = spark.read.schema(in_files).parquet(*urls)
    return frame.select(
        *(
            F.lit(known[field.name]).cast(field.dataType).alias(field.name)
            if field.name in known
            else frame["`" + field.name.replace("`", "``") + "`"]
            for field in columns
        )
    )


def _offset_of(text: str) -> tuple[int, int]:
    """Return `PARTITION:OFFSET` as numbers. Raises OptionError."""
    numbers = [whole_number(part) for part in text.split(":")]
    partition, end = numbers if len(numbers) == 2 else (None, None)
    if partition is None or end is None:
        raise OptionError(f"offset is {text!r}; expected PARTITION:OFFSET, such as 0:1200")
    return partition, end


def _read_in_tasks(
    spark: SparkSession,
    store: LakeStore,
    schema: pa.Schema,
    columns: StructType,
    files: list[tuple[str, Values]],
) -> DataFrame:
    """Return the rows of files, which Python tasks read instead of Spark's Parquet reader."""
    serialized = schema.serialize().to_pybytes()

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyarrow import parquet

        from tidelog.spark.lake.staging import in_columns
        from tidelog.spark.lake.stores import lost_file
        from tidelog.spark.worker_errors import sentence_first

        def opened_file(path: str) -> pa.NativeFile:
            try:
                return opened.open_input_file(path)
            except FileNotFoundError:
                raise lost_file(store.location, path, "the version that is read") from None

        wanted = pa.ipc.read_schema(pa.py_buffer(serialized))
        opened = store.open()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                path, values = files[number]
                with (
                    sentence_first(),
                    opened_file(path) as source,
                    parquet.ParquetFile(source, coerce_int96_timestamp_unit="us") as file,
                ):
                    for each in file.iter_batches():
                        yield in_columns(each, wanted, values)

    numbers = spark.range(0, len(files), 1, len(files))
    return numbers.mapInArrow(shipped(rows), columns)


def read_rows(spark: SparkSession, place: str, options: Mapping[str, str] | None) -> DataFrame:
    """Return the rows of a Delta table, or of any Parquet files at a path."""
    if lake_at(place, options).newest() != NO_VERSION:
        return read_landed(spark, place, storage_options=options)
    return spark.read.parquet(place)


def prove_table(
    spark: SparkSession, table: str, *, storage_options: Mapping[str, str] | None = None
) -> TableProof:
    """Count a Delta table again, and compare it with the offsets that its commits carry.

    The proof reads the files that readers read. The proof needs no cluster, because the commits
    have the record count of each range. Raises TableError.
    """
    lake = lake_at(table, storage_options)
    state = lake.read()
    if state.version == NO_VERSION:
        raise TableError(f"{table} holds no table: ingest a topic to it first")
    assert state.origin is not None
    if state.origin.upsert_key:
        raise TableError(
            f"{table} has the latest row of each key ({state.origin.upsert_key}): it lacks the rows"
            " of most records, so that offsets prove nothing"
        )
    if not state.is_whole:
        raise TableError(
            f"{table}: the table's log was cleaned, and no longer has the counts of all runs. Prove"
            " it by its columns: --partition-column partition --offset-column offset --topic TOPIC"
            " --bootstrap-server HOST:PORT; dead letters then count as lost"
        )
    lake.check_files_are_rows(state.version)
    proof = proof_of(spark, lake.store, state, lake.files(state.version))
    commits = lake.commits()
    return replace(
        proof,
        faults=(
            *proof.faults,
            *_misplaced(commits),
            *_lost_letters(lake.store, dead_letters(lake)),
        ),
        ranges=tuple(_with_versions(fault, commits) for fault in proof.ranges),
        rollback=state.rollback,
    )


def _with_versions(fault: OffsetFault, commits: Iterable[LakeCommit]) -> OffsetFault:
    """Return a fault with the versions whose commits landed its missing offsets."""
    if fault.kind is not OffsetFaultKind.MISSING:
        return fault
    versions = [
        commit.version
        for commit in commits
        if commit.note is not None
        for run in commit.note.offsets
        if run.partition == fault.partition and run.start < fault.end and fault.start < run.end
    ]
    return replace(fault, versions=tuple(sorted(versions)))


def _misplaced(commits: Iterable[LakeCommit]) -> Iterator[FileFault]:
    """Yield a fault for each commit file that a backup put back over a newer commit."""
    for commit in commits:
        if commit.note is not None and commit.is_misplaced:
            yield FileFault(
                f"the commit of version {commit.version}",
                f"is that of version {commit.note.version}: it was put back from a backup",
            )


def _lost_letters(store: LakeStore, paths: Iterable[str]) -> Iterator[FileFault]:
    """Yield the dead letters of the table's commits that are missing."""
    from pyarrow import fs

    for path in paths:
        folder, _, name = path.rpartition("/")
        letters = LakeStore(folder, store.options)
        is_there = not letters.is_local or os.path.isdir(folder)
        if not is_there or letters.open().get_file_info(name).type != fs.FileType.File:
            yield FileFault(path, "is missing")


def proof_of(
    spark: SparkSession, store: LakeStore, state: LakeState, files: list[LakeFile]
) -> TableProof:
    """Compare the files of a table's version with the offsets of its commits."""
    from tidelog.spark.pipelines.spans import counts_of

    assert state.origin is not None
    topic = state.origin.topic
    runs = {TopicPartition(topic, run.partition): run for run in state.partitions.values()}
    wanted = [OffsetRange(tp, run.start, run.end) for tp, run in runs.items()]
    counted = count_files(spark, store, files)
    counts = {**no_rows(wanted), **counts_of(topic, counted.spans)}
    proofs = [_partition_proof(each, counts[each.tp], runs[each.tp]) for each in wanted]
    ranges = [
        fault for fault in offset_faults(counted.by_file) if fault.kind is OffsetFaultKind.DOUBLED
    ]
    for proof in proofs:
        gaps = gaps_within(counts[proof.wanted.tp], proof.wanted) if proof.lost else []
        is_exact = proof.lost == sum(gap.end - gap.start for gap in gaps)
        ranges += [
            OffsetFault(
                OffsetFaultKind.MISSING,
                proof.wanted.tp.partition,
                gap.start,
                gap.end,
                (),
                is_exact,
            )
            for gap in gaps
        ]
    ranges += _stray({each.tp.partition: each for each in wanted}, counted.by_file)
    for tp, found in counts.items():
        if tp not in runs:
            nothing = OffsetRange(tp, found.first, found.first)
            proofs.append(PartitionProof(nothing, found.rows, 0, 0, 0, 0, stray=found.rows))
    offsets = ContinuityProof(tuple(proofs))
    return TableProof(state.version, offsets, counted.faults, tuple(ranges))


def _stray(wanted: Mapping[int, OffsetRange], spans: Iterable[FileSpan]) -> Iterator[OffsetFault]:
    """Yield offsets in files that lie outside the offset ranges of the table's commits."""
    for span in spans:
        known = wanted.get(span.partition)
        start, end = (span.start, span.start) if known is None else (known.start, known.end)
        below = (span.start, min(span.end, start))
        above = (max(span.start, end), span.end)
        for first, last in (below, above):
            if first < last:
                yield OffsetFault(OffsetFaultKind.STRAY, span.partition, first, last, (span.file,))


def _partition_proof(
    wanted: OffsetRange, found: PartitionCount, run: PartitionRun
) -> PartitionProof:
    """Return the proof of a partition.

    The gaps in a run's offsets need no explanation here: the run explained them before its commit,
    in the counts of `run`.
    """
    in_range = wanted.start <= found.first and found.last < wanted.end
    stray = 0 if found.rows == 0 or in_range else 1
    return PartitionProof(
        wanted=wanted,
        rows=found.rows,
        doubled=found.rows - found.distinct,
        lost=max(0, run.rows - found.distinct),
        control=run.control,
        compacted=run.compacted,
        stray=max(stray, found.distinct - run.rows),
        dead=run.dead,
    )
