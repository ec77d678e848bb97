"""The compiled walk and the one in Python: the same verdict at the same place for any bytes."""

from __future__ import annotations

import subprocess
import sys
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.draws import examples, for_draws
from tests.support.records import record_bytes
from tests.unit.records.walks import ROOT, compiled_walk

from tidelog.records import walk as walks
from tidelog.records.batch import BatchView
from tidelog.records.builder import NewRecord, build_batch
from tidelog.records.walk import MAX_INT64, MIN_INT64, Rejected, walk_in_python

compiled = compiled_walk()
needs_compiler = pytest.mark.skipif(compiled is None, reason="no C compiler")

octets = st.none() | st.binary(max_size=150)
records = st.lists(
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
#: What stands where a byte was: ends and beginnings of numbers, small sizes, signs.
odd_bytes = st.sampled_from([0, 1, 2, 3, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF]) | st.integers(0, 255)
int64s = st.integers(MIN_INT64, MAX_INT64) | st.sampled_from([MIN_INT64, -1, 0, 5, MAX_INT64])


def same(data: bytes | bytearray, start: int, end: int, count: int, *rest: Any) -> object:
    """The verdict of both walks."""
    assert compiled is not None
    arguments = (data, start, end, count, *rest)
    expected = walk_in_python(*arguments)
    assert compiled.walk(*arguments) == expected
    return expected


@needs_compiler
@examples(200)
@given(
    batch=records,
    changes=st.lists(st.tuples(st.integers(0, 4000), odd_bytes), max_size=4),
    cut=st.integers(-3, 3),
    more=st.integers(-2, 2),
    base=int64s,
    bounds=st.tuples(int64s, int64s),
    keys=st.booleans(),
    room=st.integers(0, 4),
)
@example([NewRecord(b"k", b"v", 5)], [], 0, 0, MAX_INT64, (MIN_INT64, MAX_INT64), False, 0)
def test_both_walks_agree_on_batches_with_faults(
    batch: list[NewRecord],
    changes: list[tuple[int, int]],
    cut: int,
    more: int,
    base: int,
    bounds: tuple[int, int],
    keys: bool,
    room: int,
) -> None:
    data = build_batch(batch)
    for position, value in changes:
        data[61 + position % (len(data) - 61)] = value
    end = min(len(data), max(61, len(data) - cut))
    same(data, 61, end, max(0, len(batch) + more), base, *bounds, keys, room)


@needs_compiler
@examples(200)
@given(data=st.binary(max_size=60), count=st.integers(0, 9), start=st.integers(0, 5), base=int64s)
def test_both_walks_agree_on_any_bytes(data: bytes, count: int, start: int, base: int) -> None:
    same(data, min(start, len(data)), len(data), count, base, 0, 9, True, 5)


@needs_compiler
def test_both_walks_agree_on_long_batches_with_a_fault_anywhere() -> None:
    """Numbers of three bytes, walks without the interpreter's lock, many bad records."""

    def check(draw: Random) -> None:
        count = draw.choice((300, 9_000, 20_000))
        payload = bytearray(b"".join(record_bytes(number) for number in range(count)))
        for _ in range(draw.randrange(3)):
            payload[draw.randrange(len(payload))] = draw.randrange(256)
        same(payload, 0, len(payload), count, 5, 6, 7, False, draw.choice((0, 3, 10_000)))

    for_draws(12, "long batches", check)


@needs_compiler
def test_both_walks_agree_on_records_of_changing_shapes() -> None:
    """Sizes, keys, deltas and headers that change from record to record, or not, with a fault."""

    def check(draw: Random) -> None:
        sizes, step = (
            draw.choice(((100,), (0, 5, 60, 64, 70), (0,), (120, 130))),
            draw.choice((0, 1, 90)),
        )
        keys, count = (
            draw.choice(((None,), (b"k",), (None, b"", bytes(70)))),
            draw.choice((1, 5, 200)),
        )
        batch = [
            NewRecord(
                draw.choice(keys),
                None if draw.random() < 0.02 else bytes(draw.choice(sizes)),
                1_000 + number * step,
                [("h", b"v")] if draw.random() < 0.03 else [],
            )
            for number in range(count)
        ]
        data = build_batch(batch)
        for _ in range(20):
            # Exactly as long as its records: a read behind them would be one behind the object.
            body = bytearray(data[61:])
            for _ in range(draw.choice((0, 1, 2))):
                at = draw.randrange(len(body))
                body[at : at + draw.randrange(3)] = draw.randbytes(draw.randrange(3))
            bounds = draw.choice(((MIN_INT64, MAX_INT64), (1_000, 1_900)))
            base = draw.choice((1_000, MAX_INT64 - 200))
            same(body, 0, len(body), count, base, *bounds, draw.random() < 0.3, 5)

    for_draws(60, "shapes", check)


@needs_compiler
def test_large_batches_are_walked_too() -> None:
    data = build_batch([NewRecord(b"k", bytes(100_000), 5 + number) for number in range(20)])
    count = BatchView(data).record_count
    assert same(data, 61, len(data), count, 5, MIN_INT64, MAX_INT64, True, 9) == 24


def test_what_is_walked_is_within_the_buffer() -> None:
    if compiled is None:
        pytest.skip("no C compiler")
    data = build_batch([NewRecord(b"k", b"v", 5)])
    for start, end, room in (
        (-1, 5, 0),
        (5, 4, 0),
        (0, len(data) + 1, 0),
        (0, 5, -1),
        (0, 5, 10**6),
    ):
        with pytest.raises(ValueError, match="out of range"):
            compiled.walk(data, start, end, 1, 0, 0, 0, False, room)
    with pytest.raises(OverflowError):
        compiled.walk(data, 0, 5, 2**70, 0, 0, 0, False, 0)
    with pytest.raises(TypeError):
        compiled.walk(data, 0, 5)
    with pytest.raises(TypeError):
        compiled.walk("text", 0, 1, 1, 0, 0, 0, False, 0)
    with pytest.raises(ValueError, match="below 0"):
        compiled.room(-1)
    assert len(compiled.room(1 << 20)) == 1 << 20


def test_a_reason_names_the_record_and_the_value() -> None:
    assert Rejected(5, 3, 7, [], 0).reason == "record 3: its offset delta is 7"
    assert Rejected(13, 3, 7, [], 0).reason == "7 bytes are left after the last record"


@pytest.mark.parametrize("other", ["None", "type('Old', (), {'VERSION': 0})"])
def test_without_a_fitting_extension_records_are_walked_in_python(other: str) -> None:
    """The module is imported afresh, in a process of its own."""
    program = f"""
import sys, types
package = types.ModuleType("tidelog.records")
package.__path__ = [{str(ROOT / "src/tidelog/records")!r}]
sys.modules["tidelog.records"] = package
sys.modules["tidelog.records._walk"] = {other}
from tidelog.records import walk
assert not walk.is_compiled() and walk.walk is walk.walk_in_python
assert walk.uninitialised(3) == bytearray(3)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_walk_in_force_is_the_compiled_one_where_it_is_there() -> None:
    assert (walks.walk is walk_in_python) is not walks.is_compiled()
