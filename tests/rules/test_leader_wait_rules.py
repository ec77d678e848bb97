"""Responses that wait for the next leader of a broker that has just ended (V83)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.broker.fakes import (
    TOPIC,
    TOPIC_ID,
    FakeBroker,
    FakeClock,
    a_cluster,
    state,
)

from tidelog.broker.apis import (
    describe_cluster,
    fetch,
    find_coordinator,
    metadata,
    produce,
    update_metadata,
)
from tidelog.broker.cluster_view import PartitionView, TopicView
from tidelog.broker.ended_brokers import KEPT_MS
from tidelog.broker.server.requests import Pending, Request
from tidelog.core import limits
from tidelog.core.errors import ErrorCode
from tidelog.core.names import CONSUMER_OFFSETS
from tidelog.core.types import BrokerInfo, Endpoint, TopicPartition
from tidelog.wire.codec import RequestHeader
from tidelog.wire.messages.describe_cluster import DescribeClusterRequest
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tidelog.wire.registry import (
    DESCRIBE_CLUSTER,
    FETCH,
    FIND_COORDINATOR,
    METADATA,
    PRODUCE,
    UPDATE_METADATA,
)

MAX_MS = 250
TOPICS = {"moved": b"m" * 16, "other": b"o" * 16, CONSUMER_OFFSETS: b"c" * 16}


def story(tell: Callable[[Any], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test with a broker: 2 leads "moved" and coordinates, 3 leads "other"."""

    def test() -> None:
        async def begin() -> None:
            broker: Any = FakeBroker(1, {}, FakeClock(), offsets_topic_num_partitions="1")
            broker.cluster_id = "c"
            broker.view.controller_id = 3
            broker.view.brokers = {n: info(n) for n in (1, 2, 3)}
            show(broker, moved=2, other=3)
            await tell(broker)

        asyncio.run(begin())

    test.__name__, test.__doc__ = tell.__name__, tell.__doc__
    return test


def info(broker_id: int) -> BrokerInfo:
    return BrokerInfo(broker_id, -1, (Endpoint("PLAINTEXT", "h", broker_id),))


def show(broker: Any, moved: int, other: int) -> None:
    for name, leader in (("moved", moved), ("other", other), (CONSUMER_OFFSETS, moved)):
        partition = PartitionView(leader, 4, (1, 2, 3), (1, 2, 3), (), 0)
        broker.view.topics[name] = TopicView(name, TOPICS[name], {0: partition})


def request(message: Any, key: int, version: int) -> Request[Any]:
    connection: Any = SimpleNamespace(listener="PLAINTEXT", peer="client:1", is_broker=False)
    return Request(RequestHeader(key, version, 0, "client"), message, connection, 0)


def ask(broker: Any, *names: str) -> Any:
    """A Metadata request for these topics; for all of them where none is named."""
    topics = [MetadataRequestTopic(name=name) for name in names] if names else None
    message = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    return metadata.handle(broker, request(message, METADATA, 9))


def find(broker: Any) -> Any:
    message = FindCoordinatorRequest(coordinator_keys=["group"])
    return find_coordinator.handle(broker, request(message, FIND_COORDINATOR, 4))


def update(broker: Any, live: tuple[int, ...], leader: int | None = None) -> None:
    """An UpdateMetadata: the live brokers, and the leader of what broker 2 led."""
    states = []
    if leader is not None:
        for name in ("moved", CONSUMER_OFFSETS):
            state = UpdateMetadataPartitionState(
                partition_index=0, leader=leader, leader_epoch=5, isr=[leader], replicas=[1, 2, 3]
            )
            states.append(UpdateMetadataTopicState(name, TOPICS[name], [state]))
    brokers = [
        UpdateMetadataBroker(n, [UpdateMetadataEndpoint(n, "h", "PLAINTEXT", 0)], None)
        for n in live
    ]
    message = UpdateMetadataRequest(
        controller_id=3,
        controller_epoch=1,
        broker_epoch=broker.broker_epoch,
        type=1,
        live_brokers=brokers,
        topic_states=states,
    )
    answer = update_metadata.handle(broker, request(message, UPDATE_METADATA, 8))
    assert answer.error_code == 0


def leader(response: Any) -> int:
    [topic] = response.topics
    found: int = topic.partitions[0].leader_id
    return found


def now(answer: Any) -> Any:
    """The response of a request that had to be answered at once."""
    assert not isinstance(answer, Pending)
    return answer


def later(answer: Any) -> list[Any]:
    """Where the response of a request appears that must not be answered yet."""
    assert isinstance(answer, Pending)
    assert not answer.done
    found: list[Any] = []
    answer.deliver_to(found.append)
    return found


@pytest.mark.rule("V83")
@story
async def test_no_response_waits_while_nothing_has_ended(broker: Any) -> None:
    assert leader(now(ask(broker, "moved"))) == 2
    assert now(find(broker)).coordinators[0].node_id == 2
    assert len(now(ask(broker)).topics) == 3
    assert len(broker.held_answers) == 0


