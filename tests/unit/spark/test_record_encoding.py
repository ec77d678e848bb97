"""Compiled encoding: what the project's builder and Kafka's partitioner give, for any columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.draws import examples
from tests.support.extensions import compiled_extension
from tests.support.records import zigzag

from tidelog.client.partitioning import partition_of
from tidelog.records.builder import NewRecord, build_batch
from tidelog.spark import rows
from tidelog.spark.record_encoding import RecordEncoder, partitions_of

EXTENSION = compiled_extension("src/tidelog/spark/_rows.c")
pytestmark = pytest.mark.skipif(EXTENSION is None, reason="no C compiler")

octets = st.none() | st.binary(max_size=300)
records_strategy = st.lists(
    st.builds(
        NewRecord,
        octets,
        octets,
        st.integers(-1, 2**45),
        st.lists(st.tuples(st.text(max_size=5), octets), max_size=3),
    ),
    min_size=1,
    max_size=150,
)


@pytest.fixture(scope="module", autouse=True)
def extension() -> Iterator[None]:
    before = rows.compiled
    rows.compiled = EXTENSION
    yield
    rows.compiled = before


def tail(record: NewRecord) -> bytes:
    out = zigzag(len(record.headers))
    for key, value in record.headers:
        out += zigzag(len(key.encode())) + key.encode()
        out += zigzag(-1) if value is None else zigzag(len(value)) + value
    return out


def encoder(records: list[NewRecord], *, before: int = 0) -> RecordEncoder:
    """The columns of the records, sliced out of longer ones where `before` rows are cut off."""
    filler = [NewRecord(b"no", b"no", 0)] * before

    def column(values: list[Any]) -> pa.BinaryArray:
        return pa.array(values, pa.binary())[before:]

    every = filler + records
    return RecordEncoder(
        column([each.key for each in every]),
        column([each.value for each in every]),
        column([tail(each) if each.headers else None for each in every]),
        np.array([each.timestamp_ms for each in records], dtype=np.int64),
    )


@examples(60)
@given(records_strategy, st.integers(0, 9), st.randoms(use_true_random=False))
def test_records_are_those_of_the_projects_builder(
    records: list[NewRecord], before: int, random: Any
) -> None:
    start = random.randrange(len(records))
    end = random.randrange(start, len(records)) + 1
    found = encoder(records, before=before).encode(start, end)
    expected = build_batch(records[start:end])
    assert found.payload == expected[61:]
    times = [each.timestamp_ms for each in records[start:end]]
    assert found.timestamps_ms == (times[0], max(times))

    picks = list(range(len(records)))
    random.shuffle(picks)
    found = encoder(records, before=before).encode(start, end, np.array(picks, dtype=np.int64))
    chosen = [records[place] for place in picks[start:end]]
    assert found.payload == build_batch(chosen)[61:]
    assert found.timestamps_ms[0] == chosen[0].timestamp_ms


def test_one_timestamp_holds_for_all_rows_and_columns_may_be_missing() -> None:
    values = pa.array([b"a", None, b"c"], pa.binary())
    found = RecordEncoder(None, values, None, 77).encode(1, 3)
    assert found.payload == build_batch([NewRecord(None, None, 77), NewRecord(None, b"c", 77)])[61:]
    assert found.timestamps_ms == (77, 77)


@examples(60)
@given(st.lists(octets, max_size=50), st.integers(1, 2**31 - 1), st.integers(0, 3))
def test_partitions_are_those_of_the_partitioner(
    keys: list[bytes | None], count: int, before: int
) -> None:
    column = pa.array([b"no"] * before + keys, pa.binary())[before:]
    expected = [-1 if key is None else partition_of(key, count) for key in keys]
    assert partitions_of(column, count).tolist() == expected


@pytest.mark.parametrize(
    ("start", "end", "picks", "reason"),
    [
        (0, 3, None, "out of range"),
        (-1, 1, None, "out of range"),
        (1, 1, None, "out of range"),
        (0, 2, [0], "shorter than its column"),
        (0, 2, [0, 2], "a row outside"),
        (0, 2, [0, -1], "a row outside"),
    ],
)
def test_rows_that_are_not_there_are_refused(
    start: int, end: int, picks: list[int] | None, reason: str
) -> None:
    values = pa.array([b"a", b"b"], pa.binary())
    chosen = None if picks is None else np.array(picks, dtype=np.int64)
    with pytest.raises(ValueError, match=reason):
        RecordEncoder(None, values, None, 0).encode(start, end, chosen)


def test_timestamps_too_far_apart_are_refused() -> None:
    values = pa.array([b"a", b"b"], pa.binary())
    times = np.array([-(2**63), 2**63 - 1], dtype=np.int64)
    with pytest.raises(ValueError, match="further apart"):
        RecordEncoder(None, values, None, times).encode(0, 2)


@pytest.mark.parametrize(
    ("column", "error"),
    [
        ((None, None, b"", 0), ValueError),
        ((None, bytes(4), b"", 0), ValueError),
        ((None, bytes(8), b"", -1), ValueError),
        ((b"", bytes(8), b"", 0), ValueError),
        ((None, b"\1\0\0\0\2\0\0\0", b"x", 0), ValueError),
        ((None, b"\2\0\0\0\1\0\0\0", b"xyz", 0), ValueError),
        ((None, b"\xff\xff\xff\xff\1\0\0\0", b"xyz", 0), ValueError),
        ((None, bytes(8)), TypeError),
        (b"x", TypeError),
    ],
)
def test_columns_that_contradict_themselves_are_refused(
    column: Any, error: type[Exception]
) -> None:
    assert EXTENSION is not None
    with pytest.raises(error):
        EXTENSION.encode(None, column, None, None, 0, None, 1, 0, 1)
    with pytest.raises(error):
        EXTENSION.partitions(column, 1, 3)
