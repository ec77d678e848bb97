"""KIP-430: authorized operations are all of a resource's type, where a request asks for them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.broker.coordinator import CoordinatorHarness, told
from tests.support.broker.fakes import a_cluster
from tests.unit.broker.test_administration_apis import request, see_topics

from tidelog.broker.apis import describe_cluster, describe_topic_partitions, metadata
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.describe_cluster import DescribeClusterRequest
from tidelog.wire.messages.describe_groups import DescribeGroupsRequest
from tidelog.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.wire.registry import DESCRIBE_CLUSTER, DESCRIBE_GROUPS, METADATA

NOT_ASKED = -0x80000000
#: By Kafka's codes: 3 READ, 4 WRITE, 5 CREATE, 6 DELETE, 7 ALTER, 8 DESCRIBE, 9 CLUSTER_ACTION,
#: 10 DESCRIBE_CONFIGS, 11 ALTER_CONFIGS, 12 IDEMPOTENT_WRITE.
OF_CLUSTER = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))
OF_TOPIC = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
OF_GROUP = sum(1 << code for code in (3, 6, 8))


def a_broker() -> Any:
    broker: Any = a_cluster(1)[1]
    broker.cluster_id = "cluster"
    see_topics(broker, a=1)
    return broker


@pytest.mark.parametrize("asked", [True, False])
def test_of_the_cluster_and_of_topics_in_metadata(asked: bool) -> None:
    async def story() -> None:
        message = MetadataRequest(
            topics=[MetadataRequestTopic(name="a"), MetadataRequestTopic(name="missing")],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=asked,
            include_topic_authorized_operations=asked,
        )
        answer: Any = metadata.handle(a_broker(), request(message, METADATA, 8))
        assert answer.cluster_authorized_operations == (OF_CLUSTER if asked else NOT_ASKED)
        # Kafka gives them for topics that do not exist, too.
        found = [topic.topic_authorized_operations for topic in answer.topics]
        assert found == [OF_TOPIC if asked else NOT_ASKED] * 2

    asyncio.run(story())


def test_of_all_topics_and_not_of_an_unknown_id() -> None:
    async def story() -> None:
        broker = a_broker()
        message = MetadataRequest(topics=None, include_topic_authorized_operations=True)
        answer: Any = metadata.handle(broker, request(message, METADATA, 12))
        assert [topic.topic_authorized_operations for topic in answer.topics] == [OF_TOPIC]
        assert answer.cluster_authorized_operations == NOT_ASKED
        message.topics = [MetadataRequestTopic(topic_id=b"?" * 16, name=None)]
        unknown_answer: Any = metadata.handle(broker, request(message, METADATA, 12))
        [unknown] = unknown_answer.topics
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert unknown.topic_authorized_operations == NOT_ASKED

    asyncio.run(story())


@pytest.mark.parametrize("asked", [True, False])
def test_of_the_cluster_in_describe_cluster(asked: bool) -> None:
    async def story() -> None:
        message = DescribeClusterRequest(include_cluster_authorized_operations=asked)
        answer = describe_cluster.handle(a_broker(), request(message, DESCRIBE_CLUSTER, 0))
        assert answer.cluster_authorized_operations == (OF_CLUSTER if asked else NOT_ASKED)

    asyncio.run(story())


def test_of_topics_in_describe_topic_partitions_without_being_asked_for() -> None:
    async def story() -> None:
        message = DescribeTopicPartitionsRequest([TopicRequest("a"), TopicRequest("missing")])
        answer = describe_topic_partitions.handle(a_broker(), request(message, 75, 0))
        assert [one.topic_authorized_operations for one in answer.topics] == [OF_TOPIC] * 2

    asyncio.run(story())


@pytest.mark.parametrize("asked", [True, False])
@told
async def test_of_groups_without_an_error(asked: bool) -> None:
    harness = CoordinatorHarness()
    message = DescribeGroupsRequest(["g"], include_authorized_operations=asked)
    [refused] = harness.ask(DESCRIBE_GROUPS, 5, message).groups
    assert refused.error_code != ErrorCode.NONE
    assert refused.authorized_operations == NOT_ASKED
    await harness.lead()
    [found] = harness.ask(DESCRIBE_GROUPS, 5, message).groups
    assert found.error_code == ErrorCode.NONE
    assert found.authorized_operations == (OF_GROUP if asked else NOT_ASKED)