@pytest.mark.rule("V83")
@story
async def test_a_response_waits_for_the_leader_after_one_that_has_just_ended(broker: Any) -> None:
    broker.held_answers.lost(2)
    waiting = later(ask(broker, "moved"))
    everything = later(ask(broker))
    coordinator = later(find(broker))
    await broker.clock.advance(8)
    assert (waiting, everything, coordinator) == ([], [], [])
    update(broker, (1, 3))  # the live brokers come before the leaders (V17)
    assert (waiting, everything, coordinator) == ([], [], [])
    update(broker, (1, 3), leader=1)
    assert leader(waiting[0]) == 1
    [moved] = [topic for topic in everything[0].topics if topic.name == "moved"]
    assert moved.partitions[0].leader_id == 1
    assert coordinator[0].coordinators[0].node_id == 1
    assert len(broker.held_answers) == 0


@pytest.mark.rule("V83")
@story
async def test_leaders_that_did_not_end_are_named_at_once(broker: Any) -> None:
    broker.held_answers.lost(2)
    assert leader(now(ask(broker, "other"))) == 3
    assert now(ask(broker, "missing")).topics[0].partitions == []
    broker.held_answers.lost(3)
    later(ask(broker, "other"))


@pytest.mark.rule("V83")
@story
async def test_no_response_waits_longer_than_the_limit(broker: Any) -> None:
    broker.held_answers.lost(2)
    await broker.clock.advance(100)
    waiting = later(ask(broker, "moved"))
    began_ms = broker.clock.now_ms
    while not waiting:
        assert broker.clock.now_ms - began_ms < MAX_MS - 100
        await broker.clock.advance(1)
    assert leader(waiting[0]) == 2
    # The next leader is late: another response would wait in vain, too.
    broker.held_answers.lost(2)
    await broker.clock.advance(10)
    assert leader(now(ask(broker, "moved"))) == 2


@pytest.mark.rule("V83")
@story
async def test_further_endings_do_not_add_up(broker: Any) -> None:
    broker.held_answers.lost(2)
    waiting = later(ask(broker, "moved", "other"))
    await broker.clock.advance(200)
    broker.held_answers.lost(3)
    await broker.clock.advance(MAX_MS - 200)
    assert [topic.partitions[0].leader_id for topic in waiting[0].topics] == [2, 3]


@pytest.mark.rule("V83")
@story
async def test_a_broker_that_responds_again_has_not_ended(broker: Any) -> None:
    broker.held_answers.lost(2)
    waiting = later(ask(broker, "moved"))
    broker.held_answers.reached(2)
    assert leader(waiting[0]) == 2
    assert leader(now(ask(broker, "moved"))) == 2


@pytest.mark.rule("V83")
@story
async def test_the_kernel_is_asked_before_a_leader_is_named(broker: Any) -> None:
    broker.held_answers._look = lambda: broker.held_answers.lost(2)
    later(ask(broker, "moved"))


@pytest.mark.rule("V83")
@story
async def test_a_client_that_is_gone_frees_the_place(broker: Any) -> None:
    broker.held_answers.lost(2)
    answer = ask(broker, "moved")
    assert len(broker.held_answers) == 1
    answer.cancel()
    assert len(broker.held_answers) == 0
    await broker.clock.advance(2 * MAX_MS)
    update(broker, (1, 3), leader=1)


