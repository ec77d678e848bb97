"""Reads of one range of a partition as Arrow batches: fetch, decode, repeat, until the end.

A read runs in a Spark task, with a client of its own. The range ends at or below the high watermark
that the driver read (with read_committed: the last stable offset), so all its records are committed
and stay. A leader whose log end is below the range has not caught up, and gets another request.
Records of another incarnation of the topic are never returned.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from tidelog.client.aborted_transactions import AbortedTransactions
from tidelog.client.fetching import EARLIEST, LATEST, FetchedPartition
from tidelog.core.errors import ErrorCode, KafkaError, TidelogError
from tidelog.core.types import READ_COMMITTED, ZERO_TOPIC_ID, TopicId, topic_id_to_text
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.decode import CorruptBatchError, PartitionDecoder
from tidelog.spark.fetch_sizes import FetchSizes
from tidelog.spark.options import ReadOptions
from tidelog.spark.planning import DataLossError, OffsetRange

#: Number of empty responses from a leader whose high watermark covers the range, after which the
#: range counts as read.
_EMPTY_ANSWERS: Final = 3

#: Errors that the client returns, after its retries, for a topic or partition that is gone.
NO_SUCH_TOPIC: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

_log = logging.getLogger("tidelog.spark")


class RecreatedTopicError(TidelogError):
    """The error for a topic that was deleted and recreated between planning and reading."""


def read_range(options: ReadOptions, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range, in offset order.

    Raises KafkaError, DataLossError, RecreatedTopicError, CorruptBatchError.
    """
    with BlockingClient(options.bootstrap, options.client_id, options.timeout_ms) as client:
        yield from read_range_with(client, options, wanted)


def read_range_with(
    client: BlockingClient,
    options: ReadOptions,
    wanted: OffsetRange,
    first: FetchedPartition | None = None,
    sizes: FetchSizes | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range like `read_range`, with a client that the caller keeps.

    If the caller has already fetched records, `first` has the records from the range's start on.
    `sizes` has the caller's knowledge of the log, and learns from this read.
    """
    sizes = FetchSizes() if sizes is None else sizes
    decoder = PartitionDecoder(wanted.tp, wanted.start, wanted.end, options.columns)
    is_committed = options.isolation_level == READ_COMMITTED
    reader = _RangeReader(client, options, wanted, decoder, first, sizes)
    while decoder.next_offset < wanted.end:
        before = decoder.next_offset
        fetched = reader.fetch()
        if fetched is None:
            return
        if is_committed:
            yield from decoder.decode(fetched.records, AbortedTransactions(fetched.aborted))
        else:
            yield from decoder.decode(fetched.records)
        sizes.learn(wanted.tp, decoder.last_batch)
        if decoder.next_offset == before:
            raise CorruptBatchError(
                f"{wanted.tp}: the {len(fetched.records)} bytes fetched from offset {before}"
                " hold no whole batch from there on"
            )


class _RangeReader:
    """A reader that fetches until it has records, or until the range has no more records."""

    def __init__(
        self,
        client: BlockingClient,
        options: ReadOptions,
        wanted: OffsetRange,
        decoder: PartitionDecoder,
        first: FetchedPartition | None,
        sizes: FetchSizes,
    ) -> None:
        self._client = client
        self._options = options
        self._wanted = wanted
        self._decoder = decoder
        self._first = first
        self._sizes = sizes

    def fetch(self) -> FetchedPartition | None:
        """Return the next records; None if the rest of the range has none."""
        first, self._first = self._first, None
        if first is not None:
            self._check_incarnation(first.topic_id)
            return first
        patience_ends = time.monotonic() + self._options.timeout_ms / 1000
        empty = 0
        while self._decoder.next_offset < self._wanted.end:
            position = self._decoder.next_offset
            try:
                fetched = self._fetch_once(position)
            except KafkaError as error:
                if self._is_over(position, error):
                    return None
                continue
            if len(fetched.records):
                return fetched
            shown = fetched.high_watermark
            if self._options.isolation_level == READ_COMMITTED:
                shown = fetched.last_stable_offset
            if shown >= self._wanted.end:
                empty += 1
                if empty >= _EMPTY_ANSWERS:
                    return None  # compaction removed the last records of the range
            elif time.monotonic() > patience_ends:
                raise KafkaError(
                    ErrorCode.OFFSET_NOT_AVAILABLE,
                    f"{self._wanted.tp} should be read up to {self._wanted.end}, but its leader"
                    f" shows nothing above {shown}",
                )
        return None

    def _fetch_once(self, position: int) -> FetchedPartition:
        client = self._options.client
        expected = self._sizes.estimate(self._wanted.tp, position, self._wanted.end)
        most = client.fetch_bytes
        fetched = self._client.fetch(
            self._wanted.tp,
            position,
            most if expected is None else min(most, max(expected, client.min_bytes)),
            min_bytes=client.min_bytes,
            max_wait_ms=client.max_wait_ms,
            isolation_level=client.isolation_level,
        )
        self._check_incarnation(fetched.topic_id)
        return fetched

    def _is_over(self, position: int, error: KafkaError) -> bool:
        """Return whether the range is over after a failed fetch; raise `error` if it is fatal.

        Returns False if the read continues at the start of the log, which failOnDataLoss=false
        allows.
        """
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._skip_lost(position, error)
            return False
        if error.code not in NO_SUCH_TOPIC:
            raise error
        message = (
            f"{self._wanted.tp} was deleted before it was read: offsets {position} to"
            f" {self._wanted.end - 1} are lost"
        )
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{message}. Set failOnDataLoss to false to go on without them"
            ) from error
        _log.warning("%s", message)
        return True

    def _check_incarnation(self, topic_id: TopicId) -> None:
        planned = self._wanted.topic_id
        if planned in (ZERO_TOPIC_ID, topic_id) or topic_id == ZERO_TOPIC_ID:
            return
        raise RecreatedTopicError(
            f"topic {self._wanted.tp.topic!r} was deleted and created again after the query was"
            f" planned: its id was {topic_id_to_text(planned)} and is {topic_id_to_text(topic_id)}."
            " Run the query again to read the new topic"
        )

    def _skip_lost(self, position: int, error: KafkaError) -> None:
        """Continue at the start of the log if records were deleted and failOnDataLoss allows it."""
        tp = self._wanted.tp
        topic = self._client.metadata([tp.topic]).topics.get(tp.topic)
        if topic is not None:
            self._check_incarnation(topic.topic_id)
        first = self._client.list_offsets({tp: EARLIEST})[tp].offset
        if self._options.fail_on_data_loss or first <= position:
            last = self._client.list_offsets({tp: LATEST})[tp].offset
            raise DataLossError(
                f"{tp} has no offset {position} any more; its log holds {first} to {last}: records"
                " were deleted while they were read, or the topic was recreated. Set"
                " failOnDataLoss to false to go on without deleted records"
            ) from error
        _log.warning(
            "%s: offsets %d to %d were deleted before they were read", tp, position, first - 1
        )
        self._decoder.next_offset = first
