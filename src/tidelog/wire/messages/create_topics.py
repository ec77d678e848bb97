"""CreateTopics (key 19), versions 2 to 7: create topics.

Version 4 takes -1 for the cluster's default partitions and replication factor (KIP-464). Version 5
is flexible and returns the resulting configuration (KIP-525). Version 6 may respond with
THROTTLING_QUOTA_EXCEEDED (KIP-599); version 7 returns topic ids.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, boolean, int8, int16, int32, string, uuid


@dataclass(slots=True)
class CreatableReplicaAssignment:
    """The requested replicas of one partition of a new topic."""

    partition_index: int = int32("0+")
    broker_ids: Sequence[int] = array("int32", "0+")


@dataclass(slots=True)
class CreatableTopicConfig:
    """One configuration of a new topic."""

    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")


@dataclass(slots=True)
class CreatableTopic:
    """A topic to create; with `assignments`, `num_partitions` and `replication_factor` are -1."""

    name: str = string("0+")
    num_partitions: int = int32("0+")
    replication_factor: int = int16("0+")
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment, "0+")
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig, "0+")


@dataclass(slots=True)
class CreateTopicsRequest:
    """The request to create topics; with `validate_only` it is only checked."""

    topics: list[CreatableTopic] = array(CreatableTopic, "0+")
    timeout_ms: int = int32("0+", 60000)
    validate_only: bool = boolean("1+")


@dataclass(slots=True)
class CreatableTopicConfigs:
    """One resulting configuration of a new topic, and its source."""

    name: str = string("5+")
    value: str | None = string("5+", nullable="5+")
    read_only: bool = boolean("5+")
    config_source: int = int8("5+", -1, ignorable=True)
    is_sensitive: bool = boolean("5+")


@dataclass(slots=True)
class CreatableTopicResult:
    """The outcome of creating one topic."""

    name: str = string("0+")
    topic_id: bytes = uuid("7+", ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = string("1+", None, nullable="0+", ignorable=True)
    topic_config_error_code: int = int16("5+", tag=0, ignorable=True)
    num_partitions: int = int32("5+", -1, ignorable=True)
    replication_factor: int = int16("5+", -1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = array(
        CreatableTopicConfigs, "5+", nullable="5+", ignorable=True
    )


@dataclass(slots=True)
class CreateTopicsResponse:
    """The outcomes of creating topics, one per requested topic."""

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult, "0+")


API = Api(
    key=19,
    name="CreateTopics",
    request=CreateTopicsRequest,
    response=CreateTopicsResponse,
    min_version=2,
    max_version=7,
    first_flexible_version=5,
)
