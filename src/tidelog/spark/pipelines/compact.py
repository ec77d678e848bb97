"""compact: merges small files of a table into larger files by one commit, and deletes old files.

An ingest that follows a topic writes a file for each batch and partition. Spark's tasks merge
neighbouring files. If the merged files have the same offsets as the former files, one commit
replaces the former files. Replaced files stay for readers, and for earlier versions of the table,
until a later compaction deletes them. Ingests may run at the same time: if another commit comes
first, the compaction repeats its own commit on top of the new version.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import TidelogError
from tidelog.spark.lake.field_ids import check_field_ids
from tidelog.spark.lake.places import lake_at
from tidelog.spark.lake.runs import commit_run
from tidelog.spark.lake.staging import (
    TARGET_FILE_BYTES,
    FilePlan,
    LakeFileWriter,
    discard,
    in_columns,
    new_run,
    run_folder,
)
from tidelog.spark.lake.state import LakeFile, TableChange, TableError
from tidelog.spark.lake.stores import LakeStore
from tidelog.spark.lake.table import Lake
from tidelog.spark.lake.vacuum import vacuum_staged
from tidelog.spark.option_values import OptionError
from tidelog.spark.pipelines.counting import DRIVER_ROWS, count_files
from tidelog.spark.pipelines.landing import ProofError, check_target
from tidelog.spark.pipelines.task_rows import run_tasks

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

#: Default number of hours for which files stay after a merge has replaced them: a week, as in
#: Delta.
KEEP_HOURS: Final = 168
#: A merge fails if another commit replaces its input files first. After this number of failed
#: merges, a compaction gives up.
_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """The result of one compaction; `version` is None if there were no small files to merge."""

    table: str
    before: tuple[LakeFile, ...]
    after: tuple[LakeFile, ...]
    #: Number of data files that were replaced long enough ago to be deleted now.
    deleted: int
    #: Number of deleted files that dead runs had left.
    abandoned: int
    version: int | None
    seconds: float


@dataclass(frozen=True, slots=True)
class _MergeJob:
    """The work of one Spark task: files with adjacent offsets, which it writes as one."""

    plan: FilePlan
    files: tuple[LakeFile, ...]


def plan_merges(files: Iterable[LakeFile], target_file_bytes: int) -> list[list[LakeFile]]:
    """Return groups of files with adjacent offsets to merge, each at most `target_file_bytes`."""
    groups: list[list[LakeFile]] = []
    for run in _neighbours(files, target_file_bytes):
        group: list[LakeFile] = []
        for each in run:
            if group and _size_of([*group, each]) > target_file_bytes:
                groups.append(group)
                group = []
            group.append(each)
        groups.append(group)
    return [each for each in groups if len(each) > 1]


def plan_tiers(files: Iterable[LakeFile], target_file_bytes: int) -> list[list[LakeFile]]:
    """Return groups of neighbouring files of similar sizes, each of `target_file_bytes` at most.

    A file is merged with the files after it once the files after it together have half of the
    file's size. Each remaining file has more than twice the size of the next file. Repeated merges
    of new small files thus write each record only a few times, and keep few files: both numbers
    grow with the logarithm of the table's size.
    """
    groups: list[list[LakeFile]] = []
    for run in _neighbours(files, target_file_bytes):
        tiers: list[list[LakeFile]] = []
        for each in run:
            tiers.append([each])
            while len(tiers) > 1:
                before, last = _size_of(tiers[-2]), _size_of(tiers[-1])
                if before > 2 * last or before + last > target_file_bytes:
                    break
                tiers[-2:] = [[*tiers[-2], *tiers[-1]]]
        groups += tiers
    return [each for each in groups if len(each) > 1]


def _neighbours(files: Iterable[LakeFile], target_file_bytes: int) -> list[list[LakeFile]]:
    """Return groups of neighbouring small files with one partition and equal partition values.

    A file with over half of `target_file_bytes` ends a group, because its merge would gain little.
    Files of unknown offsets, which no ingest has committed, end a group as well.
    """
    runs: list[list[LakeFile]] = [[]]
    for each in sorted(files, key=lambda file: (split_of(file), file.start)):
        if runs[-1] and split_of(runs[-1][-1]) != split_of(each):
            runs.append([])
        if is_small(each, target_file_bytes):
            runs[-1].append(each)
        else:
            runs.append([])
    return [run for run in runs if run]


def is_small(file: LakeFile, target_file_bytes: int) -> bool:
    """Return whether a merge may take a file: an ingest's file of at most half the target size."""
    return file.start >= 0 and 2 * file.size_bytes <= target_file_bytes


