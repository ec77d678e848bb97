"""StopReplica (key 5), versions 3 and 4: the controller removes replicas from a broker.

Kafka 3.9 sends version 4 without negotiation. Version 3 carries the leader epoch and the deletion
flag of each partition (KIP-570), version 4 the flag of KRaft controllers (KIP-866). Both versions
are flexible.
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, boolean, int16, int32, int64, string


@dataclass(slots=True)
class StopReplicaPartitionState:
    """A replica to stop; `leader_epoch` -2 stops it in any epoch (topic deletion)."""

    partition_index: int = int32("3+")
    leader_epoch: int = int32("3+", -1)
    delete_partition: bool = boolean("3+")


@dataclass(slots=True)
class StopReplicaTopicState:
    """The replicas of one topic to stop."""

    topic_name: str = string("3+")
    partition_states: list[StopReplicaPartitionState] = array(StopReplicaPartitionState, "3+")


@dataclass(slots=True)
class StopReplicaRequest:
    """The controller's command to stop replicas, fenced by controller and broker epochs."""

    controller_id: int = int32("0+")
    is_kraft_controller: bool = boolean("4+")
    controller_epoch: int = int32("0+")
    broker_epoch: int = int64("1+", -1, ignorable=True)
    topic_states: list[StopReplicaTopicState] = array(StopReplicaTopicState, "3+")


@dataclass(slots=True)
class StopReplicaPartitionError:
    """The outcome of stopping one replica."""

    topic_name: str = string("0+")
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@dataclass(slots=True)
class StopReplicaResponse:
    """The outcomes of stopping replicas, by topic name."""

    error_code: int = int16("0+")
    partition_errors: list[StopReplicaPartitionError] = array(StopReplicaPartitionError, "0+")


API = Api(
    key=5,
    name="StopReplica",
    request=StopReplicaRequest,
    response=StopReplicaResponse,
    min_version=3,
    max_version=4,
    first_flexible_version=2,
    inter_broker=True,
)
