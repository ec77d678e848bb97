"""Requests that name very much, or the same thing again and again: answered, and nobody is stopped.

A broker whose loop does not turn for a session timeout ends itself: an answer may cost no more time
the longer the request is than what it names is worth.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.cluster.raw_connections import MIB, ask, await_true, request

from tidelog.core.errors import ErrorCode
from tidelog.core.limits import MAX_LISTED_ENTRIES
from tidelog.local import LocalCluster
from tidelog.runtime.blocking import BlockingClient
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from tidelog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tidelog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.wire.messages.offset_fetch import OffsetFetchRequest
from tidelog.wire.registry import (
    API_VERSIONS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DESCRIBE_CONFIGS,
    FIND_COORDINATOR,
    INCREMENTAL_ALTER_CONFIGS,
    JOIN_GROUP,
    LIST_OFFSETS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
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


def has_coordinator(cluster: LocalCluster) -> bool:
    """Whether the coordinator of the group serves it; asking for it creates its topic."""
    ask(cluster, FIND_COORDINATOR, 2, FindCoordinatorRequest("long"))
    answer = ask(cluster, OFFSET_FETCH, 5, OffsetFetchRequest("long", []))
    return bool(answer.error_code == ErrorCode.NONE)


def test_requests_above_1_mib_are_served(cluster: LocalCluster) -> None:
    metadata = "m" * 120
    partitions = [OffsetCommitRequestPartition(0, 1, committed_metadata=metadata)]
    topics = [OffsetCommitRequestTopic(name, partitions) for name in NAMES[:10_000]]
    commit = OffsetCommitRequest("long", topics=topics)
    assert len(request(OFFSET_COMMIT, 7, commit)) > MIB
    await_true(lambda: has_coordinator(cluster), "the coordinator")
    answer = asked(cluster, OFFSET_COMMIT, 7, commit)
    codes = {part.error_code for topic in answer.topics for part in topic.partitions}
    assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}, "each has its own error"
    known = [OffsetCommitRequestTopic(TOPIC, partitions * 10_000)]
    answer = asked(cluster, OFFSET_COMMIT, 7, OffsetCommitRequest("long", topics=known))
    assert {part.error_code for part in answer.topics[0].partitions} == {ErrorCode.NONE}


def test_topics_of_more_than_1_mib_are_checked(cluster: LocalCluster) -> None:
    configs = [CreatableTopicConfig("retention.ms", "1" * 15), CreatableTopicConfig("x" * 200, "1")]
    topics = [CreatableTopic(f"long-{name}", 1, 1, configs=configs) for name in NAMES[:5_000]]
    message = CreateTopicsRequest(topics, timeout_ms=10_000, validate_only=True)
    assert len(request(CREATE_TOPICS, 5, message)) > MIB
    answer = asked(cluster, CREATE_TOPICS, 5, message)
    assert {topic.error_code for topic in answer.topics} == {ErrorCode.INVALID_CONFIG}


def test_a_member_with_very_large_metadata_gets_the_error_of_its_api(cluster: LocalCluster) -> None:
    protocol = JoinGroupRequestProtocol("range", bytes(5 * MIB))
    join = JoinGroupRequest(
        "long", 10_000, 10_000, "", None, "consumer", protocols=[protocol], reason=None
    )
    assert asked(cluster, JOIN_GROUP, 4, join).error_code != ErrorCode.NONE


def test_a_request_that_lists_too_much_is_refused_entry_by_entry(cluster: LocalCluster) -> None:
    count = MAX_LISTED_ENTRIES + 1
    partitions = [ListOffsetsPartition(0, timestamp=-1)] * count
    message = ListOffsetsRequest(topics=[ListOffsetsTopic(TOPIC, partitions)])
    (topic,) = asked(cluster, LIST_OFFSETS, 5, message).topics
    assert len(topic.partitions) == count
    assert {part.error_code for part in topic.partitions} == {ErrorCode.INVALID_REQUEST}
    assert "refusing a ListOffsets request" in cluster.places()[1].last_lines(20)