@pytest.mark.rule("V83")
@story
async def test_responses_above_the_limits_do_not_wait(broker: Any) -> None:
    broker.held_answers.lost(2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MAX_HELD_ANSWERS", 2)
        patch.setattr(limits, "MAX_HELD_PARTITIONS", 4)
        later(ask(broker))
        assert len(now(ask(broker)).topics) == 3  # six partitions are two too many
        later(ask(broker, "moved"))
        assert leader(now(ask(broker, "moved"))) == 2


@pytest.mark.rule("V83")
@story
async def test_a_broker_that_ended_seconds_ago_stays_where_topics_are_named(broker: Any) -> None:
    update(broker, (1, 3), leader=1)

    def brokers(answer: Any) -> list[int]:
        return [each.node_id for each in now(answer).brokers]

    message = DescribeClusterRequest()
    described = describe_cluster.handle(broker, request(message, DESCRIBE_CLUSTER, 1))
    assert [each.broker_id for each in described.brokers] == [1, 3]
    assert brokers(ask(broker)) == [1, 3]
    assert brokers(ask(broker, "moved")) == [1, 2, 3]
    assert now(ask(broker, "moved")).brokers[1].port == 2
    await broker.clock.advance(KEPT_MS)
    assert brokers(ask(broker, "moved")) == [1, 3]


@pytest.mark.rule("V83")
@story
async def test_a_leader_that_is_kept_in_the_list_is_not_named_as_leader(broker: Any) -> None:
    update(broker, (1, 3))
    await broker.clock.advance(MAX_MS)
    answer = now(ask(broker, "moved"))
    assert [each.node_id for each in answer.brokers] == [1, 2, 3]
    assert leader(answer) == -1


@pytest.mark.rule("V83")
@story
async def test_a_leader_that_was_commanded_is_waited_for_until_it_is_shown(broker: Any) -> None:
    now_ms = broker.clock.monotonic_ms()
    for name in ("moved", CONSUMER_OFFSETS):
        broker.view.leader_commanded(TopicPartition(name, 0), 1, 5, now_ms)
    waiting, coordinator = later(ask(broker, "moved")), later(find(broker))
    everything = later(ask(broker))
    assert leader(now(ask(broker, "other"))) == 3
    update(broker, (1, 2, 3))
    assert (waiting, coordinator, everything) == ([], [], [])
    update(broker, (1, 2, 3), leader=1)
    assert leader(waiting[0]) == 1
    assert coordinator[0].coordinators[0].node_id == 1
    assert len(everything) == 1


@pytest.mark.rule("V83")
@story
async def test_a_commanded_leader_is_waited_for_within_the_limit(broker: Any) -> None:
    moved = TopicPartition("moved", 0)
    broker.view.leader_commanded(moved, 1, 5, broker.clock.monotonic_ms())
    waiting = later(ask(broker, "moved"))
    await broker.clock.advance(MAX_MS)
    assert leader(waiting[0]) == 2
    assert leader(now(ask(broker, "moved"))) == 2


@pytest.mark.rule("V83")
def test_requests_that_end_with_a_leadership_name_the_next_leader() -> None:
    async def tell() -> None:
        broker: Any = a_cluster()[1]
        await broker.command(state(1, is_new=True, leader_epoch=1))
        broker.see(1, 2, 3)
        broker.show(1, 1)
        produced = produce.handle(broker, request(produce_of(b"r"), PRODUCE, 10))
        broker.submit_appends()
        wanted = FetchPartition(partition=0, fetch_offset=0)
        topics = [FetchTopic(topic_id=TOPIC_ID, partitions=[wanted])]
        message = FetchRequest(
            max_wait_ms=500, min_bytes=1, max_bytes=1000, session_epoch=-1, topics=topics
        )
        waiting = later(produced), later(fetch.handle(broker, request(message, FETCH, 16)))
        await broker.command(state(2, leader_epoch=2, partition_epoch=1))
        assert broker.view.partition(TopicPartition(TOPIC, 0)).leader == 1
        found = [
            (response.responses[0], response.node_endpoints) for [response] in map(list, waiting)
        ]
        hints = [
            found[0][0].partition_responses[0].current_leader,
            found[1][0].partitions[0].current_leader,
        ]
        assert [(each.leader_id, each.leader_epoch) for each in hints] == [(2, 2), (2, 2)]
        assert [[each.node_id for each in endpoints] for _, endpoints in found] == [[2], [2]]

    asyncio.run(tell())


@pytest.mark.rule("V37")
@pytest.mark.parametrize("leader", [1, 2], ids=["leads on", "moved"])
def test_the_response_to_a_fetch_of_an_earlier_leader_epoch_has_the_leader_and_its_epoch(
    leader: int,
) -> None:
    """A client that is fenced without a hint backs off for half a second (KIP-951)."""

    async def fenced() -> None:
        broker: Any = a_cluster()[1]
        await broker.command(state(1, is_new=True, leader_epoch=1))
        broker.see(1, 2, 3)
        broker.show(1, 1)

        def ask(version: int) -> Any:
            wanted = FetchPartition(partition=0, fetch_offset=0, current_leader_epoch=1)
            topics = [FetchTopic(topic_id=TOPIC_ID, partitions=[wanted])]
            message = FetchRequest(
                max_wait_ms=500, min_bytes=1, max_bytes=1000, session_epoch=-1, topics=topics
            )
            return fetch.handle(broker, request(message, FETCH, version))

        waiting = later(ask(16))
        await broker.command(state(leader, leader_epoch=2, partition_epoch=1))
        hint = waiting[0].responses[0].partitions[0].current_leader
        assert (hint.leader_id, hint.leader_epoch) == (leader, 2)
        hinted, older = now(ask(16)), now(ask(15))
        [partition] = hinted.responses[0].partitions
        assert partition.error_code == ErrorCode.FENCED_LEADER_EPOCH
        hint = partition.current_leader
        assert (hint.leader_id, hint.leader_epoch) == (leader, 2)
        assert [each.node_id for each in hinted.node_endpoints] == [leader]
        [partition] = older.responses[0].partitions
        assert partition.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert partition.current_leader.leader_id == -1 and not older.node_endpoints

    asyncio.run(fenced())


def produce_of(batch: bytes) -> ProduceRequest:
    data = [PartitionProduceData(0, memoryview(batch))]
    return ProduceRequest(acks=-1, timeout_ms=500, topic_data=[TopicProduceData(TOPIC, data)])
