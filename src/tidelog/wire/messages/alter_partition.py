"""AlterPartition (key 56), versions 0 to 3: a leader requests a new ISR from the controller.

Version 0 is AlterIsr of KIP-497, version 1 adds the leader recovery state (KIP-704), and version 2
names topics by id (KIP-841). Version 3 gives the broker epoch of each ISR member instead of bare
ids (KIP-903). All versions are flexible. Kafka has two structs TopicData and two structs
PartitionData; here their names begin with Request or Response. Only tidelog has the six tagged
fields (E1, A11, V62).
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, boolean, int8, int16, int32, int64, string, uuid

#: The first tag of the fields that only tidelog has, far from the tags that Kafka assigns.
HAS_ELIGIBLE_TAG = 20_000
MAY_HOLD_TAG = 20_000
HELD_MS_TAG = 20_001
SHRUNK_TAG = 20_001
CAUSES_TAG = 20_002
MINIMUM_TAG = 20_003


@dataclass(slots=True)
class BrokerState:
    """An ISR member and its broker epoch when it caught up; -1 skips the check of the epoch."""

    broker_id: int = int32("3+")
    broker_epoch: int = int64("3+", -1)


@dataclass(slots=True)
class RequestPartitionData:
    """The requested ISR of a partition: `new_isr`, or in version 3 `new_isr_with_epochs`."""

    partition_index: int = int32("0+")
    leader_epoch: int = int32("0+")
    new_isr: Sequence[int] = array("int32", "0-2")
    new_isr_with_epochs: list[BrokerState] = array(BrokerState, "3+")
    leader_recovery_state: int = int8("1+")
    partition_epoch: int = int32("0+")
    #: Replicas of the current ISR that are not in the requested ISR.
    shrunk: Sequence[int] = array("int32", "0+", ignorable=True, tag=SHRUNK_TAG)
    #: A ShrinkCause for each replica in `shrunk`, in the same order (`core.shrink_causes`).
    causes: Sequence[int] = array("int8", "0+", ignorable=True, tag=CAUSES_TAG)
    #: The effective minimum of the ISR, min(min.insync.replicas, number of replicas), by which the
    #: leader commits records (V60). The controller's effective minimum of the ISR may differ from
    #: the leader's while `min.insync.replicas` is changed on one broker after the other (E1).
    minimum: int = int32("0+", 1, ignorable=True, tag=MINIMUM_TAG)


@dataclass(slots=True)
class RequestTopicData:
    """Partitions of one topic: by name up to version 1, by id from 2."""

    topic_id: bytes = uuid("2+", ignorable=True)
    topic_name: str = string("0-1", ignorable=True)
    partitions: list[RequestPartitionData] = array(RequestPartitionData, "0+")


@dataclass(slots=True)
class AlterPartitionRequest:
    """A leader's request for new ISRs, fenced by its broker's `broker_epoch`."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", -1)
    topics: list[RequestTopicData] = array(RequestTopicData, "0+")
    #: Whether the sender supports `held_ms` in the response, so that the controller may delay ISR
    #: expansions (A11).
    may_hold: bool = boolean("0+", ignorable=True, tag=MAY_HOLD_TAG)


@dataclass(slots=True)
class ResponsePartitionData:
    """The new partition state that the controller wrote, or the error."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")
    isr: Sequence[int] = array("int32", "0+")
    leader_recovery_state: int = int8("1+", ignorable=True)
    partition_epoch: int = int32("0+")
    #: Whether there are eligible leader replicas outside the ISR, so that no record may be
    #: committed (E1).
    has_eligible: bool = boolean("0+", ignorable=True, tag=HAS_ELIGIBLE_TAG)


@dataclass(slots=True)
class ResponseTopicData:
    """Partitions of one topic: by name up to version 1, by id from 2."""

    topic_id: bytes = uuid("2+", ignorable=True)
    topic_name: str = string("0-1", ignorable=True)
    partitions: list[ResponsePartitionData] = array(ResponsePartitionData, "0+")


@dataclass(slots=True)
class AlterPartitionResponse:
    """The new partition states; after a top-level error, no partition was changed."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    topics: list[ResponseTopicData] = array(ResponseTopicData, "0+")
    #: The longest time in ms for which the controller delays the ISR expansions that the response
    #: leaves out; 0 if it delays none (A11).
    held_ms: int = int32("0+", 0, ignorable=True, tag=HELD_MS_TAG)


API = Api(
    key=56,
    name="AlterPartition",
    request=AlterPartitionRequest,
    response=AlterPartitionResponse,
    min_version=0,
    max_version=3,
    first_flexible_version=0,
    inter_broker=True,
)
