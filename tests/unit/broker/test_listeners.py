"""Answers name brokers by their endpoints of the listener that accepted the connection."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.broker.fakes import (
    TOPIC,
    TOPIC_ID,
    FakeBroker,
    FakeClock,
    a_cluster,
)

from tidelog.broker.apis import (
    describe_cluster,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    metadata,
    produce,
)
from tidelog.broker.cluster_view import PartitionView, TopicView
from tidelog.broker.membership.auto_creation import AutoCreation
from tidelog.broker.peers import Peers
from tidelog.broker.server.admission import Admission
from tidelog.broker.server.broker_claims import Members
from tidelog.broker.server.requests import Request
from tidelog.broker.server.server import Server
from tidelog.core.errors import ConnectionLost, ErrorCode
from tidelog.core.names import CONSUMER_OFFSETS
from tidelog.core.types import BrokerInfo, Endpoint
from tidelog.wire.codec import RequestHeader
from tidelog.wire.messages.describe_cluster import DescribeClusterRequest
from tidelog.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

#: What clients of a listener see of brokers 1 and 2; broker 3 has the internal listener alone.
SEEN = {
    "INTERNAL": {1: ("in-1", 9091), 2: ("in-2", 9092), 3: ("in-3", 9093)},
    "EXTERNAL": {1: ("out-1", 19091), 2: ("out-2", 19092)},
    "OTHER": {},
}
LISTENERS = pytest.mark.parametrize("listener", list(SEEN))


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


def request(listener: str, message: Any, key: int, version: int) -> Request[Any]:
    connection: Any = SimpleNamespace(listener=listener, peer="client:1", is_broker=False)
    return Request(RequestHeader(key, version, 0, "client"), message, connection, 0)


def led_by(*leaders: int) -> dict[int, PartitionView]:
    return {
        number: PartitionView(leader, 4, (1, 2, 3), (1, 2, 3), (), 0)
        for number, leader in enumerate(leaders)
    }


def a_broker() -> Any:
    """Broker 1, which leads nothing; brokers 2 and 3 lead a partition of the topic each."""
    broker: Any = FakeBroker(1, {}, FakeClock(), offsets_topic_num_partitions="1")
    broker.cluster_id = "c"
    broker.auto_creation = AutoCreation(broker.services)
    broker.replicas.missing_replica_error = lambda _: ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.view.controller_id = 3
    broker.view.brokers = {
        number: BrokerInfo(
            number,
            -1,
            tuple(
                Endpoint(listener, *seen[number])
                for listener, seen in SEEN.items()
                if number in seen
            ),
        )
        for number in (3, 1, 2)
    }
    broker.view.topics = {
        TOPIC: TopicView(TOPIC, TOPIC_ID, led_by(2, 3)),
        CONSUMER_OFFSETS: TopicView(CONSUMER_OFFSETS, b"O" * 16, led_by(2)),
    }
    broker.view._names[TOPIC_ID] = TOPIC
    return broker


@LISTENERS
def test_metadata_names_the_brokers_that_have_the_listener(listener: str) -> None:
    async def scenario() -> None:
        message = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
        answer: Any = metadata.handle(a_broker(), request(listener, message, 3, 9))
        found = {one.node_id: (one.host, one.port) for one in answer.brokers}
        assert found == SEEN[listener]
        assert list(found) == sorted(found)
        assert answer.controller_id == 3

    run(scenario())


@pytest.mark.parametrize(
    ("version", "error"),
    [(5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)],
)
def test_a_leader_without_the_listener_is_told_apart_from_a_dead_one(
    version: int, error: ErrorCode
) -> None:
    async def scenario() -> None:
        broker = a_broker()
        broker.view.topics[TOPIC].partitions = led_by(2, 3, 4, -1)
        message = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
        answer: Any = metadata.handle(broker, request("EXTERNAL", message, 3, version))
        found = [(one.leader_id, one.error_code) for one in answer.topics[0].partitions]
        missing = (-1, ErrorCode.LEADER_NOT_AVAILABLE)
        assert found == [(2, ErrorCode.NONE), (-1, error), missing, missing]

    run(scenario())


@LISTENERS
def test_describe_cluster_names_a_controller_only_where_it_can_be_reached(listener: str) -> None:
    async def scenario() -> None:
        asked = request(listener, DescribeClusterRequest(), 60, 1)
        answer = describe_cluster.handle(a_broker(), asked)
        found = {one.broker_id: (one.host, one.port) for one in answer.brokers}
        assert found == SEEN[listener]
        assert answer.controller_id == (3 if 3 in found else -1)

    run(scenario())


@LISTENERS
def test_a_coordinator_is_named_by_its_endpoint_of_the_listener(listener: str) -> None:
    async def scenario() -> None:
        message = FindCoordinatorRequest(coordinator_keys=["group"])
        answer: Any = find_coordinator.handle(a_broker(), request(listener, message, 10, 4))
        found = answer.coordinators[0]
        if 2 in SEEN[listener]:
            assert (found.node_id, found.host, found.port) == (2, *SEEN[listener][2])
        else:
            assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert "broker 2, which has no listener OTHER" in str(found.error_message)

    run(scenario())


@LISTENERS
def test_partitions_page_by_page_have_the_leaders_of_the_listener(listener: str) -> None:
    async def scenario() -> None:
        message = DescribeTopicPartitionsRequest([TopicRequest(TOPIC)])
        answer = describe_topic_partitions.handle(a_broker(), request(listener, message, 75, 0))
        found = [one.leader_id for one in answer.topics[0].partitions]
        assert found == [each if each in SEEN[listener] else -1 for each in (2, 3)]

    run(scenario())


@LISTENERS
def test_hints_of_produce_and_fetch_name_leaders_at_the_listener(listener: str) -> None:
    async def scenario() -> None:
        data = [PartitionProduceData(number, memoryview(b"x")) for number in (0, 1)]
        produced: Any = produce.handle(
            a_broker(),
            request(
                listener, ProduceRequest(acks=1, topic_data=[TopicProduceData(TOPIC, data)]), 0, 10
            ),
        )
        wanted = [FetchPartition(partition=number, fetch_offset=0) for number in (0, 1)]
        message = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1000,
            session_epoch=-1,
            topics=[FetchTopic(topic_id=TOPIC_ID, partitions=wanted)],
        )
        fetched: Any = fetch.handle(a_broker(), request(listener, message, 1, 16))
        leaders = [
            one.current_leader.leader_id
            for one in (
                *produced.responses[0].partition_responses,
                *fetched.responses[0].partitions,
            )
        ]
        assert leaders == [2, 3, 2, 3]
        for response in (produced, fetched):
            found = {one.node_id: (one.host, one.port) for one in response.node_endpoints}
            assert found == {
                number: place for number, place in SEEN[listener].items() if number != 1
            }

    run(scenario())


def test_a_connection_has_the_name_of_the_listener_that_accepted_it() -> None:
    async def scenario() -> None:
        broker: Any = a_cluster(1)[1]
        services = broker.services
        fence, timers = services.fence, services.timers
        admission = Admission(
            fence, timers, has_view=lambda: True, is_inter_broker=broker.dispatcher.is_inter_broker
        )
        admission.is_serving = True
        server = Server(
            services.config,
            lambda: services.config.max_connections,
            SimpleNamespace(clock=broker.clock, tracer=broker.tracer),  # type: ignore[arg-type]  # a fake
            timers,
            fence,
            admission,
            broker.dispatcher,
            broker.submit_appends,
            services.responses,
            Members(lambda _: False, lambda _, __: False, lambda _: False),
            services.metrics,
        )
        transport: Any = SimpleNamespace(peer="client:1")
        connection: Any = server.accept("EXTERNAL", transport)
        assert (connection.listener, connection.serves_own) == ("EXTERNAL", False)
        connection = server.accept("PLAINTEXT", transport)
        assert (connection.listener, connection.serves_own) == ("PLAINTEXT", True)
        # The limit is dynamic: the value in force at this moment counts, not that of the start.
        services.settings.in_force = replace(services.config, max_connections=2)
        closed: list[str] = []
        transport = SimpleNamespace(peer="client:2", close=closed.append)
        server.accept("EXTERNAL", transport)
        assert closed == ["max.connections=2 reached"]

    run(scenario())


def test_brokers_reach_each_other_by_the_listener_between_brokers() -> None:
    async def scenario() -> None:
        broker: Any = FakeBroker(
            1,
            {},
            FakeClock(),
            listeners="EXTERNAL://out-1:19091,INTERNAL://in-1:9091",
            listener_security_protocol_map="EXTERNAL:PLAINTEXT,INTERNAL:PLAINTEXT",
            inter_broker_listener_name="INTERNAL",
        )
        ends = (Endpoint("EXTERNAL", "out-2", 19092), Endpoint("INTERNAL", "in-2", 9092))
        broker.view.brokers = {2: BrokerInfo(2, -1, ends), 3: BrokerInfo(3, -1, ends[:1])}
        peers = Peers(1, broker.ports, broker.tasks, broker.timers, broker.view, "INTERNAL")
        assert peers.connection(2, "test").address == "in-2:9092"
        with pytest.raises(ConnectionLost):
            peers.connection(3, "test")

    run(scenario())
