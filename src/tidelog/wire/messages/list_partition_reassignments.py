"""ListPartitionReassignments (key 46), version 0: the moves that are under way (KIP-455).

It is flexible.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.wire.schema import Api, array, boolean, int16, int32, int64, string
from tidelog.wire.structs import dataclass

#: Far from the tags that Kafka assigns, as in LeaderAndIsr.
ORIGINAL_TAG = 20_020
FROZEN_TAG = 20_022
QUEUED_TAG = 20_023
KNOWS_QUEUE_TAG = 20_024
REQUEST_TAG = 20_025
THROTTLE_TAG = 20_026
PAUSED_TAG = 20_027
WENT_BACK_TAG = 20_028
#: No request node asked for the move.
NO_REQUEST = -1


@dataclass(slots=True)
class ListPartitionReassignmentsTopics:
    """Partitions of one topic."""

    name: str = string("0+")
    partition_indexes: Sequence[int] = array("int32", "0+")


@dataclass(slots=True)
class ListPartitionReassignmentsRequest:
    """`topics` None: all of them."""

    timeout_ms: int = int32("0+", 60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, "0+", None, nullable="0+"
    )


@dataclass(slots=True)
class OngoingPartitionReassignment:
    """`replicas` are all at present, those being added and removed included."""

    partition_index: int = int32("0+")
    replicas: Sequence[int] = array("int32", "0+")
    adding_replicas: Sequence[int] = array("int32", "0+")
    removing_replicas: Sequence[int] = array("int32", "0+")
    #: Ours (R1): the replicas that a cancel returns to; empty where they are not recorded.
    original_replicas: Sequence[int] = array("int32", "0+", ignorable=True, tag=ORIGINAL_TAG)
    #: Ours (R12): the transaction that made `/admin/reassignments/T/P` of this very move.
    request_id: int = int64("0+", NO_REQUEST, ignorable=True, tag=REQUEST_TAG)
    #: Ours (R4): the throttle that came with the move, in bytes a second; 0 without one.
    throttle: int = int64("0+", ignorable=True, tag=THROTTLE_TAG)
    #: Ours: why replicas that the move adds do not copy for the moment; empty where they do.
    paused: str = string("0+", ignorable=True, tag=PAUSED_TAG)


@dataclass(slots=True)
class OngoingTopicReassignment:
    """Moves of one topic."""

    name: str = string("0+")
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment, "0+")


@dataclass(slots=True)
class QueuedReassignment:
    """Ours (R8): a move that waits in the queue; `reason` is empty where it is about to begin."""

    topic: str = string("0+")
    partition_index: int = int32("0+")
    replicas: Sequence[int] = array("int32", "0+")
    reason: str = string("0+")


@dataclass(slots=True)
class ListPartitionReassignmentsResponse:
    """Partitions that are not being moved are left out."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", None, nullable="0+")
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment, "0+")
    #: Ours: the controller queues moves and freezes them; Kafka's ignores that it is asked to.
    knows_queue: bool = boolean("0+", ignorable=True, tag=KNOWS_QUEUE_TAG)
    #: Ours (R11): no move begins.
    frozen: bool = boolean("0+", ignorable=True, tag=FROZEN_TAG)
    #: Ours (R8).
    queued: list[QueuedReassignment] = array(
        QueuedReassignment, "0+", ignorable=True, tag=QUEUED_TAG
    )
    #: Ours (E8): how the metadata store shows to be older than the logs; empty where it is not.
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
