"""AlterPartitionReassignments (key 45), versions 0 and 1: move partitions to other brokers.

Both versions are flexible (KIP-455). Version 1 can forbid a change of the replication factor
(KIP-860).
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, boolean, int8, int16, int32, int64, string

#: A tag of the fields that only tidelog has, far from the tags that Kafka assigns.
EXPECTED_TAG = 20_021
QUEUED_TAG = 20_022
FREEZE_TAG = 20_023
THROTTLE_TAG = 20_026
ENDED_TAG = 20_028
#: The value of `throttle` with which each reassignment keeps its throttle.
KEEP_THROTTLE = -1
#: The value of `throttle` that removes the throttle of each reassignment.
NO_THROTTLE = 0
#: The value of `freeze` in a request that neither freezes reassignments nor ends a freeze.
NO_FREEZE = 0
#: The value of `freeze` that freezes reassignments, so that no further reassignment begins.
FREEZE = 1
#: The value of `freeze` that ends a freeze.
UNFREEZE = 2


@dataclass(slots=True)
class EndedTarget:
    """The target of a reassignment that a cancel ends, in a field that only tidelog has."""

    replicas: Sequence[int] = array("int32", "0+")


@dataclass(slots=True)
class ReassignablePartition:
    """A partition and its target replicas; null `replicas` cancel its reassignment."""

    partition_index: int = int32("0+")
    replicas: Sequence[int] | None = array("int32", "0+", None, nullable="0+")
    #: tidelog's own field (R18): the replicas that the partition must have now, or the request
    #: fails; if empty, the replicas are not checked.
    expected_replicas: Sequence[int] = array("int32", "0+", ignorable=True, tag=EXPECTED_TAG)
    #: tidelog's own field: a cancel ends only ongoing or queued reassignments to these targets; if
    #: empty, a cancel ends any reassignment.
    ended_targets: list[EndedTarget] = array(EndedTarget, "0+", ignorable=True, tag=ENDED_TAG)


@dataclass(slots=True)
class ReassignableTopic:
    """The partitions of one topic to reassign."""

    name: str = string("0+")
    partitions: list[ReassignablePartition] = array(ReassignablePartition, "0+")


@dataclass(slots=True)
class AlterPartitionReassignmentsRequest:
    """The request to reassign partitions, of which each succeeds or fails separately."""

    timeout_ms: int = int32("0+", 60000)
    allow_replication_factor_change: bool = boolean("1+", True)
    topics: list[ReassignableTopic] = array(ReassignableTopic, "0+")
    #: tidelog's own field (R8): whether the reassignments go to the queue and begin as the queue's
    #: limits allow.
    queued: bool = boolean("0+", ignorable=True, tag=QUEUED_TAG)
    #: tidelog's own field (R11): 1 freezes reassignments, so that none begins, 2 ends the freeze. A
    #: request that freezes reassignments or ends the freeze names no partitions.
    freeze: int = int8("0+", NO_FREEZE, ignorable=True, tag=FREEZE_TAG)
    #: tidelog's own field (R4): the throttle of these reassignments, in bytes per second for each
    #: source and target broker, until they end.
    throttle: int = int64("0+", KEEP_THROTTLE, ignorable=True, tag=THROTTLE_TAG)


@dataclass(slots=True)
class ReassignablePartitionResponse:
    """The outcome of the request to reassign one partition."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", None, nullable="0+")


@dataclass(slots=True)
class ReassignableTopicResponse:
    """The outcomes of the requests to reassign one topic's partitions."""

    name: str = string("0+")
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse, "0+")


@dataclass(slots=True)
class AlterPartitionReassignmentsResponse:
    """The outcomes; after a top-level error, no partition was changed."""

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
