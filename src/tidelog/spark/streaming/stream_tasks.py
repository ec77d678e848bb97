"""The tasks of a stream: ranges of several partitions, with a client that outlives the task.

Spark's Python workers run many tasks, one at a time. A stream's tasks are short, and connecting to
three brokers takes longer than reading a few hundred records. A worker therefore keeps its client
for the next task with the same settings. After an error the worker closes the client.

A task fetches the first records of all its ranges with one request per leader. A small range needs
no further request. With the client, a worker keeps what it learnt of the sizes of batches, so that
each range asks only for the bytes that it needs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from tidelog.client.fetching import FetchedPartition
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.limits import MIB
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.fetch_sizes import FetchSizes
from tidelog.spark.options import ReadOptions
from tidelog.spark.planning import DataLossError, OffsetRange
from tidelog.spark.reading import NO_SUCH_TOPIC, RecreatedTopicError, read_range_with

_log = logging.getLogger("tidelog.spark")

#: Minimum bytes of a range with an unknown size: Kafka's default `max.partition.fetch.bytes`, which
#: is also the size of the largest batch that a topic takes by default.
_SMALLEST_SHARE: Final = MIB


class _Kept(NamedTuple):
    """What a worker keeps from one task for the next task with the same settings."""

    client: BlockingClient
    sizes: FetchSizes


#: What this worker process keeps while no task uses it, by the settings of the client.
_idle: dict[Any, _Kept] = {}


def read_ranges(options: ReadOptions, ranges: Sequence[OffsetRange]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of several ranges, one range after the other.

    Raises KafkaError, DataLossError, CorruptBatchError.
    """
    settings = (options.bootstrap, options.client)
    kept = _idle.pop(settings, None)
    if kept is None:
        client = BlockingClient(options.bootstrap, options.client_id, options.timeout_ms)
        kept = _Kept(client, FetchSizes())
    is_done = False
    try:
        fetched = _fetch_together(kept, options, ranges)
        for each in ranges:
            first = fetched.pop(each.tp, None)
            try:
                yield from read_range_with(kept.client, options, each, first, kept.sizes)
            except RecreatedTopicError as error:
                _report(options, each, error)
        is_done = True
    finally:
        if is_done:
            _idle[settings] = kept
        else:
            kept.client.close()


def _fetch_together(
    kept: _Kept, options: ReadOptions, ranges: Sequence[OffsetRange]
) -> dict[TopicPartition, FetchedPartition]:
    """Return the first records of several ranges, without the ranges that must fetch alone.

    A range fetches alone if its records did not fit, if it lost records, or if it waits for its
    leader. A range whose size in the log is not known gets an equal share of the response, but at
    least as much as consumers ask for by default.
    """
    if len(ranges) < 2:
        return {}
    size = options.client.fetch_bytes
    share = max(_SMALLEST_SHARE, size // len(ranges))
    limits = {
        each.tp: min(size, kept.sizes.estimate(each.tp, each.start, each.end) or share)
        for each in ranges
    }
    try:
        fetched = kept.client.fetch_many(
            {each.tp: each.start for each in ranges},
            size,
            partition_max_bytes=limits,
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
