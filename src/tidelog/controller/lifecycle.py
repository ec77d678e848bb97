"""First and last published state of a partition (V20, V71).

This module has pure functions of the replicas and the live brokers. `elections` and `isr` compute
all other states.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.controller.incarnations import Brokers
from tidelog.core.types import NO_LEADER, PartitionState

#: Leader epoch of a partition's first state, as Kafka's InitialLeaderEpoch.
INITIAL_LEADER_EPOCH = 0


def first_state(
    replicas: Sequence[int],
    brokers: Brokers,
    controller_epoch: int,
    former: PartitionState | None = None,
) -> PartitionState | None:
    """Return the first state of a partition (V20).

    The first live replica leads, and all live replicas are in the ISR. Brokers that are shutting
    down are left out, unless no other broker is alive. Returns None while no replica is alive.
    `former` is the content of the state node of a removed partition with the same number. The
    epochs of the new partition continue above those of `former`, so that no epoch of the former
    incarnation counts (V71).
    """
    registered = tuple(replica for replica in replicas if replica in brokers)
    live = tuple(replica for replica in registered if not brokers[replica].is_leaving) or registered
    if not live:
        return None
    first_epochs = (INITIAL_LEADER_EPOCH, 0)
    if former is not None:
        first_epochs = (former.leader_epoch + 1, former.partition_epoch + 1)
    return PartitionState(
        leader=live[0],
        leader_epoch=first_epochs[0],
        isr=live,
        controller_epoch=controller_epoch,
        partition_epoch=first_epochs[1],
        isr_epochs=tuple(brokers[replica].broker_epoch for replica in live),
        first_epochs=first_epochs,
    )


def tombstone(state: PartitionState, controller_epoch: int) -> PartitionState:
    """Return the state that stays in the state node of a removed partition (V71)."""
    return PartitionState(
        leader=NO_LEADER,
        leader_epoch=state.leader_epoch + 1,
        isr=(),
        controller_epoch=controller_epoch,
        partition_epoch=state.partition_epoch + 1,
        isr_epochs=(),
        removed=True,
        first_epochs=state.first_epochs,
    )


def is_tombstone(state: PartitionState) -> bool:
    """Return whether a state is the tombstone of a removed partition.

    A controller of a version without removals of partitions may have dropped the key `removed` from
    a tombstone. The empty ISR still identifies a tombstone, because no other state has an empty
    ISR.
    """
    return state.removed or not state.isr
