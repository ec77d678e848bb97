"""ListPartitionReassignments (key 46), version 0: the ongoing reassignments (KIP-455).

The only version is flexible.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, boolean, int16, int32, int64, string

#: The first tag of the fields that only tidelog has, far from the tags that Kafka assigns.
ORIGINAL_TAG = 20_020
FROZEN_TAG = 20_022
QUEUED_TAG = 20_023
KNOWS_QUEUE_TAG = 20_024
REQUEST_TAG = 20_025
THROTTLE_TAG = 20_026
PAUSED_TAG = 20_027
WENT_BACK_TAG = 20_028
#: The value of `request_id` if the reassignment has no node `/admin/reassignments/T/P`.
NO_REQUEST = -1


@dataclass(slots=True)
class ListPartitionReassignmentsTopics:
    """The partitions of one topic whose reassignments are listed."""

    name: str = string("0+")
    partition_indexes: Sequence[int] = array("int32", "0+")


@dataclass(slots=True)
class ListPartitionReassignmentsRequest:
    """The partitions whose reassignments are listed; null `topics` mean all."""

    timeout_ms: int = int32("0+", 60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, "0+", None, nullable="0+"
    )


@dataclass(slots=True)
class OngoingPartitionReassignment:
    """A reassignment; `replicas` includes the replicas being added and removed."""

    partition_index: int = int32("0+")
    replicas: Sequence[int] = array("int32", "0+")
    adding_replicas: Sequence[int] = array("int32", "0+")
    removing_replicas: Sequence[int] = array("int32", "0+")
    #: tidelog's own field (R1): the replicas that a cancel restores; empty if they are not
    #: recorded.
    original_replicas: Sequence[int] = array("int32", "0+", ignorable=True, tag=ORIGINAL_TAG)
    #: tidelog's own field (R12): the transaction that created this reassignment's node
    #: `/admin/reassignments/T/P`.
    request_id: int = int64("0+", NO_REQUEST, ignorable=True, tag=REQUEST_TAG)
    #: tidelog's own field (R4): the throttle of the reassignment, in bytes per second; 0 for none.
    throttle: int = int64("0+", ignorable=True, tag=THROTTLE_TAG)
    #: tidelog's own field: why added replicas do not copy now; empty if they copy.
    paused: str = string("0+", ignorable=True, tag=PAUSED_TAG)


@dataclass(slots=True)
class OngoingTopicReassignment:
    """The ongoing reassignments of one topic."""

    name: str = string("0+")
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment, "0+")


@dataclass(slots=True)
class QueuedReassignment:
    """A queued reassignment (R8), and why it waits; the reason is empty if it is about to begin.

    Kafka has no queue of reassignments.
    """

    topic: str = string("0+")
    partition_index: int = int32("0+")
    replicas: Sequence[int] = array("int32", "0+")
    reason: str = string("0+")


@dataclass(slots=True)
class ListPartitionReassignmentsResponse:
    """The ongoing reassignments; other partitions are left out."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", None, nullable="0+")
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment, "0+")
    #: tidelog's own field: whether the controller can queue and freeze reassignments, unlike
    #: Kafka's controller.
    knows_queue: bool = boolean("0+", ignorable=True, tag=KNOWS_QUEUE_TAG)
    #: tidelog's own field (R11): whether reassignments are frozen, so that none begins.
    frozen: bool = boolean("0+", ignorable=True, tag=FROZEN_TAG)
    #: tidelog's own field (R8): the queued reassignments.
    queued: list[QueuedReassignment] = array(
        QueuedReassignment, "0+", ignorable=True, tag=QUEUED_TAG
    )
    #: tidelog's own field (E8): the evidence that the metadata store is older than the logs; empty
    #: without such evidence.
    went_back: str = string("0+", ignorable=True, tag=WENT_BACK_TAG)


API = Api(
    key=46,
    name="ListPartitionReassignments",
    request=ListPartitionReassignmentsRequest,
    response=ListPartitionReassignmentsResponse,
    min_version=0,
    max_version=0,
    first_flexible_version=0,
)
