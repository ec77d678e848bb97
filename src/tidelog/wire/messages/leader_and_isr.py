"""LeaderAndIsr (key 4), versions 4 to 7: the controller sends a broker its replicas' roles.

Kafka 3.9 sends version 7 without negotiation. Version 5 brings topic ids and the request type (1
incremental, 2 full: a replica that a full request does not name is stray). Version 6 brings the
leader recovery state (KIP-704), 7 the flag of KRaft controllers (KIP-866). All four are flexible.
Four tagged fields are tidelog's own (V71, E1, R4); brokers that do not know them skip them.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.wire.schema import Api, array, boolean, int8, int16, int32, int64, string, uuid
from tidelog.wire.structs import dataclass

#: Far from the tags that Kafka assigns, as are the keys of tidelog's own APIs.
FIRST_LEADER_EPOCH_TAG = 20_000
IS_CLOSING_TAG = 20_001
ELIGIBLE_TAG = 20_002
THROTTLE_TAG = 20_003
#: The throttle of a reassignment that pauses: replicas that it adds do not copy.
PAUSED = -1


@dataclass(slots=True)
class LeaderAndIsrPartitionState:
    """Leader, ISR and replicas of one partition; `is_new` allows creation."""

    partition_index: int = int32("0+")
    controller_epoch: int = int32("0+")
    leader: int = int32("0+")
    leader_epoch: int = int32("0+")
    isr: Sequence[int] = array("int32", "0+")
    partition_epoch: int = int32("0+")
    replicas: Sequence[int] = array("int32", "0+")
    adding_replicas: Sequence[int] = array("int32", "3+", ignorable=True, rare=True)
    removing_replicas: Sequence[int] = array("int32", "3+", ignorable=True, rare=True)
    is_new: bool = boolean("1+", ignorable=True)
    leader_recovery_state: int = int8("6+")
    #: First epoch of the partition's present incarnation: replicas of an earlier leader epoch
    #: belong to a removed one.
    first_leader_epoch: int = int32("4+", ignorable=True, tag=FIRST_LEADER_EPOCH_TAG)
    #: The partition is about to be removed: its leader takes no more records.
    is_closing: bool = boolean("4+", ignorable=True, tag=IS_CLOSING_TAG)
    #: Eligible leader replicas: such a broker reports a missing replica and creates none (E1, D3).
    eligible: Sequence[int] = array("int32", "4+", ignorable=True, tag=ELIGIBLE_TAG, rare=True)
    #: The throttle that came with the partition's reassignment, in bytes a second (R4); 0: none,
    #: PAUSED: replicas that it adds do not copy for the moment.
    throttle: int = int64("4+", ignorable=True, tag=THROTTLE_TAG)


@dataclass(slots=True)
class LeaderAndIsrTopicState:
    """Partitions of one topic."""

    topic_name: str = string("2+")
    topic_id: bytes = uuid("5+", ignorable=True)
    partition_states: list[LeaderAndIsrPartitionState] = array(LeaderAndIsrPartitionState, "2+")


@dataclass(slots=True)
class LeaderAndIsrLiveLeader:
    """Where a leader named in this request listens."""

    broker_id: int = int32("0+")
    host_name: str = string("0+")
    port: int = int32("0+")


@dataclass(slots=True)
class LeaderAndIsrRequest:
    """Fenced by `controller_epoch` and `broker_epoch`."""

    controller_id: int = int32("0+")
    is_kraft_controller: bool = boolean("7+")
    controller_epoch: int = int32("0+")
    broker_epoch: int = int64("2+", -1, ignorable=True)
    type: int = int8("5+")
    topic_states: list[LeaderAndIsrTopicState] = array(LeaderAndIsrTopicState, "2+")
    live_leaders: list[LeaderAndIsrLiveLeader] = array(LeaderAndIsrLiveLeader, "0+")


@dataclass(slots=True)
class LeaderAndIsrPartitionError:
    """Outcome of one partition."""

    topic_name: str = string("0-4", ignorable=True)
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@dataclass(slots=True)
class LeaderAndIsrTopicError:
    """Outcomes of one topic (from version 5)."""

    topic_id: bytes = uuid("5+")
    partition_errors: list[LeaderAndIsrPartitionError] = array(LeaderAndIsrPartitionError, "5+")


@dataclass(slots=True)
class LeaderAndIsrResponse:
    """`partition_errors` up to version 4, `topics` from 5."""

    error_code: int = int16("0+")
    partition_errors: list[LeaderAndIsrPartitionError] = array(LeaderAndIsrPartitionError, "0-4")
    topics: list[LeaderAndIsrTopicError] = array(LeaderAndIsrTopicError, "5+")


API = Api(
    key=4,
    name="LeaderAndIsr",
    request=LeaderAndIsrRequest,
    response=LeaderAndIsrResponse,
    min_version=4,
    max_version=7,
    first_flexible_version=4,
    inter_broker=True,
)
