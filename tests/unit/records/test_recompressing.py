"""What becomes of a client's batch that the leader compresses with the topic's codec."""

from __future__ import annotations

import struct

import pytest

from tidelog.records import compression
from tidelog.records.batch import TRANSACTIONAL_MASK, BatchView, InvalidBatch, OversizedBatch, check
from tidelog.records.builder import NewRecord, Producer, build_batch
from tidelog.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from tidelog.records.reader import iter_records, records_payload
from tidelog.records.recompressing import recompressed

MIB = 1 << 20
RECORDS = [
    NewRecord(b"k1", b"v" * 300, 1_000, [("h", b"x"), ("none", None)]),
    NewRecord(None, b"", 990),
    NewRecord(b"", None, 5_000),
]
CODECS = [NONE, GZIP, SNAPPY, LZ4, ZSTD]


def a_batch(codec: int, records: list[NewRecord] | None = None) -> BatchView:
    producer = Producer(77, 3, 40)
    return BatchView(build_batch(records or RECORDS, codec=codec, producer=producer))


@pytest.mark.parametrize("target", CODECS)
@pytest.mark.parametrize("source", CODECS)
def test_records_and_producer_stay_and_the_codec_changes(source: int, target: int) -> None:
    before = a_batch(source)
    after = recompressed(before, target, None, MIB)
    check(after)
    assert after.compression == target
    assert list(iter_records(after)) == list(iter_records(before))
    kept = ("base_offset", "last_offset_delta", "base_timestamp", "max_timestamp", "producer_id",
            "producer_epoch", "base_sequence", "record_count")  # fmt: skip
    assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]
    assert records_payload(after) == records_payload(before)


def test_the_first_records_timestamp_becomes_the_base_timestamp() -> None:
    """A client may choose any base timestamp; Kafka's builder takes the first record's."""
    data = build_batch(RECORDS)
    assert data[61:65] == bytes([data[61], data[62], 0, 0]), "size, attributes, timestamp delta"
    data[64] = 2  # the varint of 1
    before = BatchView(data)
    records = list(iter_records(before))
    assert (before.base_timestamp, records[0].timestamp_ms) == (1_000, 1_001)
    after = recompressed(before, ZSTD, None, MIB)
    check(after)
    assert after.base_timestamp == 1_001
    assert list(iter_records(after)) == records


def test_the_transactional_flag_stays_and_bits_without_meaning_go() -> None:
    data = build_batch(RECORDS, transactional=True)
    (attributes,) = struct.unpack_from(">h", data, 21)
    struct.pack_into(">h", data, 21, attributes | 0x200)
    after = recompressed(BatchView(data), GZIP, None, MIB)
    assert after.attributes == TRANSACTIONAL_MASK | GZIP


def test_levels_change_the_size_and_not_the_content() -> None:
    text = b" ".join(b"%d" % (number * number) for number in range(20_000))
    before = a_batch(NONE, [NewRecord(None, text, 1)])
    for codec, low, high in ((GZIP, 1, 9), (LZ4, 9, 17), (ZSTD, -7, 22)):
        small = recompressed(before, codec, high, MIB)
        large = recompressed(before, codec, low, MIB)
        assert small.size_bytes < large.size_bytes
        assert records_payload(small) == records_payload(large) == records_payload(before)


def test_defaults_are_kafkas() -> None:
    data = bytes(range(256)) * 64
    assert compression.compress(GZIP, data, -1) == compression.compress(GZIP, data, 6)
    assert compression.compress(ZSTD, data) == compression.compress(ZSTD, data, 3)


@pytest.mark.parametrize("level", [1, 2, 3, 9, 12, 13, 17])
def test_every_level_of_lz4_is_taken(level: int) -> None:
    data = bytes(range(256)) * 64
    packed = compression.compress(LZ4, data, level)
    assert bytes(compression.decompress(LZ4, packed, MIB)) == data


def test_the_bound_on_what_is_inside_holds() -> None:
    with pytest.raises(OversizedBatch):
        recompressed(a_batch(GZIP), ZSTD, None, 100)


def test_records_that_cannot_be_read_are_refused() -> None:
    data = build_batch(RECORDS)
    data[64] = 2
    cut = data[:-1]
    struct.pack_into(">i", cut, 8, len(cut) - 12)
    with pytest.raises(InvalidBatch):
        recompressed(BatchView(cut), ZSTD, None, MIB)
