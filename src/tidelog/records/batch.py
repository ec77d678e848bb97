"""Record batch v2 as a view over a buffer, which copies no bytes and patches two fields in place.

The header is 61 bytes, big-endian. Base offset and leader epoch lie outside the CRC-32C, which
covers all bytes from the attributes on. A broker therefore assigns base offset and leader epoch
without a new checksum (KIP-98). Any bytes give a BatchView or a CorruptBatch. This module does not
parse the records (`records.reader` does). Source:
org.apache.kafka.common.record.DefaultRecordBatch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from tidelog.core.checksums import crc32c
from tidelog.core.errors import ProtocolError
from tidelog.core.ports import Buffer

HEADER_BYTES = 61
#: Size of base offset and batch length, the bytes that `batch_length` does not count.
LOG_OVERHEAD_BYTES = 12
#: Smallest value of the length field, for a header without records.
MIN_BATCH_LENGTH = HEADER_BYTES - LOG_OVERHEAD_BYTES
MAGIC = 2
#: Position of the first byte that the CRC covers.
ATTRIBUTES_POSITION = 21

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
MAX_SEQUENCE = 2**31 - 1

COMPRESSION_MASK = 0x07
TIMESTAMP_TYPE_MASK = 0x08
TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20
DELETE_HORIZON_MASK = 0x40

_NOT_FROM_CLIENTS = CONTROL_MASK | TIMESTAMP_TYPE_MASK

CREATE_TIME = 0
LOG_APPEND_TIME = 1

HEADER = struct.Struct(">qiibIhiqqqhii")
#: Base offset, length and last offset delta: the fields that an iteration over batches reads of
#: each batch.
STEP = struct.Struct(">qi11xi")
_OFFSET_LENGTH_EPOCH = struct.Struct(">qii")
_LENGTH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
_MAX_TIMESTAMP_POSITION = 35


class CorruptBatch(ProtocolError):
    """The error for bytes that are not a whole record batch, with their position in the buffer and
    the reason.
    """

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"record batch at byte {position}: {reason}")
        self.position = position
        self.reason = reason


class OversizedBatch(CorruptBatch):
    """The error for a batch that decompresses to more bytes than allowed."""


class InvalidBatch(CorruptBatch):
    """The error for a whole batch with a correct checksum whose content contradicts itself."""


class BatchView:
    """One record batch in a buffer, with its header read once.

    `position` is the batch's start in `buffer`. Raises CorruptBatch for fewer bytes than a header;
    `check` checks the other bytes.
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "batch_length",
        "buffer",
        "crc",
        "last_offset_delta",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "position",
        "producer_epoch",
        "producer_id",
        "record_count",
    )
    attributes: int
    base_offset: int
    base_sequence: int
    base_timestamp: int
    batch_length: int
    crc: int
    last_offset_delta: int
    magic: int
    max_timestamp: int
    partition_leader_epoch: int
    producer_epoch: int
    producer_id: int
    record_count: int

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        try:
            (
                self.base_offset,
                self.batch_length,
                self.partition_leader_epoch,
                self.magic,
                self.crc,
                self.attributes,
                self.last_offset_delta,
                self.base_timestamp,
                self.max_timestamp,
                self.producer_id,
                self.producer_epoch,
                self.base_sequence,
                self.record_count,
            ) = HEADER.unpack_from(buffer, position)
        except struct.error:
            raise CorruptBatch(
                position, f"{len(buffer) - position} bytes left, a header has {HEADER_BYTES}"
            ) from None
        self.buffer = buffer
        self.position = position

    @property
    def size_bytes(self) -> int:
        """Size of the whole batch."""
        return LOG_OVERHEAD_BYTES + self.batch_length

    @property
    def end_position(self) -> int:
        """Position after the batch in the buffer."""
        return self.position + LOG_OVERHEAD_BYTES + self.batch_length

    @property
    def last_offset(self) -> int:
        """Offset of the last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset after the last record."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        """Codec id of the batch, as in `records.compression`."""
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> int:
        """Timestamp type of the batch, CREATE_TIME or LOG_APPEND_TIME."""
        return LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_MASK else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Whether the batch is part of a transaction."""
        return bool(self.attributes & TRANSACTIONAL_MASK)

    @property
    def is_control(self) -> bool:
        """Whether this is a control batch, which has a marker and no data."""
        return bool(self.attributes & CONTROL_MASK)

    @property
    def delete_horizon_ms(self) -> int | None:
        """Wall clock in ms from which the tombstones in this batch may be removed.

        The delete horizon is None until compaction has handled the batch. KIP-534 stores the delete
        horizon in the field of the base timestamp.
        """
        return self.base_timestamp if self.attributes & DELETE_HORIZON_MASK else None

    @property
    def has_producer_id(self) -> bool:
        """Whether an idempotent or transactional producer wrote the batch."""
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record, which wraps at 2^31; -1 if the batch has none."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE

    @property
    def records(self) -> memoryview:
        """The bytes after the header: records, compressed with the codec `compression`."""
        return memoryview(self.buffer)[self.position + HEADER_BYTES : self.end_position]

    def computed_crc(self) -> int:
        """Return the CRC-32C over the bytes that the checksum covers."""
        view = memoryview(self.buffer)
        return int(crc32c(view[self.position + ATTRIBUTES_POSITION : self.end_position]))

    def __repr__(self) -> str:
        return (
            f"BatchView(offsets {self.base_offset}..{self.last_offset}, "
            f"epoch {self.partition_leader_epoch}, {self.record_count} records, "
            f"{self.size_bytes} bytes at {self.position})"
        )


