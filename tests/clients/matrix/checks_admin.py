"""Checks of administration, the same for every client."""

from __future__ import annotations

from functools import partial

import pytest
from tests.clients.matrix.checks_groups import PARTITIONS, Group
from tests.clients.matrix.driver import Refused, eventually
from tests.clients.matrix.harness import ClientHarness

from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient


def create_and_delete_topics(harness: ClientHarness) -> None:
    topic = harness.name()
    harness.driver.create_topic(topic, 3, 2, {"retention.ms": "86400000"})
    with BlockingClient(harness.cluster.bootstrap) as client:
        made = client.await_topic(topic, min_isr=2)
    assert [len(each.replicas) for each in made.partitions.values()] == [2, 2, 2]
    eventually(lambda: topic in harness.driver.list_topics(), harness.driver.list_topics)
    with pytest.raises(Refused, match="(?i)exist"):
        harness.driver.create_topic(topic, 3, 2, {})
    harness.driver.delete_topic(topic)
    eventually(lambda: topic not in harness.driver.list_topics(), harness.driver.list_topics)
    with pytest.raises(Refused, match="(?i)unknown.?topic|not host this topic"):
        harness.driver.delete_topic(topic)


def describe_topics(harness: ClientHarness) -> None:
    topic = harness.make_topic(3)
    found = harness.driver.describe_topic(topic)
    assert sorted(found) == [0, 1, 2]
    for number, partition in found.items():
        assert partition.leader == harness.leader(topic, number)
        assert sorted(partition.replicas) == sorted(partition.in_sync) == [1, 2, 3]


def create_partitions(harness: ClientHarness) -> None:
    topic = harness.make_topic(1)
    harness.driver.create_partitions(topic, 3)
    with BlockingClient(harness.cluster.bootstrap) as client:
        eventually(
            lambda: len(client.metadata([topic]).topics[topic].partitions) == 3,
            lambda: client.metadata([topic]),
        )
    with pytest.raises(Refused, match=r"(?i)invalid.?partitions|partition"):
        harness.driver.create_partitions(topic, 2)


def configs(harness: ClientHarness) -> None:
    topic = harness.make_topic()
    assert harness.driver.describe_configs(topic)["min.insync.replicas"] == "2"
    harness.driver.alter_configs(topic, {"retention.ms": "1234567", "min.insync.replicas": "1"})
    eventually(
        lambda: harness.driver.describe_configs(topic)["retention.ms"] == "1234567",
        lambda: harness.driver.describe_configs(topic),
    )
    assert harness.driver.describe_configs(topic)["min.insync.replicas"] == "1"
    with pytest.raises(Refused, match="(?i)invalid.?config|not valid"):
        harness.driver.alter_configs(topic, {"retention.ms": "soon"})


def delete_records(harness: ClientHarness) -> None:
    topic = harness.make_topic()
    harness.fill(topic, 0, 100)
    assert harness.driver.delete_records(topic, 0, 40) == 40
    tp = TopicPartition(topic, 0)
    with BlockingClient(harness.cluster.bootstrap) as client:
        assert client.list_offsets({tp: -2})[tp].offset == 40
    with pytest.raises(Refused, match=r"(?i)out.?of.?range|not within the range|deleting records"):
        harness.driver.delete_records(topic, 0, 1000)


def describe_cluster(harness: ClientHarness) -> None:
    brokers, controller = harness.driver.describe_cluster()
    assert brokers == frozenset(harness.cluster.broker_ids)
    assert controller in brokers


def elect_leaders(harness: ClientHarness) -> None:
    """The preferred leader is away, comes back, and leads again when it is asked for."""
    topic = harness.make_topic()
    preferred = harness.leader(topic, 0)  # of a new topic
    with harness.killed(preferred):
        harness.await_leader_other_than(topic, preferred)
    assert harness.leader(topic, 0) != preferred
    harness.driver.elect_preferred_leader(topic, 0)
    eventually(lambda: harness.leader(topic, 0) == preferred, lambda: harness.leader(topic, 0))


def log_dirs(harness: ClientHarness) -> None:
    topic = harness.make_topic(2)
    harness.fill(topic, 1, 100)
    for broker in harness.cluster.broker_ids:
        sizes = partial(harness.driver.log_dir_sizes, broker, topic)
        eventually(
            partial(lambda sizes: sizes().get(1, 0) > 100, sizes),
            sizes,
        )
        assert harness.driver.log_dir_sizes(broker, topic)[0] == 0


def list_and_describe_groups(harness: ClientHarness) -> None:
    group = Group(harness, cooperative=False)
    try:
        group.join()
        group.await_shared()
        eventually(lambda: group.id in harness.driver.list_groups(), harness.driver.list_groups)
        eventually(
            lambda: harness.driver.describe_group(group.id).state.lower() == "stable",
            lambda: harness.driver.describe_group(group.id),
        )
        found = harness.driver.describe_group(group.id)
        assert found.protocol
        [member] = found.members
        assert member.client_id
        assert member.partitions == frozenset(range(PARTITIONS))
    finally:
        for each in list(group.members):
            group.leave(each)
    eventually(
        lambda: not harness.driver.describe_group(group.id).members,
        lambda: harness.driver.describe_group(group.id),
    )


def _a_left_group(harness: ClientHarness) -> Group:
    """A group whose member committed 10 in every partition and left."""
    group = Group(harness, cooperative=False)
    member = group.join()
    try:
        group.await_shared()
        group.fill(10)
        group.await_all_received(0)
        member.commit()
    finally:
        group.leave(member)
    return group


def offsets_of_groups(harness: ClientHarness) -> None:
    group = _a_left_group(harness)
    assert harness.driver.group_offsets(group.id, group.topic) == dict.fromkeys(range(4), 10)


def set_offsets_of_groups(harness: ClientHarness) -> None:
    group = _a_left_group(harness)
    harness.driver.set_group_offset(group.id, group.topic, 2, 7)
    assert harness.driver.group_offsets(group.id, group.topic) == {0: 10, 1: 10, 2: 7, 3: 10}
    group.join()
    try:
        eventually(lambda: len(group.received()) >= 3, group.received)
        assert [tuple(each) for each in group.received()] == [(2, 7), (2, 8), (2, 9)]
    finally:
        group.leave(group.members[0])


def delete_groups(harness: ClientHarness) -> None:
    group = _a_left_group(harness)
    harness.driver.delete_group(group.id)
    assert group.id not in harness.driver.list_groups()
    with pytest.raises(Refused, match="(?i)group"):
        harness.driver.delete_group(group.id)
