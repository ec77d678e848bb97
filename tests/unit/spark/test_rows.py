"""The compiled decoder and numpy: the same rows for legible bytes, and no others accepted."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.draws import examples, for_draws
from tests.support.extensions import compiled_extension
from tests.support.records import record_bytes

from tidelog.records.builder import NewRecord, build_batch
from tidelog.spark import rows
from tidelog.spark.numpy_rows import decode_with_numpy
from tidelog.spark.record_fields import CorruptRecordsError
from tidelog.spark.row_columns import RowBatch, Rows
from tidelog.spark.rows import decode_compiled, decode_rows

extension = compiled_extension("src/tidelog/spark/_rows.c")
needs_compiler = pytest.mark.skipif(extension is None, reason="no C compiler")
EVERY = frozenset({"key", "value", "offset", "timestamp", "timestampType", "headers"})
FAR = 1 << 40

octets = st.none() | st.binary(max_size=150)
records_strategy = st.lists(
    st.builds(
        NewRecord,
        octets,
        octets,
        st.integers(-1, 2**45),
        st.lists(st.tuples(st.text(max_size=5), octets), max_size=3),
    ),
    min_size=1,
    max_size=12,
)
odd_bytes = st.sampled_from([0, 1, 2, 3, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF]) | st.integers(0, 255)


def row_batch(records: list[NewRecord], base_offset: int = 0, **changed: Any) -> RowBatch:
    whole = build_batch(records)
    batch = RowBatch(
        bytes(whole[61:]),
        base_offset,
        base_offset + len(records) - 1,
        records[0].timestamp_ms,
        max(each.timestamp_ms for each in records),
        len(records),
        False,
    )
    return batch._replace(**changed)


def as_lists(found: Rows) -> dict[str, list[Any]]:
    return {
        name: (column.cast("int64") if name == "timestamp" else column).to_pylist()
        for name, column in found.columns.items()
    }


def agree(
    batches: list[RowBatch],
    first: int = 0,
    end: int = FAR,
    wanted: frozenset[str] = EVERY,
    must: bool = False,
) -> bool:
    """Whether the extension accepts the batches; numpy must then find the same rows."""
    found = decode_compiled(extension, batches, first, end, wanted)
    if found is None:
        assert not must
        return False
    for column in found.columns.values():
        column.validate(full=True)
    expected = decode_with_numpy(batches, first, end, wanted)
    assert found.count == expected.count
    assert found.columns.keys() == expected.columns.keys() == wanted
    assert as_lists(found) == as_lists(expected)
    return True


@needs_compiler
@examples(80)
@given(
    st.lists(records_strategy, min_size=1, max_size=4),
    st.integers(0, 20),
    st.integers(0, 40),
    st.sets(st.sampled_from(sorted(EVERY))),
    st.booleans(),
)
def test_legible_records_are_decoded_alike(
    groups: list[list[NewRecord]], first: int, end: int, wanted: set[str], append_time: bool
) -> None:
    batches, base = [], 0
    for records in groups:
        batches.append(row_batch(records, base, is_append_time=append_time))
        base += len(records) + 1
    agree(batches, first, end, frozenset(wanted), must=True)


@needs_compiler
@examples(200)
@given(
    records_strategy,
    st.lists(st.tuples(st.integers(0, 4000), odd_bytes), min_size=1, max_size=4),
    st.integers(-3, 3),
    st.integers(-2, 2),
    st.booleans(),
)
def test_damaged_records_are_decoded_alike_or_left_to_numpy(
    records: list[NewRecord],
    changes: list[tuple[int, int]],
    cut: int,
    more: int,
    headers: bool,
) -> None:
    batch = row_batch(records)
    data = bytearray(batch.records)
    for place, byte in changes:
        data[place % len(data)] = byte
    data = data[: len(data) - cut] if cut > 0 else data + bytes(-cut)
    damaged = batch._replace(records=bytes(data), record_count=batch.record_count + more)
    agree([damaged], wanted=EVERY if headers else EVERY - {"headers"})


@needs_compiler
def test_any_bytes_are_decoded_alike_or_left_to_numpy() -> None:
    def check(random: Random) -> None:
        data = random.randbytes(random.randrange(60))
        count = random.randrange(6)
        agree([RowBatch(data, 0, 5, 0, 0, count, False)], wanted=EVERY)

    for_draws(1000, "rows", check)


@needs_compiler
@pytest.mark.parametrize(
    "record",
    [
        record_bytes(0, size=3),
        record_bytes(0, size=-1),
        record_bytes(0, size=2**31),
        record_bytes(0, key_size=-2),
        record_bytes(0, key_size=2**31 - 1),
        record_bytes(0, value_size=2**31 - 1),
        record_bytes(0, headers=-1),
        record_bytes(0, headers=2**31 - 1),
        record_bytes(0, headers=1),
        record_bytes(0, tail=b"\0\0"),
        record_bytes(0, tail=b""),
        record_bytes(0, tail=b"\x02\x01\x01"),
        record_bytes(0, delta=-1),
        record_bytes(0, delta=9),
        record_bytes(0, timestamp_delta=2**63 - 1),
        record_bytes(0)[:-1],
        record_bytes(0) + b"\0",
    ],
)
def test_records_that_contradict_themselves_are_left_to_numpy(record: bytes) -> None:
    assert agree([RowBatch(record, 0, 5, 1, 0, 1, False)]) is False


@needs_compiler
@pytest.mark.parametrize("count", [-1, 2, 2**31 - 1])
def test_false_counts_are_left_to_numpy(count: int) -> None:
    assert agree([RowBatch(record_bytes(0), 0, 5, 0, 0, count, False)]) is False


def test_offsets_that_go_back_between_batches_are_refused() -> None:
    batches = [row_batch([NewRecord(b"k", b"v")], base) for base in (5, 4)]
    with pytest.raises(CorruptRecordsError, match="do not rise"):
        decode_rows(batches, 0, FAR, EVERY)


def test_a_timestamp_is_the_brokers_where_the_batch_says_so() -> None:
    batch = row_batch([NewRecord(b"k", b"v", 5)], is_append_time=True, max_timestamp_ms=99)
    found = as_lists(decode_rows([batch], 0, FAR, EVERY))
    assert found["timestamp"] == [99_000] and found["timestampType"] == [1]


def test_no_batches_and_no_rows_give_empty_columns() -> None:
    for batches in ([], [row_batch([NewRecord(b"k", b"v")])]):
        found = decode_rows(batches, 1, FAR, EVERY)
        assert found.count == 0
        assert as_lists(found) == {name: [] for name in EVERY}


@needs_compiler
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((), TypeError),
        (((), 0, 1, 0), TypeError),
        (([b"x"], 0, 1, 0), TypeError),
        (([(b"x", 0, 0)], 0, 1, 0), TypeError),
        (([("text", 0, 0, 0, 0, 0, False)], 0, 1, 0), TypeError),
        (([(b"", 2**63, 0, 0, 0, 0, False)], 0, 1, 0), OverflowError),
    ],
)
def test_arguments_that_cannot_be_are_refused(arguments: Any, error: type[Exception]) -> None:
    assert extension is not None
    with pytest.raises(error):
        extension.decode(*arguments)


def test_an_extension_of_another_version_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "compiled", type("Old", (), {"VERSION": 0}))
    assert not rows.is_compiled()
    batch = row_batch([NewRecord(b"k", b"v", 5)])
    assert as_lists(decode_rows([batch], 0, FAR, frozenset({"key"}))) == {"key": [b"k"]}
