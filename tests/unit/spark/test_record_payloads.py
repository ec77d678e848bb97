"""Arrow columns to records: the project's reader reads back what was put in, whatever it was."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.draws import examples
from tests.support.extensions import compiled_extension
from tests.support.spark import Row

from tidelog.records.batch import BatchView, check_from_client
from tidelog.records.builder import NewRecord, build_batch, seal_batch
from tidelog.records.checking import NO_DEMANDS, Effort, check_records
from tidelog.records.reader import Record, iter_records
from tidelog.spark import rows as spark_rows
from tidelog.spark.columns import HEADER_TYPE
from tidelog.spark.sink.batch_marks import HEADER, AttemptMark
from tidelog.spark.sink.record_payloads import ChunkEncoder, encoded_headers, varints
from tidelog.spark.sink.row_columns import SinkError


@pytest.fixture(params=["compiled", "plain"], autouse=True, scope="module")
def with_and_without_the_extension(request: pytest.FixtureRequest) -> Iterator[None]:
    before = spark_rows.compiled
    spark_rows.compiled = EXTENSION if request.param == "compiled" else None
    yield
    spark_rows.compiled = before


EXTENSION = compiled_extension("src/tidelog/spark/_rows.c")
binary = st.none() | st.binary(max_size=300)
header_lists = st.lists(st.tuples(st.text(max_size=5), binary), max_size=3)
rows_strategy = st.lists(
    st.builds(
        Row, key=binary, value=binary, timestamp=st.integers(0, 1 << 45), headers=header_lists
    ),
    min_size=1,
    max_size=40,
)
HEADERS = pa.list_(pa.field("element", HEADER_TYPE))


def header_column(rows: list[Row], null_where_none: bool = True) -> pa.ListArray:
    lists = [
        None
        if null_where_none and not row.headers
        else [{"key": key, "value": value} for key, value in row.headers]
        for row in rows
    ]
    return pa.array(lists, HEADERS)


def encoded(
    rows: list[Row],
    batch_bytes: int = 1 << 20,
    mark: AttemptMark | None = None,
    order: list[int] | None = None,
) -> list[bytearray]:
    numbers = np.arange(len(rows), dtype=np.int64)
    marks = None if mark is None else mark.values(numbers, len(rows) - 1)
    headers = encoded_headers(header_column(rows), marks, len(rows), numbers)
    times = np.array([row.timestamp for row in rows], dtype=np.int64)
    # Sliced columns, as Spark's may be: their first offset is not 0.
    keys = pa.array([b"xx", *(row.key for row in rows)], pa.binary()).slice(1)
    values = pa.array([b"y", *(row.value for row in rows)], pa.binary()).slice(1)
    encoder = ChunkEncoder(keys, values, headers, times)
    if order is not None:
        encoder.reorder(np.array(order, dtype=np.int64))
    payloads = list(encoder.encode(encoder.batches_of(0, len(rows), batch_bytes)))
    for payload in payloads:
        if payload.end - payload.start > 1:
            assert len(payload.data) <= batch_bytes
        assert len(payload.data) <= encoder.sizes[payload.start : payload.end].sum()
    return [
        seal_batch(each.data, each.end - each.start, each.timestamps_ms, attributes=0)
        for each in payloads
    ]


def read(batches: list[bytearray]) -> list[Record]:
    return [record for batch in batches for record in iter_records(BatchView(batch))]


@given(rows_strategy, st.integers(1, 2000), st.booleans(), st.randoms())
@examples(150)
def test_every_field_is_read_back(
    rows: list[Row], batch_bytes: int, shuffle: bool, random: Random
) -> None:
    order = list(range(len(rows)))
    if shuffle:
        random.shuffle(order)
    batches = encoded(rows, batch_bytes, order=order)
    for batch in batches:
        view = BatchView(batch)
        check_from_client(view)
        assert check_records(view, 1 << 30, NO_DEMANDS, Effort()) == view.max_timestamp
    found = read(batches)
    assert [(r.key, r.value, r.timestamp_ms, list(r.headers)) for r in found] == [
        (rows[i].key, rows[i].value, rows[i].timestamp, list(rows[i].headers)) for i in order
    ]


def test_the_bytes_are_those_of_the_builder() -> None:
    rows = [Row(b"k" * n, b"v" * (n * 7), 1_000 + n * n) for n in range(200)]
    wanted = build_batch([NewRecord(row.key, row.value, row.timestamp) for row in rows])
    assert encoded(rows) == [wanted]


def test_without_keys_headers_and_timestamps() -> None:
    values = pa.array([b"a", None, b""], pa.binary())
    encoder = ChunkEncoder(None, values, None, 77)
    (payload,) = encoder.encode([(0, 3)])
    batch = seal_batch(payload.data, 3, payload.timestamps_ms, attributes=0)
    assert [(r.key, r.value, r.timestamp_ms) for r in iter_records(BatchView(batch))] == [
        (None, b"a", 77),
        (None, None, 77),
        (None, b"", 77),
    ]


def test_a_mark_follows_the_headers_of_the_row() -> None:
    mark = AttemptMark("query", "12", "run", 3, 45)
    rows = [Row(b"k", b"v"), Row(b"k", b"v", headers=[("own", b"1")]), Row(b"k", b"v")]
    assert [r.headers for r in read(encoded(rows, mark=mark))] == [
        [(HEADER, b"query/12/run/3/45/0000000000/0")],
        [("own", b"1"), (HEADER, b"query/12/run/3/45/0000000001/0")],
        [(HEADER, b"query/12/run/3/45/0000000002/1")],
    ]


def test_a_header_without_a_key_is_named_by_its_row() -> None:
    lists = pa.array([[{"key": "a", "value": b""}], [], [{"key": None, "value": b"x"}]], HEADERS)
    with pytest.raises(SinkError, match="row 102: a header has no key"):
        encoded_headers(lists, None, 3, np.arange(100, 103))


def test_a_null_header_is_named_by_its_row() -> None:
    lists = pa.array([[{"key": "a", "value": b""}, None]], HEADERS)
    with pytest.raises(SinkError, match="row 7: a header has no key"):
        encoded_headers(lists, None, 1, np.arange(7, 8))


@given(st.lists(st.integers(-(2**62), 2**62), min_size=1))
@examples(100)
def test_varints_are_those_of_the_builder(values: list[int]) -> None:
    from tidelog.records.builder import add_varint

    lines, sizes = varints(np.array(values, dtype=np.int64))
    for value, line, size in zip(values, lines, sizes, strict=True):
        wanted = bytearray()
        add_varint(wanted, value)
        assert line[:size].tobytes() == wanted