def _size_of(files: Iterable[LakeFile]) -> int:
    return sum(file.size_bytes for file in files)


def split_of(file: LakeFile) -> tuple[int, tuple[tuple[bool, str], ...]]:
    """Return a file's partition and partition values, in a form that sorts."""
    values = (file.values[name] for name in sorted(file.values))
    return file.partition, tuple((value is not None, value or "") for value in values)


def compact(
    spark: SparkSession,
    table: str,
    *,
    target_file_bytes: int = TARGET_FILE_BYTES,
    keep_hours: int = KEEP_HOURS,
    storage_options: Mapping[str, str] | None = None,
) -> CompactionReport:
    """Merge the small files of the Delta table at a path or URI, and delete files no longer needed.

    A merged file has about `target_file_bytes` at most. Files that a merge replaced over
    `keep_hours` ago are deleted. Raises TableError, ProofError, OptionError.
    """
    check_target(target_file_bytes)
    check_keep_hours(keep_hours)
    lake = lake_at(table, storage_options)
    return compact_table(spark, lake, target_file_bytes=target_file_bytes, keep_hours=keep_hours)


def check_keep_hours(keep_hours: int) -> None:
    """Raise OptionError if replaced files cannot be kept for this number of hours."""
    if keep_hours < 0:
        raise OptionError(f"keep_hours is {keep_hours}; expected 0 or more")


def compact_table(
    spark: SparkSession, table: Lake, *, target_file_bytes: int, keep_hours: int
) -> CompactionReport:
    """Merge the small files of a table. Raises TableError, or ProofError if a merge loses rows."""
    started = time.monotonic()
    before = tuple(table.files())
    for _ in range(_ATTEMPTS):
        version, is_done = _merged(
            spark, table, target_file_bytes, lambda files: plan_merges(files, target_file_bytes)
        )
        if is_done:
            break
    else:
        raise TableError(
            f"other commits to {table.location} replaced the files of {_ATTEMPTS} merges; run it"
            " again when no other compaction runs"
        )
    deleted = table.vacuum(keep_hours)
    abandoned = len(vacuum_staged(table, [table.store]).deleted)
    after = tuple(table.files())
    seconds = time.monotonic() - started
    return CompactionReport(table.location, before, after, deleted, abandoned, version, seconds)


def merge_some(spark: SparkSession, table: Lake, target_file_bytes: int) -> bool:
    """Merge at most the bytes of one or two full files; return whether there may be more.

    One call thus takes a few seconds, so that it can run beside an ingest.

    Raises TableError, or ProofError if a merge loses rows.
    """

    def plan(files: list[LakeFile]) -> list[list[LakeFile]]:
        chosen: list[list[LakeFile]] = []
        taken = 0
        for group in plan_tiers(files, target_file_bytes):
            if taken >= target_file_bytes:
                break
            chosen.append(group)
            taken += _size_of(group)
        return chosen

    version, is_done = _merged(spark, table, target_file_bytes, plan)
    return version is not None or not is_done


def _merged(
    spark: SparkSession,
    table: Lake,
    target_file_bytes: int,
    plan: Callable[[list[LakeFile]], list[list[LakeFile]]],
) -> tuple[int | None, bool]:
    """Replace each planned group by one file.

    Returns the new version (None if nothing was committed), and whether the merge is done: False if
    another commit replaced the files first.
    """
    state = table.read()
    if state.rollback:
        raise TableError(state.rollback)
    if state.origin is None:
        raise TableError(f"{table.location} holds no table: ingest a topic to it first")
    table.check_files_are_rows(state.version)
    groups = plan(table.files(state.version))
    if not groups:
        return None, True
    run = new_run()
    place = run_folder(table, run, state.version)
    schema = table.schema(state.version)
    files = FilePlan(place, state.origin.topic, schema, target_file_bytes, state.partition_by)
    jobs = [_MergeJob(files, tuple(group)) for group in groups]
    removed = tuple(each for group in groups for each in group)
    try:
        added = tuple(LakeFile(**row) for row in _written(spark, jobs))
        _compare(spark, table.store, removed, added, state.origin.topic)
        discard(place, added)
    except TidelogError:
        discard(place)
        there = {file.path for file in table.files()}
        if any(file.path not in there for file in removed):
            return None, False  # another compaction replaced and deleted the files
        raise
    except BaseException:  # even after Ctrl-C, delete the merged files
        discard(place)
        raise
    outcome = commit_run(table, state, TableChange(run, added=added, removed=removed))
    if outcome.obstacle is not None:
        discard(place)
        return None, False
    return outcome.state.version, True


