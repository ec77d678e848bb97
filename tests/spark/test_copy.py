"""Copies between two real clusters: through a leader's death, a lost table, and bad input."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place

from tidelog.client.groups import FetchedOffset
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.pipelines.copy.ledger import LedgerError
from tidelog.spark.pipelines.copy.run import CopyPlan, copy
from tidelog.spark.pipelines.copy.transfer import CopyError
from tidelog.testing import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.pipelines.report import PipelineReport

RECORDS = 3_000


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(str(tmp_path_factory.mktemp("old")), 1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(str(tmp_path_factory.mktemp("new")), 2) as cluster:
        yield cluster


def produce(cluster: Cluster, topic: str, first: int, count: int, codec: str = "none") -> None:
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "enable.idempotence": True,
            "compression.type": codec,
            "batch.num.messages": 100,
            "log_level": 0,
        }
    )
    for number in range(first, first + count):
        producer.produce(
            topic,
            key=b"k%d" % number,
            value=b"v%d" % number,
            headers=[("number", b"%d" % number)],
            timestamp=1_700_000_000_000 + number,
            partition=number % 2,
        )
    assert producer.flush(60) == 0


def seen(cluster: Cluster, topic: str, count: int) -> dict[int, list[Any]]:
    """Return what another client reads, by partition."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "reader", "log_level": 0}
    )
    consumer.assign([Place(topic, number, 0) for number in range(2)])
    found: dict[int, list[Any]] = {0: [], 1: []}
    while sum(map(len, found.values())) < count:
        for message in consumer.consume(1_000, 60):
            assert message.error() is None
            found[message.partition() or 0].append(
                (message.key(), message.value(), message.headers(), message.timestamp())
            )
    consumer.close()
    return found


def make(cluster: Cluster, topic: str, partitions: int = 2, **configs: str) -> None:
    named = {key.replace("_", "."): value for key, value in configs.items()}
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(topic, partitions, 1, named)
        client.await_topic(topic)


def plan(old: Cluster, new: Cluster, directory: Path, **options: Any) -> CopyPlan:
    given: dict[str, Any] = {"topics": {"flights": "copied"}, "replication_factor": 2} | options
    return CopyPlan(old.bootstrap, new.bootstrap, directory=str(directory), **given)


def facts(report: PipelineReport) -> dict[str, Any]:
    return dict(report.facts)


def test_a_followed_copy_survives_a_leaders_death_and_a_lost_table(
    spark: SparkSession, old: Cluster, new: Cluster, tmp_path: Path
) -> None:
    make(old, "flights", retention_ms="-1")
    produce(old, "flights", 0, RECORDS, "lz4")
    with BlockingClient(old.bootstrap) as client:
        client.commit("crew", {TopicPartition("flights", 1): FetchedOffset(700)})
    make(new, "early")
    with BlockingClient(new.bootstrap) as client:  # creates the offsets topic on both brokers
        client.commit("early", {TopicPartition("early", 0): FetchedOffset(0)})
    told: list[int] = []

    def after_round(done: int, _: int) -> None:
        if not told:
            new.kill(new.leader("copied"))
            produce(old, "flights", RECORDS, RECORDS, "zstd")
        told.append(done)

    wanted = plan(old, new, tmp_path, groups=("crew",), round_bytes=20_000)
    report = copy(
        spark,
        wanted,
        follow=True,
        stop=lambda: bool(told) and told[-1] == 2 * RECORDS,
        progress=after_round,
    )
    assert report.holds, report.verdict
    assert report.verdict.startswith(f"{2 * RECORDS} records copied, {2 * RECORDS} read back")
    copied = seen(new, "copied", 2 * RECORDS)
    assert copied == seen(old, "flights", 2 * RECORDS)
    with BlockingClient(new.bootstrap) as client:
        assert client.committed("crew")[TopicPartition("copied", 1)].offset == 700

    newest = max((tmp_path / "offsets").glob("*.parquet"))
    newest.unlink()
    again = copy(spark, dataclasses.replace(wanted, round_bytes=1 << 26))
    assert again.holds
    assert facts(again)["records copied"] == facts(again)["found in the target after an ended run"]
    assert facts(again)["records copied"] > 0
    assert facts(again)["bytes sent"] == 0
    assert seen(new, "copied", 2 * RECORDS) == copied


