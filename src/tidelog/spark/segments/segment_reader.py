"""The reader for the option `segments`, which reads log directories in place of brokers.

This module is light to import; the tasks import the reading code. All executors must have access to
the directories.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from tidelog.spark.options import ReadOptions
from tidelog.spark.shipping import Shipped
from tidelog.spark.worker_errors import sentence_first

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from tidelog.spark.pushdown import Narrowing
    from tidelog.spark.segments.segment_reading import SegmentTask


class SegmentPartition(InputPartition):
    """One task: offsets of a partition, and the files that have these offsets."""

    def __init__(self, task: SegmentTask) -> None:
        self.task = task


class SegmentReader(Shipped, DataSourceReader):
    """A reader that plans from directory listings and reads files in tasks."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        #: The result of the query's filters, which only a FilteringSegmentReader gets.
        self._narrowing: Narrowing | None = None

    def partitions(self) -> list[InputPartition]:
        """List the directories and return the tasks."""
        from tidelog.spark.segments.segment_reading import plan_segments

        with sentence_first():
            planned = plan_segments(self._options, self._narrowing)
            return [SegmentPartition(task) for task in planned]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task as Arrow batches."""
        from tidelog.spark.segments.segment_reading import read_segments

        if not isinstance(partition, SegmentPartition):
            return  # Spark's placeholder partition of a read without tasks
        with sentence_first():
            yield from read_segments(self._options, partition.task)


class FilteringSegmentReader(SegmentReader):
    """A reader that plans only the ranges that pass the filters of the query."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take the filters that planning can apply; return the filters that Spark has to apply."""
        from tidelog.spark.pushdown import take_filters

        self._narrowing, left = take_filters(filters)
        return left
