"""Records of a batch: what was built is read, what cannot be read is a CorruptBatch."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.volume import examples

from tidelog.core.limits import MAX_RECORDS_CHECKED
from tidelog.records import compression as c
from tidelog.records import reader
from tidelog.records.batch import BatchView, CorruptBatch, InvalidBatch, check
from tidelog.records.builder import NewRecord, build_batch, record_size_bytes
from tidelog.records.control import (
    ABORT,
    COMMIT,
    build_end_marker,
    read_marker,
)
from tidelog.records.reader import check_records, iter_records, read_columns

octets = st.none() | st.binary(max_size=200)
new_records = st.builds(
    NewRecord,
    octets,
    octets,
    st.integers(-1, 2**45),
    st.lists(st.tuples(st.text(max_size=10), octets), max_size=3),
)
codecs = st.sampled_from([c.NONE, c.GZIP, c.SNAPPY, c.LZ4, c.ZSTD])


@given(records=st.lists(new_records, min_size=1, max_size=20), codec=codecs)
def test_records_come_back_as_they_were_built(records: list[NewRecord], codec: int) -> None:
    batch = BatchView(build_batch(records, codec=codec, base_offset=7))
    check(batch)
    found = list(iter_records(batch))
    assert [record.offset for record in found] == list(range(7, 7 + len(records)))
    for record, sent in zip(found, records, strict=True):
        assert (record.key, record.value, record.timestamp_ms) == sent[:3]
        assert record.headers == [tuple(header) for header in sent.headers]
    largest = max(record.timestamp_ms for record in records)
    assert batch.max_timestamp == largest
    assert check_records(batch, 1 << 20) == largest
    upper_bound = 61 + sum(record_size_bytes(record) for record in records)
    assert codec or batch.size_bytes <= upper_bound


def test_a_batch_needs_a_record() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        build_batch([])


def test_columns_may_leave_the_headers_out() -> None:
    batch = BatchView(build_batch([NewRecord(b"k", b"v", 1, [("h", b"x")])] * 3))
    columns = read_columns(batch, with_headers=False)
    assert columns.headers == [] and columns.keys == [b"k"] * 3


def test_log_append_time_is_the_time_of_every_record() -> None:
    records = [NewRecord(None, b"v", 5), NewRecord(None, b"v", 6)]
    batch = BatchView(build_batch(records, log_append_time_ms=99))
    assert [record.timestamp_ms for record in iter_records(batch)] == [99, 99]


def test_header_keys_that_are_no_text_are_replaced() -> None:
    data = build_batch([NewRecord(None, b"v", 5, [("ab", b"x")])])
    data[data.index(b"ab")] = 0xFF
    (record,) = iter_records(BatchView(data))
    assert record.headers == [("�b", b"x")]


@examples(400)
@given(payload=st.binary(max_size=80), count=st.integers(0, 12), codec=codecs, pack=st.booleans())
def test_any_payload_gives_records_or_corrupt_batch(
    payload: bytes, count: int, codec: int, pack: bool
) -> None:
    data = build_batch([NewRecord(None, b"v", 5)], codec=codec)[:61]
    data += c.compress(codec, payload) if pack else payload
    data[8:12] = struct.pack(">i", len(data) - 12)
    data[57:61] = struct.pack(">i", count)
    batch = BatchView(data)
    for read in (lambda: list(iter_records(batch)), lambda: check_records(batch, 1000)):
        try:
            read()
        except CorruptBatch:
            continue


@examples(200)
@given(position=st.integers(61, 400), value=st.integers(0, 255))
def test_a_changed_byte_in_the_records_is_never_more_than_corrupt(
    position: int, value: int
) -> None:
    records = [NewRecord(b"k" * n, b"v" * 40, n, [("h", b"x")]) for n in range(5)]
    data = build_batch(records)
    data[min(position, len(data) - 1)] = value
    try:
        found = list(iter_records(BatchView(data)))
    except CorruptBatch:
        return
    assert len(found) == 5


def test_records_that_do_not_fit_are_refused_before_they_are_read() -> None:
    data = build_batch([NewRecord(None, b"v", 5)])
    data[57:61] = struct.pack(">i", 2**31 - 1)
    with pytest.raises(InvalidBatch, match="do not fit"):
        read_columns(BatchView(data))


def test_a_number_of_eleven_bytes_is_refused() -> None:
    data = build_batch([NewRecord(None, b"v" * 40, 5)])
    data[61:72] = b"\xff" * 11
    with pytest.raises(InvalidBatch, match="10 bytes"):
        read_columns(BatchView(data))


def test_decompression_is_bounded() -> None:
    batch = BatchView(build_batch([NewRecord(None, bytes(100_000), 5)], codec=c.ZSTD))
    with pytest.raises(CorruptBatch, match="more than 50000 bytes"):
        read_columns(batch, max_decompressed_bytes=50_000)
    with pytest.raises(CorruptBatch, match="more than 50000 bytes"):
        check_records(batch, 50_000)


# what a broker checks


def patched(data: bytearray, position: int, value: int) -> BatchView:
    data[position] = value
    return BatchView(data)


def test_an_uncompressed_first_record_must_be_framed_right() -> None:
    def two() -> bytearray:
        return build_batch([NewRecord(b"k", b"v", 5), NewRecord(b"k", b"v", 5)])

    check_records(BatchView(two()), 1000)
    for position, value, words in [
        (61, 2, "does not fit"),  # size 1
        (61, 120, "does not fit the batch"),
        (61, 22, "cannot hold"),
        (64, 2, "offset delta is 1"),
        (65, 60, "a key of 30 bytes"),
    ]:
        with pytest.raises(InvalidBatch, match=words):
            check_records(patched(two(), position, value), 1000)
    alone = build_batch([NewRecord(b"k", b"v", 5)])
    with pytest.raises(InvalidBatch, match="left after the only record"):
        check_records(patched(alone, 61, 14), 1000)


def packed(payload: bytes, count: int) -> BatchView:
    """A gzip batch with this payload that claims so many records."""
    data = build_batch([NewRecord(None, b"v", 5)], codec=c.GZIP)[:61]
    data += c.compress(c.GZIP, payload)
    data[8:12] = struct.pack(">i", len(data) - 12)
    data[57:61] = struct.pack(">i", count)
    return BatchView(data)


def test_a_compressed_batch_is_walked() -> None:
    record = bytes([14, 0, 0, 0, 1, 2]) + b"v" + b"\x00"
    assert check_records(packed(record, 1), 1000) == 5
    with pytest.raises(InvalidBatch, match="offset delta is 0"):
        check_records(packed(record * 2, 2), 1000)
    with pytest.raises(InvalidBatch, match="left after the last"):
        check_records(packed(record + b"x", 1), 1000)
    with pytest.raises(InvalidBatch, match="too early"):
        check_records(packed(record, 2), 1000)
    for position, value, words in [
        (0, 4, "a size of 2"),
        (5, 8, "longer than"),
        (0, 12, "longer than"),
    ]:
        broken = bytearray(record)
        broken[position] = value
        with pytest.raises(InvalidBatch, match=words):
            check_records(packed(bytes(broken), 1), 1000)


def records_of(count: int, **changed: Any) -> bytearray:
    """The payload of `count` records; the one at `at` has another offset delta or no value."""
    payload = bytearray()
    for number in range(count):
        delta = _zigzag(changed.get("delta", number) if number == changed.get("at") else number)
        body = bytes([0, 0, *delta, 1, 2]) + b"v" + b"\x00"
        payload += _zigzag(len(body)) + body
    return payload


def _zigzag(number: int) -> bytes:
    number <<= 1
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


@pytest.mark.parametrize("codec", [c.GZIP, c.SNAPPY, c.LZ4, c.ZSTD])
def test_of_a_batch_of_very_many_records_only_so_many_are_walked(
    codec: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers_read = 0
    varint = reader._varint

    def counting(data: bytes, position: int) -> tuple[int, int]:
        nonlocal numbers_read
        numbers_read += 1
        return varint(data, position)

    monkeypatch.setattr(reader, "_varint", counting)
    batch = BatchView(build_batch([NewRecord(None, None, 5)] * 30_000, codec=codec))
    assert check_records(batch, 1 << 20) == 5
    assert numbers_read == MAX_RECORDS_CHECKED * 5
    numbers_read = 0
    with pytest.raises(InvalidBatch, match="no key"):
        check_records(batch, 1 << 20, keys_required=True)
    keyed = BatchView(build_batch([NewRecord(b"", None, 5)] * 30_000))
    numbers_read = 0
    assert check_records(keyed, 1 << 20, keys_required=True) == 5
    assert numbers_read == MAX_RECORDS_CHECKED * 5


def test_behind_the_records_walked_there_must_be_room_for_the_others() -> None:
    count = MAX_RECORDS_CHECKED + 100

    def checked(payload: bytes | bytearray, claimed: int = count) -> int:
        return check_records(packed(bytes(payload), claimed), 1 << 20)

    assert checked(records_of(count)) == 5
    with pytest.raises(InvalidBatch, match="its offset delta is 1"):
        checked(records_of(count, at=MAX_RECORDS_CHECKED - 1, delta=1))
    assert checked(records_of(count, at=MAX_RECORDS_CHECKED, delta=1)) == 5, "not looked at"
    with pytest.raises(InvalidBatch, match=r"bytes after record 4999 cannot hold 1000000 more"):
        checked(records_of(count), MAX_RECORDS_CHECKED + 1_000_000)
    with pytest.raises(InvalidBatch, match="left after the last"):
        checked(records_of(count), MAX_RECORDS_CHECKED)


def test_behind_the_records_walked_the_header_tells_the_largest_timestamp() -> None:
    early = [NewRecord(None, None, 5)] * MAX_RECORDS_CHECKED
    for last_ms in (3, 9):
        records = [*early, NewRecord(None, None, last_ms)]
        batch = BatchView(build_batch(records, codec=c.ZSTD))
        assert check_records(batch, 1 << 20) == max(5, last_ms)


def test_timestamps_beyond_64_bits_are_refused_where_walked_and_wrap_where_read() -> None:
    for base, delta in ((2**63 - 1, b"\2"), (-(2**63), b"\1")):  # 1 and -1
        payload = bytearray()
        for number in range(2):
            body = b"\0" + delta + _zigzag(number) + b"\1\1\0"
            payload += _zigzag(len(body)) + body
        batch = packed(bytes(payload), 2)
        batch.base_timestamp = base
        with pytest.raises(InvalidBatch, match="64 bits"):
            check_records(batch, 1_000)
        assert read_columns(batch).timestamps_ms == [-base - 1] * 2


def test_a_compacted_topic_needs_keys() -> None:
    keyed = build_batch([NewRecord(b"k", b"v", 5)])
    keyless = build_batch([NewRecord(b"k", b"v", 5), NewRecord(None, b"v", 6)])
    assert check_records(BatchView(keyed), 1000, keys_required=True) == 5
    with pytest.raises(InvalidBatch, match="record 1 has no key"):
        check_records(BatchView(keyless), 1000, keys_required=True)


# control batches


@pytest.mark.parametrize(("kind", "name"), [(ABORT, "ABORT"), (COMMIT, "COMMIT")])
def test_markers_come_back(kind: int, name: str) -> None:
    batch = BatchView(build_end_marker(kind, 9, 1, 33, 5000))
    assert batch.is_control and batch.is_transactional and batch.producer_id == 9
    marker = read_marker(batch)
    assert marker is not None
    assert (marker.name, marker.coordinator_epoch, marker.timestamp_ms) == (name, 33, 5000)


def test_a_marker_is_laid_out_as_kafka_writes_it() -> None:
    (record,) = iter_records(BatchView(build_end_marker(COMMIT, 9, 1, 33, 5000)))
    assert record.key == struct.pack(">hh", 0, 1)
    assert record.value == struct.pack(">hi", 0, 33)


def test_other_control_records_are_named_and_not_refused() -> None:
    records = [NewRecord(struct.pack(">hh", 0, 2), b"", 5)]
    marker = read_marker(BatchView(build_batch(records, control=True)))
    assert marker is not None and marker.name == "LEADER_CHANGE"
    records = [NewRecord(struct.pack(">hh", 0, 99), b"", 5)]
    marker = read_marker(BatchView(build_batch(records, control=True)))
    assert marker is not None and marker.name == "UNKNOWN(99)"


def test_an_emptied_control_batch_has_no_marker() -> None:
    data = build_end_marker(ABORT, 9, 1, 33, 5000)[:61]
    data[8:12] = struct.pack(">i", 49)
    data[57:61] = bytes(4)
    assert read_marker(BatchView(data)) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"abc", b""),
        (struct.pack(">hh", -1, 0), b"123456"),
        (struct.pack(">hh", 0, 0), b"12345"),
        (struct.pack(">hh", 0, 1), None),
    ],
)
def test_illegible_markers_are_corrupt(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptBatch):
        read_marker(BatchView(build_batch([NewRecord(key, value, 5)], control=True)))


def test_only_commit_and_abort_end_a_transaction() -> None:
    with pytest.raises(ValueError, match="not 2"):
        build_end_marker(2, 9, 1, 33, 5000)
