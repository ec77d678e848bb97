"""Record batches as bytes: Kafka's layout, what is checked, what is patched."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from tests.support.draws import examples

from tidelog.records import batch as b
from tidelog.records.batch import BatchView, CorruptBatch, InvalidBatch
from tidelog.records.builder import NewRecord, Producer, build_batch


def one_batch(**named: Any) -> bytearray:
    records = [NewRecord(b"key", b"value", 1000), NewRecord(None, b"w", 1003)]
    return build_batch(records, **named)


def reason(action: Callable[[], object]) -> str:
    with pytest.raises(CorruptBatch) as caught:
        action()
    return caught.value.reason


def test_a_batch_is_laid_out_as_kafka_writes_it() -> None:
    built = build_batch(
        [NewRecord(b"k", b"v", 1000, [("h", b"x")]), NewRecord(None, None, 1002)],
        producer=Producer(5, 2, 7),
        base_offset=9,
        leader_epoch=3,
    )
    first = bytes([0, 0, 0]) + b"\x02k" + b"\x02v" + b"\x02" + b"\x02h" + b"\x02x"
    second = bytes([0, 4, 2]) + b"\x01" + b"\x01" + b"\x00"
    payload = bytes([len(first) * 2]) + first + bytes([len(second) * 2]) + second
    covered = struct.pack(">hiqqqhii", 0, 1, 1000, 1002, 5, 2, 7, 2) + payload
    head = struct.pack(">qiib", 9, 9 + len(covered), 3, 2)
    assert bytes(built) == head + struct.pack(">I", crc32c(covered)) + covered


def test_the_view_reads_every_field() -> None:
    view = BatchView(b"xx" + one_batch(base_offset=40, producer=Producer(8, 1, 2)), 2)
    assert (view.base_offset, view.last_offset, view.next_offset) == (40, 41, 42)
    assert (view.base_timestamp, view.max_timestamp) == (1000, 1003)
    assert (view.producer_id, view.producer_epoch, view.base_sequence) == (8, 1, 2)
    assert (view.last_sequence, view.record_count, view.magic) == (3, 2, 2)
    assert view.has_producer_id and not view.is_control and not view.is_transactional
    assert view.timestamp_type == b.CREATE_TIME
    assert view.end_position == 2 + view.size_bytes == len(view.buffer)
    assert "offsets 40..41" in repr(view)


def test_attributes_tell_of_time_transaction_and_control() -> None:
    view = BatchView(one_batch(transactional=True, control=True, log_append_time_ms=99))
    assert view.is_transactional and view.is_control
    assert view.timestamp_type == b.LOG_APPEND_TIME
    assert view.max_timestamp == 99


def test_a_sequence_wraps_after_two_to_the_31() -> None:
    view = BatchView(one_batch(producer=Producer(1, 0, b.MAX_SEQUENCE)))
    assert view.last_sequence == 0
    assert BatchView(one_batch()).last_sequence == b.NO_SEQUENCE


def test_offsets_and_epoch_are_assigned_in_place_without_touching_the_checksum() -> None:
    data = one_batch()
    view = BatchView(memoryview(data))
    b.assign(view, 1234, 7)
    again = BatchView(data)
    assert (again.base_offset, again.partition_leader_epoch) == (1234, 7)
    b.check(again)


def test_log_append_time_is_written_with_a_new_checksum() -> None:
    data = one_batch()
    b.set_log_append_time(BatchView(memoryview(data)), 5000)
    again = BatchView(data)
    b.check(again)
    assert again.timestamp_type == b.LOG_APPEND_TIME and again.max_timestamp == 5000


def test_iteration_stops_at_a_partial_batch_and_says_where() -> None:
    first, second = one_batch(), one_batch(base_offset=2)
    for cut in range(1, len(second)):
        walk = b.iter_batches(first + second[:cut])
        assert [view.base_offset for view in walk] == [0]
        assert walk.end_position == len(first)
    walk = b.iter_batches(first + second)
    assert [view.base_offset for view in walk] == [0, 2]
    assert walk.end_position == len(first) + len(second)


def test_iteration_refuses_what_cannot_be_a_batch() -> None:
    data = one_batch()
    data[8:12] = struct.pack(">i", 48)
    assert "length is 48" in reason(lambda: list(b.iter_batches(data)))
    data[8:12] = struct.pack(">i", -1)
    assert "length is -1" in reason(lambda: list(b.iter_batches(data)))
    data = one_batch()
    data[16] = 1
    assert "magic is 1" in reason(lambda: list(b.iter_batches(data)))


@examples(300)
@given(st.binary(max_size=200))
def test_any_bytes_give_batches_or_corrupt_batch(data: bytes) -> None:
    try:
        for view in b.iter_batches(data):
            b.check(view)
    except CorruptBatch:
        return


@given(position=st.integers(0, 200), bit=st.integers(0, 7))
def test_any_flipped_bit_under_the_checksum_is_found(position: int, bit: int) -> None:
    data = one_batch()
    position = 17 + position % (len(data) - 17)
    data[position] ^= 1 << bit
    with pytest.raises(CorruptBatch):
        b.check(BatchView(data))


def test_check_says_what_is_wrong() -> None:
    data = one_batch()
    assert "a header has 61" in reason(lambda: BatchView(data[:60]))
    assert "only" in reason(lambda: b.check(BatchView(data[:-1])))
    short = bytearray(data)
    short[8:12] = struct.pack(">i", 10)
    assert "length is 10" in reason(lambda: b.check(BatchView(short)))
    old = bytearray(data)
    old[16] = 0
    assert "magic is 0" in reason(lambda: b.check(BatchView(old)))
    negative = bytearray(data)
    negative[23:27] = struct.pack(">i", -1)
    negative[17:21] = struct.pack(">I", BatchView(negative).computed_crc())
    assert "neither may be negative" in reason(lambda: b.check(BatchView(negative)))


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ({"base_offset": 3}, "base offset is 3, must be 0"),
        ({"control": True}, "control"),
        ({"log_append_time_ms": 5}, "LogAppendTime"),
        ({"producer": Producer(4, 0, -1)}, "sequence -1"),
        ({"producer": Producer(4, -1, 0)}, "epoch -1"),
    ],
)
def test_a_client_must_not_send(named: dict[str, object], words: str) -> None:
    data = one_batch(**named)
    with pytest.raises(InvalidBatch, match=words):
        b.check_from_client(BatchView(data))


def test_a_client_must_count_its_records() -> None:
    data = one_batch()
    data[57:61] = struct.pack(">i", 3)
    data[17:21] = struct.pack(">I", BatchView(data).computed_crc())
    with pytest.raises(InvalidBatch, match="record count is 3"):
        b.check_from_client(BatchView(data))
    b.check_from_client(BatchView(one_batch()))
