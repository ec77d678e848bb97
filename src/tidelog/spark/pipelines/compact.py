"""compact: small files of a table merged into larger ones by one manifest.

A followed topic leaves a file for each batch and partition. Spark merges neighbouring files and
compares the counts of rows before and after; one manifest then replaces the old files. Replaced
files stay for `keep_ms`, for readers that opened the table before the compaction.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from tidelog.core.dataclass import dataclass
from tidelog.core.types import TopicPartition
from tidelog.spark.pipelines.continuity import PartitionCount
from tidelog.spark.pipelines.counting import spans_of_files
from tidelog.spark.pipelines.landing import ROWS_PER_FILE, ProofError, data_files
from tidelog.spark.pipelines.manifests import DataFile
from tidelog.spark.pipelines.table import TopicTable, open_table
from tidelog.spark.pipelines.table_access import files_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Default time in ms to keep replaced files: most queries on them end within an hour.
KEEP_MS: Final = 3_600_000
#: Number of concurrent merges; each merge is one Spark task.
_AT_ONCE: Final = 4


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """The result of one compaction; there is no manifest if no small files are neighbours."""

    directory: str
    before: tuple[DataFile, ...]
    after: tuple[DataFile, ...]
    #: Number of data files that were replaced long enough ago to be deleted now.
    deleted: int
    manifest: int | None
    seconds: float


def plan_merges(files: Iterable[DataFile], rows_per_file: int) -> list[list[DataFile]]:
    """Return groups of neighbouring files to merge, each with `rows_per_file` rows at most.

    A file with over half of `rows_per_file` rows is not merged, because that would gain little.
    """
    groups: list[list[DataFile]] = []
    group: list[DataFile] = []
    for each in sorted(files, key=lambda file: (file.partition, file.start)):
        is_small = each.rows * 2 <= rows_per_file
        fits = (
            bool(group)
            and group[0].partition == each.partition
            and sum(file.rows for file in group) + each.rows <= rows_per_file
        )
        if not (is_small and fits):
            groups.append(group)
            group = []
        if is_small:
            group.append(each)
    groups.append(group)
    return [each for each in groups if len(each) > 1]


def compact(
    spark: SparkSession,
    directory: str,
    *,
    rows_per_file: int = ROWS_PER_FILE,
    keep_ms: int = KEEP_MS,
) -> CompactionReport:
    """Merge the small files of the table in `directory`. Raises TableError, ProofError."""
    with open_table(files_at(spark, directory), create=False) as table:
        return compact_table(spark, table, rows_per_file=rows_per_file, keep_ms=keep_ms)


def compact_table(
    spark: SparkSession, table: TopicTable, *, rows_per_file: int, keep_ms: int
) -> CompactionReport:
    """Merge the small files of an open table. Raises ProofError if a merge changes the rows."""
    started = time.monotonic()
    before = tuple(table.state.files.values())
    groups = plan_merges(before, rows_per_file)
    origin = table.state.origin
    number = None
    if groups and origin is not None:
        run, folder = table.new_run()
        try:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                tasks = [
                    pool.submit(_merge, spark, table, group, f"{folder}-{place}")
                    for place, group in enumerate(groups)
                ]
                merged = [task.result() for task in tasks]
        except BaseException:  # even after Ctrl-C, delete the merged files
            for place in range(len(groups)):
                table.discard(f"{run}-{place}")
            raise
        removed = [each for group in groups for each in group]
        manifest = table.commit(run, origin, (), merged, removed, whole=True)
        number = manifest.number
    deleted = table.clean(keep_ms)
    after = tuple(table.state.files.values())
    seconds = time.monotonic() - started
    return CompactionReport(table.directory, before, after, deleted, number, seconds)


def _merge(
    spark: SparkSession, table: TopicTable, group: Sequence[DataFile], folder: str
) -> DataFile:
    """Write the rows of `group` as one file; raise ProofError if the counts of rows differ."""
    origin = table.state.origin
    assert origin is not None
    names = [each.path for each in group]
    paths = [table.files.path(name) for name in names]
    rows = spark.read.option("mergeSchema", "true").parquet(*paths)
    one = rows.coalesce(1).sortWithinPartitions("offset")
    one.write.option("compression", "zstd").parquet(table.files.path(folder))
    written = data_files(table.files, folder, origin.topic)
    tp = TopicPartition(origin.topic, group[0].partition)
    old, new = (
        _count(spark, table, where, tp) for where in (names, [each.path for each in written])
    )
    if len(written) != 1 or old != new:
        raise ProofError(
            f"{tp} from {group[0].start} to {group[-1].end}: {len(group)} files hold {old.rows}"
            f" rows, {old.distinct} offsets; merged they are {new.rows} rows, {new.distinct}"
            f" offsets in {len(written)} files. Nothing was changed"
        )
    return written[0]


def _count(
    spark: SparkSession, table: TopicTable, names: Sequence[str], tp: TopicPartition
) -> PartitionCount:
    from tidelog.spark.pipelines.spans import counts_of

    counts = counts_of(tp.topic, spans_of_files(spark, table.files, names))
    return counts.get(tp, PartitionCount(0, 0, 0, -1, ()))
