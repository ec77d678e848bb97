"""Decoding to Arrow: what another implementation wrote is read back, and damage is an error.

Every test runs twice: with the compiled extension, and with numpy alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.draws import examples
from tests.support.extensions import compiled_extension
from tests.support.spark import (
    CONTROL,
    LOG_APPEND_TIME,
    Row,
    batch,
    rewritten,
)

from tidelog.core.types import TopicPartition
from tidelog.records import compression
from tidelog.records.batch import BatchView
from tidelog.spark import rows as rows_module
from tidelog.spark.columns import COLUMNS, arrow_schema
from tidelog.spark.decode import CorruptBatchError, PartitionDecoder

TP = TopicPartition("flights", 3)
WITH_HEADERS = (*COLUMNS, "headers")
EXTENSION = compiled_extension("src/tidelog/spark/_rows.c")


@pytest.fixture(
    scope="module",
    autouse=True,
    params=[
        pytest.param(
            EXTENSION,
            id="compiled",
            marks=pytest.mark.skipif(EXTENSION is None, reason="no C compiler"),
        ),
        pytest.param(None, id="numpy"),
    ],
)
def extension(request: pytest.FixtureRequest) -> Iterator[None]:
    """Decode with this extension, or with numpy where there is none."""
    before = rows_module.compiled
    rows_module.compiled = request.param
    assert rows_module.is_compiled() == (request.param is not None)
    yield
    rows_module.compiled = before


binary = st.none() | st.binary(max_size=200)
header_lists = st.lists(st.tuples(st.text(max_size=5), binary), max_size=4)
rows_strategy = st.lists(
    st.builds(
        Row,
        key=binary,
        value=binary,
        timestamp=st.integers(0, 1 << 41),
        headers=header_lists,
    ),
    min_size=1,
    max_size=20,
)


def read(data: bytes, start: int = 0, end: int = 1 << 40, headers: bool = False) -> list[Any]:
    decoder = PartitionDecoder(TP, start, end, WITH_HEADERS if headers else COLUMNS)
    rows: list[Any] = table(decoder, data).to_pylist()
    return rows


def table(decoder: PartitionDecoder, data: bytes) -> pa.Table:
    schema = arrow_schema(decoder._columns)
    return pa.Table.from_batches(list(decoder.decode(memoryview(data))), schema=schema)


def offsets(data: bytes, start: int = 0, end: int = 1 << 40) -> list[int]:
    return [row["offset"] for row in read(data, start, end)]


@given(st.lists(rows_strategy, min_size=1, max_size=5), st.integers(0, 1 << 50))
@examples(60)
def test_every_field_comes_back_as_it_was_written(groups: list[list[Row]], first: int) -> None:
    data = bytearray()
    expected = []
    base = first
    for group in groups:
        data += batch(group, base)
        expected += [
            {
                "key": row.key,
                "value": row.value,
                "topic": "flights",
                "partition": 3,
                "offset": base + place,
                "timestamp": row.timestamp * 1000,
                "timestampType": 0,
                "headers": [{"key": k, "value": v} for k, v in row.headers] or None,
            }
            for place, row in enumerate(group)
        ]
        base += len(group)
    decoder = PartitionDecoder(TP, 0, 1 << 60, WITH_HEADERS)
    decoded = table(decoder, bytes(data))
    decoded = decoded.set_column(5, "timestamp", decoded["timestamp"].cast(pa.int64()))
    assert decoded.to_pylist() == expected
    assert decoder.next_offset == base


def test_the_schema_is_the_connectors() -> None:
    (plain,) = PartitionDecoder(TP, 0, 9).decode(memoryview(batch([Row(b"k", b"v")])))
    assert plain.schema.equals(arrow_schema(COLUMNS))
    (full,) = PartitionDecoder(TP, 0, 9, WITH_HEADERS).decode(memoryview(batch([Row(b"k", b"v")])))
    assert full.schema.equals(arrow_schema(WITH_HEADERS))
    assert full.schema.names == [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
        "headers",
    ]


@pytest.mark.parametrize(
    "columns",
    [
        ("offset",),
        ("headers",),
        ("value", "key"),
        ("key", "partition"),
        ("timestampType", "topic", "timestamp"),
    ],
)
def test_chosen_columns_are_those_of_all_in_the_order_of_choice(columns: tuple[str, ...]) -> None:
    rows = [Row(b"k%d" % n, None if n == 1 else b"v", 5 + n, [("h", b"%d" % n)]) for n in range(3)]
    data = batch(rows, 7)
    full = table(PartitionDecoder(TP, 8, 99, WITH_HEADERS), data)
    some = table(PartitionDecoder(TP, 8, 99, columns), data)
    assert some.schema.names == list(columns)
    assert some.equals(full.select(columns))


def test_batches_left_out_are_passed_and_all_are_shown_to_the_judge() -> None:
    batches = [batch([Row()] * 2, base) for base in (0, 2, 4, 6)]
    seen: list[int] = []

    def is_aborted(each: BatchView) -> bool:
        seen.append(each.base_offset)
        return each.base_offset in (2, 6)

    decoder = PartitionDecoder(TP, 3, 99)
    decoded = list(decoder.decode(memoryview(b"".join(batches)), is_aborted))
    assert [offset for each in decoded for offset in each["offset"].to_pylist()] == [4, 5]
    assert (seen, decoder.next_offset) == ([0, 2, 4, 6], 8)


def test_only_the_range_asked_for_is_given() -> None:
    data = batch([Row()] * 5, 10) + batch([Row()] * 5, 15) + batch([Row()] * 5, 20)
    assert offsets(data, 12, 22) == list(range(12, 22))
    assert offsets(data, 0, 15) == list(range(10, 15))
    assert offsets(data, 25) == []


def test_next_offset_stops_at_the_end_asked_for() -> None:
    decoder = PartitionDecoder(TP, 12, 18)
    table(decoder, batch([Row()] * 5, 10) + batch([Row()] * 5, 15))
    assert decoder.next_offset == 18


def test_a_cut_batch_at_the_end_is_left_for_the_next_fetch() -> None:
    first, second = batch([Row()] * 3, 0), batch([Row()] * 3, 3)
    for cut in (1, 13, 61, len(second) - 1):
        decoder = PartitionDecoder(TP, 0, 99)
        assert table(decoder, first + second[:cut]).num_rows == 3
        assert decoder.next_offset == 3


def test_control_batches_give_no_rows_and_are_passed() -> None:
    control = rewritten(batch([Row(b"\0\0\0\1", b"\0" * 6)], 2), attributes=CONTROL)
    decoder = PartitionDecoder(TP, 0, 99)
    decoded = table(decoder, batch([Row()] * 2, 0) + control + batch([Row()], 3) + control[:0])
    assert decoded["offset"].to_pylist() == [0, 1, 3]
    assert decoder.next_offset == 4


def test_a_control_batch_at_the_end_of_a_chunk_is_passed() -> None:
    control = rewritten(batch([Row()], 1), attributes=CONTROL)
    decoder = PartitionDecoder(TP, 0, 99)
    assert table(decoder, batch([Row()], 0) + control).num_rows == 1
    assert decoder.next_offset == 2


def test_offsets_that_compaction_removed_are_passed() -> None:
    # Compaction keeps the batch's last offset: here 3 records of offsets 0 to 9 are left.
    compacted = rewritten(batch([Row()] * 3, 0), last_offset_delta=9)
    emptied = rewritten(batch([Row()], 10), last_offset_delta=4, count=0, records=b"")
    decoder = PartitionDecoder(TP, 0, 99)
    decoded = table(decoder, compacted + emptied + batch([Row()], 15))
    assert decoded["offset"].to_pylist() == [0, 1, 2, 15]
    assert decoder.next_offset == 16


def test_log_append_time_is_the_brokers_for_all_rows() -> None:
    data = rewritten(
        batch([Row(timestamp=5), Row(timestamp=6)]), attributes=LOG_APPEND_TIME, max_timestamp=99
    )
    decoded = table(PartitionDecoder(TP, 0, 9), data)
    assert decoded["timestamp"].cast(pa.int64()).to_pylist() == [99_000, 99_000]
    assert decoded["timestampType"].to_pylist() == [1, 1]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_compression_is_read(codec: str) -> None:
    data = batch([Row(b"k", b"v" * 1000)] * 3, 0)
    attributes = compression.IDS[codec]
    squeezed = compression.compress(attributes, data[61:])
    assert len(squeezed) < len(data)
    mixed = rewritten(data, attributes=attributes, records=squeezed) + batch([Row(b"p", b"x")], 3)
    assert [(row["offset"], row["value"]) for row in read(mixed)] == [
        (0, b"v" * 1000),
        (1, b"v" * 1000),
        (2, b"v" * 1000),
        (3, b"x"),
    ]


def test_kafka_pythons_own_compression_is_read() -> None:
    rows = read(batch([Row(b"k", b"v" * 100)] * 2, compression=1))
    assert [row["value"] for row in rows] == [b"v" * 100] * 2


def test_arrow_batches_hold_about_a_megabyte() -> None:
    data = b"".join(batch([Row(b"k", bytes(1000))] * 500, base) for base in range(0, 10_000, 500))
    decoded = list(PartitionDecoder(TP, 0, 10_000).decode(memoryview(data)))
    assert sum(each.num_rows for each in decoded) == 10_000
    assert all(each.num_rows <= 1100 for each in decoded)
    assert len(decoded) < 16


def test_a_record_larger_than_a_batch_is_one_batch() -> None:
    data = batch([Row(value=bytes(3_000_000)), Row(value=b"x")])
    decoded = list(PartitionDecoder(TP, 0, 9).decode(memoryview(data)))
    assert [each.num_rows for each in decoded] == [1, 1]


def test_headers_that_are_not_utf_8_are_replaced_not_refused() -> None:
    data = batch([Row(headers=[("ab", b"v")])])
    body = data[61:].replace(b"ab", b"\xffb")
    rows = read(rewritten(data, records=body), headers=True)
    assert rows[0]["headers"] == [{"key": "�b", "value": b"v"}]


def test_many_groups_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.spark.decode.GROUP_BYTES", 50)
    data = b"".join(batch([Row(b"k", b"v")] * 3, base) for base in range(0, 30, 3))
    assert offsets(data, 4, 28) == list(range(4, 28))


def test_headers_that_are_not_wanted_are_not_read() -> None:
    data = batch([Row(headers=[("ab", b"v")])])
    body = bytearray(data[61:])
    body[-1] = 0x7F
    body[-2] = 0x7E  # the header's value would end far behind the record
    damaged = rewritten(data, records=bytes(body))
    assert len(read(damaged)) == 1
    with pytest.raises(CorruptBatchError, match="header value"):
        read(damaged, headers=True)


def test_large_rows_leave_in_slices_with_their_headers() -> None:
    data = batch([Row(bytes(1_000_000), b"x", headers=[("h", b"y")]) for _ in range(5)])
    decoded = list(PartitionDecoder(TP, 1, 5, WITH_HEADERS).decode(memoryview(data)))
    assert [each.num_rows for each in decoded] == [1, 1, 1, 1]
    assert [each["offset"][0].as_py() for each in decoded] == [1, 2, 3, 4]
    assert all(each["headers"].to_pylist() == [[{"key": "h", "value": b"y"}]] for each in decoded)


class TestDamage:
    def test_a_wrong_crc_is_named_with_partition_and_offset(self) -> None:
        data = bytearray(batch([Row(b"k", b"v")], 7))
        data[-1] ^= 1
        with pytest.raises(CorruptBatchError, match="flights-3, at or after offset 0: .*CRC is"):
            read(bytes(data))

    def test_an_old_format_is_named(self) -> None:
        data = bytearray(batch([Row(b"k", b"v")]))
        data[16] = 1
        with pytest.raises(CorruptBatchError, match="magic is 1, only 2"):
            read(bytes(data))

    @pytest.mark.parametrize("count", [-1, 5, 0x7FFFFFFF])
    def test_a_count_that_cannot_be_is_refused(self, count: int) -> None:
        data = rewritten(batch([Row(b"k", b"v")] * 4), count=count)
        with pytest.raises(CorruptBatchError, match="negative|records in|do not fill"):
            read(data)

    def test_a_batch_shorter_than_its_header_is_refused(self) -> None:
        data = bytearray(batch([Row(b"k", bytes(100))]))
        data[8:12] = (10).to_bytes(4, "big")
        with pytest.raises(CorruptBatchError, match="length is 10"):
            read(bytes(data))

    def test_offsets_that_do_not_rise_are_refused(self) -> None:
        data = batch([Row(b"k", b"v")] * 2)
        records = bytearray(data[61:])
        second = len(records) // 2
        assert records[second + 3] == 2  # offset delta 1 as a zigzag varint
        records[second + 3] = 0
        with pytest.raises(CorruptBatchError, match="do not rise"):
            read(rewritten(data, records=bytes(records)))

    def test_an_offset_above_the_last_of_its_batch_is_refused(self) -> None:
        with pytest.raises(CorruptBatchError, match="that of their batch"):
            read(rewritten(batch([Row()] * 3), last_offset_delta=1))

    @given(st.binary(min_size=1, max_size=60), st.integers(1, 4), st.booleans())
    @examples(300)
    def test_any_bytes_give_rows_or_an_error_and_nothing_else(
        self, noise: bytes, count: int, headers: bool
    ) -> None:
        data = rewritten(
            batch([Row()] * 4), records=noise, count=count, last_offset_delta=count - 1
        )
        try:
            read(data, headers=headers)
        except CorruptBatchError:
            return

    def test_damaged_compression_is_named(self) -> None:
        data = rewritten(batch([Row(b"k", b"v")]), attributes=1, records=b"not gzip at all")
        with pytest.raises(CorruptBatchError, match="flights-3.*gzip"):
            read(data)

    @given(st.data())
    @examples(200)
    def test_one_changed_byte_gives_rows_or_an_error_and_nothing_else(
        self, data: st.DataObject
    ) -> None:
        rows = [Row(b"key", b"value", headers=[("h", b"x"), ("g", None)]), Row(b"", None)]
        records = bytearray(batch(rows)[61:])
        place = data.draw(st.integers(0, len(records) - 1))
        records[place] = data.draw(st.integers(0, 255))
        try:
            read(rewritten(batch(rows), records=bytes(records)), headers=True)
        except CorruptBatchError:
            return
