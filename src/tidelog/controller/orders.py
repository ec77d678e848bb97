"""Orders: what a decision has to send to brokers; `CommandBuilder` turns them into commands.

An order is a value that names brokers and partitions. `CommandBuilder` gets the orders once the
image holds every change of the decision (DESIGN.md, rule 6), so the commands reflect the applied
image. This module has the orders that several concerns (topics, partitions, elections, ...) share;
each concern defines further orders of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import IntEnum
from typing import ClassVar

from tidelog.controller.command_builder import CommandBuilder
from tidelog.core.dataclass import dataclass
from tidelog.core.types import TopicPartition


class Rank(IntEnum):
    """The sequence in which `CommandBuilder` gets a decision's instructions to send commands.

    A broker gets one role or one stop per partition, so a later order for the partition replaces an
    earlier order.
    """

    STATE = 0
    FOUND_STATE = 1
    RECREATION = 2
    CONTROLLED_SHUTDOWN = 3
    METADATA = 4
    TOPIC_DELETION = 5
    REASSIGNMENT = 6
    PARTITION_REMOVAL = 7
    ROLE_AGAIN = 8
    BROKERS = 9
    EVERYTHING = 10
    LOG_END = 11


class Order(ABC):
    """An instruction to send commands to brokers."""

    __slots__ = ()
    rank: ClassVar[Rank]

    @abstractmethod
    def give(self, builder: CommandBuilder) -> None:
        """Add this order's commands to `builder`."""


@dataclass(frozen=True, slots=True)
class SendState(Order):
    """Send a published state to every broker, and roles to the partition's replicas.

    If a leader asked for the change, `has_roles` is False: the leader gets the state in its
    response, and no broker gets a role.
    """

    topic_partition: TopicPartition
    #: Whether every replica may be created; otherwise only `new_replicas` may be created (D3).
    is_new: bool = False
    new_replicas: tuple[int, ...] = ()
    has_roles: bool = True

    rank: ClassVar[Rank] = Rank.STATE

    def give(self, builder: CommandBuilder) -> None:
        """Add the partition's metadata and roles to the commands."""
        builder.send_metadata(self.topic_partition)
        if self.has_roles:
            builder.send_role(self.topic_partition, self.is_new, self.new_replicas)


@dataclass(frozen=True, slots=True)
class SendFoundState(SendState):
    """Send a state that another writer published; a conflict in the store showed it (V15)."""

    rank: ClassVar[Rank] = Rank.FOUND_STATE


@dataclass(frozen=True, slots=True)
class SendMetadata(Order):
    """Send to every broker the metadata of partitions that changed without a write."""

    topic_partitions: Sequence[TopicPartition]

    rank: ClassVar[Rank] = Rank.METADATA

    def give(self, builder: CommandBuilder) -> None:
        """Add the partitions' metadata to the commands."""
        for topic_partition in self.topic_partitions:
            builder.send_metadata(topic_partition)


@dataclass(frozen=True, slots=True)
class SendRoleAgain(Order):
    """Send a broker its role in an unchanged partition, unless this decision sends it already."""

    broker_id: int
    topic_partition: TopicPartition

    rank: ClassVar[Rank] = Rank.ROLE_AGAIN

    def give(self, builder: CommandBuilder) -> None:
        """Add the role to the broker's commands."""
        builder.resend_role(self.broker_id, self.topic_partition)


@dataclass(frozen=True, slots=True)
class SendEverything(Order):
    """Send a broker a full command with all its roles and all metadata (V35, V41)."""

    broker_id: int

    rank: ClassVar[Rank] = Rank.EVERYTHING

    def give(self, builder: CommandBuilder) -> None:
        """Replace the broker's commands by a full command: all its roles and all metadata."""
        builder.send_everything(self.broker_id)
