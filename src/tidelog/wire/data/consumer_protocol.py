"""Data that consumers exchange in a group of protocol type "consumer", versions 0 to 3 of both.

The subscription travels as `metadata` of JoinGroup, the assignment in SyncGroup. A coordinator
passes both on unread. It reads subscriptions only where it must know the topics that a group
consumes (OffsetDelete). Version 1 has the owned partitions (KIP-429), 2 the generation of their
ownership (KIP-792), 3 the rack (KIP-881). Neither is flexible; a newer version is read as version
3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.wire.schema import array, binary, int32, string
from tidelog.wire.structs import dataclass
from tidelog.wire.versioned import Versioned

#: The protocol type of the groups whose members use these structs.
CONSUMER_PROTOCOL_TYPE: Final = "consumer"


@dataclass(slots=True)
class TopicPartition:
    """Partitions of one topic (Kafka's name, though there may be many)."""

    topic: str = string("0+")
    partitions: Sequence[int] = array("int32", "0+")


@dataclass(slots=True)
class ConsumerProtocolSubscription:
    """A member's subscription; `user_data` is the assignor's own; generation -1: none."""

    topics: Sequence[str] = array("string", "0+")
    user_data: bytes | None = binary("0+", None, nullable="0+")
    owned_partitions: list[TopicPartition] = array(TopicPartition, "1+", ignorable=True)
    generation_id: int = int32("2+", -1, ignorable=True)
    rack_id: str | None = string("3+", None, nullable="3+", ignorable=True)


@dataclass(slots=True)
class ConsumerProtocolAssignment:
    """The partitions assigned to one member; all versions are alike."""

    assigned_partitions: list[TopicPartition] = array(TopicPartition, "0+")
    user_data: bytes | None = binary("0+", None, nullable="0+")


SUBSCRIPTION: Final = Versioned(ConsumerProtocolSubscription, 0, 3, open_ended=True)
ASSIGNMENT: Final = Versioned(ConsumerProtocolAssignment, 0, 3, open_ended=True)
