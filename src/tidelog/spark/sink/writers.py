"""The writers that Spark calls, one for batch writes and one for streams.

This module is light to import. The driver makes a writer for each write or micro-batch, checks
options and schema, and sends the writer to the tasks. The cluster has acknowledged a task's records
when the task ends, so Spark's commit has no work left. After an abort the written records stay, as
with Spark's Kafka connector: delivery is at least once, and `tidelog.batch.headers` lets readers
drop repeated records.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from tidelog.core.dataclass import dataclass
from tidelog.spark.plan_schema import PlanSchema, is_arrow, types_of
from tidelog.spark.shipping import Shipped
from tidelog.spark.sink.batch_marks import NO_BATCH, AttemptMark
from tidelog.spark.sink.row_columns import SinkError, check_columns
from tidelog.spark.sink.settings import SinkSettings, parse_sink_options
from tidelog.spark.worker_errors import sentence_first

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import TaskContext

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_RUN_CHARACTERS = 12

_log = logging.getLogger("tidelog.spark")


@dataclass
class TaskWritten(WriterCommitMessage):
    """The result of one task's write."""

    records: int
    bytes: int


class _Writing:
    """State of the writers for batches and for streams: the settings, and the ids of this write."""

    def __init__(self, options: Mapping[str, str], schema: PlanSchema) -> None:
        self._settings = parse_sink_options(options)
        check_columns(types_of(schema), self._settings)
        if is_arrow(schema):
            _check_for_sail(options, self._settings)
        self._run = uuid.uuid4().hex[:_RUN_CHARACTERS]
        self._write_id = self._settings.write_id or str(uuid.uuid4())

    def write_rows(self, iterator: Iterator[pa.RecordBatch], is_stream: bool) -> TaskWritten:
        """Write the rows of this task."""
        from pyspark import TaskContext

        from tidelog.spark.sink.write_task import WriteTask

        task = WriteTask(self._settings, self._mark(TaskContext.get(), is_stream))
        records = task.write(iterator)
        return TaskWritten(records, task.acknowledged_bytes)

    def _mark(self, context: TaskContext | None, is_stream: bool) -> AttemptMark | None:
        if not self._settings.batch_headers:
            return None
        assert context is not None, "Spark calls this in a task"
        write_id, batch = self._write_id, NO_BATCH
        if is_stream:
            query, number = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
            if not query or not number:
                raise SinkError(
                    "option tidelog.batch.headers needs the query's id and the batch's number,"
                    f" which this Spark does not give its tasks ({_QUERY_ID}, {_BATCH_ID})"
                )
            write_id, batch = query, number
        return AttemptMark(
            write_id, batch, self._run, context.partitionId(), context.taskAttemptId()
        )


class TidelogWriter(Shipped, DataSourceArrowWriter):
    """The writer of `df.write`."""

    def __init__(self, options: Mapping[str, str], schema: PlanSchema, overwrite: bool) -> None:
        """Check options and schema before any row is written. Raises OptionError, SinkError."""
        if overwrite:
            raise SinkError("mode overwrite cannot be used: a log is only appended to; use append")
        self._writing = _Writing(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        with sentence_first():
            return self._writing.write_rows(iterator, is_stream=False)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log which rows of the failed write stay in the topics."""
        _log_abort("write", messages)


class TidelogStreamWriter(Shipped, DataSourceStreamArrowWriter):
    """The writer of one micro-batch."""

    def __init__(self, options: Mapping[str, str], schema: PlanSchema, overwrite: bool) -> None:
        """Check options and schema before any row is written. Raises OptionError, SinkError."""
        if overwrite:
            raise SinkError("output mode complete cannot be used: a log is only appended to")
        self._writing = _Writing(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task of a micro-batch."""
        with sentence_first():
            return self._writing.write_rows(iterator, is_stream=True)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Log which rows of the failed micro-batch stay in the topics."""
        _log_abort(f"batch {batchId}", messages)


def _check_for_sail(options: Mapping[str, str], settings: SinkSettings) -> None:
    """Raise SinkError for options that Sail cannot honour: batch headers, and checkpoints."""
    if settings.batch_headers:
        raise SinkError(
            "option tidelog.batch.headers needs the numbers of tasks and of their attempts, which"
            " Sail does not give to tasks: leave the option out, or write with Spark"
        )
    if any(name.lower() == "checkpointlocation" for name in options):
        raise SinkError(
            "option checkpointLocation: Sail would run this stream as one batch and keep no"
            " checkpoint; run streams with Spark, or write a batch without this option"
        )


def _log_abort(what: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    done = [each for each in messages if isinstance(each, TaskWritten)]
    _log.warning(
        "%s was aborted: %d of %d tasks had written all their rows, %d acknowledged records, which"
        " stay in the topics",
        what,
        len(done),
        len(messages),
        sum(each.records for each in done),
    )
