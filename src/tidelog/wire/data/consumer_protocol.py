"""Data that members of consumer groups exchange: subscription and assignment, versions 0 to 3.

JoinGroup carries the subscription as `metadata`, and SyncGroup carries the assignment. A
coordinator forwards subscriptions and assignments without decoding them. Only for OffsetDelete, the
coordinator decodes subscriptions, to learn the topics that a group consumes. Version 1 has the
owned partitions (KIP-429), version 2 the generation of their ownership (KIP-792), version 3 the
rack (KIP-881). No version is flexible; a newer version is read as version 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import array, binary, int32, string
from tidelog.wire.versioned import Versioned

#: The protocol type of groups whose members use these structs.
CONSUMER_PROTOCOL_TYPE: Final = "consumer"


@dataclass(slots=True)
class TopicPartition:
    """Partitions of one topic, in spite of Kafka's singular name."""

    topic: str = string("0+")
    partitions: Sequence[int] = array("int32", "0+")


@dataclass(slots=True)
class ConsumerProtocolSubscription:
    """A member's subscription; the assignor defines `user_data`, and generation -1 means none."""

    topics: Sequence[str] = array("string", "0+")
    user_data: bytes | None = binary("0+", None, nullable="0+")
    owned_partitions: list[TopicPartition] = array(TopicPartition, "1+", ignorable=True)
    generation_id: int = int32("2+", -1, ignorable=True)
    rack_id: str | None = string("3+", None, nullable="3+", ignorable=True)


@dataclass(slots=True)
class ConsumerProtocolAssignment:
    """The partitions that are assigned to one member; all versions have the same fields."""

    assigned_partitions: list[TopicPartition] = array(TopicPartition, "0+")
    user_data: bytes | None = binary("0+", None, nullable="0+")


SUBSCRIPTION: Final = Versioned(ConsumerProtocolSubscription, 0, 3, open_ended=True)
ASSIGNMENT: Final = Versioned(ConsumerProtocolAssignment, 0, 3, open_ended=True)
