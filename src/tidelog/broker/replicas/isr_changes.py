"""The queue of ISR changes as leaders see it, whichever way the changes take (A1, A12).

`AlterPartitionManager` sends the changes to the controller; `StateNodeWriter` writes them into the
state nodes. `inter.broker.protocol.version` chooses one of them when the broker starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidelog.broker.replicas.alter_partition_manager import AlterPartitionManager
from tidelog.broker.replicas.state_node_writer import StateNodeWriter
from tidelog.core import protocol_level

if TYPE_CHECKING:
    from tidelog.broker.replicas.hosted_replica import HostedReplica
    from tidelog.broker.services import Services
    from tidelog.replication.isr import IsrChange


class IsrChanges(Protocol):
    """The queue of one broker; the role of the partition gets the outcome of each change."""

    def __len__(self) -> int:
        """Return the number of changes that wait."""

    def submit(self, partition: HostedReplica, change: IsrChange) -> None:
        """Queue a change; it replaces one of the partition that was not sent (A8)."""

    def withdraw(self, partition: HostedReplica) -> None:
        """Drop the unsent change of a partition."""

    def retry(self, partition: HostedReplica, change: IsrChange, after_ms: int = 0) -> None:
        """Queue a change again after a pause of more than `after_ms`: its outcome is unknown."""

    def controller_changed(self) -> None:
        """Note that the view of the cluster may name another controller."""

    def close(self) -> None:
        """Queue and send nothing more."""


def isr_changes(services: Services) -> IsrChanges:
    """Return the queue of a broker, by its level of the protocol between brokers (A12)."""
    if protocol_level.is_direct(services.config.inter_broker_protocol_version):
        return StateNodeWriter(services)
    return AlterPartitionManager(services)
