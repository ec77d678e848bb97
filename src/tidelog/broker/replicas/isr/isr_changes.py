"""The choice of how ISR changes become durable: by the controller, or in state nodes (A1, A12).

`AlterPartitionManager` sends the changes to the controller; `StateNodeWriter` writes them into the
state nodes. `inter.broker.protocol.version` chooses between the two queues when the broker starts.
Leaders know only the common interface of both queues, `IsrChangeQueue`.
"""

from __future__ import annotations

from tidelog.broker.replicas.hosting.isr_change_queue import IsrChangeQueue
from tidelog.broker.replicas.isr.alter_partition_manager import AlterPartitionManager
from tidelog.broker.replicas.isr.state_node_writer import StateNodeWriter
from tidelog.broker.services import Services
from tidelog.core import protocol_level


def isr_changes(services: Services) -> IsrChangeQueue:
    """Return the queue for a broker's `inter.broker.protocol.version` (A12)."""
    if protocol_level.is_direct(services.config.inter_broker_protocol_version):
        return StateNodeWriter(services)
    return AlterPartitionManager(services)
