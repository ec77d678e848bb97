"""Records of a batch: what was built is read, what cannot be read is a CorruptBatch."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.draws import examples

from tidelog.records import compression as c
from tidelog.records.batch import BatchView, CorruptBatch, InvalidBatch, check
from tidelog.records.builder import NewRecord, build_batch, record_size_bytes
from tidelog.records.checking import check_records
from tidelog.records.control import (
    ABORT,
    COMMIT,
    build_end_marker,
    read_marker,
)
from tidelog.records.reader import iter_records, read_columns

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
