"""AlterPartitionReassignments (key 45), versions 0 and 1: move partitions to other brokers.

Both are flexible (KIP-455); version 1 can forbid a change of the replication factor (KIP-860).
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.wire.schema import Api, array, boolean, int8, int16, int32, int64, string
from tidelog.wire.structs import dataclass

#: Far from the tags that Kafka assigns, as in LeaderAndIsr.
EXPECTED_TAG = 20_021
QUEUED_TAG = 20_022
FREEZE_TAG = 20_023
THROTTLE_TAG = 20_026
ENDED_TAG = 20_028
#: Values of `throttle`: each move keeps its throttle, or has none. Others are bytes a second.
KEEP_THROTTLE = -1
NO_THROTTLE = 0
#: Values of `freeze`.
NO_FREEZE = 0
FREEZE = 1
UNFREEZE = 2


@dataclass(slots=True)
class EndedTarget:
    """Ours: where a move goes that a cancel ends."""

    replicas: Sequence[int] = array("int32", "0+")


@dataclass(slots=True)
class ReassignablePartition:
    """`replicas` None cancels a reassignment that is under way."""

    partition_index: int = int32("0+")
    replicas: Sequence[int] | None = array("int32", "0+", None, nullable="0+")
    #: Ours (R18): the replicas that the partition must still have; empty where any will do.
    expected_replicas: Sequence[int] = array("int32", "0+", ignorable=True, tag=EXPECTED_TAG)
    #: Ours: a cancel ends moves to these targets alone, under way or queued; empty: to any.
    ended_targets: list[EndedTarget] = array(EndedTarget, "0+", ignorable=True, tag=ENDED_TAG)


@dataclass(slots=True)
class ReassignableTopic:
    """Partitions of one topic."""

    name: str = string("0+")
    partitions: list[ReassignablePartition] = array(ReassignablePartition, "0+")


@dataclass(slots=True)
class AlterPartitionReassignmentsRequest:
    """Each partition is moved or refused on its own."""

    timeout_ms: int = int32("0+", 60000)
    allow_replication_factor_change: bool = boolean("1+", True)
    topics: list[ReassignableTopic] = array(ReassignableTopic, "0+")
    #: Ours (R8): the moves begin one after the other, as the queue's limits allow.
    queued: bool = boolean("0+", ignorable=True, tag=QUEUED_TAG)
    #: Ours (R11): 1 lets no move begin from now on, 2 ends that; names no partitions.
    freeze: int = int8("0+", NO_FREEZE, ignorable=True, tag=FREEZE_TAG)
    #: Ours (R4): bytes a second for each broker that these moves copy from or to; goes with them.
    throttle: int = int64("0+", KEEP_THROTTLE, ignorable=True, tag=THROTTLE_TAG)


@dataclass(slots=True)
class ReassignablePartitionResponse:
    """Whether the move of one partition has begun."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", None, nullable="0+")


@dataclass(slots=True)
class ReassignableTopicResponse:
    """Outcomes of one topic."""

    name: str = string("0+")
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse, "0+")


@dataclass(slots=True)
class AlterPartitionReassignmentsResponse:
    """A top-level error means that nothing was considered."""

    throttle_time_ms: int = int32("0+")
    allow_replication_factor_change: bool = boolean("1+", True, ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = string("0+", None, nullable="0+")
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse, "0+")


API = Api(
    key=45,
    name="AlterPartitionReassignments",
    request=AlterPartitionReassignmentsRequest,
    response=AlterPartitionReassignmentsResponse,
    min_version=0,
    max_version=1,
    first_flexible_version=0,
)
