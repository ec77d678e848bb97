"""A plan for real brokers: a drain from samples, executed batch by batch."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.cli import run

from tidelog.core.types import TopicPartition
from tidelog.records.builder import NewRecord, build_batch
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.pipelines.plan.cluster_model import GoalError
from tidelog.spark.pipelines.plan.load_samples import kept_samples, observe, take_samples
from tidelog.spark.pipelines.plan.load_tables import rate_percentiles
from tidelog.spark.pipelines.plan.planner import PlanOptions, plan, write_plan
from tidelog.testing import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = [TopicPartition("flights", number) for number in range(6)]
DRAINED = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(str(tmp_path_factory.mktemp("planned")), 3) as started:
        started.create_topic("flights", len(PARTITIONS), 2)
        yield started


def _produce(client: BlockingClient, count: int) -> None:
    """Partition n gets n + 1 times as much as partition 0."""
    for tp in PARTITIONS:
        now_ms = time.time_ns() // 1_000_000
        records = [NewRecord(b"k", b"v" * 1_000, now_ms)] * (count * (tp.partition + 1))
        client.produce(tp, build_batch(records))


def test_a_drain_is_planned_from_samples_and_executed(
    spark: SparkSession, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = str(tmp_path / "samples")
    options = PlanOptions(cluster.bootstrap, samples, tolerance=0.3, drain=frozenset({DRAINED}))
    with BlockingClient(cluster.bootstrap) as client:
        _produce(client, 10)
        take_samples(client, samples, 0.0, 1.0)
        _produce(client, 10)
        # The second run goes on where the first one ended.
        take_samples(client, samples, 0.001, 1.0)
        assert len({each.time_ms for each in kept_samples(samples)}) == 2
        rates = rate_percentiles(spark, samples, 95)
        ordered = [rates[tp] for tp in PARTITIONS]
        assert ordered == sorted(ordered)
        assert ordered[5] == pytest.approx(6 * ordered[0], rel=0.05)
        made = plan(spark, replace(options, bandwidth=10_000.0, batch_s=5.0))
        size = {each.tp: each.size_bytes for each in made.cluster.partitions}
        assert size[PARTITIONS[5]] > 5 * size[PARTITIONS[0]] > 0
        assert made.moves
        assert all(DRAINED not in move.after for move in made.moves)
        assert "broker 3 is drained" in {c.reason for m in made.moves for c in m.copies}
        files = write_plan(made, str(tmp_path / "moves"))
        batches = [path for path in files if path.name.startswith("batch-")]
        assert len(batches) > 1
        for path in batches:
            there = (str(path), "-b", cluster.bootstrap)
            assert run(monkeypatch, "reassign", "execute", *there, "--wait") == 0
            assert run(monkeypatch, "reassign", "verify", *there) == 0
        held = {tp.topic for tp in observe(client).sizes}
        assert "flights" in held
        metadata = client.metadata(["flights"])
        for tp in PARTITIONS:
            found = metadata.partition(tp)
            assert found is not None
            assert found.replicas == made.planned.placement[tp]
            assert DRAINED not in found.replicas
        # What is done needs nothing more.
        again = plan(spark, replace(options, tolerance=0.5))
        assert again.planned.moved_bytes == 0
    assert json.loads((tmp_path / "moves" / "rollback.json").read_text())["version"] == 1


def test_what_cannot_be_planned_is_said_before_samples_are_taken(
    spark: SparkSession, cluster: Cluster
) -> None:
    options = PlanOptions(cluster.bootstrap, sample_s=86_400.0, drain=frozenset({2, 3}))
    with pytest.raises(GoalError, match=r"is to have 2 replicas, but without broker 2, 3 there is"):
        plan(spark, options)
    with pytest.raises(GoalError, match="broker 9 is to be drained, but the cluster has no such"):
        plan(spark, replace(options, drain=frozenset({9})))


def test_a_path_without_samples_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(GoalError, match="has no samples: a directory that --sample wrote"):
        rate_percentiles(spark, str(tmp_path), 95)
    spark.range(1).write.parquet(str(tmp_path / "other"))
    with pytest.raises(GoalError, match="has no column time_ms"):
        rate_percentiles(spark, str(tmp_path / "other"), 95)
