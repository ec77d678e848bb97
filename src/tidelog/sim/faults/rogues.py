"""Well-formed requests of a peer that only pretends to be the leader of a partition (A3).

Such a request changes published state as the leader's own request would, but the controller's
response goes to the pretender instead of the leader.
"""

from __future__ import annotations

from tidelog.sim.faults.context import FaultContext
from tidelog.sim.faults.kinds import kind
from tidelog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)

_VERSION = 3


@kind
def rogue_isr_change(context: FaultContext) -> bool:
    """Request a smaller ISR in a leader's name; the leader gets no response."""
    controller, state = context.controller(), context.healthy_partition()
    if controller is None or state is None or state.isr_epochs is None:
        return False
    leader_epoch = context.cluster.published.brokers.get(state.leader)
    life, broker = controller.life, controller.broker
    if leader_epoch is None or life is None or broker is None:
        return False
    left = context.draw.choice([member for member in state.isr if member != state.leader])
    members = [
        BrokerState(member, epoch)
        for member, epoch in zip(state.isr, state.isr_epochs, strict=True)
        if member != left
    ]
    data = RequestPartitionData(
        partition_index=state.key.partition,
        leader_epoch=state.leader_epoch,
        new_isr_with_epochs=members,
        partition_epoch=state.partition_epoch,
    )
    topic = RequestTopicData(topic_id=state.key.topic_id, partitions=[data])
    request = AlterPartitionRequest(state.leader, leader_epoch, [topic])
    context.note(f"a rogue takes {left} out of the ISR of {state.key} as {state.leader}")

    def ask() -> None:
        broker.controller.alter_partition(request, _VERSION, AlterPartitionResponse)

    context.cluster.simulator.scheduler.after(0, life, ask)
    return True
