"""The simulator's own batches: valid for others, and refused when broken."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.record.default_records import DefaultRecordBatch

from tidelog.records.batch import BatchView
from tidelog.records.compression import GZIP, LZ4, SNAPPY, ZSTD
from tidelog.records.reader import read_keys
from tidelog.records.recompressing import recompressed
from tidelog.records.rewriting import emptied, rewritten
from tidelog.sim.batches import (
    GONE,
    HEADER_BYTES,
    BrokenBatch,
    encode_batch,
    is_tombstone,
    key_of,
    read_batches,
    read_records,
)


def batch(**changes: int) -> bytes:
    fields: dict[str, Any] = {"timestamp_ms": 1_700_000_000_000, **changes}
    return encode_batch([7, 8, 1 << 40], [0, 5, 300], **fields)


def test_a_batch_is_what_kafka_python_reads() -> None:
    raw = batch(producer_id=5, producer_epoch=2, base_sequence=9)
    read = DefaultRecordBatch(bytearray(raw))
    assert read.validate_crc()
    assert (read.producer_id, read.producer_epoch, read.base_sequence) == (5, 2, 9)
    values = [record.value for record in read]
    assert [int.from_bytes(value[:8], "big") for value in values] == [7, 8, 1 << 40]
    assert [len(value) for value in values] == [8, 13, 308]


def test_a_batch_with_gzip_is_read_as_the_plain_one() -> None:
    raw = batch(producer_id=5, producer_epoch=2, base_sequence=9)
    [plain] = read_batches(raw)
    packed = recompressed(BatchView(bytearray(raw)), GZIP, None, 1 << 20)
    [read] = read_batches(packed.buffer)
    assert read == plain._replace(size_bytes=packed.size_bytes)
    assert list(read_records(packed.buffer)) == list(read_records(raw))


@pytest.mark.parametrize("codec", [SNAPPY, LZ4, ZSTD])
def test_a_batch_with_another_codec_is_refused(codec: int) -> None:
    packed = recompressed(BatchView(bytearray(batch())), codec, None, 1 << 20)
    with pytest.raises(BrokenBatch, match="attributes"):
        list(read_batches(packed.buffer))


def test_damaged_gzip_is_refused() -> None:
    packed = bytearray(recompressed(BatchView(bytearray(batch())), GZIP, None, 1 << 20).buffer)
    packed[-1] ^= 0xFF
    packed[17:21] = BatchView(packed).computed_crc().to_bytes(4, "big")
    with pytest.raises(BrokenBatch, match="damaged gzip"):
        list(read_batches(packed))


def test_batches_are_read_back_and_a_part_at_the_end_is_left_out() -> None:
    raw = batch(producer_id=5, producer_epoch=2, base_sequence=9)
    read = list(read_batches(raw + batch() + raw[:50]))
    assert [one.numbers for one in read] == [(7, 8, 1 << 40)] * 2
    assert (read[0].producer_id, read[0].producer_epoch, read[0].base_sequence) == (5, 2, 9)
    assert read[0].next_offset == 3
    assert read[0].size_bytes == len(raw)


def test_records_with_keys_are_read_back_tombstones_too() -> None:
    numbers = [10, 11, 12]
    raw = encode_batch(numbers, [3, 3, 3], timestamp_ms=1, keyed=True)
    assert next(read_batches(raw)).numbers == (10, 11, 12)
    found = [(record.key, record.value) for record in DefaultRecordBatch(bytearray(raw))]
    assert [key for key, _ in found] == [b"key %d" % key_of(number) for number in numbers]
    assert [value is None for _, value in found] == [is_tombstone(number) for number in numbers]
    assert is_tombstone(11)


def test_what_compaction_has_removed_is_seen() -> None:
    view = BatchView(encode_batch([10, 11, 12], [3, 3, 3], timestamp_ms=1, keyed=True))
    payload, records = read_keys(view)
    raw = bytes(rewritten(view, payload, records[1:2], delete_horizon_ms=99)) + bytes(emptied(view))
    first, second = read_batches(raw)
    assert first.numbers == (GONE, 11, GONE) and second.numbers == (GONE,) * 3
    assert first.next_offset == second.next_offset == 3


@pytest.mark.parametrize(
    ("position", "value", "message"),
    [(16, 1, "magic"), (HEADER_BYTES + 3, 0xFF, "CRC"), (8, 0, "a batch of 22 bytes")],
)
def test_a_damaged_batch_is_told(position: int, value: int, message: str) -> None:
    raw = bytearray(batch())
    raw[position] ^= value or 0
    if position == 8:
        raw[8:12] = (10).to_bytes(4, "big")
    with pytest.raises(BrokenBatch, match=message):
        list(read_batches(raw))
