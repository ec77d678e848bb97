"""Rules of removed partitions on brokers: V71 (replicas of former incarnations, the end of writing,
its report) and G5 (which clients get the request offered)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.broker.connections import FakeBroker, FakeTransport, frame
from tests.support.broker.directory import FakeLog
from tests.support.broker.fakes import (
    T0,
    TOPIC_ID,
    a_cluster,
    errors,
    replicate,
    settle,
    state,
)

from tidelog.broker.apis import api_versions, cards, error_response, handlers
from tidelog.broker.cluster_view import ClusterView
from tidelog.broker.server.connections import Connection
from tidelog.broker.server.dispatch import Dispatcher
from tidelog.broker.server.requests import Request
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import TopicPartition
from tidelog.wire.codec import RequestHeader, encode_request
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.remove_partitions import RemovePartitionsRequest
from tidelog.wire.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tidelog.wire.registry import API_VERSIONS, FIRST_OWN_KEY, REMOVE_PARTITIONS

T = bytes(range(16))


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


# V71: replicas of a former life


@pytest.mark.rule("V71")
@pytest.mark.parametrize(("leader", "is_new"), [(1, True), (2, True), (1, False)])
def test_a_replica_of_the_removed_partition_is_set_aside(leader: int, is_new: bool) -> None:
    """Its broker was away when the partition was removed, and is back when it is there again."""

    async def story() -> None:
        broker = a_cluster()[2]
        broker.directory.logs[T0] = old = FakeLog(T0, TOPIC_ID)
        old.fill(0, 0, 1)
        await broker.open_replicas()
        isr = (1, 2, 3) if is_new else (1, 3)
        role = state(leader, isr=isr, is_new=is_new, leader_epoch=3, first_leader_epoch=3)
        assert errors(await broker.command(role, full=True)) == [0]
        assert broker.directory.set_aside_logs == [T0]
        assert broker.log().log_end_offset == 0
        await broker.tasks.close()

    run(story())


@pytest.mark.rule("V71", "D3")
def test_a_replica_of_the_removed_partition_does_not_stand_in_for_a_lost_one() -> None:
    async def story() -> None:
        broker = a_cluster()[2]
        broker.directory.logs[T0] = old = FakeLog(T0, TOPIC_ID)
        old.fill(0, 0, 1)
        await broker.open_replicas()
        role = state(2, isr=(2, 3), leader_epoch=4, first_leader_epoch=3)
        assert errors(await broker.command(role)) == [ErrorCode.REPLICA_NOT_AVAILABLE]
        assert broker.replicas.get(T0) is None
        await broker.tasks.close()

    run(story())


@pytest.mark.rule("V71")
def test_a_replica_that_had_its_role_before_the_removal_is_set_aside() -> None:
    """The deletion never came to it: its connection was cut all the time."""

    async def story() -> None:
        broker = a_cluster()[1]
        await broker.command(state(isr=(1,), is_new=True))
        broker.produce(5)
        role = state(isr=(1, 2, 3), is_new=True, leader_epoch=2, first_leader_epoch=2)
        assert errors(await broker.command(role)) == [0]
        assert broker.directory.set_aside_logs == [T0]
        assert broker.log().log_end_offset == 0
        await broker.tasks.close()

    run(story())


@pytest.mark.rule("V71")
def test_a_replica_of_the_present_incarnation_stays_however_often_it_is_commanded() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        role = state(isr=(1,), is_new=True, leader_epoch=2, first_leader_epoch=2)
        await broker.command(role)
        broker.produce(5)
        await broker.command(role)
        later = state(isr=(1,), is_new=True, leader_epoch=4, first_leader_epoch=2)
        await broker.command(later)
        assert broker.directory.set_aside_logs == []
        assert broker.log().log_end_offset == 5
        await broker.tasks.close()

    run(story())


@pytest.mark.rule("V71", "V30")
def test_a_late_deletion_of_the_former_life_spares_the_present_one() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        await broker.command(state(is_new=True, leader_epoch=2, first_leader_epoch=2))
        assert await broker.stop(leader_epoch=1) == ErrorCode.FENCED_LEADER_EPOCH
        assert broker.directory.deleted == []
        await broker.tasks.close()

    run(story())


# V71: the end of writing


@pytest.mark.rule("V71")
def test_a_leader_that_is_to_go_takes_no_more_records_and_is_read_on() -> None:
    async def story() -> None:
        cluster = a_cluster()
        await replicate(cluster)
        leader = cluster[1]
        leader.produce(3)
        await settle()
        await leader.command(state(is_closing=True))
        with pytest.raises(KafkaError) as refused:
            leader.partition().role.append(memoryview(b"x"), -1, 0)
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert "is being removed" in refused.value.message
        assert leader.partition().is_leader
        assert leader.partition().high_watermark == 3
        await leader.command(state())
        leader.produce(1)
        assert leader.log().log_end_offset == 4

    run(story())


# V71: what brokers learn of it


def told(
    leader: int, leader_epoch: int = 0, first_leader_epoch: int = 0, partition: int = 1
) -> UpdateMetadataRequest:
    shown = UpdateMetadataPartitionState(
        partition_index=partition,
        leader=leader,
        leader_epoch=leader_epoch,
        first_leader_epoch=first_leader_epoch,
    )
    return UpdateMetadataRequest(topic_states=[UpdateMetadataTopicState("t", T, [shown])])


@pytest.mark.rule("V71")
def test_a_broker_learns_which_partitions_are_gone_also_when_they_are_there_again() -> None:
    view, gone = ClusterView(), TopicPartition("t", 1)
    view.apply(told(1, partition=0))
    assert view.apply(told(1)) == ({}, {})
    assert view.apply(told(2, leader_epoch=1)) == ({}, {})
    assert view.apply(told(-2)) == ({}, {gone: 0})
    assert view.partition(gone) is None
    assert view.apply(told(1, 3, 3)) == ({}, {})
    assert view.apply(told(2, 4, 3)) == ({}, {})
    # Removed and added again before this broker heard of either.
    assert view.apply(told(1, 6, 6)) == ({}, {gone: 3})
    everything = told(1, partition=0)
    everything.type = 2
    assert view.apply(everything) == ({}, {gone: 6})


# G5


@pytest.mark.rule("G5")
@pytest.mark.parametrize("serves_own", [True, False])
def test_our_own_requests_are_taken_on_the_listener_between_brokers_alone(
    serves_own: bool,
) -> None:
    asked = []

    class Served(FakeBroker):
        def handler(self, api_key: int, version: int) -> Any:
            return lambda request: asked.append(request.header.api_key)

    broker, transport = Served(lambda request: None), FakeTransport()
    connection = Connection(broker, transport, serves_own)  # type: ignore[arg-type]  # a fake
    message = RemovePartitionsRequest()
    parts = encode_request(REMOVE_PARTITIONS, 0, 1, "tester", message)
    connection.frames_received([memoryview(b"".join(bytes(part) for part in parts))[4:]])
    assert asked == ([REMOVE_PARTITIONS] if serves_own else [])
    if serves_own:
        connection.frames_received([frame(2)])
        assert len(asked) == 2


@pytest.mark.rule("G5")
def test_our_own_requests_are_named_on_the_listener_between_brokers_alone() -> None:
    own = [key for key in cards() if key >= FIRST_OWN_KEY]
    assert REMOVE_PARTITIONS in own
    assert [key for key in advertised("tidelog") if key >= FIRST_OWN_KEY] == own
    assert [key for key in advertised("tidelog-sim") if key >= FIRST_OWN_KEY] == own
    assert max(advertised("tidelog", serves_own=False)) < FIRST_OWN_KEY


@pytest.mark.rule("G5")
@pytest.mark.parametrize(
    ("software", "version"),
    [("apache-kafka-java", 4), ("kafka-python", 3), ("kgo", 3), ("tidelogs", 3), ("", 0)],
)
def test_our_own_requests_are_named_to_our_own_clients_alone(software: str, version: int) -> None:
    assert max(advertised(software, version=version)) < FIRST_OWN_KEY


def advertised(software: str, *, version: int = 3, serves_own: bool = True) -> list[int]:
    """The API keys that ApiVersions answers to a client of this name."""

    tasks: Any = None
    dispatcher = Dispatcher(tasks, error_response, lambda where, error: None)
    context: Any = SimpleNamespace(dispatcher=dispatcher)
    dispatcher.serve(handlers(context))
    connection = SimpleNamespace(serves_own=serves_own)
    message = ApiVersionsRequest(software, "1" if software else "")
    header = RequestHeader(API_VERSIONS, version, 1, None)
    request = Request(header, message, connection, 0)
    answer = api_versions.handle(context, request)
    assert answer.error_code == ErrorCode.NONE
    return [each.api_key for each in answer.api_keys]
