"""Batching of records, and sends with a producer id, one batch at a time.

Sequences are numbered by partition (KIP-98), so a batch whose response was lost may be resent. A
batch that the topic rejects as too large is halved until its records fit. A single record that is
too large raises TooLargeError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.client.partitioning import partition_of
from tidelog.client.producing import LogWriter
from tidelog.client.steps import Operation
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, KafkaError, TidelogError
from tidelog.core.limits import KIB, MAX_REQUEST_BYTES, MIB
from tidelog.core.types import TopicPartition
from tidelog.records import compression
from tidelog.records.builder import NO_PRODUCER, NewRecord, Producer, build_batch, record_size_bytes

#: The size at which a batch is sent: half of the default of `max.message.bytes`.
BATCH_BYTES: Final = 512 * KIB
#: Bytes that a request with one record may have beside the record.
_REQUEST_OVERHEAD_BYTES: Final = MIB
_SEQUENCES: Final = 1 << 31
_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


class TooLargeError(TidelogError):
    """The error for a record that its topic rejects as too large, even in a batch of its own."""


@dataclass(slots=True)
class SentPartition:
    """The records sent to one partition; offsets are -1 if the broker sent none."""

    records: int = 0
    first_offset: int = -1
    last_offset: int = -1


@dataclass(frozen=True, slots=True)
class SendOptions:
    """The settings of a sender.

    A leader may wait up to `timeout_ms` for replicas; `acks` -1 waits for all in-sync replicas.
    """

    acks: int = -1
    idempotent: bool = True
    codec: int = compression.NONE
    timeout_ms: int = 10_000


class RecordSender:
    """A sender of records to one topic."""

    def __init__(
        self,
        writer: LogWriter,
        topic: str,
        partitions: Sequence[int],
        options: SendOptions,
        first_partition: int = 0,
    ) -> None:
        """Create a sender; `first_partition` gets the first records without a key."""
        self.sent: dict[int, SentPartition] = {}
        self._writer = writer
        self._topic = topic
        self._partitions = partitions
        self._options = options
        self._keyless = first_partition % len(partitions)
        self._held: dict[int, list[NewRecord]] = {}
        self._held_bytes: dict[int, int] = {}
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[int, int] = {}

    @property
    def records_sent(self) -> int:
        """Number of acknowledged records, or with acks=0 of sent records."""
        return sum(each.records for each in self.sent.values())

    def add(self, record: NewRecord, partition: int | None) -> Operation[None]:
        """Take a record; send its batch if the batch is full.

        Raises KafkaError, TooLargeError, OutcomeUnknownError. After an error, the records that were
        added after the failed batch are not sent.
        """
        size = record_size_bytes(record)
        if size > MAX_REQUEST_BYTES - _REQUEST_OVERHEAD_BYTES:
            raise TooLargeError(
                f"a record of {size} bytes: no request may be larger than {MAX_REQUEST_BYTES}"
            )
        is_in_turn = partition is None and record.key is None
        if partition is None:
            partition = self._choose(record)
        if self._held.get(partition) and self._held_bytes[partition] + size > BATCH_BYTES:
            yield from self._send(partition)
            if is_in_turn:
                self._keyless = (self._keyless + 1) % len(self._partitions)
                partition = self._choose(record)
        self._held.setdefault(partition, []).append(record)
        self._held_bytes[partition] = self._held_bytes.get(partition, 0) + size

    def flush(self) -> Operation[None]:
        """Send all held records."""
        for partition in list(self._held):
            yield from self._send(partition)

    def _choose(self, record: NewRecord) -> int:
        if record.key is not None:
            return self._partitions[partition_of(record.key, len(self._partitions))]
        return self._partitions[self._keyless]

    def _send(self, partition: int) -> Operation[None]:
        records = self._held.pop(partition)
        self._held_bytes.pop(partition)
        if self._options.idempotent and self._producer is None:
            self._producer = yield from self._writer.init_producer_id()
        yield from self._send_batch(partition, records)

    def _send_batch(self, partition: int, records: list[NewRecord]) -> Operation[None]:
        tp = TopicPartition(self._topic, partition)
        batch = build_batch(
            records, codec=self._options.codec, producer=self._producer_of(partition)
        )
        options = self._options
        try:
            offset = yield from self._writer.produce(tp, batch, options.acks, options.timeout_ms)
        except TidelogError as error:
            if not isinstance(error, KafkaError) or error.code not in _TOO_LARGE:
                # The broker may have stored the batch, and would drop a batch with the same
                # sequence number as a duplicate. After a failed batch, the sender continues with a
                # new producer id.
                self._producer = None
                self._sequences.clear()
                raise
            if len(records) == 1:
                raise TooLargeError(
                    f"a record makes a batch of {len(batch)} bytes, more than topic"
                    f" {self._topic!r} takes (max.message.bytes)"
                ) from error
            half = len(records) // 2  # no record was appended, so the sequence number stays
            yield from self._send_batch(partition, records[:half])
            yield from self._send_batch(partition, records[half:])
            return
        self._note(partition, len(records), offset)

    def _producer_of(self, partition: int) -> Producer:
        if self._producer is None:
            return NO_PRODUCER
        return Producer(*self._producer, self._sequences.get(partition, 0))

    def _note(self, partition: int, count: int, offset: int) -> None:
        self._sequences[partition] = (self._sequences.get(partition, 0) + count) % _SEQUENCES
        sent = self.sent.setdefault(partition, SentPartition())
        sent.records += count
        if offset >= 0:
            if sent.first_offset < 0:
                sent.first_offset = offset
            sent.last_offset = offset + count - 1
