"""`format("tidelog")`: the source and the sink, as Spark finds and calls them.

This module is light to import, because Spark loads it in processes that never read a record. Only
the tasks import the code that reads records. There are two readers, with and without filters,
because Spark rejects a reader that takes filters if its configuration does not allow pushdown.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from tidelog.spark.options import OptionError, ReadOptions, parse_options
from tidelog.spark.shipping import Shipped
from tidelog.spark.worker_errors import sentence_first

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceStreamArrowWriter,
        Filter,
    )
    from pyspark.sql.types import StructType

    from tidelog.spark.plan_schema import PlanSchema
    from tidelog.spark.pushdown import Narrowing
FORMAT = "tidelog"
_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"
_log = logging.getLogger("tidelog.spark")


class RangePartition(InputPartition):
    """The work of one task: offsets `[start, end)` of a partition, fixed when the query was
    planned.
    """

    def __init__(
        self, topic: str, partition: int, start: int, end: int, topic_id: bytes = bytes(16)
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.start = start
        self.end = end
        #: Topic id at planning; zeros if the id is not known.
        self.topic_id = topic_id


class TidelogReader(Shipped, DataSourceReader):
    """A reader that plans on the driver and reads in tasks."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        #: The result of the query's filters, which only a FilteringReader gets.
        self._narrowing: Narrowing | None = None

    def partitions(self) -> list[InputPartition]:
        """Return the tasks; query the cluster for partitions and offsets."""
        with sentence_first():
            return self._planned()

    def _planned(self) -> list[InputPartition]:
        from tidelog.runtime.blocking import BlockingClient
        from tidelog.spark.planning import plan_ranges
        from tidelog.spark.splitting import split_ranges

        options = self._options
        with BlockingClient(options.bootstrap, options.client_id, options.timeout_ms) as client:
            ranges = plan_ranges(client, options)
            if self._narrowing is not None:
                ranges = self._narrowing.apply(ranges, client, options.isolation_level)
        return [
            RangePartition(each.tp.topic, each.tp.partition, each.start, each.end, each.topic_id)
            for each in split_ranges(
                ranges, options.min_partitions, options.max_records_per_partition
            )
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task as Arrow batches."""
        from tidelog.core.types import TopicId, TopicPartition
        from tidelog.spark.planning import OffsetRange
        from tidelog.spark.reading import read_range

        if not isinstance(partition, RangePartition):
            return  # Spark's placeholder partition of a read without tasks
        wanted = OffsetRange(
            TopicPartition(partition.topic, partition.partition),
            partition.start,
            partition.end,
            TopicId(partition.topic_id),
        )
        with sentence_first():
            yield from read_range(self._options, wanted)


class FilteringReader(TidelogReader):
    """A reader that plans only the ranges that pass the filters of the query."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take the filters that planning can apply; return the filters that Spark has to apply."""
        from tidelog.spark.pushdown import take_filters

        self._narrowing, left = take_filters(filters)
        return left


class TidelogDataSource(Shipped, DataSource):
    """A data source with the columns and option names of Spark's Kafka connector, without a jar."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the schema of the columns. Raises OptionError for unusable options.

        Spark calls this method for batches and streams alike, so options that are valid for a batch
        or for a stream are accepted.
        """
        from tidelog.spark.plan_schema import SourceSchema

        with sentence_first():
            try:
                parsed = self._parsed(is_stream=False)
            except OptionError as error:
                try:
                    parsed = self._parsed(is_stream=True)
                except OptionError:
                    raise error from None
        return SourceSchema(parsed.columns)

    def reader(self, schema: PlanSchema) -> DataSourceReader:
        """Return a reader. Raises OptionError for unusable options, or for another schema."""
        with sentence_first():
            options = self._parsed(is_stream=False)
            _check_schema(schema, options)
        for remark in options.remarks:
            _log.warning("%s", remark)
        takes_filters = options.pushdown and _is_asked_with_filters(schema)
        if options.segments:
            from tidelog.spark.segments.segment_reader import FilteringSegmentReader, SegmentReader

            return (FilteringSegmentReader if takes_filters else SegmentReader)(options)
        return (FilteringReader if takes_filters else TidelogReader)(options)

    def streamReader(self, schema: PlanSchema) -> DataSourceStreamReader:
        """Return the reader of a stream; for unusable options, its first call raises the error.

        Spark's runner would hide an error of this method behind the runner's own error.
        """
        from tidelog.spark.streaming.stream_reader import RejectedStreamReader, TidelogStreamReader

        try:
            options = self._parsed(is_stream=True)
            _check_schema(schema, options)
            return TidelogStreamReader(options)
        except OptionError as error:
            return RejectedStreamReader(error)

    def writer(self, schema: PlanSchema, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer of a batch. Raises OptionError, SinkError."""
        from tidelog.spark.sink.writers import TidelogWriter

        with sentence_first():
            return TidelogWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Return the writer of a micro-batch. Raises OptionError, SinkError."""
        from tidelog.spark.sink.writers import TidelogStreamWriter

        with sentence_first():
            return TidelogStreamWriter(self.options, schema, overwrite)

    def _parsed(self, *, is_stream: bool) -> ReadOptions:
        given: Mapping[str, str] = self.options
        return parse_options(given, is_stream=is_stream)


def _check_schema(schema: PlanSchema, options: ReadOptions) -> None:
    """Raise OptionError if the user gave `load` another schema than the options yield.

    Spark accepts a wrong schema of the user, and would fail at the first row. Nullability is
    ignored.
    """
    from tidelog.spark.plan_schema import SourceSchema, types_of

    expected, given = (
        ", ".join(f"{name} {kind}" for name, kind in types_of(each).items())
        for each in (SourceSchema(options.columns), schema)
    )
    if given != expected:
        raise OptionError(
            f"the schema given is {given or 'empty'}; with these options the columns are"
            f" {expected}. Leave out .schema(...): select and cast columns after load()"
        )


def _is_asked_with_filters(schema: PlanSchema) -> bool:
    """Return whether the engine (Sail, or Spark's present worker) accepts a reader with filters.

    Spark has a separate worker module for pushdown, and uses that module if Spark's configuration
    allows pushdown. Spark's worker module without pushdown rejects a reader that takes filters.
    """
    from tidelog.spark.plan_schema import is_arrow

    if is_arrow(schema):
        return True
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHDOWN_WORKER in sys.modules or (spec is not None and spec.name == _PUSHDOWN_WORKER)