class Batches:
    """Iterator over the batches of a buffer; see `iter_batches`."""

    __slots__ = ("_buffer", "end_position")

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        self._buffer = buffer
        #: End of the last whole batch read; a partial batch or nothing follows.
        self.end_position = position

    def __iter__(self) -> Iterator[BatchView]:
        buffer = self._buffer
        size = len(buffer)
        while size - self.end_position >= LOG_OVERHEAD_BYTES:
            position = self.end_position
            end = position + size_of_batch(buffer, position)
            if end > size:
                return
            batch = BatchView(buffer, position)
            if batch.magic != MAGIC:
                raise CorruptBatch(position, f"magic is {batch.magic}, only 2 is supported")
            self.end_position = end
            yield batch


def iter_batches(buffer: Buffer, position: int = 0) -> Batches:
    """Return the whole batches of `buffer` from `position` on, in order, with unchecked headers.

    The iteration ends at a trailing partial batch, whose start is the result's `end_position`. The
    iteration raises CorruptBatch for an impossible length or magic.
    """
    return Batches(buffer, position)


def size_of_batch(buffer: Buffer, position: int) -> int:
    """Return the size in bytes that the batch at `position` claims, by its first 12 bytes.

    Raises CorruptBatch for a length that is smaller than a header.
    """
    length: int = _LENGTH.unpack_from(buffer, position + 8)[0]
    if length < MIN_BATCH_LENGTH:
        raise CorruptBatch(position, f"length is {length}, a batch has at least {MIN_BATCH_LENGTH}")
    return LOG_OVERHEAD_BYTES + length


def check(batch: BatchView) -> None:
    """Raise CorruptBatch unless the batch is whole, of magic 2, with correct CRC and offsets."""
    if batch.batch_length < MIN_BATCH_LENGTH:
        raise CorruptBatch(
            batch.position,
            f"length is {batch.batch_length}, a batch has at least {MIN_BATCH_LENGTH}",
        )
    # The checks of a batch are inlined for speed, because every append makes them.
    buffer, position = batch.buffer, batch.position
    end = position + LOG_OVERHEAD_BYTES + batch.batch_length
    if end > len(buffer):
        here = len(buffer) - position
        raise CorruptBatch(position, f"{batch.size_bytes} bytes long, but only {here} are here")
    if batch.magic != MAGIC:
        raise CorruptBatch(batch.position, f"magic is {batch.magic}, only 2 is supported")
    computed = crc32c(memoryview(buffer)[position + ATTRIBUTES_POSITION : end])
    if computed != batch.crc:
        raise CorruptBatch(
            batch.position, f"CRC is {batch.crc:#010x}, its bytes give {computed:#010x}"
        )
    if batch.last_offset_delta < 0 or batch.record_count < 0:
        raise InvalidBatch(
            batch.position,
            f"last offset delta {batch.last_offset_delta}, record count {batch.record_count}: "
            "neither may be negative",
        )


def check_from_client(batch: BatchView) -> None:
    """Raise CorruptBatch or InvalidBatch unless a client may send a batch with this header.

    `records.checking.check_records` checks the records' content. Source:
    LogValidator.validateBatch.
    """
    check(batch)
    if batch.base_offset != 0:
        raise InvalidBatch(batch.position, f"base offset is {batch.base_offset}, must be 0")
    if batch.record_count != batch.last_offset_delta + 1:
        raise InvalidBatch(
            batch.position,
            f"record count is {batch.record_count}, "
            f"but the last offset delta {batch.last_offset_delta} means "
            f"{batch.last_offset_delta + 1}",
        )
    if batch.attributes & _NOT_FROM_CLIENTS:
        if batch.is_control:
            raise InvalidBatch(batch.position, "clients must not write control batches")
        raise InvalidBatch(batch.position, "producers must not set timestamp type LogAppendTime")
    if batch.producer_id >= 0 and (batch.base_sequence < 0 or batch.producer_epoch < 0):
        raise InvalidBatch(
            batch.position,
            f"producer {batch.producer_id} with sequence {batch.base_sequence} and epoch "
            f"{batch.producer_epoch}: neither may be negative",
        )


def assign(batch: BatchView, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch into the batch; the CRC covers neither of them.

    The buffer must be writable.
    """
    _OFFSET_LENGTH_EPOCH.pack_into(
        batch.buffer, batch.position, base_offset, batch.batch_length, leader_epoch
    )
    batch.base_offset = base_offset
    batch.partition_leader_epoch = leader_epoch


def set_log_append_time(batch: BatchView, timestamp_ms: int) -> None:
    """Set the timestamp of all records to `timestamp_ms` as LogAppendTime; recompute the CRC."""
    attributes = batch.attributes | TIMESTAMP_TYPE_MASK
    _ATTRIBUTES.pack_into(batch.buffer, batch.position + ATTRIBUTES_POSITION, attributes)
    batch.attributes = attributes
    set_max_timestamp(batch, timestamp_ms)


def set_max_timestamp(batch: BatchView, timestamp_ms: int) -> None:
    """Write the largest timestamp and recompute the CRC. The batch's buffer must be writable."""
    _MAX_TIMESTAMP.pack_into(batch.buffer, batch.position + _MAX_TIMESTAMP_POSITION, timestamp_ms)
    batch.max_timestamp = timestamp_ms
    batch.crc = batch.computed_crc()
    _CRC.pack_into(batch.buffer, batch.position + 17, batch.crc)
