"""Analysis of real brokers: one is killed, another stopped, and the report says so."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.spark.commands import pipeline

from tidelog.client.groups import FetchedOffset
from tidelog.core.errors import ConfigError
from tidelog.core.names import CLUSTER_EVENTS
from tidelog.core.types import TopicPartition
from tidelog.records.builder import NewRecord, build_batch
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.pipelines.analyze.analysis import AnalysisError, AnalyzeOptions, analyze, find
from tidelog.spark.pipelines.analyze.failover_phases import ELECTION, PROPAGATION
from tidelog.spark.pipelines.analyze.findings import Findings
from tidelog.spark.pipelines.analyze.partition_history import State
from tidelog.spark.pipelines.analyze.presentation import present
from tidelog.spark.pipelines.html import page
from tidelog.testing import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S = 120.0
FLIGHTS = [TopicPartition("flights", number) for number in range(3)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    config = {"cluster.events.enable": "true"}
    with Cluster(str(tmp_path_factory.mktemp("analyzed")), 3, config=config) as started:
        yield started


@pytest.fixture(scope="module")
def killed(cluster: Cluster) -> int:
    """Kill the leader of a partition with one replica and of others; start it; return its id."""
    cluster.create_topic("flights", 3, 3, {"min.insync.replicas": "3"})
    cluster.create_topic("solo", 1, 1)
    victim = cluster.leader("solo")
    with BlockingClient(cluster.bootstrap) as client:
        _produce(client, 10)
        cluster.kill(victim)
        cluster.wait_for(leaderless=1, timeout=PATIENCE_S)
        cluster.local.start(victim, timeout_s=PATIENCE_S)
        cluster.wait_for(under_replicated=0, leaderless=0, timeout=PATIENCE_S)
        _produce(client, 10)
        for tp in FLIGHTS:
            client.commit("readers", {tp: FetchedOffset(12)})
        _await_event(client, "solo", victim)
    return victim


def _produce(client: BlockingClient, count: int) -> None:
    for tp in FLIGHTS:
        now_ms = time.time_ns() // 1_000_000
        client.produce(tp, build_batch([NewRecord(b"k", b"v", now_ms)] * count))


def _await_event(client: BlockingClient, topic: str, leader: int) -> None:
    """Read events until the one of the leader's return is there: brokers send them later."""
    tp = TopicPartition(CLUSTER_EVENTS, 0)
    consumer = client.consumer()
    consumer.seek(tp, 0)
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for each in consumer.poll():
            event = json.loads(bytes(each.record.value or b"{}"))
            if (event.get("topic"), event.get("cause")) == (topic, "replica_returned"):
                assert event["leader"] == leader
                return
    raise AssertionError("no event says that the replica returned")


@pytest.fixture(scope="module")
def analyzed(
    spark: SparkSession, cluster: Cluster, killed: int, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Findings, str]:
    """What the analysis found, and the directory of the intervals."""
    steps: list[tuple[int, int]] = []
    intervals = str(tmp_path_factory.mktemp("analysis") / "intervals")
    options = AnalyzeOptions(bootstrap=cluster.bootstrap, intervals=intervals)
    found = find(spark, options, lambda done, total: steps.append((done, total)))
    assert steps == [(number, len(steps)) for number in range(1, len(steps) + 1)]
    return found, intervals


def test_a_kill_is_found_with_its_times_phases_and_departures(
    spark: SparkSession, killed: int, analyzed: tuple[Findings, str]
) -> None:
    found, intervals = analyzed
    assert (found.quality.repeated, found.quality.illegible, found.quality.missed) == (0, 0, 0)
    times = {str(each): each.times for each in found.partitions}
    assert {"flights-0", "flights-1", "flights-2", "solo-0"} <= set(times)
    # The partition with one replica had no leader, those with three refused acks=all.
    assert times["solo-0"].ms[State.NO_LEADER] > 0
    for tp in FLIGHTS:
        assert times[str(tp)].under_min_isr_ms > 0
        assert times[str(tp)].ms.get(State.NO_LEADER, 0) == 0
    # A partition of which nothing is known comes last: the probe of the cluster's start.
    available = [each.times.availability for each in found.partitions]
    known = [each for each in available if each is not None]
    assert known == sorted(known)
    assert available[: len(known)] == known
    session = [each for each in found.churn if (each.broker, each.cause) == (killed, "session")]
    assert session[0].departures >= len(FLIGHTS)
    deaths = [each for each in found.failovers if each.cause == "death"]
    assert killed in {broker for each in deaths for broker in each.brokers}
    assert {ELECTION, PROPAGATION} <= {each.phase for each in found.phases}
    assert all(each.at(0) <= each.at(50) <= each.at(100) for each in found.phases)
    # The first registration may be older than the first controller, and so have no event.
    assert [each.registrations for each in found.brokers if each.broker == killed] in ([1], [2])
    # The whole time of every partition is accounted for, also in the Parquet table.
    length = found.end_ms - found.start_ms
    assert all(sum(each.times.ms.values()) == length for each in found.partitions)
    total = sum(sum(each.ms.values()) for each in found.windows.values())
    assert total == length * len(found.partitions)
    kept = spark.read.parquet(intervals)
    assert kept.selectExpr("sum(end_ms - start_ms)").collect()[0][0] == total


