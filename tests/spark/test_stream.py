"""`readStream.format("tidelog")` in a real Spark session."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from tests.spark.test_with_brokers import make_topic, produce
from tests.support.cli import run
from tests.support.client.fake_logs import FakeLogs, batch

from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.streaming.group_commits import GroupCommitListener
from tidelog.spark.streaming.lag import lag_of, offsets_in
from tidelog.testing import Cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

T0 = TopicPartition("t", 0)
EARLIEST = {"startingOffsets": "earliest"}


@pytest.fixture
def filled(logs: FakeLogs) -> FakeLogs:
    logs.create("t", 1)
    logs.append(T0, batch(0, b"a", b"b", b"c"), batch(3, b"d"))
    return logs


def stream(spark: SparkSession, bootstrap: str, **options: str) -> DataFrame:
    reader = spark.readStream.format("tidelog").option("kafka.bootstrap.servers", bootstrap)
    return reader.options(**{"subscribe": "t", **options}).load()


def start(frame: DataFrame, scratch: Path, **trigger: Any) -> StreamingQuery:
    writer = frame.writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(scratch / "checkpoint"))
    return writer.trigger(**trigger).start(str(scratch / "landed"))


def run_now(frame: DataFrame, scratch: Path) -> StreamingQuery:
    query = start(frame, scratch, availableNow=True)
    query.awaitTermination()
    return query


def until(holds: Callable[[], bool], query: StreamingQuery) -> None:
    deadline = time.monotonic() + 240
    while not holds():
        assert query.exception() is None
        assert time.monotonic() < deadline, query.lastProgress
        time.sleep(0.02)


def test_batch_after_batch_until_the_end_and_again_from_the_checkpoint(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    frame = stream(spark, filled.bootstrap, maxOffsetsPerTrigger="3", **EARLIEST)
    query = run_now(frame, tmp_path)
    assert [each["numInputRows"] for each in query.recentProgress] == [3, 1]
    filled.append(T0, batch(4, b"e", b"f"))
    query = run_now(frame, tmp_path)
    (progress,) = query.recentProgress
    assert progress["sources"][0]["endOffset"] == '{"t": {"0": 6}}'
    assert lag_of(progress).by_partition == {T0: 0}
    landed = spark.read.parquet(str(tmp_path / "landed")).selectExpr("cast(value as string) v")
    assert sorted(row.v for row in landed.collect()) == ["a", "b", "c", "d", "e", "f"]


def test_a_query_that_idles_goes_on_when_records_come(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    frame = stream(spark, filled.bootstrap, **EARLIEST)
    query = start(frame, tmp_path, processingTime="0 seconds")
    try:
        until(lambda: reached(query) == 4, query)
        filled.append(T0, batch(4, b"e"))
        until(lambda: reached(query) == 5, query)
    finally:
        query.stop()


def reached(query: StreamingQuery) -> int:
    progress = query.lastProgress
    return sum(offsets_in(progress["sources"][0]["endOffset"]).values()) if progress else 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"subscribe": "nope"}, "topic 'nope'"),
        ({"endingOffsets": "latest"}, "option endingOffsets is not valid in a stream"),
        ({"startingOffsets": '{"t": {"0": 9}}'}, "startingOffsets is 9 for t-0, whose log holds"),
    ],
)
def test_a_wrong_start_is_one_sentence(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(PySparkException) as raised:
        run_now(stream(spark, filled.bootstrap, **options), tmp_path)
    shown = str(raised.value)
    assert sentence in shown.splitlines()[0], shown
    assert "Traceback" not in shown


def test_a_loss_under_a_running_stream_is_one_sentence(
    spark: SparkSession, filled: FakeLogs, tmp_path: Path
) -> None:
    frame = stream(spark, filled.bootstrap, **EARLIEST)
    query = start(frame, tmp_path, processingTime="0 seconds")
    until(lambda: reached(query) == 4, query)
    filled.log_starts[T0] = 5
    filled.append(T0, batch(4, b"e"), batch(5, b"f"))
    with pytest.raises(PySparkException) as raised:
        query.awaitTermination()
    shown = str(raised.value)
    assert "t-0 has no offset 4 any more; its log holds 5 to 6" in shown
    assert "Traceback" not in shown


# -- a consumer group that sees the query ---------------------------------------------------------


@pytest.fixture
def cluster(tidelog_cluster_module: Cluster) -> Cluster:
    return tidelog_cluster_module


@pytest.fixture
def listener(spark: SparkSession, cluster: Cluster) -> Iterator[GroupCommitListener]:
    added = GroupCommitListener(cluster.bootstrap, "spark-flights", "watched")
    spark.streams.addListener(added)
    yield added
    spark.streams.removeListener(added)
    added.close()


def test_a_group_shows_what_the_query_has_read_also_through_a_brokers_death(
    spark: SparkSession,
    cluster: Cluster,
    listener: GroupCommitListener,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with BlockingClient(cluster.bootstrap) as client:
        make_topic(client, "watched", 2)
    produce(cluster, "watched", 0, 500, "none")
    frame = stream(spark, cluster.bootstrap, subscribe="watched", **EARLIEST)
    writer = frame.writeStream.format("noop").queryName("watched")
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination()
    until(lambda: committed(cluster) == 500, query)
    dead = cluster.leader("watched")
    cluster.kill(dead)
    produce(cluster, "watched", 500, 100, "none")
    query = writer.start()
    query.awaitTermination()
    until(lambda: committed(cluster) == 600, query)
    cluster.start(dead)
    words = ("groups", "describe", "spark-flights", "--bootstrap-server", cluster.bootstrap)
    assert run(monkeypatch, *words) == 0
    assert "lag in all: 0" in capsys.readouterr().out


def committed(cluster: Cluster) -> int:
    with BlockingClient(cluster.bootstrap) as client:
        return sum(each.offset for each in client.committed("spark-flights").values())
