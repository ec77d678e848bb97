"""What an answer may be: of the version that was asked, with errors documented for the API.

The lists are those of Kafka's protocol guide and of the comments in its message definitions, as far
as this broker can meet them; UNKNOWN_SERVER_ERROR, which stands for a defect, is in none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from tidelog.core.errors import ErrorCode
from tidelog.wire import codec
from tidelog.wire.registry import API

_COORDINATOR = "COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR"
_GROUP = f"{_COORDINATOR} INVALID_GROUP_ID"
_MEMBER = f"{_GROUP} UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID"
_LEADER = "NOT_LEADER_OR_FOLLOWER UNKNOWN_TOPIC_OR_PARTITION KAFKA_STORAGE_ERROR"
_EPOCH = "FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH"
_CONTROLLER = "NOT_CONTROLLER REQUEST_TIMED_OUT INVALID_REQUEST"
_TOPICS = f"{_CONTROLLER} INVALID_TOPIC_EXCEPTION UNKNOWN_TOPIC_OR_PARTITION POLICY_VIOLATION"
_CONFIGS = "INVALID_CONFIG INVALID_REQUEST INVALID_TOPIC_EXCEPTION UNKNOWN_TOPIC_OR_PARTITION"
_COMMAND = "STALE_CONTROLLER_EPOCH STALE_BROKER_EPOCH INVALID_REQUEST"

#: By the name of the API.
_DOCUMENTED = {
    "Produce": f"{_LEADER} CORRUPT_MESSAGE MESSAGE_TOO_LARGE RECORD_LIST_TOO_LARGE INVALID_RECORD"
    " NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND REQUEST_TIMED_OUT INVALID_REQUIRED_ACKS"
    " OUT_OF_ORDER_SEQUENCE_NUMBER DUPLICATE_SEQUENCE_NUMBER INVALID_PRODUCER_EPOCH"
    " UNKNOWN_PRODUCER_ID INVALID_TIMESTAMP UNSUPPORTED_COMPRESSION_TYPE INVALID_TXN_STATE"
    " INVALID_TOPIC_EXCEPTION UNSUPPORTED_FOR_MESSAGE_FORMAT INVALID_PRODUCER_ID_MAPPING",
    "Fetch": f"{_LEADER} {_EPOCH} OFFSET_OUT_OF_RANGE REPLICA_NOT_AVAILABLE UNKNOWN_TOPIC_ID"
    " INCONSISTENT_TOPIC_ID FETCH_SESSION_ID_NOT_FOUND INVALID_FETCH_SESSION_EPOCH"
    " FETCH_SESSION_TOPIC_ID_ERROR CORRUPT_MESSAGE INVALID_REQUEST STALE_BROKER_EPOCH"
    " OFFSET_NOT_AVAILABLE",
    "ListOffsets": f"{_LEADER} {_EPOCH} LEADER_NOT_AVAILABLE OFFSET_NOT_AVAILABLE INVALID_REQUEST"
    " UNSUPPORTED_FOR_MESSAGE_FORMAT UNSUPPORTED_VERSION",
    "Metadata": "LEADER_NOT_AVAILABLE UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID"
    " INVALID_TOPIC_EXCEPTION INVALID_REQUEST REPLICA_NOT_AVAILABLE LISTENER_NOT_FOUND",
    "LeaderAndIsr": f"{_COMMAND} {_EPOCH} INCONSISTENT_TOPIC_ID KAFKA_STORAGE_ERROR",
    "StopReplica": f"{_COMMAND} FENCED_LEADER_EPOCH UNKNOWN_TOPIC_OR_PARTITION KAFKA_STORAGE_ERROR",
    "UpdateMetadata": _COMMAND,
    "ControlledShutdown": f"{_CONTROLLER} STALE_BROKER_EPOCH BROKER_NOT_AVAILABLE",
    "OffsetCommit": f"{_MEMBER} ILLEGAL_GENERATION REBALANCE_IN_PROGRESS OFFSET_METADATA_TOO_LARGE"
    " INVALID_COMMIT_OFFSET_SIZE UNKNOWN_TOPIC_OR_PARTITION POLICY_VIOLATION REQUEST_TIMED_OUT",
    "OffsetFetch": f"{_GROUP} UNKNOWN_TOPIC_OR_PARTITION UNSTABLE_OFFSET_COMMIT",
    "FindCoordinator": "COORDINATOR_NOT_AVAILABLE INVALID_GROUP_ID INVALID_REQUEST"
    " TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "JoinGroup": f"{_MEMBER} INCONSISTENT_GROUP_PROTOCOL INVALID_SESSION_TIMEOUT"
    " MEMBER_ID_REQUIRED GROUP_MAX_SIZE_REACHED REBALANCE_IN_PROGRESS POLICY_VIOLATION"
    " INVALID_REQUEST UNSUPPORTED_VERSION",
    "Heartbeat": f"{_MEMBER} ILLEGAL_GENERATION REBALANCE_IN_PROGRESS",
    "LeaveGroup": _MEMBER,
    "SyncGroup": f"{_MEMBER} ILLEGAL_GENERATION REBALANCE_IN_PROGRESS INCONSISTENT_GROUP_PROTOCOL",
    "DescribeGroups": f"{_GROUP} GROUP_ID_NOT_FOUND",
    "ListGroups": _COORDINATOR,
    "ApiVersions": "UNSUPPORTED_VERSION INVALID_REQUEST",
    "CreateTopics": f"{_TOPICS} TOPIC_ALREADY_EXISTS INVALID_PARTITIONS INVALID_CONFIG"
    " INVALID_REPLICATION_FACTOR INVALID_REPLICA_ASSIGNMENT",
    "DeleteTopics": f"{_TOPICS} UNKNOWN_TOPIC_ID TOPIC_DELETION_DISABLED",
    "DeleteRecords": f"{_LEADER} OFFSET_OUT_OF_RANGE INVALID_TOPIC_EXCEPTION REQUEST_TIMED_OUT"
    " POLICY_VIOLATION",
    "InitProducerId": "COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR"
    " INVALID_REQUEST INVALID_PRODUCER_EPOCH PRODUCER_FENCED INVALID_TRANSACTION_TIMEOUT"
    " TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "OffsetForLeaderEpoch": f"{_LEADER} {_EPOCH}",
    "DescribeConfigs": _CONFIGS,
    "AlterConfigs": f"{_CONFIGS} REQUEST_TIMED_OUT",
    "DescribeLogDirs": "KAFKA_STORAGE_ERROR",
    "RemovePartitions": f"{_TOPICS} INVALID_PARTITIONS REASSIGNMENT_IN_PROGRESS"
    " INVALID_UPDATE_VERSION",
    "ListStrays": "KAFKA_STORAGE_ERROR",
    "AlterStrays": "INVALID_REQUEST KAFKA_STORAGE_ERROR INCONSISTENT_TOPIC_ID"
    " UNKNOWN_TOPIC_OR_PARTITION INVALID_REPLICA_ASSIGNMENT FENCED_LEADER_EPOCH",
    "RequestCommands": "NOT_CONTROLLER STALE_BROKER_EPOCH",
    "DescribeReplicas": "UNKNOWN_TOPIC_OR_PARTITION LEADER_NOT_AVAILABLE INVALID_TOPIC_EXCEPTION",
    "RelinquishLeadership": "NOT_CONTROLLER STALE_BROKER_EPOCH UNKNOWN_TOPIC_OR_PARTITION"
    " UNKNOWN_TOPIC_ID FENCED_LEADER_EPOCH OPERATION_NOT_ATTEMPTED ELIGIBLE_LEADERS_NOT_AVAILABLE"
    " NOT_LEADER_OR_FOLLOWER",
    "MarkLogDirsBad": "LOG_DIR_NOT_FOUND INVALID_REQUEST",
    "PlanLogDirMoves": "LOG_DIR_NOT_FOUND INVALID_REQUEST",
    "DescribeMetrics": "",
    "GetReplicaLogInfo": "UNKNOWN_TOPIC_OR_PARTITION KAFKA_STORAGE_ERROR",
    "CreatePartitions": f"{_TOPICS} INVALID_PARTITIONS INVALID_REPLICA_ASSIGNMENT"
    " REASSIGNMENT_IN_PROGRESS",
    "DeleteGroups": f"{_GROUP} NON_EMPTY_GROUP GROUP_ID_NOT_FOUND",
    "ElectLeaders": f"{_TOPICS} PREFERRED_LEADER_NOT_AVAILABLE ELIGIBLE_LEADERS_NOT_AVAILABLE"
    " ELECTION_NOT_NEEDED",
    "AlterPartitionReassignments": f"{_TOPICS} INVALID_REPLICA_ASSIGNMENT INVALID_PARTITIONS"
    " INVALID_REPLICATION_FACTOR REASSIGNMENT_IN_PROGRESS NO_REASSIGNMENT_IN_PROGRESS",
    "ListPartitionReassignments": "NOT_CONTROLLER",
    "IncrementalAlterConfigs": f"{_CONFIGS} REQUEST_TIMED_OUT",
    "OffsetDelete": f"{_GROUP} NON_EMPTY_GROUP GROUP_ID_NOT_FOUND GROUP_SUBSCRIBED_TO_TOPIC"
    " UNKNOWN_TOPIC_OR_PARTITION",
    "AlterPartition": "NOT_CONTROLLER STALE_BROKER_EPOCH UNKNOWN_TOPIC_OR_PARTITION"
    " UNKNOWN_TOPIC_ID FENCED_LEADER_EPOCH INVALID_UPDATE_VERSION INVALID_REQUEST"
    " INELIGIBLE_REPLICA NEW_LEADER_ELECTED OPERATION_NOT_ATTEMPTED",
    "DescribeCluster": "INVALID_REQUEST UNSUPPORTED_ENDPOINT_TYPE MISMATCHED_ENDPOINT_TYPE",
    "AllocateProducerIds": "NOT_CONTROLLER STALE_BROKER_EPOCH BROKER_ID_NOT_REGISTERED",
    "SaslHandshake": "ILLEGAL_SASL_STATE",
    "SaslAuthenticate": "ILLEGAL_SASL_STATE",
    "AddPartitionsToTxn": "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "AddOffsetsToTxn": "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "EndTxn": "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "TxnOffsetCommit": "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "DescribeAcls": "SECURITY_DISABLED",
    "CreateAcls": "SECURITY_DISABLED",
    "DeleteAcls": "SECURITY_DISABLED",
    "AlterReplicaLogDirs": "LOG_DIR_NOT_FOUND REPLICA_NOT_AVAILABLE UNSUPPORTED_VERSION",
    "CreateDelegationToken": "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
    "RenewDelegationToken": "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
    "ExpireDelegationToken": "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
    "DescribeDelegationToken": "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
    "DescribeClientQuotas": "",
    "UpdateFeatures": "INVALID_REQUEST",
    "AlterClientQuotas": "UNSUPPORTED_VERSION",
    "DescribeUserScramCredentials": "RESOURCE_NOT_FOUND DUPLICATE_RESOURCE",
    "AlterUserScramCredentials": "RESOURCE_NOT_FOUND UNSUPPORTED_SASL_MECHANISM",
    "DescribeProducers": "UNKNOWN_TOPIC_OR_PARTITION NOT_LEADER_OR_FOLLOWER"
    " INVALID_TOPIC_EXCEPTION",
    "DescribeTransactions": "TRANSACTIONAL_ID_NOT_FOUND",
    "ListTransactions": "",
    "ConsumerGroupHeartbeat": "UNSUPPORTED_VERSION",
    "ConsumerGroupDescribe": "UNSUPPORTED_VERSION",
    "DescribeTopicPartitions": "LEADER_NOT_AVAILABLE UNKNOWN_TOPIC_OR_PARTITION"
    " INVALID_TOPIC_EXCEPTION INVALID_REQUEST",
}
DOCUMENTED = {
    key: frozenset(ErrorCode[name] for name in (*_DOCUMENTED[api.name].split(), "NONE"))
    for key, api in API.items()
}


def errors_in(answer: Any) -> Iterator[int]:
    """Every error code of an answer, at any depth."""
    for field in dataclasses.fields(answer):
        value = getattr(answer, field.name)
        if field.name in ("error_code", "partition_error_code"):
            yield value
        for item in value if isinstance(value, list) else [value]:
            if dataclasses.is_dataclass(item):
                yield from errors_in(item)


def messages_without_error(answer: Any) -> Iterator[str]:
    """Every error message that stands beside the error code NONE, at any depth."""
    if getattr(answer, "error_code", None) == ErrorCode.NONE:
        message = getattr(answer, "error_message", None)
        if message is not None:
            yield message
    for field in dataclasses.fields(answer):
        value = getattr(answer, field.name)
        for item in value if isinstance(value, list) else [value]:
            if dataclasses.is_dataclass(item):
                yield from messages_without_error(item)


def check_answer(header: codec.RequestHeader, message: Any, answer: bytes) -> Any:
    """Raises AssertionError for an answer (a frame without its size) that the request may not
    have; returns it decoded."""
    name = f"{API[header.api_key].name} version {header.api_version}"
    number, decoded = codec.decode_response(header.api_key, header.api_version, memoryview(answer))
    assert number == header.correlation_id, f"{name}: the answer to another request"
    again = b"".join(
        map(bytes, codec.encode_response(header.api_key, header.api_version, number, decoded))
    )
    assert again[4:] == answer, f"{name}: the answer is written otherwise again"
    for error in errors_in(decoded):
        assert error in DOCUMENTED[header.api_key], f"{name}: error {error} of {message}"
    empty = list(messages_without_error(decoded))
    assert not empty, f"{name}: {empty} is the message of no error"
    return decoded
