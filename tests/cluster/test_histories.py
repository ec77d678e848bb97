"""Three client libraries through kills of leaders: what they were told goes together.

On the embedded store a few leaders are killed. On an ensemble of three ZooKeeper servers, a leader,
the controller and the server that leads the ensemble are killed in turns: once each, and again for
TIDELOG_TEST_HISTORY_S seconds (`make soak`: ten minutes of an hour).
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.conftest import MakeCluster, tidelog
from tests.cluster.recorded_clients import CONSUMERS, PATIENCE_S, PRODUCERS, Work
from tests.support.cluster.zookeepers import ensemble, require_zookeeper

from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster
from tidelog.local.zookeeper import LocalZookeeper
from tidelog.runtime.blocking import BlockingClient
from tidelog.runtime.stores.zookeeper_chroot import create_chroot
from tidelog.runtime.stores.zookeeper_servers import parse_servers
from tidelog.testing.histories import HistoryRecorder

TOPIC = "recorded"
PARTITIONS = 3
KILLS = 3
#: Acknowledged to each producer before a kill, and again after it.
ENOUGH = 100
#: How long brokers and servers are killed in turns; KILLS of them are in any case.
ENSEMBLE_S = float(os.environ.get("TIDELOG_TEST_HISTORY_S", "0"))


def await_that(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.02)


def leader(cluster: LocalCluster, partition: int) -> int:
    return next(
        each.leader
        for each in cluster.status().partitions
        if (each.topic, each.partition) == (TOPIC, partition)
    )


def controller(cluster: LocalCluster) -> int:
    with BlockingClient(cluster.bootstrap) as client:
        return client.metadata([]).controller_id


class Recorded:
    """Clients at work on a cluster, and what they were told."""

    def __init__(self, cluster: LocalCluster, recorder: HistoryRecorder) -> None:
        self._cluster = cluster
        self._recorder = recorder
        self._work = Work(cluster.bootstrap, TOPIC, PARTITIONS, recorder)
        self._producers = [each(self._work, f"{each.__name__}-1") for each in PRODUCERS]
        self._consumers = [each(self._work, f"{each.__name__}-1") for each in CONSUMERS]
        for each in (*self._producers, *self._consumers):
            each.start()

    def progress(self, of: str) -> None:
        """Wait until each producer was acknowledged enough since now."""
        marks = [producer.acknowledged + ENOUGH for producer in self._producers]

        def reached() -> bool:
            for producer in self._producers:
                assert producer.failure is None, producer.failure
            return all(
                producer.acknowledged >= mark
                for producer, mark in zip(self._producers, marks, strict=True)
            )

        await_that(reached, of)

    def end(self) -> int:
        """Let everything be acknowledged and read; returns how many records were sent."""
        self._work.no_more_sends.set()
        for producer in self._producers:
            producer.finish()
        tps = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        with BlockingClient(self._cluster.bootstrap) as client:
            ends = client.list_offsets(dict.fromkeys(tps, -1))
        self._work.ends = {tp.partition: ends[tp].offset for tp in tps}
        self._work.may_end.set()
        for consumer in self._consumers:
            consumer.finish()
        return sum(producer.count for producer in self._producers)


@contextmanager
def recorded(cluster: LocalCluster, path: Path) -> Iterator[Recorded]:
    """Clients of three libraries at work; afterwards nothing that they were told is anomalous."""
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": "2"})
        client.await_topic(TOPIC, min_isr=3)
    with HistoryRecorder(str(path)) as recorder:
        clients = Recorded(cluster, recorder)
        yield clients
        sent = clients.end()
    report = recorder.assert_sound()
    assert report.allowed == {}
    assert (report.sent_records, report.acknowledged_records) == (sent, sent)
    assert report.polled_records == sent
    assert report.operations > sent + len(CONSUMERS)
    told = tidelog("history", "check", str(path))
    assert told.returncode == 0, told.stderr
    assert f"{sent} acknowledged, {sent} polled" in told.stdout
    assert told.stdout.endswith("nothing is anomalous\n")


def test_the_history_of_three_libraries_through_kills_has_no_anomaly(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = make_cluster(3, metadata_session_timeout_ms="3000")
    with recorded(cluster, tmp_path / "history.jsonl") as clients:
        for number in range(KILLS):
            clients.progress(f"records before kill {number}")
            killed = leader(cluster, number % PARTITIONS)
            cluster.kill(killed)
            clients.progress(f"records after kill {number}")
            cluster.start(killed)
            cluster.await_full_isrs()


def test_the_history_through_kills_of_brokers_and_of_an_ensemble_has_no_anomaly(
    tmp_path: Path,
) -> None:
    """The leader of a partition, the controller and the server that leads the ensemble die in
    turns, while the one before is on its way back."""
    require_zookeeper()
    members = ensemble(tmp_path)
    cluster = None
    try:
        for member in members:
            member.spawn()
        for member in members:
            member.await_serving()
        store = f"zookeeper://{','.join(member.address for member in members)}/histories"
        asyncio.run(create_chroot(parse_servers(store)))
        config = {"metadata.session.timeout.ms": "4000"}
        cluster = LocalCluster(str(tmp_path / "cluster"), 3, config=config, store=store)
        cluster.up()
        with recorded(cluster, tmp_path / "history.jsonl") as clients:
            kill_in_turns(cluster, members, clients)
    finally:
        if cluster is not None:
            cluster.down(timeout_s=5.0)
        for member in members:
            member.kill()


def kill_in_turns(cluster: LocalCluster, members: list[LocalZookeeper], clients: Recorded) -> None:
    end = time.monotonic() + ENSEMBLE_S
    for number in itertools.count():
        if number >= KILLS and time.monotonic() >= end:
            return
        clients.progress(f"records before kill {number}")
        if number % 3 == 2:
            member = next(each for each in members if each.mode() == "leader")
            member.kill()
            clients.progress(f"records without a server, kill {number}")
            member.spawn()
            member.await_serving()
            continue
        find = leader if number % 3 == 0 else lambda where, _: controller(where)
        killed = find(cluster, number % PARTITIONS)
        cluster.kill(killed)
        clients.progress(f"records after kill {number}")
        cluster.start(killed)
        cluster.await_full_isrs()
