"""Reads of one range of a partition as Arrow batches: fetch, decode, repeat, until the end.

Runs in a Spark task, with a client of its own. The range ends below the high watermark that the
driver saw, so all its records are committed and stay. A leader that returns fewer has not caught up
and gets another request.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from tidelog.client.fetching import EARLIEST, LATEST, FetchedPartition
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.decode import PartitionDecoder
from tidelog.spark.options import ReadOptions
from tidelog.spark.planning import DataLossError, OffsetRange

#: Empty responses from a leader whose high watermark covers the range, after which it is read.
_EMPTY_ANSWERS: Final = 3

_log = logging.getLogger("tidelog.spark")


def read_range(options: ReadOptions, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range, in offset order.

    Raises KafkaError, DataLossError, CorruptBatchError.
    """
    decoder = PartitionDecoder(wanted.tp, wanted.start, wanted.end, options.columns)
    with BlockingClient(options.bootstrap, options.client_id, options.timeout_ms) as client:
        reader = _RangeReader(client, options, wanted, decoder)
        while decoder.next_offset < wanted.end:
            fetched = reader.fetch()
            if fetched is None:
                return
            yield from decoder.decode(fetched.records)


class _RangeReader:
    """A reader that fetches until it has records, or until the range can have no more."""

    def __init__(
        self,
        client: BlockingClient,
        options: ReadOptions,
        wanted: OffsetRange,
        decoder: PartitionDecoder,
    ) -> None:
        self._client = client
        self._options = options
        self._wanted = wanted
        self._decoder = decoder

    def fetch(self) -> FetchedPartition | None:
        """Return the next records; None when the rest of the range holds none."""
        client = self._options.client
        patience_ends = time.monotonic() + self._options.timeout_ms / 1000
        empty = 0
        while True:
            position = self._decoder.next_offset
            if position >= self._wanted.end:
                return None
            try:
                fetched = self._client.fetch(
                    self._wanted.tp,
                    position,
                    client.fetch_bytes,
                    min_bytes=client.min_bytes,
                    max_wait_ms=client.max_wait_ms,
                )
            except KafkaError as error:
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                self._skip_lost(position, error)
                continue
            if len(fetched.records):
                return fetched
            if fetched.high_watermark >= self._wanted.end:
                empty += 1
                if empty >= _EMPTY_ANSWERS:
                    return None  # compaction removed the last records
            elif time.monotonic() > patience_ends:
                raise KafkaError(
                    ErrorCode.OFFSET_NOT_AVAILABLE,
                    f"{self._wanted.tp} should be read up to {self._wanted.end}, but its leader"
                    f" shows nothing above {fetched.high_watermark}",
                )

    def _skip_lost(self, position: int, error: KafkaError) -> None:
        """Continue at the start of the log where records were deleted, if that is allowed."""
        tp = self._wanted.tp
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
