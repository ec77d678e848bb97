"""Requests that name very much, or the same thing again and again: answered, and nobody is stopped.

A broker whose loop does not turn for a session timeout ends itself: an answer may cost no more time
the longer the request is than what it names is worth.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.cluster.raw_connections import ask

from tidelog.core.errors import ErrorCode
from tidelog.local import LocalCluster
from tidelog.runtime.blocking import BlockingClient
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from tidelog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tidelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.wire.registry import (
    API_VERSIONS,
    CREATE_PARTITIONS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_OFFSETS,
)

COUNT = 40_000
NAMES = [f"{number:x}" for number in range(COUNT)]
TOPIC = "t"
TOPIC_RESOURCE = 2


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    made = LocalCluster(str(tmp_path_factory.mktemp("long") / "cluster"), 1)
    try:
        made.up()
        with BlockingClient(made.bootstrap) as client:
            client.create_topic(TOPIC, 1, 1)
            client.await_topic(TOPIC, min_isr=1)
        yield made
    finally:
        made.down(timeout_s=5.0)


def asked(cluster: LocalCluster, api_key: int, version: int, message: object) -> Any:
    """The answer; the broker that gave it goes on."""
    answer = ask(cluster, api_key, version, message)
    assert ask(cluster, API_VERSIONS, 0, ApiVersionsRequest()).error_code == ErrorCode.NONE
    return answer


def test_a_resource_that_is_named_again_and_again_is_described_once(cluster: LocalCluster) -> None:
    resources = [DescribeConfigsResource(TOPIC_RESOURCE, TOPIC, None)] * COUNT
    (result,) = asked(cluster, DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources)).results
    assert (result.error_code, result.resource_name) == (ErrorCode.NONE, TOPIC)
    assert result.configs


def test_many_resources_are_refused_one_by_one(cluster: LocalCluster) -> None:
    resources = [AlterConfigsResource(TOPIC_RESOURCE, name, []) for name in NAMES]
    message = IncrementalAlterConfigsRequest(resources=resources)
    responses = asked(cluster, INCREMENTAL_ALTER_CONFIGS, 1, message).responses
    assert [each.resource_name for each in responses] == NAMES
    assert {each.error_code for each in responses} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_a_resource_with_many_keys_is_refused(cluster: LocalCluster) -> None:
    keys = [AlterableConfig(name, 0, "1") for name in NAMES]
    resource = AlterConfigsResource(TOPIC_RESOURCE, TOPIC, keys)
    message = IncrementalAlterConfigsRequest(resources=[resource])
    (response,) = asked(cluster, INCREMENTAL_ALTER_CONFIGS, 1, message).responses
    assert response.error_code == ErrorCode.INVALID_CONFIG


def test_many_topics_are_not_given_partitions_one_by_one(cluster: LocalCluster) -> None:
    topics = [CreatePartitionsTopic(name, 5, None) for name in NAMES]
    message = CreatePartitionsRequest(topics, timeout_ms=1000, validate_only=False)
    results = asked(cluster, CREATE_PARTITIONS, 3, message).results
    assert [each.name for each in results] == NAMES
    assert {each.error_code for each in results} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize("timestamp", [1, -1], ids=["searched", "latest"])
def test_a_partition_that_is_asked_of_again_and_again_is_refused(
    cluster: LocalCluster, timestamp: int
) -> None:
    partitions = [ListOffsetsPartition(0, timestamp=timestamp)] * COUNT
    partitions += [ListOffsetsPartition(1, timestamp=timestamp)]
    message = ListOffsetsRequest(topics=[ListOffsetsTopic(TOPIC, partitions)])
    (topic,) = asked(cluster, LIST_OFFSETS, 7, message).topics
    *repeated, other = topic.partitions
    assert len(repeated) == COUNT
    assert {each.error_code for each in repeated} == {ErrorCode.INVALID_REQUEST}
    assert other.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_many_partitions_are_searched_one_by_one(cluster: LocalCluster) -> None:
    partitions = [ListOffsetsPartition(number, timestamp=1) for number in range(COUNT)]
    message = ListOffsetsRequest(topics=[ListOffsetsTopic(TOPIC, partitions)])
    (topic,) = asked(cluster, LIST_OFFSETS, 7, message).topics
    first, *others = topic.partitions
    assert first.error_code == ErrorCode.NONE
    assert {each.error_code for each in others} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
