"""`df.write` and `df.writeStream` with `format("tidelog")`, over scripted leaders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from tests.support.client.fake_leaders import FakeLeaders

from tidelog.client.partitioning import partition_of
from tidelog.records.reader import Record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def leaders() -> Iterator[FakeLeaders]:
    fake = FakeLeaders(1)
    fake.create("t", [1, 1, 1])
    yield fake
    fake.close()


def save(frame: DataFrame, leaders: FakeLeaders, mode: str = "append", **options: str) -> None:
    writer = frame.write.format("tidelog").mode(mode)
    writer = writer.option("kafka.bootstrap.servers", leaders.bootstrap)
    for name, value in options.items():
        writer = writer.option(name.replace("__", "."), value)
    writer.save()


def records(leaders: FakeLeaders) -> list[Record]:
    return [record for n in range(3) for record in leaders.records("t", n)]


def test_a_frame_is_written_with_its_columns(spark: SparkSession, leaders: FakeLeaders) -> None:
    frame = spark.range(0, 3000, 1, 3).selectExpr(
        "cast(id as string) as key",
        "concat('v', id) as value",
        "if(id % 2 = 0, array(struct('h' as key, cast('1' as binary) as value)), null) as headers",
        "id as other",
    )
    save(frame, leaders, topic="t", kafka__compression__type="lz4", tidelog__batch__headers="true")
    found = records(leaders)
    assert sorted(int(record.key or b"") for record in found) == list(range(3000))
    parts: dict[str, set[int]] = {}
    for record in found:
        number = int(record.key or b"")
        assert record.value == b"v%d" % number
        *own, (name, mark) = record.headers
        assert own == ([("h", b"1")] if number % 2 == 0 else [])
        assert name == "tidelog.batch"
        write_id, batch, _run, task, _attempt, row, _last = (mark or b"").decode().split("/")
        assert batch == "-"
        parts.setdefault(write_id, set()).add(int(task) * 1000 + int(row))
    assert list(parts.values()) == [set(range(3000))]
    for partition in range(3):
        for record in leaders.records("t", partition):
            assert partition_of(record.key or b"", 3) == partition


def test_a_stream_is_written_with_its_query_and_batches(
    spark: SparkSession, leaders: FakeLeaders, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(2):
        (tmp_path / "in" / f"{number}.txt").write_text(f"a{number}\nb{number}\n", encoding="utf-8")
    query = (
        spark.readStream.option("maxFilesPerTrigger", "1")
        .text(str(tmp_path / "in"))
        .selectExpr("value", "'t' as topic")
        .writeStream.format("tidelog")
        .option("kafka.bootstrap.servers", leaders.bootstrap)
        .option("tidelog.batch.headers", "true")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = records(leaders)
    assert sorted(record.value or b"" for record in found) == [b"a0", b"a1", b"b0", b"b1"]
    marks = [(record.headers[-1][1] or b"").decode().split("/") for record in found]
    assert {mark[0] for mark in marks} == {query.id}
    assert {mark[1] for mark in marks} == {"0", "1"}
    assert len({mark[2] for mark in marks}) == 2  # each batch is a run of its own


@pytest.mark.parametrize(
    ("columns", "options", "sentence"),
    [
        (["key"], {"topic": "t"}, "column value is required, and the columns are key"),
        (["value"], {}, "no topic is named: set the option topic"),
        (["value", "null as topic"], {}, "column topic is of type void; expected string"),
        (["value", "cast(null as string) as topic"], {}, "row 0: column topic is null"),
        (["value", "7 as partition"], {"topic": "t"}, "column partition is 7; topic 't' has"),
        (["value"], {"topic": "t", "kafka__acks": "2"}, "option kafka.acks is '2'; expected all"),
        (["value"], {"topic": "t", "mode": "overwrite"}, "a log is only appended to; use append"),
    ],
)
def test_the_driver_shows_what_was_wrong_and_no_traceback_of_a_worker(
    spark: SparkSession, leaders: FakeLeaders, columns: list[str], options: Any, sentence: str
) -> None:
    frame = spark.range(1).selectExpr("'k' as key", "'v' as value").selectExpr(*columns)
    with pytest.raises(PySparkException) as raised:
        save(frame, leaders, **options)
    shown = str(raised.value)
    assert sentence in shown
    assert "Traceback" not in shown


def test_a_record_that_is_too_large_is_named(spark: SparkSession, leaders: FakeLeaders) -> None:
    leaders.max_message_bytes = 5_000
    frame = spark.range(0, 100, 1, 1).selectExpr(
        "repeat('x', if(id = 42, 6000, 10)) as value", "cast(id % 3 as int) as partition"
    )
    with pytest.raises(PySparkException, match=r"t-0: row 42 was not written: .*max.message.bytes"):
        save(frame, leaders, topic="t")