def test_lag_is_that_of_the_committed_offsets(analyzed: tuple[Findings, str]) -> None:
    found, _ = analyzed
    lags = [each for each in found.lags if each.group == "readers"]
    assert [(each.tp, each.records) for each in lags] == [(tp, 8) for tp in FLIGHTS]
    assert all(each.age_ms is not None and each.age_ms > 0 for each in lags)
    last = [each for each in found.lag_history if each.group == "readers"][-1]
    assert last.records == 8 * len(FLIGHTS)


def test_the_report_shows_it_all_and_judges_an_objective(analyzed: tuple[Findings, str]) -> None:
    found, _ = analyzed
    report = present(found, 99.999)
    assert not report.holds  # the partition with one replica was not available
    assert present(found, 0.001).holds
    text = page(report)
    for expected in ("States of the least available", "solo-0", "no leader", "Phases of failovers"):
        assert expected in text
    rows = {each.title: each.rows for each in report.tables}
    assert [row[0] for row in rows["Lag of groups now"]] == ["readers"]
    json.dumps(report.to_json(), allow_nan=False)


def test_ingested_events_give_the_same_without_a_cluster(
    spark: SparkSession, cluster: Cluster, analyzed: tuple[Findings, str], tmp_path: Path
) -> None:
    whole, _ = analyzed
    reader = spark.read.format("tidelog").option("kafka.bootstrap.servers", cluster.bootstrap)
    events = reader.option("subscribe", CLUSTER_EVENTS).load().select("key", "value")
    rows = events.toArrow()
    table = tmp_path / "events"
    table.mkdir()
    # Twice, with a record that is no event, as of another topic.
    foreign = pa.table({"key": [b"x"], "value": [b'{"kind":"takeover"}']}, schema=rows.schema)
    parquet.write_table(pa.concat_tables([rows, rows, foreign]), str(table / "all.parquet"))
    found = find(spark, AnalyzeOptions(events=str(table), default_min_isr=3))
    assert (found.quality.events, found.quality.repeated) == (rows.num_rows, rows.num_rows)
    assert found.quality.illegible == 1
    assert found.failovers[: len(whole.failovers)] == whole.failovers
    flights = {str(each): each.times for each in found.partitions}
    for each in whole.partitions:
        if each.topic == "flights":
            assert flights[str(each)].under_min_isr_ms == each.times.under_min_isr_ms


@pytest.mark.soak
def test_the_command_writes_a_page(cluster: Cluster, killed: int, tmp_path: Path) -> None:
    html = tmp_path / "page.html"
    words = ("analyze", "-b", cluster.bootstrap, "--objective", "99.999", "--html", str(html))
    ran = pipeline(*words, "-o", "json", "--window", "5s")
    assert ran.returncode == 1, ran.stderr
    report: dict[str, Any] = json.loads(ran.stdout)
    assert report["holds"] is False
    assert "States of the least available partitions" in html.read_text()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"bootstrap": None}, "give a cluster, or a Parquet table of its events"),
        ({"window_ms": 0}, "at least 1 ms expected"),
        ({"default_min_isr": 0}, "at least 1 expected"),
        ({"objective": 100.5}, "a percentage, 99.9, expected"),
        ({"events": "/nowhere/at/all"}, "/nowhere/at/all is no Parquet table of events"),
    ],
)
def test_bad_input_is_one_sentence(
    spark: SparkSession, cluster: Cluster, change: dict[str, Any], sentence: str
) -> None:
    options = replace(AnalyzeOptions(bootstrap=cluster.bootstrap), **change)
    with pytest.raises((AnalysisError, ConfigError)) as info:
        analyze(spark, options)
    assert sentence in str(info.value)
    assert "\n" not in str(info.value)


def test_a_table_of_something_else_is_named(spark: SparkSession, tmp_path: Path) -> None:
    parquet.write_table(pa.table({"a": [1]}), str(tmp_path / "other.parquet"))
    with pytest.raises(AnalysisError, match="has the columns a, and no column value"):
        analyze(spark, AnalyzeOptions(events=str(tmp_path / "other.parquet")))
    parquet.write_table(pa.table({"value": [b"{}"]}), str(tmp_path / "none.parquet"))
    with pytest.raises(AnalysisError, match="has no events: brokers write them after"):
        analyze(spark, AnalyzeOptions(events=str(tmp_path / "none.parquet")))
