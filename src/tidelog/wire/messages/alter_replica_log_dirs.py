"""AlterReplicaLogDirs (key 34), versions 1 and 2: move replicas between log directories (KIP-113).

Version 2 is flexible.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.wire.schema import Api, array, int16, int32, string
from tidelog.wire.structs import dataclass


@dataclass(slots=True)
class AlterReplicaLogDirTopic:
    """Partitions of one topic."""

    name: str = string("0+")
    partitions: Sequence[int] = array("int32", "0+")


@dataclass(slots=True)
class AlterReplicaLogDir:
    """The replicas to move to the log directory `path`, which is absolute."""

    path: str = string("0+")
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic, "0+")


@dataclass(slots=True)
class AlterReplicaLogDirsRequest:
    """For the receiving broker only."""

    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir, "0+")


@dataclass(slots=True)
class AlterReplicaLogDirPartitionResult:
    """Whether the move of one replica has begun."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@dataclass(slots=True)
class AlterReplicaLogDirTopicResult:
    """Outcomes of one topic."""

    topic_name: str = string("0+")
    partitions: list[AlterReplicaLogDirPartitionResult] = array(
        AlterReplicaLogDirPartitionResult, "0+"
    )


@dataclass(slots=True)
class AlterReplicaLogDirsResponse:
    """Outcomes, one per requested partition."""

    throttle_time_ms: int = int32("0+")
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult, "0+")


API = Api(
    key=34,
    name="AlterReplicaLogDirs",
    request=AlterReplicaLogDirsRequest,
    response=AlterReplicaLogDirsResponse,
    min_version=1,
    max_version=2,
    first_flexible_version=2,
)
