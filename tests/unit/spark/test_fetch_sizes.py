"""Estimates of how much to fetch: from the last batch seen, never in the way of progress."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.draws import examples

from tidelog.core.types import TopicPartition
from tidelog.spark.fetch_sizes import FetchSizes, SeenBatch

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def sizes() -> FetchSizes:
    found = FetchSizes()
    found.learn(TP, SeenBatch(100, 149, 4000))
    return found


def test_nothing_is_known_of_a_partition_without_a_batch(sizes: FetchSizes) -> None:
    sizes.learn(OTHER, None)
    assert sizes.estimate(OTHER, 0, 10) is None


@pytest.mark.parametrize(
    ("start", "end", "batches"),
    [
        (120, 150, 1),  # the rest of the batch seen
        (100, 110, 1),
        (149, 151, 2),
        (150, 200, 1),  # whole batches after the batch seen
        (150, 201, 2),
        (160, 210, 2),  # where batches begin is not known there
        (0, 50, 2),
    ],
)
def test_the_batches_of_a_range_are_counted_from_the_batch_seen(
    sizes: FetchSizes, start: int, end: int, batches: int
) -> None:
    assert sizes.estimate(TP, start, end) == batches * 5000


@examples(200)
@given(
    count=st.integers(1, 500),
    size_bytes=st.integers(70, 10_000),
    seen=st.integers(0, 20),
    start=st.integers(0, 5000),
    length=st.integers(1, 5000),
)
def test_a_log_of_equal_batches_needs_one_request(
    count: int, size_bytes: int, seen: int, start: int, length: int
) -> None:
    sizes = FetchSizes()
    sizes.learn(TP, SeenBatch(seen * count, (seen + 1) * count - 1, size_bytes))
    first, last = start // count, (start + length - 1) // count
    needed = (last - first + 1) * size_bytes
    estimate = sizes.estimate(TP, start, start + length)
    assert estimate is not None
    assert needed <= estimate <= (needed + size_bytes) * 5 // 4
