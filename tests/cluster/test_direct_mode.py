"""Real brokers whose leaders write state nodes themselves, and clusters of mixed levels (A12).

Followers are paused, leaders are killed, and every broker is restarted at another protocol level
and back, all under load: nothing is lost, and a client sees nothing that it does not retry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest
from tests.cluster.conftest import MakeCluster, eventually
from tests.support.cluster.values import read_values, write_values
from tests.support.cluster.writers import Writer, writing

from tidelog.client.cluster import PartitionMetadata
from tidelog.client.upkeep import ElectionType
from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster
from tidelog.runtime.blocking import BlockingClient

TOPIC, PARTITIONS = "direct", 6
KEY = "inter.broker.protocol.version"
ALL_DIRECT = {1: "2.6", 2: "2.6", 3: "2.6"}
MIXED = {1: "2.6", 2: "3.9", 3: "2.6"}
LEVELS = pytest.mark.parametrize("levels", [ALL_DIRECT, MIXED], ids=["direct", "mixed"])


def set_level(cluster: LocalCluster, broker_id: int, level: str) -> None:
    """Give a broker another level from its next start on."""
    file = Path(cluster.places()[broker_id].properties_path)
    text = re.sub(rf"(?m)^{re.escape(KEY)}=.*\n", "", file.read_text(encoding="utf-8"))
    file.write_text(f"{text.rstrip()}\n{KEY}={level}\n", encoding="utf-8")


def a_cluster(make_cluster: MakeCluster, levels: Mapping[int, str]) -> LocalCluster:
    """Three brokers of these levels, and a topic that needs two members for acks=all."""
    cluster = make_cluster(
        3,
        replica_lag_time_max_ms="2000",
        # A paused broker keeps its session: only its leader may take it out of the ISR.
        metadata_session_timeout_ms="15000",
        inter_broker_protocol_version="2.6",
    )
    for broker_id, level in levels.items():
        if level != "2.6":
            set_level(cluster, broker_id, level)
            cluster.restart(broker_id)
    with BlockingClient(cluster.bootstrap, timeout_ms=30_000) as client:
        client.create_topic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": "2"})
        client.await_topic(TOPIC, 3)
    cluster.await_full_isrs()
    return cluster


def shown(cluster: LocalCluster, broker_id: int, number: int = 0) -> PartitionMetadata:
    """A partition as one broker shows it to clients."""
    with BlockingClient(cluster.places()[broker_id].address, timeout_ms=10_000) as client:
        return client.metadata([TOPIC]).topics[TOPIC].partitions[number]


def controller(cluster: LocalCluster) -> int:
    """The controller, as brokers name it to clients."""
    with BlockingClient(cluster.bootstrap, timeout_ms=10_000) as client:
        return client.metadata([]).controller_id


def shows_out(cluster: LocalCluster, broker_id: int, slow: int) -> bool:
    return slow not in shown(cluster, broker_id).isr


def shows_all(cluster: LocalCluster, broker_id: int) -> bool:
    return len(shown(cluster, broker_id).isr) == 3


def check_written(cluster: LocalCluster, writer: Writer) -> None:
    """Everything was acknowledged, and every record is there once, in order."""
    assert writer.refused == []
    assert writer.written > 0
    written = list(range(writer.written))
    for number in range(PARTITIONS):
        read = read_values(cluster.bootstrap, TopicPartition(TOPIC, number))
        assert [int(value) for value in read] == written[number::PARTITIONS]


@pytest.mark.rule("A12")
@LEVELS
def test_a_leader_shrinks_and_expands_its_isr_by_itself_and_every_broker_shows_it(
    make_cluster: MakeCluster, levels: Mapping[int, str]
) -> None:
    cluster = a_cluster(make_cluster, levels)
    before = shown(cluster, 1)
    # Not the controller: until its session is over, no bumped leader can change an ISR.
    awake = (before.leader, controller(cluster))
    slow = next(one for one in before.replicas if one not in awake)
    others = [one for one in cluster.broker_ids if one != slow]
    cluster.pause(slow)
    write_values(cluster.bootstrap, TopicPartition(TOPIC, 0), [b"while one is slow"])
    for broker_id in others:
        eventually(
            partial(shows_out, cluster, broker_id, slow),
            f"the ISR without {slow} on broker {broker_id}",
        )
    assert shown(cluster, others[0]).leader_epoch == before.leader_epoch, "the leader's own change"
    cluster.resume(slow)
    cluster.await_full_isrs()
    for broker_id in cluster.broker_ids:
        eventually(
            partial(shows_all, cluster, broker_id),
            f"the full ISR on broker {broker_id}",
        )
    assert read_values(cluster.bootstrap, TopicPartition(TOPIC, 0)) == [b"while one is slow"]


@pytest.mark.rule("A12")
@LEVELS
def test_brokers_are_killed_in_turn_and_nothing_is_lost(
    make_cluster: MakeCluster, levels: Mapping[int, str]
) -> None:
    cluster = a_cluster(make_cluster, levels)
    with writing(cluster.bootstrap, TOPIC, PARTITIONS) as writer:
        for killed in cluster.broker_ids:
            cluster.kill(killed)
            cluster.start(killed)
            cluster.await_full_isrs()
    check_written(cluster, writer)


@pytest.mark.rule("A12")
def test_a_rolling_bump_up_and_down_under_load_loses_nothing(make_cluster: MakeCluster) -> None:
    cluster = a_cluster(make_cluster, ALL_DIRECT)
    with writing(cluster.bootstrap, TOPIC, PARTITIONS) as writer:
        for level in ("3.9", "2.6"):
            for bumped in cluster.broker_ids:
                cluster.stop(bumped)
                set_level(cluster, bumped, level)
                cluster.start(bumped)
                cluster.await_full_isrs()
                with BlockingClient(cluster.bootstrap, timeout_ms=30_000) as client:
                    client.elect_leaders(ElectionType.PREFERRED, None)
    check_written(cluster, writer)


@pytest.mark.rule("A12")
def test_a_broker_of_an_unknown_level_does_not_start_and_says_what_would_be_right(
    make_cluster: MakeCluster,
) -> None:
    cluster = a_cluster(make_cluster, ALL_DIRECT)
    cluster.stop(3)
    set_level(cluster, 3, "2.5")
    with pytest.raises(Exception, match=f"{KEY}='2.5' is not valid: .* from 2.6 to 3.9"):
        cluster.start(3)
