"""Deaths during upserts, and two of them at once: each key has its latest row, once."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from tests.spark import dying_ingest
from tests.spark.killing import run_until_killed
from tests.spark.test_upserts import KEY, T0, held, put
from tests.support.client.fake_logs import FakeLogs

from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.lake.delta import DeltaLake
from tidelog.spark.pipelines.ingest import IngestReport, follow, ingest
from tidelog.spark.pipelines.landing import LandingOptions
from tidelog.spark.pipelines.upsert_proof import prove_upserts
from tidelog.testing import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def kill_a_driver(
    spark: SparkSession, logs: FakeLogs, table: Path, step: str, *, is_new: bool
) -> None:
    """Let an upsert die at a step, and another one go on."""
    logs.create("t", 1)
    put(logs, T0, ("a", "1"), ("b", "1"), ("c", "1"))
    if not is_new:
        ingest(spark, logs.bootstrap, "t", str(table), upsert_by=KEY)
    put(logs, T0, ("a", "2"), ("b", None), ("a", "3"), ("d", "1"))
    run_until_killed(
        dying_ingest.__name__, logs.bootstrap, "t", str(table), step, f"{table}.log", "key"
    )
    put(logs, T0, ("c", None))
    ingest(spark, logs.bootstrap, "t", str(table), upsert_by=KEY)
    assert held(spark, table) == [("a", "3"), ("d", "1")]
    assert prove_upserts(spark, str(table), logs.bootstrap).holds


def test_a_driver_killed_between_its_files_and_its_commit(
    spark: SparkSession, logs: FakeLogs, tmp_path: Path
) -> None:
    kill_a_driver(spark, logs, tmp_path / "table", "before commit", is_new=False)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("step", "is_new"),
    [
        (step, is_new)
        for step in dying_ingest.UPSERT_STEPS
        for is_new in (True, False)
        if is_new or "create" not in step
    ],
)
def test_a_driver_killed_at_any_step(
    spark: SparkSession, logs: FakeLogs, tmp_path: Path, step: str, is_new: bool
) -> None:
    kill_a_driver(spark, logs, tmp_path / "table", step, is_new=is_new)


def change(cluster: Cluster, topic: str, draws: random.Random, rounds: int) -> dict[str, str]:
    """Produce changes of some keys, with tombstones; return the latest values."""
    latest: dict[str, str] = {}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    for number in range(rounds):
        key, value = f"k{draws.randrange(60)}", f"{number}"
        if draws.random() < 0.25:
            latest.pop(key, None)
            producer.produce(topic, key=key.encode(), value=None)
        else:
            latest[key] = value
            producer.produce(topic, key=key.encode(), value=value.encode())
        if number % 50 == 0:
            producer.flush(60)
            time.sleep(0.02)  # so that the followers take several batches
    assert producer.flush(60) == 0
    return latest


@pytest.mark.parametrize("records", [300, pytest.param(3_000, marks=pytest.mark.soak)])
def test_two_followers_and_compactions_of_one_table(
    spark: SparkSession, tidelog_cluster_module: Cluster, tmp_path: Path, records: int
) -> None:
    cluster, table, topic = tidelog_cluster_module, str(tmp_path / "table"), f"changed-{records}"
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(topic, 3, 3, {"cleanup.policy": "compact"})
        client.await_topic(topic, min_isr=3)
    stop = threading.Event()
    reports: list[IngestReport] = []
    failures: list[Exception] = []

    def run() -> None:
        try:
            follow(
                spark,
                cluster.bootstrap,
                topic,
                table,
                stop=stop,
                interval_s=0.05,
                offsets_per_batch=100,
                compact_after=5,
                on_batch=reports.append,
                options=LandingOptions(upsert_by=KEY),
            )
        except Exception as error:  # the test shows it
            failures.append(error)

    followers = [threading.Thread(target=run) for _ in range(2)]
    for follower in followers:
        follower.start()
    latest = change(cluster, topic, random.Random(records), records)
    while not failures:
        landed = lake.read().following() if (lake := DeltaLake(table)).newest() >= 0 else {}
        if sum(landed.values()) == records:
            break
        time.sleep(0.2)
    stop.set()
    for follower in followers:
        follower.join()
    assert failures == []
    assert len(reports) > 2
    assert held(spark, Path(table)) == sorted(latest.items())
    proof = prove_upserts(spark, table, cluster.bootstrap)
    assert (proof.holds, proof.rows) == (True, len(latest)), proof.verdict
