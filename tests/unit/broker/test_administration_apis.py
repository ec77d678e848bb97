"""Handlers that tell of topics and directories, protect internal topics, and make topics."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.broker.fakes import (
    CONNECTION,
    FakeBroker,
    FakeConnection,
    a_cluster,
    settle,
    state,
)

from tidelog.broker.apis import describe_topic_partitions, find_coordinator, metadata, produce
from tidelog.broker.cluster_view import PartitionView, TopicView
from tidelog.broker.configs.config_requests import entity_of
from tidelog.broker.membership.auto_creation import AutoCreation
from tidelog.broker.server.requests import Pending, Request
from tidelog.core.errors import ConnectionLost, ErrorCode, KafkaError
from tidelog.core.names import CONSUMER_OFFSETS
from tidelog.wire.codec import RequestHeader
from tidelog.wire.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.wire.registry import CREATE_TOPICS


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


def request(message: Any, key: int, version: int, client_id: str | None = None) -> Any:
    return Request(RequestHeader(key, version, 0, client_id), message, CONNECTION, 0)


async def answered(pending: Any) -> Any:
    if not isinstance(pending, Pending):
        return pending
    got: list[Any] = []
    pending.deliver_to(got.append)
    await settle()
    [answer] = got
    return answer


def see_topics(broker: FakeBroker, **partitions: int) -> None:
    """The broker knows topics with so many partitions, led by broker 1."""
    broker.see(1, 2)
    for name, count in partitions.items():
        topic = TopicView(name, name.encode().ljust(16, b"\0"))
        for number in range(count):
            topic.partitions[number] = PartitionView(1, 4, (1, 2), (1,), (2,), 0)
        broker.view.topics[name] = topic


class TestDescribeTopicPartitions:
    def page(
        self,
        broker: FakeBroker,
        *names: str,
        limit: int = 2000,
        cursor: tuple[str, int] | None = None,
    ) -> DescribeTopicPartitionsResponse:
        message = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name) for name in names],
            response_partition_limit=limit,
            cursor=None if cursor is None else Cursor(*cursor),
        )
        return describe_topic_partitions.handle(broker, request(message, 75, 0))  # type: ignore[arg-type]  # a fake stands in

    def told(self, response: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
        return [
            (topic.name, [one.partition_index for one in topic.partitions])
            for topic in response.topics
        ]

    def test_all_topics_in_the_order_of_their_names(self) -> None:
        async def story() -> None:
            broker = a_cluster(1)[1]
            see_topics(broker, b=1, a=2, __consumer_offsets=1)
            response = self.page(broker)
            assert self.told(response) == [("__consumer_offsets", [0]), ("a", [0, 1]), ("b", [0])]
            assert [one.is_internal for one in response.topics] == [True, False, False]
            assert response.next_cursor is None
            one = response.topics[1].partitions[0]
            assert (one.leader_id, one.leader_epoch, one.error_code) == (1, 4, ErrorCode.NONE)
            assert (one.replica_nodes, one.isr_nodes) == ((1, 2), (1,))
            assert one.offline_replicas == (2,)
            # Java's admin client has no way of reading null here.
            assert (one.eligible_leader_replicas, one.last_known_elr) == ((), ())

        run(story())

    def test_pages_follow_each_other_without_gap_or_overlap(self) -> None:
        async def story() -> None:
            broker = a_cluster(1)[1]
            see_topics(broker, a=3, b=1, c=4)
            for limit in range(1, 10):
                seen: list[tuple[str | None, int]] = []
                cursor: tuple[str, int] | None = None
                while True:
                    response = self.page(broker, limit=limit, cursor=cursor)
                    page = [(name, one) for name, many in self.told(response) for one in many]
                    assert 0 < len(page) <= limit
                    seen += page
                    if response.next_cursor is None:
                        break
                    cursor = (response.next_cursor.topic_name, response.next_cursor.partition_index)
                assert seen == [
                    *(("a", number) for number in range(3)),
                    ("b", 0),
                    *(("c", number) for number in range(4)),
                ]

        run(story())

    def test_the_brokers_own_limit_counts_too(self) -> None:
        async def story() -> None:
            broker = a_cluster(1, max_request_partition_size_limit="2")[1]
            see_topics(broker, a=3)
            response = self.page(broker)
            assert self.told(response) == [("a", [0, 1])]
            assert response.next_cursor == Cursor("a", 2)
            assert self.told(self.page(broker, limit=-5)) == [("a", [0])]

        run(story())

    def test_a_cursor_into_a_topic_that_is_gone_goes_on_behind_it(self) -> None:
        async def story() -> None:
            broker = a_cluster(1)[1]
            see_topics(broker, a=1, c=2)
            assert self.told(self.page(broker, cursor=("b", 7))) == [("c", [0, 1])]
            assert self.told(self.page(broker, cursor=("c", -3))) == [("c", [0, 1])]

        run(story())

    def test_topics_that_are_not_there_say_so(self) -> None:
        async def story() -> None:
            broker = a_cluster(1)[1]
            see_topics(broker, a=1)
            response = self.page(broker, "nobody", "a", "not/a/name", "a")
            assert [(one.name, one.error_code) for one in response.topics] == [
                ("a", ErrorCode.NONE),
                ("nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                ("not/a/name", ErrorCode.INVALID_TOPIC_EXCEPTION),
            ]

        run(story())

    def test_a_leader_that_is_not_alive_is_none(self) -> None:
        async def story() -> None:
            broker = a_cluster(1)[1]
            see_topics(broker, a=1)
            broker.see(2)
            [topic] = self.page(broker).topics
            one = topic.partitions[0]
            assert (one.leader_id, one.error_code) == (-1, ErrorCode.LEADER_NOT_AVAILABLE)

        run(story())


class TestInternalTopics:
    @pytest.mark.parametrize(
        ("client_id", "error"),
        [
            (None, ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("rdkafka", ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("__admin_client", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ],
    )
    @pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
    def test_only_the_admin_client_may_produce_to_them(
        self, topic: str, client_id: str | None, error: ErrorCode
    ) -> None:
        async def story() -> None:
            broker = a_cluster(1)[1]
            data = PartitionProduceData(0, memoryview(b"r"))
            message = ProduceRequest(acks=-1, topic_data=[TopicProduceData(topic, [data])])
            answer = await answered(produce.handle(broker, request(message, 0, 9, client_id)))  # type: ignore[arg-type]  # a fake stands in
            [one] = answer.responses[0].partition_responses
            assert one.error_code == error

        run(story())

    def test_other_topics_of_the_request_are_none_the_worse(self) -> None:
        async def story() -> None:
            cluster = a_cluster(1)
            await cluster[1].command(state(isr=(1,), replicas=(1,), is_new=True))
            broker: Any = cluster[1]
            topics = [
                TopicProduceData(name, [PartitionProduceData(0, memoryview(b"r"))])
                for name in (CONSUMER_OFFSETS, "t")
            ]
            message = ProduceRequest(acks=1, topic_data=topics)
            begun = produce.handle(broker, request(message, 0, 9))
            broker.appends.submit()
            answer = await answered(begun)
            codes = [one.partition_responses[0].error_code for one in answer.responses]
            assert codes == [ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.NONE]

        run(story())


class TestEntities:
    def refusal(self, kind: int, name: str) -> KafkaError:
        services: Any = SimpleNamespace(broker_id=1, view=SimpleNamespace(topics={"t": None}))
        with pytest.raises(KafkaError) as caught:
            entity_of(services, kind, name)
        return caught.value

    @pytest.mark.parametrize(
        ("kind", "name", "entity"),
        [
            (2, "t", ("topics", "t")),
            (4, "1", ("brokers", "1")),
            (4, "", ("brokers", "<default>")),
        ],
    )
    def test_topics_this_broker_and_all_brokers(
        self, kind: int, name: str, entity: tuple[str, str]
    ) -> None:
        services: Any = SimpleNamespace(broker_id=1, view=SimpleNamespace(topics={"t": None}))
        assert entity_of(services, kind, name) == entity

    @pytest.mark.parametrize(
        ("kind", "name", "code", "words"),
        [
            (2, "u", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "'u'"),
            (2, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION, "'a/b'"),
            (4, "2", ErrorCode.INVALID_REQUEST, "this is broker 1"),
            (4, "<default>", ErrorCode.INVALID_REQUEST, "leave the name empty"),
            (99, "x", ErrorCode.INVALID_REQUEST, "resource type 99"),
        ],
    )
    def test_anything_else_is_refused(
        self, kind: int, name: str, code: ErrorCode, words: str
    ) -> None:
        error = self.refusal(kind, name)
        assert error.code is code
        assert words in error.message


class ControllerLink:
    """The connection to the controller: keeps what is asked, answers when told."""

    def __init__(self) -> None:
        self.asked: list[CreateTopicsRequest] = []
        self.answers: list[asyncio.Future[Any]] = []

    async def call(self, api_key: int, version: int, message: Any, timeout_ms: int) -> Any:
        assert api_key == CREATE_TOPICS
        self.asked.append(message)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.answers.append(answer)
        return await answer


class TestAutoCreation:
    def made(self, **config: str) -> tuple[Any, AutoCreation, ControllerLink]:
        broker: Any = a_cluster(1, **config)[1]
        link = ControllerLink()
        broker.peers.connection = lambda broker_id, purpose: link
        broker.auto_creation = AutoCreation(broker.services)
        return broker, broker.auto_creation, link

    def test_topics_of_clients_take_the_clusters_defaults(self) -> None:
        async def story() -> None:
            _, creation, link = self.made()
            creation.create(["a", "b", "a"])
            await settle()
            [message] = link.asked
            assert [
                (one.name, one.num_partitions, one.replication_factor, one.configs)
                for one in message.topics
            ] == [("a", -1, -1, []), ("b", -1, -1, [])]

        run(story())

    def test_a_topic_is_asked_for_once_at_a_time(self) -> None:
        async def story() -> None:
            _, creation, link = self.made()
            creation.create(["a"])
            await settle()
            creation.create(["a"])
            creation.create(["a", "b"])
            await settle()
            assert [[one.name for one in it.topics] for it in link.asked] == [["a"], ["b"]]
            link.answers[0].set_result(CreateTopicsResponse())
            await settle()
            creation.create(["a"])
            await settle()
            assert len(link.asked) == 3

        run(story())

    @pytest.mark.parametrize("how", ["refused", "lost", "no controller"])
    def test_what_did_not_work_is_told_and_can_be_asked_for_again(self, how: str) -> None:
        async def story() -> None:
            broker, creation, link = self.made()
            if how == "no controller":

                def unknown(broker_id: int, purpose: str) -> FakeConnection:
                    raise ConnectionLost("no controller is known")

                broker.peers.connection = unknown
            creation.create(["a"])
            await settle()
            if how == "refused":
                refused = CreatableTopicResult(
                    name="a",
                    error_code=ErrorCode.INVALID_REPLICATION_FACTOR,
                    error_message="too few brokers",
                )
                link.answers[0].set_result(CreateTopicsResponse(topics=[refused]))
            elif how == "lost":
                link.answers[0].set_exception(ConnectionLost("gone"))
            await settle()
            assert any(
                "create topics ['a']" in line or "topic a was not" in line
                for line in broker.tracer.lines
            )
            broker.peers.connection = lambda broker_id, purpose: link
            asked = len(link.asked)
            creation.create(["a"])
            await settle()
            assert len(link.asked) == asked + 1
            assert broker.failures == []

        run(story())

    def test_the_topic_of_offsets_has_settings_of_its_own(self) -> None:
        async def story() -> None:
            broker, creation, link = self.made(
                offsets_topic_num_partitions="7",
                offsets_topic_replication_factor="2",
                offsets_topic_segment_bytes="1000",
            )
            assert creation.offsets_topic() is None
            assert creation.offsets_topic() is None
            await settle()
            [message] = link.asked
            [wanted] = message.topics
            assert wanted.name == "__consumer_offsets"
            assert (wanted.num_partitions, wanted.replication_factor) == (7, 2)
            assert {one.name: one.value for one in wanted.configs} == {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": "1000",
            }
            see_topics(broker, __consumer_offsets=7)
            made = creation.offsets_topic()
            assert made is not None and len(made.partitions) == 7

        run(story())

    def test_who_looks_for_a_coordinator_is_told_why_there_is_no_topic_of_offsets(self) -> None:
        async def story() -> None:
            broker, creation, link = self.made()
            asked = request(FindCoordinatorRequest(coordinator_keys=["billing"]), 10, 4)

            def told() -> str | None:
                answer: Any = find_coordinator.handle(broker, asked)
                [found] = answer.coordinators
                assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
                message: str | None = found.error_message
                return message

            too_few = CreatableTopicResult(
                name=CONSUMER_OFFSETS,
                error_code=ErrorCode.INVALID_REPLICATION_FACTOR,
                error_message="3 of 2 brokers",
            )
            assert told() == "__consumer_offsets is being created"
            for answers in range(2):
                await settle()
                link.answers[answers].set_result(CreateTopicsResponse(topics=[too_few]))
                await settle()
                assert told() == "__consumer_offsets cannot be created yet: 3 of 2 brokers"
            assert len([line for line in broker.tracer.lines if "3 of 2 brokers" in line]) == 1
            await settle()
            there = CreatableTopicResult(name=CONSUMER_OFFSETS, error_code=ErrorCode.NONE)
            link.answers[2].set_result(CreateTopicsResponse(topics=[there]))
            await settle()
            assert creation.no_offsets_topic == ""

        run(story())

    def test_metadata_makes_what_is_missing_where_it_may(self) -> None:
        async def story() -> None:
            broker, _, link = self.made()
            broker.cluster_id = "c"
            asked = [MetadataRequestTopic(name=name) for name in ("new", CONSUMER_OFFSETS)]
            message = MetadataRequest(topics=asked, allow_auto_topic_creation=True)
            response: Any = metadata.handle(broker, request(message, 3, 9))
            codes = [one.error_code for one in response.topics]
            assert codes == [ErrorCode.LEADER_NOT_AVAILABLE] * 2
            await settle()
            [sent] = link.asked
            assert [one.num_partitions for one in sent.topics] == [-1, 50]

        run(story())

    def test_metadata_tells_internal_topics(self) -> None:
        async def story() -> None:
            broker, _, _ = self.made()
            broker.cluster_id = "c"
            see_topics(broker, a=1, __consumer_offsets=1, __transaction_state=1)
            response: Any = metadata.handle(broker, request(MetadataRequest(topics=None), 3, 9))
            assert {one.name: one.is_internal for one in response.topics} == {
                "__consumer_offsets": True,
                "__transaction_state": True,
                "a": False,
            }

        run(story())
