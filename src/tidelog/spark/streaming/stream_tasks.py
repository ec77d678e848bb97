"""The tasks of a stream: ranges of several partitions, with a client that outlives the task.

Spark's Python workers run many tasks, one at a time. A stream's tasks are short, and connecting to
three brokers takes longer than reading a few hundred records. A worker therefore keeps its client
for the next task with the same settings. After an error the worker closes the client.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.options import ReadOptions
from tidelog.spark.planning import DataLossError, OffsetRange
from tidelog.spark.reading import RecreatedTopicError, read_range_with

_log = logging.getLogger("tidelog.spark")

#: The idle clients of this worker process, by their settings.
_idle: dict[Any, BlockingClient] = {}


def read_ranges(options: ReadOptions, ranges: Sequence[OffsetRange]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of several ranges, one range after the other.

    Raises KafkaError, DataLossError, CorruptBatchError.
    """
    settings = (options.bootstrap, options.client)
    client = _idle.pop(settings, None)
    if client is None:
        client = BlockingClient(options.bootstrap, options.client_id, options.timeout_ms)
    is_done = False
    try:
        for each in ranges:
            try:
                yield from read_range_with(client, options, each)
            except RecreatedTopicError as error:
                _report(options, each, error)
        is_done = True
    finally:
        if is_done:
            _idle[settings] = client
        else:
            client.close()


def _report(options: ReadOptions, lost: OffsetRange, error: RecreatedTopicError) -> None:
    """Raise or log the loss of a deleted topic's records; the next batch reads the new topic."""
    sentence = (
        f"topic {lost.tp.topic!r} was deleted and recreated while a batch read {lost.tp} from"
        f" {lost.start} to {lost.end}"
    )
    if options.fail_on_data_loss:
        raise DataLossError(
            f"{sentence}. Set failOnDataLoss to false to go on without these records"
        ) from error
    _log.warning("%s; the records of the old topic are lost", sentence)
