"""`format("tidelog")`: the batch source, as Spark finds and drives it.

Light to import: Spark loads it in processes that never read a record. The tasks import the reading
code. A reader without filter pushdown: Spark rejects one that has it where its configuration does
not allow it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from tidelog.core.errors import TidelogError
from tidelog.spark.options import OptionError, ReadOptions, parse_options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

FORMAT = "tidelog"
_log = logging.getLogger("tidelog.spark")
#: Read by Spark's worker when it reports an exception to the driver.
_NO_TRACEBACK = "SPARK_HIDE_TRACEBACK"


class RangePartition(InputPartition):
    """One task: offsets `[start, end)` of a partition, fixed when the query was planned."""

    def __init__(
        self, topic: str, partition: int, start: int, end: int, topic_id: bytes = bytes(16)
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.start = start
        self.end = end
        #: The topic's incarnation that was planned; zeros where it is not known.
        self.topic_id = topic_id


class TidelogReader(DataSourceReader):
    """A reader that plans on the driver and reads in tasks."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Return the tasks; query the cluster for partitions and offsets."""
        from tidelog.runtime.blocking import BlockingClient
        from tidelog.spark.planning import plan_ranges
        from tidelog.spark.splitting import split_ranges

        options = self._options
        with (
            _sentence_first(),
            BlockingClient(options.bootstrap, options.client_id, options.timeout_ms) as client,
        ):
            ranges = plan_ranges(client, options)
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
            return  # Spark's stand-in for "no tasks"
        wanted = OffsetRange(
            TopicPartition(partition.topic, partition.partition),
            partition.start,
            partition.end,
            TopicId(partition.topic_id),
        )
        with _sentence_first():
            yield from read_range(self._options, wanted)


class TidelogDataSource(DataSource):
    """Columns and option names of Spark's Kafka connector, without a jar."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> str:
        """Return the DDL of the columns; raise OptionError for unusable options.

        Spark does not say whether it asks for a batch or a stream: options that fit one of them
        pass here.
        """
        from tidelog.spark.columns import spark_ddl

        with _sentence_first():
            try:
                parsed = self._parsed(is_stream=False)
            except OptionError as error:
                try:
                    parsed = self._parsed(is_stream=True)
                except OptionError:
                    raise error from None
        return spark_ddl(parsed.columns)

    def reader(self, schema: StructType) -> TidelogReader:
        """Return a reader; raise OptionError for unusable options."""
        with _sentence_first():
            options = self._parsed(is_stream=False)
        for remark in options.remarks:
            _log.warning("%s", remark)
        return TidelogReader(options)

    def _parsed(self, *, is_stream: bool) -> ReadOptions:
        given: Mapping[str, str] = self.options
        return parse_options(given, is_stream=is_stream)


@contextlib.contextmanager
def _sentence_first() -> Iterator[None]:
    """Let the driver show the sentence of a tidelog error instead of a worker's traceback.

    The traceback would come first and names files of tidelog, not the option that the user should
    change. The worker process ends with the exception, so its environment concerns no other source.
    """
    try:
        yield
    except TidelogError:
        if _is_worker():
            os.environ[_NO_TRACEBACK] = "1"
        raise


def _is_worker() -> bool:
    """Return whether this process is Spark's: its main module is one of PySpark's."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