def _written(spark: SparkSession, jobs: Sequence[_MergeJob]) -> list[dict[str, Any]]:
    """Write merged files; the driver writes a few rows itself, faster than a Spark job would."""
    if sum(file.rows for job in jobs for file in job.files) <= DRIVER_ROWS:
        return [row for job in jobs for row in _merge(job)]
    return run_tasks(spark, jobs, _merge)


def _merge(job: _MergeJob) -> Iterator[dict[str, Any]]:
    """Write the rows of a job's files as one file, and yield the description of that file."""
    writer = LakeFileWriter(job.plan, job.files[0].partition, job.files[0].values)
    try:
        for files in _overlapping(job.files):
            for batch in merge_rows([_rows(job.plan, file) for file in files]):
                writer.append(batch)
        yield asdict(writer.close())
    except FileNotFoundError as error:
        writer.abandon()
        raise TableError(
            f"{job.plan.place.store.location} lacks a file of its log: {error}."
            " `tidelog pipeline prove` lists what is missing"
        ) from error
    except BaseException:
        writer.abandon()
        raise


def _rows(plan: FilePlan, file: LakeFile) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in order of offset, in the columns of the merged file.

    Another tool may have sorted the file in another order. The rows of such a file are in memory at
    once, so a merge takes files of at most half the target size.
    """
    import pyarrow as pa
    from pyarrow import parquet

    with (
        plan.place.store.open().open_input_file(file.path) as source,
        parquet.ParquetFile(source, coerce_int96_timestamp_unit="us") as rows,
    ):
        check_field_ids(rows.schema_arrow, plan.place.field_ids, file.path)
        batches = (in_columns(batch, plan.file_schema) for batch in rows.iter_batches())
        if _ascends(rows.read(["offset"]).column("offset")):
            yield from batches
        else:
            whole = pa.Table.from_batches(batches, plan.file_schema)
            yield from whole.sort_by("offset").to_batches()


def _ascends(offsets: pa.Array | pa.ChunkedArray) -> bool:
    import numpy as np

    return not np.any(np.diff(offsets.to_numpy()) < 0)


def _overlapping(files: Iterable[LakeFile]) -> list[list[LakeFile]]:
    """Divide files, which are in offset order, into groups.

    The offsets of two groups do not overlap.
    """
    groups: list[list[LakeFile]] = []
    end = -1
    for file in files:
        if file.start >= end:
            groups.append([])
        groups[-1].append(file)
        end = max(end, file.end)
    return groups


def merge_rows(streams: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of several streams in order of offset; each stream is in this order itself.

    Raises TableError for a batch in another order.
    """
    import numpy as np
    import pyarrow as pa

    heads: dict[int, pa.RecordBatch] = {}

    def advance(number: int) -> None:
        heads.pop(number, None)
        for batch in streams[number]:
            if not _ascends(batch.column("offset")):
                raise TableError("rows to merge are not in order of offset")
            if batch.num_rows:
                heads[number] = batch
                return

    for number in range(len(streams)):
        advance(number)
    while heads:
        reached = min(batch.column("offset")[-1].as_py() for batch in heads.values())
        parts = []
        for number, batch in list(heads.items()):
            offsets = batch.column("offset").to_numpy()
            count = int(np.searchsorted(offsets, reached, side="right"))
            parts.append(batch.slice(0, count))
            if count < batch.num_rows:
                heads[number] = batch.slice(count)
            else:
                advance(number)
        rows = pa.concat_batches(parts) if len(parts) > 1 else parts[0]
        yield rows.sort_by("offset") if len(parts) > 1 else rows


def _compare(
    spark: SparkSession,
    store: LakeStore,
    removed: Sequence[LakeFile],
    added: Sequence[LakeFile],
    topic: str,
) -> None:
    """Raise ProofError unless the merged files have the same offsets as the replaced files."""
    from tidelog.spark.pipelines.spans import counts_of

    old, new = (count_files(spark, store, files) for files in (removed, added))
    for fault in (*old.faults, *new.faults):
        raise ProofError(f"nothing was changed: {store.url(fault.path)} {fault.reason}")
    before, after = (counts_of(topic, counted.spans) for counted in (old, new))
    for tp in sorted({*before, *after}):
        if before.get(tp) != after.get(tp):
            raise ProofError(
                f"nothing was changed: the merged files of {tp} have {after.get(tp)}, those that"
                f" they replace {before.get(tp)}"
            )
