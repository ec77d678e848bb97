"""AlterReplicaLogDirs (key 34), versions 1 and 2: move replicas between log directories (KIP-113).

Version 2 is flexible.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, int16, int32, string


@dataclass(slots=True)
class AlterReplicaLogDirTopic:
    """The partitions of one topic whose replicas move to a log directory."""

    name: str = string("0+")
    partitions: Sequence[int] = array("int32", "0+")


@dataclass(slots=True)
class AlterReplicaLogDir:
    """The replicas to move to the log directory with the absolute path `path`."""

    path: str = string("0+")
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic, "0+")


@dataclass(slots=True)
class AlterReplicaLogDirsRequest:
    """The request to move replicas of the receiving broker between its log directories."""

    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir, "0+")


@dataclass(slots=True)
class AlterReplicaLogDirPartitionResult:
    """The outcome of the request to move one replica."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@dataclass(slots=True)
class AlterReplicaLogDirTopicResult:
    """The outcomes of the requests to move one topic's replicas."""

    topic_name: str = string("0+")
    partitions: list[AlterReplicaLogDirPartitionResult] = array(
        AlterReplicaLogDirPartitionResult, "0+"
    )


@dataclass(slots=True)
class AlterReplicaLogDirsResponse:
    """The outcomes of log directory moves, one per requested partition."""

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
