"""compact: small files of a table merged into larger ones by one commit, and files deleted.

A followed topic leaves a file for each batch and partition. Spark's tasks merge neighbouring files,
and the offsets before and after are compared; one commit then replaces the files. Replaced files
stay for readers, and for earlier versions of the table, until a later compaction deletes them.
Ingests may run meanwhile: a commit that another one overtakes is repeated on top of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from tidelog.core.dataclass import dataclass
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
from tidelog.spark.lake.state import LakeFile, LakeState, TableChange, TableError
from tidelog.spark.lake.stores import LakeStore
from tidelog.spark.lake.table import Lake
from tidelog.spark.lake.vacuum import vacuum_staged
from tidelog.spark.pipelines.counting import count_files
from tidelog.spark.pipelines.landing import ProofError, check_target
from tidelog.spark.pipelines.task_rows import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Default time in hours to keep replaced files, which is Delta's own: a week.
KEEP_HOURS: Final = 168
#: Number of merges that other commits may overtake before a compaction gives up.
_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """The result of one compaction; there is no version if no small files are neighbours."""

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
    """The work of a task: neighbouring files to write as one."""

    plan: FilePlan
    files: tuple[LakeFile, ...]


def plan_merges(files: Iterable[LakeFile], target_file_bytes: int) -> list[list[LakeFile]]:
    """Return groups of neighbouring files to merge, each of `target_file_bytes` at most.

    A file with over half of `target_file_bytes` is not merged, because that would gain little.
    Files of unknown offsets, which no ingest has committed, stay. Files of one group have the same
    partition, and the same values of the table's partition columns.
    """
    groups: list[list[LakeFile]] = []
    group: list[LakeFile] = []
    for each in sorted(files, key=lambda file: (_split_of(file), file.start)):
        is_small = each.start >= 0 and 2 * each.size_bytes <= target_file_bytes
        fits = (
            bool(group)
            and _split_of(group[0]) == _split_of(each)
            and group[-1].end <= each.start
            and sum(file.size_bytes for file in group) + each.size_bytes <= target_file_bytes
        )
        if not (is_small and fits):
            groups.append(group)
            group = []
        if is_small:
            group.append(each)
    groups.append(group)
    return [each for each in groups if len(each) > 1]


def _split_of(file: LakeFile) -> tuple[int, tuple[tuple[bool, str], ...]]:
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
    """Merge the small files of the Delta table at a path or URI, and delete what it needs no more.

    A merged file has about `target_file_bytes` at most. Files that a merge replaced over
    `keep_hours` ago are deleted. Raises TableError, ProofError, OptionError.
    """
    check_target(target_file_bytes)
    lake = lake_at(table, storage_options)
    return compact_table(spark, lake, target_file_bytes=target_file_bytes, keep_hours=keep_hours)


def compact_table(
    spark: SparkSession, table: Lake, *, target_file_bytes: int, keep_hours: int
) -> CompactionReport:
    """Merge the small files of a table. Raises TableError, or ProofError if a merge loses rows."""
    started = time.monotonic()
    before = tuple(table.files())
    version = None
    for _ in range(_ATTEMPTS):
        state = table.read()
        if state.rollback:
            raise TableError(state.rollback)
        if state.origin is None:
            raise TableError(f"{table.location} holds no table: ingest a topic to it first")
        table.check_files_are_rows(state.version)
        groups = plan_merges(table.files(state.version), target_file_bytes)
        if not groups:
            break
        merged = _merged(spark, table, state, groups, target_file_bytes)
        if merged is not None:
            version = merged
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


def _merged(
    spark: SparkSession,
    table: Lake,
    state: LakeState,
    groups: Sequence[Sequence[LakeFile]],
    target_file_bytes: int,
) -> int | None:
    """Replace each group by one file; return the version, or None if another run was faster."""
    assert state.origin is not None
    run = new_run()
    place = run_folder(table, run, state.version)
    plan = FilePlan(
        place,
        state.origin.topic,
        table.schema(state.version),
        target_file_bytes,
        state.partition_by,
    )
    jobs = [_MergeJob(plan, tuple(group)) for group in groups]
    removed = tuple(each for group in groups for each in group)
    try:
        added = tuple(LakeFile(**row) for row in run_tasks(spark, jobs, _merge))
        _compare(spark, table.store, removed, added, state.origin.topic)
        discard(place, added)
    except BaseException:  # even after Ctrl-C, delete the merged files
        discard(place)
        raise
    outcome = commit_run(table, state, TableChange(run, added=added, removed=removed))
    if outcome.obstacle is not None:
        discard(place)
        return None
    return outcome.state.version


def _merge(job: _MergeJob) -> Iterator[dict[str, Any]]:
    """Write the rows of neighbouring files as one file in a task, and yield it."""
    from pyarrow import parquet

    writer = LakeFileWriter(job.plan, job.files[0].partition, job.files[0].values)
    schema = job.plan.file_schema
    opened = job.plan.place.store.open()
    try:
        for file in job.files:
            with (
                opened.open_input_file(file.path) as source,
                parquet.ParquetFile(source, coerce_int96_timestamp_unit="us") as rows,
            ):
                for batch in rows.iter_batches():
                    writer.append(in_columns(batch, schema))
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


def _compare(
    spark: SparkSession,
    store: LakeStore,
    removed: Sequence[LakeFile],
    added: Sequence[LakeFile],
    topic: str,
) -> None:
    """Raise ProofError unless the merged files have the offsets of those that they replace."""
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
