"""Faults on real processes: what was acknowledged stays, and leadership moves."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tests.cluster.conftest import MakeCluster
from tests.support.cluster.values import read_values, write_values

from tidelog.core.types import TopicPartition
from tidelog.local import ClusterStatus, LocalCluster, PartitionStatus
from tidelog.records.batch import iter_batches
from tidelog.records.builder import NewRecord, build_batch
from tidelog.runtime.blocking import BlockingClient

TP = TopicPartition("t", 0)


def await_status(
    cluster: LocalCluster, wanted: Callable[[ClusterStatus], bool], what: str
) -> ClusterStatus:
    """Poll the cluster's own words until they are as wanted; fail loudly after a minute."""
    deadline = time.monotonic() + 60
    while True:
        now = cluster.status()
        if now.reached and wanted(now):
            return now
        assert time.monotonic() < deadline, f"{what} did not come about: {now}"
        time.sleep(0.05)


def create(cluster: LocalCluster, partitions: int = 1) -> None:
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(TP.topic, partitions, 3, {"min.insync.replicas": "2"})
        client.await_topic(TP.topic, min_isr=3)


def partition(status: ClusterStatus) -> PartitionStatus:
    return next(each for each in status.partitions if (each.topic, each.partition) == TP)


def test_a_killed_leader_takes_nothing_acknowledged_along(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3)
    create(cluster)
    write_values(cluster.bootstrap, TP, [b"before"])
    before = partition(cluster.status())

    cluster.kill(before.leader)
    assert write_values(cluster.bootstrap, TP, [b"after"]) == 1
    after = partition(cluster.status())
    assert after.leader in before.replicas
    assert after.leader != before.leader
    assert after.leader_epoch > before.leader_epoch
    assert before.leader not in after.isr
    assert read_values(cluster.bootstrap, TP) == [b"before", b"after"]

    cluster.start(before.leader)
    cluster.await_full_isrs()
    assert sorted(partition(cluster.status()).isr) == [1, 2, 3]
    assert read_values(cluster.bootstrap, TP) == [b"before", b"after"]


def test_a_killed_controller_is_followed_by_another(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3)
    create(cluster, partitions=3)
    write_values(cluster.bootstrap, TP, [b"before"])
    first = cluster.status().controller

    cluster.kill(first)
    second = await_status(
        cluster, lambda now: now.controller not in (-1, first), "another controller"
    ).controller
    assert second in cluster.broker_ids
    await_status(
        cluster,
        lambda now: all(each.leader not in (-1, first) for each in now.partitions),
        "leaders without the dead broker",
    )
    write_values(cluster.bootstrap, TP, [b"after"])
    assert read_values(cluster.bootstrap, TP) == [b"before", b"after"]

    cluster.start(first)
    cluster.await_full_isrs()


def test_a_paused_leader_loses_its_leadership_and_joins_again(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3, metadata_session_timeout_ms="2000")
    create(cluster)
    write_values(cluster.bootstrap, TP, [b"before"])
    paused = partition(cluster.status()).leader

    cluster.pause(paused)
    others = ",".join(
        place.address for number, place in cluster.places().items() if number != paused
    )
    now = await_status(
        cluster, lambda now: partition(now).leader not in (-1, paused), "another leader"
    )
    assert {each.id: each.state for each in now.brokers}[paused] == "paused"
    write_values(others, TP, [b"while paused"])

    cluster.resume(paused)
    cluster.await_full_isrs()
    write_values(cluster.bootstrap, TP, [b"after"])
    assert read_values(cluster.bootstrap, TP) == [b"before", b"while paused", b"after"]


def test_a_stopped_broker_leaves_cleanly_and_its_partitions_go_on(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(3)
    create(cluster)
    write_values(cluster.bootstrap, TP, [b"before"])
    leader = partition(cluster.status()).leader
    cluster.stop(leader)
    write_values(cluster.bootstrap, TP, [b"after"])
    log = cluster.places()[leader].last_lines()
    assert f"broker {leader} stopped" in log
    cluster.start(leader)
    cluster.await_full_isrs()
    assert read_values(cluster.bootstrap, TP) == [b"before", b"after"]


def test_a_cluster_that_lost_all_brokers_at_once_serves_what_it_acknowledged(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(3)
    create(cluster)
    values = [b"%d" % number for number in range(100)]
    for value in values:
        write_values(cluster.bootstrap, TP, [value])
    for number in cluster.broker_ids:
        cluster.kill(number)
    cluster.up()
    assert read_values(cluster.bootstrap, TP) == values


def test_a_program_that_uses_the_cluster_leaves_nothing_running(make_cluster: MakeCluster) -> None:
    with make_cluster(1, name="short") as cluster:
        process = cluster.process(1)
        assert process is not None
    assert not process.is_alive
    assert cluster.process(1) is None


def test_a_killed_broker_keeps_the_gaps_of_a_compacted_topic(make_cluster: MakeCluster) -> None:
    """That a topic is compacted stands in the store; a follower's gaps are not flushed for long."""
    cluster = make_cluster(1)
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(TP.topic, 1, 1, {"cleanup.policy": "compact"})
        client.await_topic(TP.topic, min_isr=1)
        for number in range(3):
            client.produce(TP, build_batch([NewRecord(b"%d" % number, b"value")]))
    cluster.kill(1)
    (path,) = Path(cluster.directory).glob("broker-1/**/t-0/00000000000000000000.log")
    first, _, third = iter_batches(path.read_bytes())
    path.write_bytes(b"".join((first.buffer[: first.end_position], third.buffer[third.position :])))
    cluster.start(1)
    cluster.await_full_isrs()
    with BlockingClient(cluster.bootstrap) as client:
        assert client.list_offsets({TP: -1})[TP].offset == 3
    assert read_values(cluster.bootstrap, TP) == [b"value", b"value"]
