"""Client, source and ingest against real brokers, through a leader's death."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from tests.spark.commands import pipeline

from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import TopicPartition
from tidelog.records import builder
from tidelog.records.builder import NewRecord, build_batch
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.options import OptionError, parse_options
from tidelog.spark.pipelines.content_proof import prove_content
from tidelog.spark.pipelines.ingest import (
    IngestReport,
    follow,
    ingest,
    prove_table,
    read_landed,
)
from tidelog.spark.planning import plan_ranges
from tidelog.spark.reading import RecreatedTopicError, read_range
from tidelog.testing import Cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS = 5_000


@pytest.fixture
def cluster(tidelog_cluster_module: Cluster) -> Cluster:
    return tidelog_cluster_module


@pytest.fixture
def client(cluster: Cluster) -> Iterator[BlockingClient]:
    with BlockingClient(cluster.bootstrap) as blocking:
        yield blocking


def make_topic(client: BlockingClient, name: str, partitions: int) -> None:
    client.create_topic(name, partitions, 3, {"min.insync.replicas": "2"})
    client.await_topic(name, min_isr=3)


def produce(cluster: Cluster, topic: str, first: int, count: int, compression: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "compression.type": compression,
            "linger.ms": 5,
            "log_level": 0,
        }
    )
    for number in range(first, first + count):
        producer.produce(
            topic,
            key=b"k%d" % (number % 100),
            value=b"v%d" % number,
            headers=[("number", b"%d" % number)],
        )
        producer.poll(0)
    assert producer.flush(60) == 0


def load(spark: SparkSession, cluster: Cluster, topic: str) -> DataFrame:
    reader = spark.read.format("tidelog").option("kafka.bootstrap.servers", cluster.bootstrap)
    return reader.option("subscribe", topic).option("includeHeaders", "true").load()


def test_every_compression_is_read_from_real_brokers(
    spark: SparkSession, cluster: Cluster, client: BlockingClient
) -> None:
    make_topic(client, "mixed", 3)
    codecs = ["none", "gzip", "snappy", "lz4", "zstd"]
    for place, codec in enumerate(codecs):
        produce(cluster, "mixed", place * 1000, 1000, codec)
    frame = load(spark, cluster, "mixed")
    rows = frame.selectExpr(
        "cast(value as string) as v", "cast(headers[0].value as string) as h", "timestampType as t"
    ).collect()
    assert sorted(int(row.v[1:]) for row in rows) == list(range(5000))
    assert all(row.v[1:] == row.h and row.t == 0 for row in rows)


def test_the_command_goes_on_where_an_ingest_ended(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, tmp_path: Path
) -> None:
    make_topic(client, "landed", 2)
    to = str(tmp_path / "table")
    produce(cluster, "landed", 0, RECORDS, "lz4")
    assert ingest(spark, cluster.bootstrap, "landed", to).version == 1
    produce(cluster, "landed", RECORDS, RECORDS, "lz4")
    target = ("--bootstrap-server", cluster.bootstrap, "--topic", "landed", "--to", to)
    ran = pipeline("ingest", *target, "-o", "json")
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert told["version"] == 2
    assert sum(each["rows"] for each in told["ranges"]) == RECORDS
    assert f"{RECORDS} records in 2 files, 0 lost, 0 doubled" in ran.stderr
    assert read_landed(spark, to).select("value").distinct().count() == 2 * RECORDS
    assert prove_table(spark, to).holds


def test_ingest_and_producer_survive_a_leaders_death(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, tmp_path: Path
) -> None:
    make_topic(client, "stormy", 3)
    produce(cluster, "stormy", 0, RECORDS, "none")
    assert ingest(spark, cluster.bootstrap, "stormy", str(tmp_path)).proof.rows == RECORDS
    leader = cluster.leader("stormy")
    cluster.kill(leader)
    produce(cluster, "stormy", RECORDS, RECORDS, "none")
    report = ingest(spark, cluster.bootstrap, "stormy", str(tmp_path))
    assert (report.proof.rows, report.proof.holds) == (RECORDS, True)
    content = prove_content(spark, str(tmp_path), cluster.bootstrap)
    assert content.holds
    assert sum(each.compared for each in content.partitions) == 2 * RECORDS
    cluster.start(leader)
    assert load(spark, cluster, "stormy").select("value").distinct().count() == 2 * RECORDS
    client.delete_records({TopicPartition("stormy", 0): 10})
    [first, *_] = prove_content(spark, str(tmp_path), cluster.bootstrap).partitions
    assert (first.unreached, first.compared) == (10, first.rows - 10)


def followed_through_a_death(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, topic: str, to: Path
) -> None:
    """Kill the leader between two batches of a followed topic; stop when all has arrived."""
    make_topic(client, topic, 1)
    produce(cluster, topic, 0, RECORDS, "none")
    stop = threading.Event()
    taken: list[int] = []
    killed: list[int] = []

    def on_batch(report: IngestReport) -> None:
        taken.append(report.proof.rows)
        if not killed:
            killed.append(cluster.leader(topic))
            cluster.kill(killed[0])
            produce(cluster, topic, RECORDS, RECORDS, "none")
        elif sum(taken) == 2 * RECORDS:
            stop.set()

    follow(spark, cluster.bootstrap, topic, str(to), stop=stop, interval_s=0.1, on_batch=on_batch)
    assert sum(taken) == 2 * RECORDS
    assert prove_table(spark, str(to)).offsets.rows == 2 * RECORDS
    assert read_landed(spark, str(to)).select("value").distinct().count() == 2 * RECORDS
    cluster.start(killed[0])


def test_a_follower_survives_a_leaders_death(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, tmp_path: Path
) -> None:
    followed_through_a_death(spark, cluster, client, "followed", tmp_path / "table")


@pytest.mark.soak
@pytest.mark.parametrize("run", range(20))
def test_a_follower_survives_many_deaths(
    spark: SparkSession, cluster: Cluster, client: BlockingClient, tmp_path: Path, run: int
) -> None:
    followed_through_a_death(spark, cluster, client, f"followed-{run}", tmp_path / "table")


def test_an_idempotent_batch_sent_again_is_stored_once_also_after_the_leader_died(
    cluster: Cluster, client: BlockingClient
) -> None:
    make_topic(client, "once", 1)
    tp = TopicPartition("once", 0)
    producer_id, epoch = client.init_producer_id()
    batch = build_batch([NewRecord(b"k", b"v")], producer=builder.Producer(producer_id, epoch, 0))
    base = client.produce(tp, batch)
    assert client.produce(tp, batch) in (base, -1)
    cluster.kill(cluster.leader("once"))
    assert client.produce(tp, batch) in (base, -1)
    assert client.list_offsets({tp: -1})[tp].offset == base + 1


def test_a_task_reads_on_at_a_new_leader_when_its_leader_dies(
    cluster: Cluster, client: BlockingClient
) -> None:
    make_topic(client, "torn", 1)
    for place in range(10):  # so that there are batches to fetch one by one
        produce(cluster, "torn", place * 500, 500, "none")
    options = parse_options(
        {
            "kafka.bootstrap.servers": cluster.bootstrap,
            "subscribePattern": "to[r]n",
            "kafka.isolation.level": "read_committed",
            "kafka.fetch.max.bytes": "1000",
            "columns": "offset",
        }
    )
    (wanted,) = plan_ranges(client, options)
    batches = read_range(options, wanted)
    offsets = next(batches)["offset"].to_pylist()
    leader = cluster.leader("torn")
    cluster.kill(leader)
    assert len(offsets) < RECORDS
    offsets += [offset for each in batches for offset in each["offset"].to_pylist()]
    assert offsets == list(range(RECORDS))
    cluster.start(leader)


def test_a_topic_recreated_after_planning_is_not_read(
    cluster: Cluster, client: BlockingClient
) -> None:
    make_topic(client, "again", 1)
    produce(cluster, "again", 0, 100, "none")
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "again"}
    options = parse_options({**given, "startingTimestamp": "1"})
    (wanted,) = plan_ranges(client, options)
    assert (wanted.start, wanted.end) == (0, 100)
    with pytest.raises(OptionError, match="again-0 has no record from 9999999999999 on"):
        plan_ranges(client, parse_options({**given, "startingTimestamp": "9999999999999"}))
    client.delete_topic("again")
    make_topic(client, "again", 1)
    produce(cluster, "again", 0, 200, "none")
    with pytest.raises(RecreatedTopicError, match="'again' was deleted and created again"):
        list(read_range(options, wanted))


def test_refusals_carry_the_brokers_reasons(client: BlockingClient) -> None:
    with pytest.raises(KafkaError, match="4.*3|3.*4") as info:
        client.create_topic("too-wide", 1, 4)
    assert info.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    with pytest.raises(KafkaError) as info:
        client.create_topic("no/slashes", 1, 1)
    assert info.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    with pytest.raises(KafkaError, match="there is no topic 'nobody'"):
        client.delete_topic("nobody")
    make_topic(client, "small", 1)
    with pytest.raises(KafkaError, match="from offset 999") as info:
        client.fetch(TopicPartition("small", 0), 999)
    assert info.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
