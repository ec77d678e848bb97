"""The leader's checks of the records in a client's batch, before it appends them.

The leader walks every record (`records.walk`), also in uncompressed batches and in batches with
millions of records. This walk is necessary, because garbage after the first record stops
librdkafka's consumers without an error. The leader is stricter than Kafka in one point: offset
deltas must be 0, 1, 2, …. If the offset deltas of a batch differ from 0, 1, 2, …, Kafka rewrites a
compressed batch, and appends an uncompressed batch unchanged. Source: LogValidator.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.core.limits import MAX_RECORD_ERRORS
from tidelog.core.ports import Buffer
from tidelog.records import compression
from tidelog.records.batch import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    BatchView,
    CorruptBatch,
    InvalidBatch,
    OversizedBatch,
)
from tidelog.records.walk import MAX_INT64, MIN_INT64, Bad, Rejected, is_compiled, walk

#: The walk over one record takes as long as the decompression of this many bytes.
RECORD_EFFORT_BYTES = 4 if is_compiled() else 1_000


class Demands(NamedTuple):
    """A topic's demands on each record."""

    #: Whether each record needs a key, because the topic is compacted.
    keys: bool = False
    #: Earliest and latest valid timestamp, in ms; a record without a timestamp (-1) is valid.
    earliest_ms: int = MIN_INT64
    latest_ms: int = MAX_INT64


#: The demands of a topic that accepts all legible records.
NO_DEMANDS = Demands()


class Effort:
    """Base class of the classes that count the cost of checks; the base class counts nothing."""

    __slots__ = ()

    def spend(self, effort_bytes: int) -> None:
        """Count the cost of a check of records.

        The cost is the number of bytes whose decompression takes as long as the check.
        """


_UNCOUNTED = Effort()


class BadRecords(InvalidBatch):
    """The error for a legible batch with records that its topic does not accept."""

    def __init__(self, batch: BatchView, bad: list[Bad], count: int) -> None:
        first = bad[0]
        what = "has no key" if first.keyless else f"has timestamp {first.timestamp_ms}"
        super().__init__(
            batch.position,
            f"{count} of {batch.record_count} records are not valid here: record {first.record} "
            f"{what}, the first of them",
        )
        #: The bad records in the order of their indexes, at most MAX_RECORD_ERRORS.
        self.bad = bad
        self.count = count


def check_records(
    batch: BatchView,
    max_decompressed_bytes: int,
    demands: Demands = NO_DEMANDS,
    effort: Effort = _UNCOUNTED,
) -> int:
    """Walk every record of a client's batch; return the largest timestamp, in ms.

    The batch's header must have passed `check_from_client`. `effort` counts the cost of the checks.
    Raises BadRecords if the topic does not accept some records. Raises InvalidBatch if records are
    illegible, or if Kafka's clients could not decompress them. Raises OversizedBatch if the records
    decompress to more than `max_decompressed_bytes`, and CorruptBatch if they do not decompress.
    """
    codec = batch.attributes & COMPRESSION_MASK
    data: Buffer = batch.buffer
    start, end = batch.position + HEADER_BYTES, batch.end_position
    count, base = batch.record_count, batch.base_timestamp
    if codec:
        try:
            data = compression.decompress(codec, batch.records, max_decompressed_bytes)
            foreign = compression.foreign_frames(codec, batch.records, max_decompressed_bytes)
        except compression.OversizedError as error:
            effort.spend(max_decompressed_bytes)
            raise OversizedBatch(batch.position, str(error)) from None
        except compression.CompressionError as error:
            raise CorruptBatch(batch.position, str(error)) from None
        if foreign:
            raise InvalidBatch(batch.position, f"Kafka's clients cannot read the batch: {foreign}")
        start, end = 0, len(data)
        effort.spend(end)
    effort.spend(count * RECORD_EFFORT_BYTES)
    keys, earliest, latest = demands
    found = walk(data, start, end, count, base, earliest, latest, keys, MAX_RECORD_ERRORS)
    if type(found) is int:
        return found
    rejected = Rejected(*found)  # type: ignore[misc]
    if rejected.fault:
        raise InvalidBatch(batch.position, rejected.reason)
    raise BadRecords(batch, [Bad(*bad) for bad in rejected.bad], rejected.bad_count)
