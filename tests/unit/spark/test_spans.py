"""Spans of offsets: any rows in any order are counted as a plain count would."""

from __future__ import annotations

import random
from itertools import pairwise

import pyarrow as pa
import pytest

from tidelog.core.types import TopicPartition
from tidelog.spark.pipelines import spans as spans_module
from tidelog.spark.pipelines.continuity import Gap, PartitionCount
from tidelog.spark.pipelines.spans import counts_of, spans_of

Rows = list[tuple[int, int]]


def batches_of(rows: Rows, size: int) -> list[pa.RecordBatch]:
    return [
        pa.RecordBatch.from_pydict(
            {
                "partition": pa.array([p for p, _ in rows[at : at + size]], pa.int32()),
                "offset": pa.array([o for _, o in rows[at : at + size]], pa.int64()),
            }
        )
        for at in range(0, len(rows), size)
    ]


def counted(tasks: list[Rows], size: int = 3) -> dict[int, PartitionCount]:
    found = [span for rows in tasks for span in spans_of(batches_of(rows, size))]
    if not found:
        return {}
    return {
        tp.partition: count for tp, count in counts_of("t", pa.Table.from_batches(found)).items()
    }


def plain(tasks: list[Rows]) -> dict[int, PartitionCount]:
    counts = {}
    for partition in {p for rows in tasks for p, _ in rows}:
        offsets = [o for rows in tasks for p, o in rows if p == partition]
        distinct = sorted(set(offsets))
        gaps = tuple(Gap(low + 1, high) for low, high in pairwise(distinct) if high - low > 1)
        counts[partition] = PartitionCount(
            len(offsets), len(distinct), distinct[0], distinct[-1], gaps
        )
    return counts


def test_rows_in_order_become_one_span() -> None:
    (batch,) = spans_of(batches_of([(0, n) for n in range(10, 30)], 4))
    assert batch.to_pylist() == [{"partition": 0, "start": 10, "end": 30, "doubled": 0}]


def test_repeated_offsets_are_named_as_long_as_they_are_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [(0, n) for n in [*range(10), 3, 4, 4, 4, 7]]
    (batch,) = spans_of(batches_of(rows, 20))
    spans = [tuple(row.values()) for row in batch.to_pylist()]
    assert spans == [(0, 0, 10, 0), (0, 3, 5, 2), (0, 7, 8, 0)]
    monkeypatch.setattr(spans_module, "_MOST_REPEATS", 1)
    (batch,) = spans_of(batches_of(rows, 20))
    assert [tuple(row.values()) for row in batch.to_pylist()] == [(0, 0, 10, 5)]


def test_no_rows_are_no_spans() -> None:
    empty = batches_of([(0, 1)], 1)[0].slice(0, 0)
    assert list(spans_of([empty])) == []


@pytest.mark.parametrize("seed", range(30))
def test_any_rows_are_counted_as_they_are(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(spans_module, "_HELD", rng.choice([1, 4, 50_000]))
    tasks = [
        sorted((rng.randrange(2), rng.randrange(40)) for _ in range(rng.randrange(1, 30)))
        for _ in range(rng.randrange(1, 4))
    ]
    if seed % 3 == 0:
        for rows in tasks:
            rng.shuffle(rows)
    assert counted(tasks, rng.randrange(1, 9)) == plain(tasks)


def test_the_topic_is_that_of_the_caller() -> None:
    (batch,) = spans_of(batches_of([(3, 7)], 1))
    assert counts_of("flights", pa.Table.from_batches([batch])) == {
        TopicPartition("flights", 3): PartitionCount(1, 1, 7, 7, ())
    }
