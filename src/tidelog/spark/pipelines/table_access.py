"""Reads of tables: the files of a path, a DataFrame of committed rows, a repeated proof.

Readers take no lock. A reader follows the manifests, so it never sees files of an uncommitted run,
even if a listing of the directory shows them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.core.types import TopicPartition
from tidelog.spark.pipelines.continuity import (
    ContinuityProof,
    PartitionProof,
    no_rows,
)
from tidelog.spark.pipelines.counting import spans_of_files
from tidelog.spark.pipelines.manifests import DataFile, TableError
from tidelog.spark.pipelines.table import BOOK, TopicTable, local_files, read_only
from tidelog.spark.pipelines.table_files import TableFiles
from tidelog.spark.planning import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def files_at(spark: SparkSession, directory: str) -> TableFiles:
    """Return the files of a path: local without a scheme, Hadoop's with a scheme."""
    local = local_files(directory)
    if local is not None:
        return local
    from tidelog.spark.pipelines.hadoop_files import HadoopFiles

    return HadoopFiles(spark, directory)


def read_table(spark: SparkSession, directory: str) -> DataFrame:
    """Return the committed rows of a table. Raises TableError."""
    table = read_only(files_at(spark, directory))
    if not table.state.files:
        raise TableError(f"{directory} holds no rows yet: ingest a topic to it first")
    return spark.read.parquet(*paths_of(table))


def read_rows(spark: SparkSession, directory: str) -> DataFrame:
    """Return the rows of a table, or of any Parquet files in a directory."""
    files = files_at(spark, directory)
    if any(entry.name == "table.json" for entry in files.entries(BOOK)):
        return read_table(spark, directory)
    return spark.read.parquet(directory)


def paths_of(table: TopicTable) -> list[str]:
    """Return the paths of a table's files, in order of partition and offset."""
    return [table.files.path(each.path) for each in in_order(table)]


def in_order(table: TopicTable) -> list[DataFile]:
    """Return a table's files in order of partition and offset."""
    return sorted(table.state.files.values(), key=lambda each: (each.partition, each.start))


def prove_table(spark: SparkSession, directory: str) -> ContinuityProof:
    """Count a table again and compare it with its manifests. Raises TableError.

    The proof needs no cluster, because the manifests have the record count of each range.
    """
    table = read_only(files_at(spark, directory))
    state = table.state
    if state.origin is None:
        return ContinuityProof(())
    topic = state.origin.topic
    ranges = [
        OffsetRange(TopicPartition(topic, run.partition), run.start, run.end)
        for run in state.runs.values()
    ]
    counts = no_rows(ranges)
    if state.files:
        from tidelog.spark.pipelines.spans import counts_of

        spans = spans_of_files(spark, table.files, [each.path for each in in_order(table)])
        counts |= counts_of(topic, spans)
    proofs = []
    for wanted in ranges:
        found, run = counts[wanted.tp], state.runs[wanted.tp.partition]
        in_range = wanted.start <= found.first and found.last < wanted.end
        stray = 0 if found.rows == 0 or in_range else 1
        proofs.append(
            PartitionProof(
                wanted=wanted,
                rows=found.rows,
                doubled=found.rows - found.distinct,
                lost=max(0, run.rows - found.distinct),
                control=run.control,
                compacted=run.compacted,
                stray=max(stray, found.distinct - run.rows),
                dead=run.dead,
            )
        )
    return ContinuityProof(tuple(proofs))
