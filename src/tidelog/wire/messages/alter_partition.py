"""AlterPartition (key 56), versions 0 to 3: a leader requests a new ISR from the controller.

Version 0 is AlterIsr of KIP-497, 1 adds the leader recovery state (KIP-704), 2 names topics by id
(KIP-841), 3 gives the broker epoch of each ISR member instead of the bare ids (KIP-903). All are
flexible. Two structs of Kafka's are called TopicData and two PartitionData; here their names begin
with Request or Response. Six tagged fields are tidelog's own (E1, A11, V62).
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.wire.schema import Api, array, boolean, int8, int16, int32, int64, string, uuid
from tidelog.wire.structs import dataclass

#: Far from the tags that Kafka assigns.
HAS_ELIGIBLE_TAG = 20_000
MAY_HOLD_TAG = 20_000
HELD_MS_TAG = 20_001
SHRUNK_TAG = 20_001
CAUSES_TAG = 20_002
MINIMUM_TAG = 20_003


@dataclass(slots=True)
class BrokerState:
    """An ISR member under the broker epoch at which it caught up; -1 skips the check."""

    broker_id: int = int32("3+")
    broker_epoch: int = int64("3+", -1)


@dataclass(slots=True)
class RequestPartitionData:
    """`new_isr` up to version 2, `new_isr_with_epochs` in 3."""

    partition_index: int = int32("0+")
    leader_epoch: int = int32("0+")
    new_isr: Sequence[int] = array("int32", "0-2")
    new_isr_with_epochs: list[BrokerState] = array(BrokerState, "3+")
    leader_recovery_state: int = int8("1+")
    partition_epoch: int = int32("0+")
    #: Members that the new ISR lacks, and in the same order a ShrinkCause for each
    #: (`core.shrink_causes`).
    shrunk: Sequence[int] = array("int32", "0+", ignorable=True, tag=SHRUNK_TAG)
    causes: Sequence[int] = array("int8", "0+", ignorable=True, tag=CAUSES_TAG)
    #: The effective minimum by which the leader commits records (V60). The controller's own may
    #: differ while `min.insync.replicas` of the brokers is changed one by one (E1).
    minimum: int = int32("0+", 1, ignorable=True, tag=MINIMUM_TAG)


@dataclass(slots=True)
class RequestTopicData:
    """Partitions of one topic: by name up to version 1, by id from 2."""

    topic_id: bytes = uuid("2+", ignorable=True)
    topic_name: str = string("0-1", ignorable=True)
    partitions: list[RequestPartitionData] = array(RequestPartitionData, "0+")


@dataclass(slots=True)
class AlterPartitionRequest:
    """Fenced by the sender's `broker_epoch`."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", -1)
    topics: list[RequestTopicData] = array(RequestTopicData, "0+")
    #: The sender understands `held_ms` of the response (A11).
    may_hold: bool = boolean("0+", ignorable=True, tag=MAY_HOLD_TAG)


@dataclass(slots=True)
class ResponsePartitionData:
    """The new state that the controller wrote, or the reason for none."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")
    isr: Sequence[int] = array("int32", "0+")
    leader_recovery_state: int = int8("1+", ignorable=True)
    partition_epoch: int = int32("0+")
    #: There are eligible leader replicas outside the ISR: nothing may be committed (E1).
    has_eligible: bool = boolean("0+", ignorable=True, tag=HAS_ELIGIBLE_TAG)


@dataclass(slots=True)
class ResponseTopicData:
    """Partitions of one topic: by name up to version 1, by id from 2."""

    topic_id: bytes = uuid("2+", ignorable=True)
    topic_name: str = string("0-1", ignorable=True)
    partitions: list[ResponsePartitionData] = array(ResponsePartitionData, "0+")


@dataclass(slots=True)
class AlterPartitionResponse:
    """A top-level error means that nothing was considered."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    topics: list[ResponseTopicData] = array(ResponseTopicData, "0+")
    #: The controller holds back the expansions of partitions that the response does not name, for
    #: at most so many milliseconds; 0 where it holds none (A11).
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
