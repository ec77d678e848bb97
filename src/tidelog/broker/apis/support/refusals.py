"""The answer to a request that failed as a whole, for whatever API: one error for all it asked.

Where an answer has an error of its own, that is set; other APIs tell errors per topic or partition
only, so each one that was asked for gets it. Source: the getErrorResponse of Kafka's requests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidelog.broker.apis.support import unserved
from tidelog.broker.server.requests import Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.alter_configs import AlterConfigsResourceResponse, AlterConfigsResponse
from tidelog.wire.messages.create_partitions import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from tidelog.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from tidelog.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from tidelog.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from tidelog.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tidelog.wire.messages.describe_configs import DescribeConfigsResponse, DescribeConfigsResult
from tidelog.wire.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from tidelog.wire.messages.describe_log_dirs import (
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from tidelog.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
)
from tidelog.wire.messages.elect_leaders import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from tidelog.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tidelog.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from tidelog.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse as IncrementalResourceResponse,
)
from tidelog.wire.messages.incremental_alter_configs import IncrementalAlterConfigsResponse
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.wire.messages.metadata import MetadataResponse, MetadataResponseTopic
from tidelog.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from tidelog.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from tidelog.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from tidelog.wire.messages.remove_partitions import (
    RemovePartitionsResponse,
    RemovePartitionsTopicResult,
)
from tidelog.wire.registry import (
    ALTER_CONFIGS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_GROUPS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_TOPIC_PARTITIONS,
    ELECT_LEADERS,
    FETCH,
    FIND_COORDINATOR,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    REMOVE_PARTITIONS,
)

#: From this version on FindCoordinator asks for many keys.
_COORDINATORS_VERSION = 4
#: From these on the whole answer has an error.
_ELECTION_ERROR_VERSION = 1
_LOG_DIRS_ERROR_VERSION = 3
#: From these on OffsetFetch has an error of the group, and asks for many of them.
_GROUP_ERROR_VERSION = 2
_FETCHED_GROUPS_VERSION = 8


def refusal(request: Request, error: ErrorCode) -> Any:
    """The answer that tells `error`; None for a Produce that wants no answer."""
    api_key = request.header.api_key
    special = _BY_API.get(api_key)
    return unserved.refuse(request, error) if special is None else special(request, error)


def _produce(request: Request, error: ErrorCode) -> ProduceResponse | None:
    if request.message.acks == 0:
        return None
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                topic.name,
                [
                    PartitionProduceResponse(index=data.index, error_code=error, base_offset=-1)
                    for data in topic.partition_data
                ],
            )
            for topic in request.message.topic_data
        ]
    )


def _fetch(request: Request, error: ErrorCode) -> FetchResponse:
    """By partition for versions below 7, which have no other place for it."""
    return FetchResponse(
        error_code=error,
        responses=[
            FetchableTopicResponse(
                topic.topic,
                topic.topic_id,
                [
                    PartitionData(
                        partition_index=wanted.partition,
                        error_code=error,
                        high_watermark=-1,
                        records=b"",
                    )
                    for wanted in topic.partitions
                ],
            )
            for topic in request.message.topics
        ],
    )


def _list_offsets(request: Request, error: ErrorCode) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                topic.name,
                [
                    ListOffsetsPartitionResponse(asked.partition_index, error)
                    for asked in topic.partitions
                ],
            )
            for topic in request.message.topics
        ]
    )


def _offset_for_leader_epoch(request: Request, error: ErrorCode) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic.topic,
                [EpochEndOffset(error, asked.partition) for asked in topic.partitions],
            )
            for topic in request.message.topics
        ]
    )


def _metadata(request: Request, error: ErrorCode) -> MetadataResponse:
    """A request for all topics names none that could carry the error. Versions below 12 have no
    null for the name of a topic that was asked for by id."""
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(error_code=error, name=topic.name or "", topic_id=topic.topic_id)
            for topic in request.message.topics or ()
        ]
    )


def _find_coordinator(request: Request, error: ErrorCode) -> FindCoordinatorResponse:
    if request.header.api_version < _COORDINATORS_VERSION:
        return FindCoordinatorResponse(error_code=error, node_id=-1, host="", port=-1)
    keys = request.message.coordinator_keys
    return FindCoordinatorResponse(
        coordinators=[Coordinator(key, -1, "", -1, error, None) for key in keys]
    )


def _create_topics(request: Request, error: ErrorCode) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=topic.name, error_code=error)
            for topic in request.message.topics
        ]
    )


def _delete_topics(request: Request, error: ErrorCode) -> DeleteTopicsResponse:
    named = [DeleteTopicState(name) for name in request.message.topic_names]
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=error)
            for topic in (*named, *request.message.topics)
        ]
    )


def _delete_records(request: Request, error: ErrorCode) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                topic.name,
                [
                    DeleteRecordsPartitionResult(asked.partition_index, -1, error)
                    for asked in topic.partitions
                ],
            )
            for topic in request.message.topics
        ]
    )


def _create_partitions(request: Request, error: ErrorCode) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[CreatePartitionsTopicResult(topic.name, error) for topic in request.message.topics]
    )


def _remove_partitions(request: Request, error: ErrorCode) -> RemovePartitionsResponse:
    return RemovePartitionsResponse(
        results=[RemovePartitionsTopicResult(topic.name, error) for topic in request.message.topics]
    )


def _elect_leaders(request: Request, error: ErrorCode) -> ElectLeadersResponse:
    """By partition, and as a whole where the version has room."""
    response = ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(
                topic.topic, [PartitionResult(number, error, None) for number in topic.partitions]
            )
            for topic in request.message.topic_partitions or ()
        ]
    )
    if request.header.api_version >= _ELECTION_ERROR_VERSION:
        response.error_code = error
    return response


def _describe_configs(request: Request, error: ErrorCode) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(error, None, one.resource_type, one.resource_name)
            for one in request.message.resources
        ]
    )


def _alter_configs(request: Request, error: ErrorCode) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(error, None, one.resource_type, one.resource_name)
            for one in request.message.resources
        ]
    )


def _incremental_alter_configs(
    request: Request, error: ErrorCode
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[
            IncrementalResourceResponse(error, None, one.resource_type, one.resource_name)
            for one in request.message.resources
        ]
    )


def _describe_log_dirs(request: Request, error: ErrorCode) -> DescribeLogDirsResponse:
    """As a whole where the version has room; before, as that of a directory without a name."""
    if request.header.api_version >= _LOG_DIRS_ERROR_VERSION:
        return DescribeLogDirsResponse(error_code=error)
    return DescribeLogDirsResponse(results=[DescribeLogDirsResult(error_code=error, log_dir="")])


def _describe_topic_partitions(
    request: Request, error: ErrorCode
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(error_code=error, name=topic.name)
            for topic in request.message.topics
        ]
    )


def _offset_commit(request: Request, error: ErrorCode) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                topic.name,
                [
                    OffsetCommitResponsePartition(each.partition_index, error)
                    for each in topic.partitions
                ],
            )
            for topic in request.message.topics
        ]
    )


def _offset_fetch(request: Request, error: ErrorCode) -> OffsetFetchResponse:
    """Version 1 has no error of the whole group."""
    version = request.header.api_version
    if version >= _FETCHED_GROUPS_VERSION:
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(group.group_id, error_code=error)
                for group in request.message.groups
            ]
        )
    topics = [] if version >= _GROUP_ERROR_VERSION else request.message.topics
    return OffsetFetchResponse(
        error_code=error,
        topics=[
            OffsetFetchResponseTopic(
                topic.name,
                [
                    OffsetFetchResponsePartition(index, -1, -1, "", error)
                    for index in topic.partition_indexes
                ],
            )
            for topic in topics
        ],
    )


def _describe_groups(request: Request, error: ErrorCode) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[
            DescribedGroup(error_code=error, group_id=group_id)
            for group_id in request.message.groups
        ]
    )


def _delete_groups(request: Request, error: ErrorCode) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id, error) for group_id in request.message.groups_names]
    )


_BY_API: dict[int, Callable[[Request, ErrorCode], Any]] = {
    PRODUCE: _produce,
    FETCH: _fetch,
    LIST_OFFSETS: _list_offsets,
    METADATA: _metadata,
    FIND_COORDINATOR: _find_coordinator,
    CREATE_TOPICS: _create_topics,
    DELETE_TOPICS: _delete_topics,
    DELETE_RECORDS: _delete_records,
    CREATE_PARTITIONS: _create_partitions,
    REMOVE_PARTITIONS: _remove_partitions,
    ELECT_LEADERS: _elect_leaders,
    DESCRIBE_CONFIGS: _describe_configs,
    ALTER_CONFIGS: _alter_configs,
    INCREMENTAL_ALTER_CONFIGS: _incremental_alter_configs,
    DESCRIBE_LOG_DIRS: _describe_log_dirs,
    DESCRIBE_TOPIC_PARTITIONS: _describe_topic_partitions,
    OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    OFFSET_COMMIT: _offset_commit,
    OFFSET_FETCH: _offset_fetch,
    DESCRIBE_GROUPS: _describe_groups,
    DELETE_GROUPS: _delete_groups,
}
