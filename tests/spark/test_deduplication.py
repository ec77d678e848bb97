"""Repeated batches dropped: whatever was tried and failed, each row of a batch comes out once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tidelog.core.errors import ConfigError
from tidelog.spark.deduplication import drop_repeated_batches, with_batch_columns
from tidelog.spark.sink.batch_marks import HEADER, AttemptMark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "value string, headers array<struct<key:string,value:binary>>"
HISTORIES = 150

Headers = list[tuple[str, bytes]]
Record = tuple[str, Headers | None]


def marked(mark: AttemptMark, values: list[str]) -> list[Record]:
    """All records of a whole attempt, in order."""
    rows = np.arange(len(values), dtype=np.int64)
    marks = mark.values(rows, len(values) - 1)
    return [
        (value, [("own", b"1"), (HEADER, line.tobytes())])
        for value, line in zip(values, marks, strict=True)
    ]


def some(records: list[Record], draw: random.Random) -> list[Record]:
    """The records of a killed attempt: those of each partition up to any place."""
    kept = [draw.random() for _ in range(3)]
    return [each for n, each in enumerate(records) if n < kept[n % 3] * len(records)]


def split(values: list[str], draw: random.Random) -> list[list[str]]:
    """The rows over tasks, some of them empty, in any order."""
    tasks: list[list[str]] = [[] for _ in range(draw.randint(1, 4))]
    for value in values:
        draw.choice(tasks).append(value)
    for task in tasks:
        draw.shuffle(task)
    return tasks


def attempts(write_id: str, batch: str, values: list[str], draw: random.Random) -> Iterator[Record]:
    """What the tries of one batch leave in the topic; the last run is whole."""
    names = [f"{draw.getrandbits(48):012x}" for _ in range(draw.randint(1, 3))]
    for run in names:
        number = 0
        for task, rows in enumerate(split(values, draw)):
            if not rows:
                continue
            tries = draw.choice([["whole"], ["part", "whole"], ["whole", "whole"], ["part"] * 2])
            for what in tries if run != names[-1] else [*tries, "whole"]:
                mark = AttemptMark(write_id, batch, run, task, number)
                number += 1
                draw.shuffle(rows)
                records = marked(mark, rows)
                yield from records if what == "whole" else some(records, draw)


def test_each_row_of_each_batch_comes_out_once(spark: SparkSession) -> None:
    draw = random.Random(16)
    records: list[Record] = []
    wanted: Counter[str] = Counter()
    for number in range(HISTORIES):
        for batch in range(draw.randint(1, 2)):
            # Rows may be equal: they are told apart by their places alone.
            values = [f"{number}.{batch}.{draw.randint(0, 9)}" for _ in range(draw.randint(1, 12))]
            wanted.update(values)
            records += attempts(f"query{number}", str(batch), values, draw)
    assert len(records) > sum(wanted.values())
    draw.shuffle(records)
    frame = spark.createDataFrame(records, SCHEMA)
    kept = drop_repeated_batches(frame)
    assert kept.columns == ["value", "headers"]
    assert Counter(row.value for row in kept.collect()) == wanted


def test_records_without_a_mark_are_kept(spark: SparkSession) -> None:
    mark = AttemptMark("q", "0", "r", 0, 1)
    records: list[Record] = [("plain", None), ("own", [("a", b"1")]), ("odd", [(HEADER, b"?")])]
    records += marked(mark, ["x", "y"])
    records += some(marked(AttemptMark("q", "0", "r", 0, 0), ["x", "y"]), random.Random(3))
    kept = drop_repeated_batches(spark.createDataFrame(records, SCHEMA)).collect()
    assert sorted(row.value for row in kept) == ["odd", "own", "plain", "x", "y"]


def test_a_batch_that_is_still_written_shows_its_best_attempt(spark: SparkSession) -> None:
    values = [str(n) for n in range(10)]
    records = marked(AttemptMark("q", "0", "r", 0, 0), values)[:7]
    records += marked(AttemptMark("q", "0", "r", 0, 1), values)[:3]
    kept = drop_repeated_batches(spark.createDataFrame(records, SCHEMA)).collect()
    assert sorted(row.value for row in kept) == values[:7]


def test_the_parts_of_a_mark_are_columns(spark: SparkSession) -> None:
    frame = spark.createDataFrame(marked(AttemptMark("q", "4", "r", 2, 17), ["a", "b"]), SCHEMA)
    rows = [tuple(row)[2:] for row in with_batch_columns(frame).orderBy("value").collect()]
    assert rows == [("q", "4", "r", 2, 17, 0, 0), ("q", "4", "r", 2, 17, 1, 1)]


def test_frames_that_cannot_be_judged_are_refused(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="includeHeaders=true"):
        drop_repeated_batches(spark.range(1))
    stream = spark.readStream.format("rate").load().selectExpr("null as headers")
    with pytest.raises(ConfigError, match="a stream has no end"):
        drop_repeated_batches(stream)
