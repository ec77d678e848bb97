"""The tasks of a stream: ranges of several partitions, with a client that outlives the task.

Spark's Python workers run many tasks, one at a time. A stream's tasks are short, and connecting to
three brokers takes longer than reading a few hundred records. A worker therefore keeps its client
for the next task with the same settings. After an error the worker closes the client.

A task fetches the first records of all its ranges with one request per leader. A small range needs
no further request.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from tidelog.client.fetching import FetchedPartition
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.options import ReadOptions
from tidelog.spark.planning import DataLossError, OffsetRange
from tidelog.spark.reading import NO_SUCH_TOPIC, RecreatedTopicError, read_range_with

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
        fetched = _fetch_together(client, options, ranges)
        for each in ranges:
            try:
                yield from read_range_with(client, options, each, fetched.pop(each.tp, None))
            except RecreatedTopicError as error:
                _report(options, each, error)
        is_done = True
    finally:
        if is_done:
            _idle[settings] = client
        else:
            client.close()


def _fetch_together(
    client: BlockingClient, options: ReadOptions, ranges: Sequence[OffsetRange]
) -> dict[TopicPartition, FetchedPartition]:
    """Return the first records of several ranges, without the ranges that must fetch alone.

    A range fetches alone if its records did not fit, if it lost records, or if it waits for its
    leader.
    """
    if len(ranges) < 2:
        return {}
    size = options.client.fetch_bytes
    try:
        fetched = client.fetch_many(
            {each.tp: each.start for each in ranges},
            size,
            partition_max_bytes=size,
            max_wait_ms=0,
            isolation_level=options.isolation_level,
        )
    except KafkaError as error:
        if error.code not in NO_SUCH_TOPIC:
            raise
        return {}  # each range then fetches alone
    return {
        tp: each
        for tp, each in fetched.items()
        if each.error is ErrorCode.NONE and len(each.records)
    }


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
