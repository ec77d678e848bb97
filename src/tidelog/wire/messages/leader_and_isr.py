"""LeaderAndIsr (key 4), versions 4 to 7: the controller sends a broker its replicas' roles.

Kafka 3.9 sends version 7 without negotiation. Version 5 brings topic ids and the request type (1
incremental, 2 full: a replica that a full request does not name is stray). Version 6 brings the
leader recovery state (KIP-704), version 7 the flag of KRaft controllers (KIP-866). All four
versions are flexible. Only tidelog has the five tagged fields (V71, E1, R4); Kafka's brokers skip
these fields.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, boolean, int8, int16, int32, int64, string, uuid

#: The first tag of the fields that only tidelog has, far from the tags that Kafka assigns.
FIRST_LEADER_EPOCH_TAG = 20_000
IS_CLOSING_TAG = 20_001
ELIGIBLE_TAG = 20_002
THROTTLE_TAG = 20_003
IDLE_TAG = 20_004


@dataclass(slots=True)
class LeaderAndIsrPartitionState:
    """Leader, ISR and replicas of one partition; `is_new` allows the creation of the replica."""

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
    #: First leader epoch of the partition since its last creation. Replicas with an earlier leader
    #: epoch belong to a partition that was removed before a partition with the same number was
    #: created (V71).
    first_leader_epoch: int = int32("4+", ignorable=True, tag=FIRST_LEADER_EPOCH_TAG)
    #: Whether an operator is removing the partition from its topic (V71), so that its leader
    #: accepts no more records.
    is_closing: bool = boolean("4+", ignorable=True, tag=IS_CLOSING_TAG)
    #: Eligible leader replicas. If a broker in this list lacks its replica, it reports the loss
    #: instead of creating an empty replica (E1, D3).
    eligible: Sequence[int] = array("int32", "4+", ignorable=True, tag=ELIGIBLE_TAG, rare=True)
    #: The throttle of the partition's reassignment, in bytes per second (R4); 0 for none.
    throttle: int = int64("4+", ignorable=True, tag=THROTTLE_TAG)
    #: Replicas that do not copy now, because their reassignment is paused or no longer needs them.
    idle: Sequence[int] = array("int32", "4+", ignorable=True, tag=IDLE_TAG, rare=True)


@dataclass(slots=True)
class LeaderAndIsrTopicState:
    """The partition states of one topic."""

    topic_name: str = string("2+")
    topic_id: bytes = uuid("5+", ignorable=True)
    partition_states: list[LeaderAndIsrPartitionState] = array(LeaderAndIsrPartitionState, "2+")


@dataclass(slots=True)
class LeaderAndIsrLiveLeader:
    """The address of a leader that this request names."""

    broker_id: int = int32("0+")
    host_name: str = string("0+")
    port: int = int32("0+")


@dataclass(slots=True)
class LeaderAndIsrRequest:
    """The controller's command with partition states, fenced by controller and broker epochs."""

    controller_id: int = int32("0+")
    is_kraft_controller: bool = boolean("7+")
    controller_epoch: int = int32("0+")
    broker_epoch: int = int64("2+", -1, ignorable=True)
    type: int = int8("5+")
    topic_states: list[LeaderAndIsrTopicState] = array(LeaderAndIsrTopicState, "2+")
    live_leaders: list[LeaderAndIsrLiveLeader] = array(LeaderAndIsrLiveLeader, "0+")


@dataclass(slots=True)
class LeaderAndIsrPartitionError:
    """The outcome of LeaderAndIsr for one partition."""

    topic_name: str = string("0-4", ignorable=True)
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@dataclass(slots=True)
class LeaderAndIsrTopicError:
    """The outcomes of LeaderAndIsr for one topic (from version 5 on)."""

    topic_id: bytes = uuid("5+")
    partition_errors: list[LeaderAndIsrPartitionError] = array(LeaderAndIsrPartitionError, "5+")


@dataclass(slots=True)
class LeaderAndIsrResponse:
    """The outcomes of LeaderAndIsr: `partition_errors` up to version 4, then `topics`."""

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
