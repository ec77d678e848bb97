"""What a leader demands of a client's records: every record of every batch is walked."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from tests.support.clients.codec_cases import frame
from tests.support.records import framed, record_bytes, zigzag
from tests.unit.records.walks import PYTHON_AND_COMPILED

from tidelog.records import checking
from tidelog.records import compression as c
from tidelog.records.batch import BatchView, InvalidBatch, check_from_client
from tidelog.records.builder import NewRecord, build_batch
from tidelog.records.checking import NO_DEMANDS, BadRecords, Demands, check_records
from tidelog.records.reader import read_columns
from tidelog.records.walk import MAX_INT64, MIN_INT64, Walk

MIB = 1 << 20
KEYS = Demands(keys=True)


@pytest.fixture(params=PYTHON_AND_COMPILED, autouse=True)
def walk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Walk]:
    """Every test here holds for both walks."""
    monkeypatch.setattr(checking, "walk", request.param)
    yield request.param


def batch_of(payload: bytes | bytearray, count: int, codec: int = c.NONE) -> BatchView:
    """A batch whose header is right and whose records are these bytes."""
    return BatchView(framed(payload, count, codec))


def rejected(batch: BatchView, demands: Demands = NO_DEMANDS) -> str:
    check_from_client(batch)
    with pytest.raises(InvalidBatch) as caught:
        check_records(batch, MIB, demands)
    return caught.value.reason


@cache
def sound_records() -> list[bytes]:
    return [record_bytes(number) for number in range(6_001)]


@pytest.mark.parametrize("codec", list(c.NAMES), ids=c.NAMES.get)
@pytest.mark.parametrize("number", [0, 1, 2, 6_000])
def test_a_fault_in_any_record_of_any_batch_is_found(codec: int, number: int) -> None:
    """Garbage behind the first record, or the 5,000th, stops consumers of librdkafka."""

    def payload(**fault: Any) -> bytes:
        return b"".join([*sound[:number], record_bytes(number, **fault), *sound[number + 1 :]])

    sound = sound_records()
    assert check_records(batch_of(payload(), 6_001, codec), MIB) == 5
    faults: tuple[tuple[dict[str, int], str], ...] = (
        ({"delta": number + 1}, f"its offset delta is {number + 1}"),
        ({"delta": -1}, "its offset delta is -1"),
        ({"size": 200_000}, "a size of 200000 bytes does not fit"),
        ({"key_size": 90}, "a key of 90 bytes does not fit"),
        ({"value_size": 90}, "a value of 90 bytes does not fit"),
        ({"value_size": -2}, "a value of -2 bytes does not fit"),
        ({"headers": 50}, "50 headers do not fit"),
        ({"headers": -1}, "-1 headers do not fit"),
    )
    for fault, reason in faults:
        assert rejected(batch_of(payload(**fault), 6_001, codec)) == f"record {number}: {reason}"


@pytest.mark.parametrize("codec", [c.NONE, c.ZSTD], ids=c.NAMES.get)
def test_the_count_must_be_that_of_the_records(codec: int) -> None:
    three = b"".join(map(record_bytes, range(3)))
    assert rejected(batch_of(three, 5, codec)) == "record 3: the records end too early"
    assert rejected(batch_of(three, 2, codec)) == (
        f"{len(record_bytes(2))} bytes are left after the last record"
    )
    equal = record_bytes(0) * 3
    assert rejected(batch_of(equal, 3, codec)) == "record 1: its offset delta is 0"


def test_null_header_keys_and_negative_header_values_are_rejected() -> None:
    good = b"\x02" + zigzag(1) + b"h" + zigzag(-1)
    assert check_records(batch_of(record_bytes(0, tail=good), 1), MIB) == 5
    null_key = b"\x02" + zigzag(-1) + zigzag(-1)
    assert rejected(batch_of(record_bytes(0, tail=null_key), 1)) == (
        "record 0: a header key of -1 bytes does not fit"
    )
    value = b"\x02" + zigzag(1) + b"h" + zigzag(-2)
    assert rejected(batch_of(record_bytes(0, tail=value), 1)) == (
        "record 0: a header value of -2 bytes does not fit"
    )
    assert rejected(batch_of(record_bytes(0, tail=b"\0x"), 1)) == (
        "record 0: its fields end 1 bytes before the record"
    )


def test_numbers_are_no_longer_than_kafkas_readers_take() -> None:
    """A size of six bytes is read by librdkafka and stops a Java consumer."""
    record = record_bytes(0)
    long_size = bytes([record[0] | 0x80, *[0x80] * 4, 0]) + record[1:]
    assert rejected(batch_of(long_size, 1)) == "record 0: a number has too many bytes"
    five = bytes([record[0] | 0x80, *[0x80] * 3, 0]) + record[1:]
    assert check_records(batch_of(five, 1), MIB) == 5
    beyond_32_bits = bytes([record[0] | 0x80, *[0x80] * 3, 0x10]) + record[1:]
    assert rejected(batch_of(beyond_32_bits, 1)) == "record 0: a number has too many bytes"


def test_timestamps_beyond_64_bits_are_rejected_and_wrap_where_read() -> None:
    for base, delta in ((MAX_INT64, 1), (MIN_INT64, -1)):
        payload = b"".join(record_bytes(n, timestamp_delta=delta) for n in range(2))
        batch = batch_of(payload, 2)
        batch.base_timestamp = base
        assert rejected(batch).endswith(f"a delta of {delta} pass 64 bits")
        assert read_columns(batch).timestamps_ms == [-base - 1] * 2


def test_the_largest_timestamp_is_that_of_a_record_not_the_headers() -> None:
    records = [NewRecord(None, b"v", at_ms) for at_ms in (7, 9, 8)]
    data = build_batch(records)
    data[35:43] = struct.pack(">q", 1_000)
    assert check_records(BatchView(data), MIB) == 9


def test_each_record_without_a_key_is_named_on_a_compacted_topic() -> None:
    keys = [b"k", None, b"k", None, b""]
    batch = BatchView(build_batch([NewRecord(key, b"v", 5) for key in keys]))
    assert check_records(batch, MIB) == 5
    with pytest.raises(BadRecords, match="2 of 5 records are not valid here: record 1 has no key"):
        check_records(batch, MIB, KEYS)
    try:
        check_records(batch, MIB, KEYS)
    except BadRecords as error:
        assert [(bad.record, bad.keyless) for bad in error.bad] == [(1, True), (3, True)]


def test_each_record_with_a_timestamp_out_of_bounds_is_named() -> None:
    times = [-1, 99, 100, 200, 201, -5]
    batch = BatchView(build_batch([NewRecord(b"k", b"v", at_ms) for at_ms in times]))
    with pytest.raises(BadRecords, match="3 of 6 .* record 1 has timestamp 99") as caught:
        check_records(batch, MIB, Demands(earliest_ms=100, latest_ms=200))
    assert [bad[:2] for bad in caught.value.bad] == [(1, 99), (4, 201), (5, -5)]


def test_a_missing_key_goes_before_a_timestamp_and_framing_before_both() -> None:
    demands = Demands(keys=True, earliest_ms=100)
    batch = BatchView(build_batch([NewRecord(None, b"v", 5), NewRecord(b"k", b"v", 5)]))
    with pytest.raises(BadRecords) as caught:
        check_records(batch, MIB, demands)
    assert [bad.keyless for bad in caught.value.bad] == [True, False]
    data = build_batch([NewRecord(None, b"v", 5), NewRecord(b"k", b"v", 5)])
    data[-1] = 40
    data[17:21] = struct.pack(">I", BatchView(data).computed_crc())
    assert rejected(BatchView(data), demands) == "record 1: 20 headers do not fit"


def test_so_many_bad_records_are_named_and_all_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checking, "MAX_RECORD_ERRORS", 10)
    batch = BatchView(build_batch([NewRecord(None, b"v", 5)] * 50))
    with pytest.raises(BadRecords) as caught:
        check_records(batch, MIB, KEYS)
    assert caught.value.count == 50 and [bad.record for bad in caught.value.bad] == [*range(10)]


def test_frames_that_kafkas_clients_cannot_read_are_refused() -> None:
    payload = b"".join(record_bytes(number) for number in range(9_000))
    half = payload.index(record_bytes(4_500))

    def reason(compressed: bytes) -> str:
        return rejected(BatchView(framed(payload, 9_000, c.LZ4, compressed)))

    skippable = struct.pack("<II", 0x184D2A53, 3) + b"abc"
    assert "the blocks of its LZ4 frame are linked" in reason(frame(payload, block_linked=True))
    assert "begins with a skippable LZ4 frame" in reason(skippable + frame(payload))
    for options in ({}, {"content_checksum": True, "block_checksum": True}, {"store_size": True}):
        first = frame(payload[:half], **options)
        told = reason(first + frame(payload[half:], **options))
        assert f"records follow it at byte {len(first)}" in told
        for whole in (frame(payload, **options), frame(payload, **options) + frame(b"")):
            batch = BatchView(framed(payload, 9_000, c.LZ4, whole))
            assert check_records(batch, MIB) == 5
