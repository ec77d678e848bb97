"""Consumers in groups: of three libraries, eager and cooperative, dynamic and static."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, ConsumerGroupState, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer
from tests.clients import confluent
from tests.clients.conftest import MakeTopic
from tests.support.clients.librdkafka import value_of
from tests.support.clients.samples import Record

from tidelog.local import LocalCluster
from tidelog.runtime.blocking import BlockingClient

PATIENCE_S = 60.0
PARTITIONS = 4
RECORDS = 400


def write(bootstrap: str, topic: str, first: int = 0, count: int = RECORDS) -> None:
    """Numbered records round the partitions."""
    for partition in range(PARTITIONS):
        numbers = range(first + partition, first + count, PARTITIONS)
        confluent.write(
            bootstrap,
            topic,
            partition,
            "none",
            [Record(None, b"%d" % number) for number in numbers],
        )


class Member:
    """A librdkafka consumer that notes what it reads and what it is given."""

    def __init__(self, bootstrap: str, topic: str, group: str, **config: Any) -> None:
        self.read: list[int] = []
        self.revoked = 0
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 500,
            "fetch.wait.max.ms": 50,
        }
        self.consumer = Consumer(settings | config)
        self.consumer.subscribe([topic], on_revoke=self._revoked)

    def _revoked(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self.revoked += len(partitions)

    @property
    def owned(self) -> list[int]:
        return sorted(each.partition for each in self.consumer.assignment())

    def poll(self) -> None:
        message = self.consumer.poll(0.05)
        if message is None:
            return
        error = message.error()
        if error is None:
            self.read.append(int(value_of(message)))
        elif not error.retriable() and error.code() != KafkaError._ALL_BROKERS_DOWN:
            raise KafkaException(error)


def poll_until(done: Callable[[], bool], *members: Member) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, [(each.owned, len(each.read)) for each in members]
        for member in members:
            member.poll()


@contextmanager
def members(*made: Member) -> Iterator[tuple[Member, ...]]:
    try:
        yield made
    finally:
        for member in made:
            member.consumer.close()


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
def test_members_share_the_partitions_and_go_on_where_others_committed(
    bootstrap: str, make_topic: MakeTopic, assignor: str
) -> None:
    topic = make_topic(PARTITIONS)
    write(bootstrap, topic)
    config = {"partition.assignment.strategy": assignor}
    with members(Member(bootstrap, topic, topic, **config)) as (first,):
        poll_until(lambda: len(first.read) == RECORDS, first)
        assert sorted(first.read) == list(range(RECORDS))
        first.consumer.commit(asynchronous=False)
        second = Member(bootstrap, topic, topic, **config)
        with members(second):
            poll_until(lambda: len(first.owned) == len(second.owned) == 2, first, second)
            assert sorted(first.owned + second.owned) == list(range(PARTITIONS))
            # A cooperative member gives up what moves, an eager one everything.
            assert first.revoked == (2 if assignor == "cooperative-sticky" else PARTITIONS)
            write(bootstrap, topic, RECORDS, 40)
            poll_until(lambda: len(first.read) + len(second.read) == RECORDS + 40, first, second)
            assert sorted(first.read[RECORDS:] + second.read) == list(range(RECORDS, RECORDS + 40))
        poll_until(lambda: first.owned == list(range(PARTITIONS)), first)


def test_a_static_member_that_returns_keeps_its_partitions_without_a_rebalance(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(PARTITIONS)
    names = ("one", "two")
    made = [Member(bootstrap, topic, topic, **{"group.instance.id": name}) for name in names]
    with members(made[0]) as (stays,):
        poll_until(lambda: [len(each.owned) for each in made] == [2, 2], *made)
        before, revoked = made[1].owned, stays.revoked
        made[1].consumer.close()
        back = Member(bootstrap, topic, topic, **{"group.instance.id": "two"})
        with members(back):
            poll_until(lambda: back.owned == before, stays, back)
            assert stays.revoked == revoked, "the others do not notice"


def test_groups_are_administered(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(PARTITIONS)
    write(bootstrap, topic)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    with members(Member(bootstrap, topic, topic, **{"client.id": "seen"})) as (member,):
        poll_until(lambda: len(member.read) == RECORDS, member)
        member.consumer.commit(asynchronous=False)
        described = admin.describe_consumer_groups([topic])[topic].result(PATIENCE_S)
        assert described.state is ConsumerGroupState.STABLE
        (shown,) = described.members
        assert (shown.client_id, shown.host) == ("seen", "/127.0.0.1")
        assert len(shown.assignment.topic_partitions) == PARTITIONS
        with pytest.raises(KafkaException) as refused:
            admin.delete_consumer_groups([topic])[topic].result(PATIENCE_S)
        assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    listed = admin.list_consumer_groups().result(PATIENCE_S)
    assert topic in [group.group_id for group in listed.valid]
    assert listed.errors == []
    admin.delete_consumer_groups([topic])[topic].result(PATIENCE_S)
    listed = admin.list_consumer_groups().result(PATIENCE_S)
    assert topic not in [group.group_id for group in listed.valid]


def test_kafka_python_and_aiokafka_commit_and_go_on(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(PARTITIONS)
    write(bootstrap, topic)
    settings: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "group_id": topic,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
    }
    first = read_with_kafka_python(topic, settings, RECORDS)
    assert sorted(first) == list(range(RECORDS))
    write(bootstrap, topic, RECORDS, 40)
    second = asyncio.run(asyncio.wait_for(read_with_aiokafka(topic, settings, 40), PATIENCE_S))
    assert sorted(second) == list(range(RECORDS, RECORDS + 40))
    write(bootstrap, topic, RECORDS + 40, 40)
    third = read_with_kafka_python(topic, settings, 40)
    assert sorted(third) == list(range(RECORDS + 40, RECORDS + 80))


def read_with_kafka_python(topic: str, settings: dict[str, Any], count: int) -> list[int]:
    """So many records, committed."""
    consumer = KafkaConsumer(topic, fetch_max_wait_ms=50, **settings)
    found: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    try:
        while len(found) < count:
            assert time.monotonic() < deadline, len(found)
            for messages in consumer.poll(timeout_ms=1_000).values():
                found += [int(message.value) for message in messages]
        consumer.commit()
    finally:
        consumer.close()
    return found


async def read_with_aiokafka(topic: str, settings: dict[str, Any], count: int) -> list[int]:
    """So many records, committed."""
    consumer = AIOKafkaConsumer(topic, **settings)
    await consumer.start()
    found: list[int] = []
    try:
        while len(found) < count:
            for messages in (await consumer.getmany(timeout_ms=1_000)).values():
                found += [int(message.value) for message in messages]
        await consumer.commit()
    finally:
        await consumer.stop()
    return found


def coordinator_of(cluster: LocalCluster, group: str) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    described = admin.describe_consumer_groups([group])[group].result(PATIENCE_S)
    coordinator: int = described.coordinator.id
    return coordinator


def test_a_killed_coordinator_loses_no_commit(cluster: LocalCluster, make_topic: MakeTopic) -> None:
    topic = make_topic(PARTITIONS)
    write(cluster.bootstrap, topic)
    acknowledged: dict[int, int] = {}
    with members(Member(cluster.bootstrap, topic, topic)) as (member,):
        poll_until(lambda: len(member.read) >= RECORDS // 2, member)
        commit_all(member, acknowledged)
        killed = coordinator_of(cluster, topic)
        cluster.kill(killed)
        try:
            write(cluster.bootstrap, topic, RECORDS, 40)
            poll_until(lambda: len({*member.read}) == RECORDS + 40, member)
            commit_all(member, acknowledged)
            assert coordinator_of(cluster, topic) != killed
        finally:
            cluster.start(killed)
            cluster.await_full_isrs()
    assert acknowledged == dict.fromkeys(range(PARTITIONS), (RECORDS + 40) // PARTITIONS)
    with members(Member(cluster.bootstrap, topic, topic)) as (later,):
        wanted = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        found = later.consumer.committed(wanted, timeout=PATIENCE_S)
        assert {each.partition: each.offset for each in found} == acknowledged
    with BlockingClient(cluster.bootstrap) as client:
        assert "__consumer_offsets" in client.metadata().topics


def commit_all(member: Member, acknowledged: dict[int, int]) -> None:
    """Commit what was read, again until it is acknowledged; none goes back."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        assert time.monotonic() < deadline
        try:
            told = member.consumer.commit(asynchronous=False)
        except KafkaException:
            member.poll()
            continue
        for each in told:
            assert each.error is None
            if each.offset >= 0:
                assert each.offset >= acknowledged.get(each.partition, 0)
                acknowledged[each.partition] = each.offset
        return