class TestBadInput:
    """Errors before a Spark task runs."""

    def refused(self, wanted: CopyPlan) -> str:
        with pytest.raises((CopyError, LedgerError)) as caught:
            copy(None, wanted)  # type: ignore[arg-type]  # stops before Spark
        return str(caught.value)

    def test_each_is_named(self, old: Cluster, new: Cluster, tmp_path: Path) -> None:
        make(old, "sound")
        sound = {"sound": "target"}
        message = self.refused(plan(old, new, tmp_path / "1", topics={"none": "none"}))
        assert message == f"there is no topic 'none' in the source {old.bootstrap}"
        message = self.refused(plan(old, new, tmp_path / "2", topics=sound, replication_factor=3))
        assert "would need 3 replicas, and the target has" in message
        make(new, "three", 3)
        message = self.refused(plan(old, new, tmp_path / "3", topics={"sound": "three"}))
        assert "'three' of the target has 3 partitions, the source 'sound' 2" in message
        make(new, "full")
        produce(new, "full", 0, 1)
        message = self.refused(plan(old, new, tmp_path / "4", topics={"sound": "full"}))
        assert "full-0 of the target is not empty (it ends at offset 1)" in message
        message = self.refused(plan(old, old, tmp_path / "5", topics={"sound": "sound"}))
        assert "topic 'sound' would be copied into itself" in message
        dead = dataclasses.replace(
            plan(old, new, tmp_path / "6", topics=sound), target="127.0.0.1:1", timeout_ms=300
        )
        assert "the target 127.0.0.1:1 cannot be reached" in self.refused(dead)
        message = self.refused(
            plan(old, new, tmp_path / "7", topics={"__consumer_offsets": "other"})
        )
        assert "internal" in message or "there is no topic" in message

    def test_a_directory_belongs_to_its_clusters_and_topics(
        self, old: Cluster, new: Cluster, tmp_path: Path
    ) -> None:
        make(old, "kept")
        kept = plan(old, new, tmp_path, topics={"kept": "kept"}, replication_factor=1)
        report = copy(None, kept)  # type: ignore[arg-type]  # stops before Spark
        assert report.verdict == "0 records copied, 0 read back on both sides and equal"
        other = dataclasses.replace(kept, source=new.bootstrap, target=old.bootstrap)
        assert "belongs to a copy from cluster" in self.refused(other)
        renamed = dataclasses.replace(kept, topics={"kept": "renamed"})
        assert "copies 'kept' into 'kept', not into 'renamed'" in self.refused(renamed)
        with BlockingClient(new.bootstrap) as client:
            client.delete_topic("kept")
        message = self.refused(kept)
        assert "'kept' of the target is gone since the last copy" in message


@pytest.mark.soak
def test_a_killed_command_goes_on_without_loss(old: Cluster, new: Cluster, tmp_path: Path) -> None:
    make(old, "struck")
    produce(old, "struck", 0, 40_000)
    words = [
        *(sys.executable, "-m", "tidelog", "pipeline", "copy", "--from", old.bootstrap),
        *("--into", new.bootstrap, "--topic", "struck", "--table", str(tmp_path)),
    ]
    for _ in range(5):
        running = subprocess.Popen(words, start_new_session=True)
        try:
            with BlockingClient(new.bootstrap) as client:
                while running.poll() is None:
                    topics = client.metadata(["struck"]).topics
                    ends = (
                        client.list_offsets({TopicPartition("struck", 0): -1})
                        if topics["struck"].partitions
                        else {}
                    )
                    if any(each.offset for each in ends.values()):
                        break
        finally:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert seen(new, "struck", 40_000) == seen(old, "struck", 40_000)
