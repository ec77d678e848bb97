"""A sensible request for each API that clients use, at each version that is served of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.requests.of_groups import GROUP_REQUESTS
from tests.support.requests.unserved import UNSERVED_REQUESTS

from tidelog.broker.apis import cards
from tidelog.records.builder import NewRecord, build_batch
from tidelog.wire.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from tidelog.wire.messages.alter_strays import DELETE, AlterStraysRequest
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from tidelog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tidelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.wire.messages.describe_cluster import DescribeClusterRequest
from tidelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from tidelog.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from tidelog.wire.messages.describe_metrics import DescribeMetricsRequest
from tidelog.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from tidelog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.incremental_alter_configs import (
    AlterableConfig as IncrementalConfig,
)
from tidelog.wire.messages.incremental_alter_configs import (
    AlterConfigsResource as IncrementalResource,
)
from tidelog.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tidelog.wire.messages.list_strays import ListStraysRequest
from tidelog.wire.messages.mark_log_dirs_bad import MarkLogDirsBadRequest
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tidelog.wire.messages.plan_log_dir_moves import PlanLogDirMovesRequest
from tidelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.wire.messages.remove_partitions import (
    RemovePartitionsRequest,
    RemovePartitionsTopic,
)
from tidelog.wire.registry import (
    ALTER_CONFIGS,
    ALTER_PARTITION_REASSIGNMENTS,
    ALTER_REPLICA_LOG_DIRS,
    ALTER_STRAYS,
    API_VERSIONS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_METRICS,
    DESCRIBE_TOPIC_PARTITIONS,
    ELECT_LEADERS,
    FETCH,
    FIND_COORDINATOR,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    LIST_PARTITION_REASSIGNMENTS,
    LIST_STRAYS,
    MARK_LOG_DIRS_BAD,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    PLAN_LOG_DIR_MOVES,
    PRODUCE,
    REMOVE_PARTITIONS,
)

CLIENT_APIS = [
    PRODUCE,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    FIND_COORDINATOR,
    API_VERSIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    INIT_PRODUCER_ID,
    OFFSET_FOR_LEADER_EPOCH,
    DESCRIBE_CLUSTER,
    DELETE_RECORDS,
    DESCRIBE_CONFIGS,
    ALTER_CONFIGS,
    ALTER_REPLICA_LOG_DIRS,
    DESCRIBE_LOG_DIRS,
    CREATE_PARTITIONS,
    REMOVE_PARTITIONS,
    ELECT_LEADERS,
    INCREMENTAL_ALTER_CONFIGS,
    DESCRIBE_TOPIC_PARTITIONS,
    ALTER_PARTITION_REASSIGNMENTS,
    LIST_PARTITION_REASSIGNMENTS,
    LIST_STRAYS,
    ALTER_STRAYS,
    MARK_LOG_DIRS_BAD,
    PLAN_LOG_DIR_MOVES,
    DESCRIBE_METRICS,
    *GROUP_REQUESTS,
    *UNSERVED_REQUESTS,
]


def produce_of(records: bytes | bytearray | None, topic: str, partition: int = 0) -> ProduceRequest:
    """One batch for one partition, with acks=all."""
    data = TopicProduceData(topic, [PartitionProduceData(partition, records)])
    return ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[data])


def _produce(version: int, topic: str, topic_id: bytes, partition: int) -> ProduceRequest:
    return produce_of(build_batch([NewRecord(b"k", b"v", 1)]), topic, partition)


def _fetch(version: int, topic: str, topic_id: bytes, partition: int) -> FetchRequest:
    asked = FetchPartition(partition, fetch_offset=0, partition_max_bytes=1 << 20)
    wanted = FetchTopic(topic, topic_id, [asked])
    return FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[wanted])


def _list_offsets(version: int, topic: str, topic_id: bytes, partition: int) -> ListOffsetsRequest:
    # One of those that have a meaning in all versions: a partition may be named once.
    asked = ListOffsetsPartition(partition, timestamp=(-1, -2, 0)[version % 3])
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(topic, [asked])])


def _metadata(version: int, topic: str, topic_id: bytes, partition: int) -> MetadataRequest:
    wanted = [MetadataRequestTopic(name=topic)]
    if version >= 10:
        wanted.append(MetadataRequestTopic(topic_id, None))
    return MetadataRequest(wanted, allow_auto_topic_creation=version < 4)


def _create_topics(
    version: int, topic: str, topic_id: bytes, partition: int
) -> CreateTopicsRequest:
    configs = [CreatableTopicConfig("retention.ms", "1000")]
    made = CreatableTopic(f"made-at-{version}", 1, 1, configs=configs)
    refused = CreatableTopic(f"refused-at-{version}", 1, 99)
    return CreateTopicsRequest([made, refused])


def _delete_topics(
    version: int, topic: str, topic_id: bytes, partition: int
) -> DeleteTopicsRequest:
    names = [f"made-at-{version}", "nowhere"]
    if version < 6:
        return DeleteTopicsRequest(topic_names=names, timeout_ms=5_000)
    return DeleteTopicsRequest([DeleteTopicState(name) for name in names], timeout_ms=5_000)


def _find_coordinator(
    version: int, topic: str, topic_id: bytes, partition: int
) -> FindCoordinatorRequest:
    if version < 4:
        return FindCoordinatorRequest("group")
    return FindCoordinatorRequest(coordinator_keys=["group"])


def _offset_for_leader_epoch(
    version: int, topic: str, topic_id: bytes, partition: int
) -> OffsetForLeaderEpochRequest:
    asked = [OffsetForLeaderPartition(partition, leader_epoch=epoch) for epoch in (0, 99)]
    return OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic, asked)])


def _delete_records(
    version: int, topic: str, topic_id: bytes, partition: int
) -> DeleteRecordsRequest:
    asked = [DeleteRecordsPartition(partition, 0), DeleteRecordsPartition(partition, 1 << 60)]
    return DeleteRecordsRequest([DeleteRecordsTopic(topic, asked)], timeout_ms=5_000)


def _describe_configs(
    version: int, topic: str, topic_id: bytes, partition: int
) -> DescribeConfigsRequest:
    asked = [DescribeConfigsResource(kind, name, None) for kind, name in ((2, topic), (4, "9"))]
    return DescribeConfigsRequest(
        asked, include_synonyms=version >= 1, include_documentation=version >= 3
    )


def _alter_configs(
    version: int, topic: str, topic_id: bytes, partition: int
) -> AlterConfigsRequest:
    """Checked only: the topic stays as it is."""
    wanted = [AlterableConfig("retention.ms", "1000"), AlterableConfig("nonsense", None)]
    resources = [AlterConfigsResource(2, topic, [one]) for one in wanted]
    return AlterConfigsRequest([*resources, AlterConfigsResource(4, "1", [])], validate_only=True)


def _incremental_alter_configs(
    version: int, topic: str, topic_id: bytes, partition: int
) -> IncrementalAlterConfigsRequest:
    wanted = [
        IncrementalConfig("cleanup.policy", operation, None if operation == 1 else "compact")
        for operation in range(4)
    ]
    return IncrementalAlterConfigsRequest(
        [IncrementalResource(2, f"{topic}{n}", [one]) for n, one in enumerate(wanted)]
    )


def _create_partitions(
    version: int, topic: str, topic_id: bytes, partition: int
) -> CreatePartitionsRequest:
    """Refused, and checked only: the topic stays as it is, also when a bit is turned."""
    wanted = [CreatePartitionsTopic(name, 1, None) for name in (topic, "nowhere")]
    return CreatePartitionsRequest(wanted, timeout_ms=5_000, validate_only=True)


def _elect_leaders(
    version: int, topic: str, topic_id: bytes, partition: int
) -> ElectLeadersRequest:
    return ElectLeadersRequest(0, [TopicPartitions(topic, [partition, 99])], timeout_ms=5_000)


def _alter_partition_reassignments(
    version: int, topic: str, topic_id: bytes, partition: int
) -> AlterPartitionReassignmentsRequest:
    """Refused: nothing is there to be left where it was, and nothing is anywhere else."""
    wanted = [ReassignablePartition(partition, None), ReassignablePartition(99, [1])]
    return AlterPartitionReassignmentsRequest(5_000, topics=[ReassignableTopic(topic, wanted)])


_MAKERS: dict[int, Callable[[int, str, bytes, int], Any]] = {
    PRODUCE: _produce,
    FETCH: _fetch,
    LIST_OFFSETS: _list_offsets,
    METADATA: _metadata,
    FIND_COORDINATOR: _find_coordinator,
    API_VERSIONS: lambda *_: ApiVersionsRequest("raw", "1"),
    CREATE_TOPICS: _create_topics,
    DELETE_TOPICS: _delete_topics,
    INIT_PRODUCER_ID: lambda *_: InitProducerIdRequest(None),
    OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    DESCRIBE_CLUSTER: lambda *_: DescribeClusterRequest(),
    DELETE_RECORDS: _delete_records,
    DESCRIBE_CONFIGS: _describe_configs,
    ALTER_CONFIGS: _alter_configs,
    ALTER_REPLICA_LOG_DIRS: lambda version, topic, topic_id, partition: AlterReplicaLogDirsRequest(
        [AlterReplicaLogDir("/nowhere", [AlterReplicaLogDirTopic(topic, [partition])])]
    ),
    DESCRIBE_LOG_DIRS: lambda version, topic, topic_id, partition: DescribeLogDirsRequest(
        [DescribableLogDirTopic(topic, [partition])]
    ),
    CREATE_PARTITIONS: _create_partitions,
    # It has one partition: that many are left.
    REMOVE_PARTITIONS: lambda version, topic, topic_id, partition: RemovePartitionsRequest(
        [RemovePartitionsTopic(topic, 1)], validate_only=True
    ),
    LIST_STRAYS: lambda version, topic, topic_id, partition: ListStraysRequest(),
    ALTER_STRAYS: lambda version, topic, topic_id, partition: AlterStraysRequest(DELETE, []),
    MARK_LOG_DIRS_BAD: lambda *_: MarkLogDirsBadRequest(["/none/of/the/brokers"]),
    PLAN_LOG_DIR_MOVES: lambda *_: PlanLogDirMovesRequest([]),
    DESCRIBE_METRICS: lambda *_: DescribeMetricsRequest(),
    ELECT_LEADERS: _elect_leaders,
    ALTER_PARTITION_REASSIGNMENTS: _alter_partition_reassignments,
    LIST_PARTITION_REASSIGNMENTS: lambda version, topic, topic_id, partition: (
        ListPartitionReassignmentsRequest(
            5_000, [ListPartitionReassignmentsTopics(topic, [partition, 99])]
        )
    ),
    INCREMENTAL_ALTER_CONFIGS: _incremental_alter_configs,
    DESCRIBE_TOPIC_PARTITIONS: lambda version, topic, topic_id, partition: (
        DescribeTopicPartitionsRequest([TopicRequest(topic)])
    ),
}


SERVED = cards()


def versions_of(api_key: int) -> range:
    """The versions served."""
    card = SERVED[api_key]
    return range(card.min_version, card.max_version + 1)


def sensible_request(
    api_key: int, version: int, topic: str, topic_id: bytes, partition: int = 0
) -> Any:
    """A request about a topic (CreateTopics and DeleteTopics: about topics of their own)."""
    if api_key in GROUP_REQUESTS:
        return GROUP_REQUESTS[api_key](version, topic)
    if api_key in UNSERVED_REQUESTS:
        return UNSERVED_REQUESTS[api_key](version, topic)
    return _MAKERS[api_key](version, topic, topic_id, partition)
