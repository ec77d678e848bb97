"""Offsets in Parquet files, counted by Arrow on the driver or by Spark's tasks.

The driver counts a small batch faster than Spark starts a job: two columns of a million rows are
read in some 20 ms. Spark's tasks count large batches, and files that only Hadoop reaches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelog.spark.pipelines.table_files import TableFiles

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

#: Maximum number of rows that the driver counts itself.
DRIVER_ROWS: Final = 4_000_000
_COLUMNS: Final = ("partition", "offset")


def spans_of_files(spark: SparkSession, files: TableFiles, names: Sequence[str]) -> pa.Table:
    """Return the spans of offsets in the Parquet files `names` of a table."""
    import pyarrow as pa

    from tidelog.spark.pipelines.spans import SPANS, spans_of

    if not names:
        return SPANS.empty_table()
    if files.has_view and sum(files.footer(name, ()).rows for name in names) <= DRIVER_ROWS:
        paths = [Path(files.root) / name for name in names]
        return pa.Table.from_batches(spans_of(_batches(paths)), SPANS)
    rows = spark.read.schema("partition int, offset long").parquet(
        *[files.path(name) for name in names]
    )
    return _span_table(rows)


def _span_table(frame: DataFrame) -> pa.Table:
    """Return the spans of offsets in the rows of `frame`, found by Spark in one pass.

    `frame` needs the columns partition and offset. Each task reduces its rows to spans without a
    sort or shuffle; the spans are few, because offsets in files follow each other.
    """
    from tidelog.spark.pipelines.spans import SPANS_DDL

    def reduced(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from tidelog.spark.pipelines.spans import spans_of

        return spans_of(batches)

    return frame.select("partition", "offset").mapInArrow(reduced, SPANS_DDL).toArrow()


def parquet_names(files: TableFiles, folder: str) -> list[str]:
    """Return the names of the Parquet files in a folder."""
    found = files.entries(folder)
    return [f"{folder}/{entry.name}" for entry in found if entry.name.endswith(".parquet")]


def _batches(paths: Sequence[Path]) -> Iterator[pa.RecordBatch]:
    from pyarrow import parquet

    for path in paths:
        with parquet.ParquetFile(path) as file:
            yield from file.iter_batches(columns=list(_COLUMNS))
