"""The audit on logs of real brokers: clean while they run and after kill -9, damage found."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from tests.spark.commands import pipeline
from tests.support.audits import three_brokers
from tests.support.log_files import flip

from tidelog.client.fetching import LATEST
from tidelog.core.types import TopicPartition
from tidelog.records.batch import BatchView, iter_batches
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.pipelines.audit.auditing import Audit, audit_directories
from tidelog.spark.pipelines.audit.findings import FindingKind, Severity
from tidelog.spark.pipelines.audit.reporting import audit
from tidelog.spark.pipelines.audit.spark_tasks import SparkTasks
from tidelog.testing import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 4
WAIT_S = 60
_CONFIG = {
    "log.cleaner.backoff.ms": 100,
    "replica.high.watermark.checkpoint.interval.ms": 200,
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(str(tmp_path_factory.mktemp("audited")), config=_CONFIG) as made:
        yield made


def directories(cluster: Cluster) -> list[str]:
    return list(cluster.local.log_directories())


def produce(cluster: Cluster, topic: str, count: int, keys: int, partition: int = -1) -> None:
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 2, "log_level": 0}
    )
    for number in range(count):
        value = b"%d " % number * 20
        producer.produce(topic, value, b"k%d" % (number % keys), partition)
        if number % 50 == 0:
            producer.flush(WAIT_S)
    assert producer.flush(WAIT_S) == 0


def await_compaction(cluster: Cluster, topic: str) -> None:
    paths = [Path(each, "cleaner-offset-checkpoint") for each in directories(cluster)]
    limit = time.monotonic() + WAIT_S
    while not all(path.exists() and f"{topic} 0 " in path.read_text() for path in paths):
        assert time.monotonic() < limit, "no compaction"
        time.sleep(0.1)


def await_checkpoints(cluster: Cluster, topic: str, partitions: int) -> None:
    """Wait until every broker's checkpoint has the high watermarks that clients see now.

    The audit of dead brokers knows no ISR: it measures a replica by its own checkpoint.
    """
    tps = [TopicPartition(topic, each) for each in range(partitions)]
    # A consumer with a group would have the brokers create the topic of offsets just now.
    with BlockingClient(cluster.bootstrap) as client:
        found = client.list_offsets(dict.fromkeys(tps, LATEST))
    ends = {f"{topic} {tp.partition} {found[tp].offset}" for tp in tps}
    paths = [Path(each, "replication-offset-checkpoint") for each in directories(cluster)]
    limit = time.monotonic() + WAIT_S
    while not all(ends <= set(path.read_text().splitlines()) for path in paths):
        assert time.monotonic() < limit, "the high watermarks are in no checkpoint"
        time.sleep(0.05)


def without_harm(found: Audit) -> list[str]:
    """Return what was found, except that replicas were compacted at different times."""
    return [
        f"{each.kind} {each.path}: {each.sentence}"
        for each in found.all_findings()
        if each.kind is not FindingKind.COMPACTED
    ]


def test_logs_of_running_and_killed_brokers_are_clean_and_damage_is_found(
    spark: SparkSession, cluster: Cluster
) -> None:
    cluster.create_topic("plain", PARTITIONS, config={"segment.bytes": 40_000})
    compact = {"cleanup.policy": "compact", "segment.bytes": 20_000}
    cluster.create_topic("keyed", 1, config={**compact, "min.cleanable.dirty.ratio": 0.01})
    for partition in range(PARTITIONS):
        produce(cluster, "plain", 1000, 100, partition)
    produce(cluster, "keyed", 2000, 40)
    await_compaction(cluster, "keyed")
    tasks = SparkTasks(spark)
    live = audit_directories(tasks, directories(cluster), bootstrap=cluster.bootstrap)
    assert without_harm(live) == []
    assert sum(len(each.audits) for each in live.partitions) >= 3 * (PARTITIONS + 1)
    victim = cluster.leader("plain")
    cluster.kill(victim)
    produce(cluster, "plain", 500, 100)
    produce(cluster, "keyed", 500, 40)
    cluster.start(victim)
    cluster.local.await_full_isrs()
    await_checkpoints(cluster, "plain", PARTITIONS)
    for broker in cluster.brokers:
        cluster.kill(broker)
    assert without_harm(audit_directories(tasks, directories(cluster))) == []
    _damage(Path(directories(cluster)[1]))
    damaged = audit_directories(tasks, directories(cluster))
    kinds = {
        (each.partition, each.kind)
        for each in damaged.all_findings()
        if each.severity is Severity.DAMAGE
    }
    assert kinds == {
        ("plain-0", FindingKind.CHECKSUM),
        ("plain-1", FindingKind.SHORT),
        ("plain-2", FindingKind.SWAPPED),
        ("plain-3", FindingKind.DIVERGED),
    }
    harmed = [each for each in damaged.all_findings() if each.severity is Severity.DAMAGE]
    assert {each.broker for each in harmed} == {"broker 2"}


def _damage(directory: Path) -> None:
    """Flip a bit, cut a tail, swap two segments, and write other records: one partition each."""
    logs = [sorted((directory / f"plain-{n}").glob("*.log")) for n in range(PARTITIONS)]
    flip(logs[0][1], BatchView(logs[0][1].read_bytes()).size_bytes + 100)
    logs[1][-1].write_bytes(logs[1][-1].read_bytes()[:-50])
    first, second = logs[2][0].read_bytes(), logs[2][1].read_bytes()
    logs[2][0].write_bytes(second)
    logs[2][1].write_bytes(first)
    logs[3][1].write_bytes(_with_other_records(logs[3][1].read_bytes()))


def _with_other_records(log: bytes) -> bytes:
    """Return a log whose third batch has another value, with a right checksum."""
    changed = bytearray(log)
    batch = list(iter_batches(changed))[2]
    changed[batch.end_position - 3] ^= 1  # inside the last record's value
    changed[batch.position + 17 : batch.position + 21] = batch.computed_crc().to_bytes(4, "big")
    return bytes(changed)


def test_the_command_reports_damage_in_json_and_html(spark: SparkSession, tmp_path: Path) -> None:
    three_brokers(tmp_path)
    flip(tmp_path / "broker-3" / "flights-0" / f"{200:020d}.log", 3000)
    page = tmp_path / "audit.html"
    ran = pipeline("audit", str(tmp_path / "broker-*"), "--html", str(page), "-o", "json")
    assert ran.returncode == 1, ran.stderr
    report = json.loads(ran.stdout)
    assert report["holds"] is False
    (row,) = report["tables"][0]["rows"]
    assert (row["kind"], row["broker"], row["offset"]) == ("checksum", "broker 3", 220)
    assert "Bytes by broker" in page.read_text() and "checksum" in page.read_text()


def test_an_audit_goes_on_with_the_results_that_it_kept(
    spark: SparkSession, tmp_path: Path
) -> None:
    three_brokers(tmp_path)
    keep = str(tmp_path / "kept")
    first = audit(spark, [str(tmp_path / "broker-*")], keep=keep, range_bytes=20_000)
    again = audit(spark, [str(tmp_path / "broker-*")], keep=keep, range_bytes=20_000)
    assert first.holds and again.holds
    facts, facts_again = dict(first.facts), dict(again.facts)
    assert facts["bytes read"] == facts_again["bytes known from a former run"]
    assert facts_again["bytes read"] == 0
