"""Rules E6 and E7 on real processes: a broker loses its page cache, acknowledged records stay.

The loss is made while the broker is down: everything above the recovery points is cut off, which is
the most that a power failure can take.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.cluster.conftest import MakeCluster, eventually
from tests.support.cluster.values import read_values, write_values

from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster, PartitionStatus
from tidelog.log.checkpoints import RECOVERY_POINTS, parse_offsets
from tidelog.runtime.blocking import BlockingClient

TP = TopicPartition("t", 0)
RECORDS = [b"record %d" % number for number in range(1000)]


def replicated(make_cluster: MakeCluster, brokers: int = 3) -> LocalCluster:
    """Return a cluster with 1,000 records, acknowledged by all of three replicas, none flushed."""
    cluster = make_cluster(brokers, metadata_session_timeout_ms="2000")
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(TP.topic, 1, 3, {"min.insync.replicas": "2"})
        client.await_topic(TP.topic, min_isr=3)
    write_values(cluster.bootstrap, TP, RECORDS)
    return cluster


def partition(cluster: LocalCluster) -> PartitionStatus | None:
    """Return the partition as brokers describe it, None while none responds."""
    status = cluster.status()
    found = [each for each in status.partitions if (each.topic, each.partition) == TP]
    return found[0] if status.reached and found else None


def leader(cluster: LocalCluster) -> int:
    now = partition(cluster)
    return -1 if now is None else now.leader


def registered(cluster: LocalCluster) -> set[int]:
    """Return the brokers with a session; every broker while none responds."""
    now = cluster.status()
    if not now.reached:
        return set(cluster.broker_ids)
    return {each.id for each in now.brokers if each.registered}


def lose_unsynced(cluster: LocalCluster, broker_id: int) -> None:
    """Cut off what a broker that is down may not have synced: all above its recovery points."""
    logs = list(Path(cluster.places()[broker_id].directory).rglob(f"{TP.topic}-0"))
    assert logs, "the broker has the replica"
    for log in logs:
        file = log.parent / RECOVERY_POINTS
        points = parse_offsets(file.read_bytes()) if file.exists() else {}
        assert points.get(TP, 0) == 0, "nothing was flushed, so everything goes"
        segments = sorted(log.glob("*.log"))
        assert [segment.stat().st_size > 0 for segment in segments] == [True]
        for path in (*segments, *log.glob("*.index"), *log.glob("*.timeindex")):
            path.write_bytes(b"")


def start_together(cluster: LocalCluster, broker_ids: Iterable[int]) -> None:
    """Start brokers at once: a quorum of the embedded store needs more than one."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda broker_id: cluster.start(broker_id, timeout_s=60.0), broker_ids))


@pytest.mark.rule("E6", "V10")
@pytest.mark.parametrize("is_last", [True, False], ids=["back last", "back first"])
def test_three_brokers_die_and_one_of_them_loses_its_page_cache(
    make_cluster: MakeCluster, is_last: bool
) -> None:
    cluster = replicated(make_cluster)
    loser = leader(cluster)
    intact = [broker_id for broker_id in cluster.broker_ids if broker_id != loser]
    for broker_id in cluster.broker_ids:
        cluster.pause(broker_id)  # together: a survivor would take the first out of the ISR
    for broker_id in cluster.broker_ids:
        cluster.kill(broker_id)
    lose_unsynced(cluster, loser)

    first = intact if is_last else [loser, intact[0]]
    start_together(cluster, first)
    eventually(lambda: leader(cluster) != -1, "a leader by comparison of two logs")
    assert leader(cluster) in intact
    assert read_values(cluster.bootstrap, TP) == RECORDS

    start_together(cluster, cluster.broker_ids)
    cluster.await_full_isrs()
    write_values(cluster.bootstrap, TP, [b"after"])
    assert read_values(cluster.bootstrap, TP) == [*RECORDS, b"after"]


@pytest.mark.rule("E6", "E7", "V10")
def test_one_broker_loses_its_page_cache_while_the_sessions_of_the_others_expire(
    make_cluster: MakeCluster,
) -> None:
    cluster = replicated(make_cluster, brokers=5)  # two may pause without an end of the quorum
    now = partition(cluster)
    assert now is not None
    loser = now.leader
    intact = [replica for replica in now.replicas if replica != loser]
    for broker_id in intact:
        cluster.pause(broker_id)
    eventually(lambda: not registered(cluster) & set(intact), "the end of two sessions")
    cluster.kill(loser)
    lose_unsynced(cluster, loser)
    for broker_id in intact:
        cluster.resume(broker_id)

    eventually(lambda: leader(cluster) in intact, "a leader with a proof")
    assert read_values(cluster.bootstrap, TP) == RECORDS
    cluster.start(loser)
    cluster.await_full_isrs()
    assert read_values(cluster.bootstrap, TP) == RECORDS
