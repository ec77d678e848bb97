"""The sink's partitions: Java's for keys, the row's own first, batch after batch without either."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.draws import examples
from tests.support.extensions import compiled_extension

from tidelog.client.partitioning import murmur2, partition_of
from tidelog.spark import rows as spark_rows
from tidelog.spark.sink.placement import TopicPlacement, murmur2_of_all
from tidelog.spark.sink.row_columns import SinkError


@pytest.fixture(params=["compiled", "plain"], autouse=True, scope="module")
def with_and_without_the_extension(request: pytest.FixtureRequest) -> Iterator[None]:
    before = spark_rows.compiled
    spark_rows.compiled = EXTENSION if request.param == "compiled" else None
    yield
    spark_rows.compiled = before


EXTENSION = compiled_extension("src/tidelog/spark/_rows.c")


def rows(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.int64)


def sizes(count: int, each: int = 100) -> np.ndarray:
    return np.full(count, each, dtype=np.int64)


@given(st.lists(st.none() | st.binary(max_size=70), min_size=1), st.integers(0, 3))
@examples(200)
def test_hashes_are_those_of_one_key_at_a_time(keys: list[bytes | None], skip: int) -> None:
    column = pa.array([b"skipped"] * skip + keys, pa.binary()).slice(skip)
    assert murmur2_of_all(column).tolist() == [murmur2(key or b"") for key in keys]


@given(st.lists(st.binary(max_size=20), min_size=1), st.integers(1, 50))
@examples(50)
def test_keys_go_where_kafkas_producers_send_them(keys: list[bytes], partitions: int) -> None:
    placed = TopicPlacement("t", partitions, 1000).place(
        rows(len(keys)), pa.array(keys, pa.binary()), sizes(len(keys)), None
    )
    assert placed.tolist() == [partition_of(key, partitions) for key in keys]


def test_a_rows_own_partition_wins_over_its_key() -> None:
    keys = pa.array([b"a", b"a", None], pa.binary())
    wanted = pa.array([2, None, 1], pa.int32())
    placed = TopicPlacement("t", 3, 1000).place(rows(3), keys, sizes(3), wanted)
    assert placed.tolist() == [2, partition_of(b"a", 3), 1]


def test_rows_without_a_key_fill_a_batch_then_go_to_the_next_partition() -> None:
    placement = TopicPlacement("t", 4, 1000)
    placed = placement.place(rows(25), None, sizes(25), None).tolist()
    placed += placement.place(rows(15), None, sizes(15), None).tolist()
    first = placed[0]
    assert placed == [(first + n // 10) % 4 for n in range(40)]


def test_keyless_rows_among_keys_fill_batches_too() -> None:
    keys = pa.array([b"a", None] * 10, pa.binary())
    placed = TopicPlacement("t", 4, 500).place(rows(20), keys, sizes(20), None)
    assert set(placed[::2].tolist()) == {partition_of(b"a", 4)}
    assert len(set(placed[1::2].tolist())) == 2


@pytest.mark.parametrize("partition", [-1, 3])
def test_a_partition_that_the_topic_lacks_is_named_with_its_row(partition: int) -> None:
    wanted = pa.array([0, partition], pa.int32())
    with pytest.raises(SinkError, match=f"row 1: column partition is {partition}; .* 0 to 2"):
        TopicPlacement("t", 3, 1000).place(rows(2), None, sizes(2), wanted)
