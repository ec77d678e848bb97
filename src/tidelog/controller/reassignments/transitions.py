"""Reassignment of one partition: its replicas meanwhile, and when and how it ends (V50 to V52).

While replicas are being added, the assignment names all of them: the target first, in its order,
then the replicas to remove. The move is complete when every replica of the target is in the ISR
(V51). Then the controller publishes the state with the target alone, under the next leader epoch.
From there on no replica that is to be removed can rejoin the ISR under any controller, because the
state names the target (`reassigned_to`, V52). Everything follows from published state; knows
nothing of other partitions, of requests or of commands.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from tidelog.controller import incarnations
from tidelog.controller.incarnations import Brokers
from tidelog.controller.records import Move, Replicas
from tidelog.core.types import NO_LEADER, PartitionState


def toward(target: Replicas, replicas: Replicas, move: Move | None) -> tuple[Replicas, Move | None]:
    """Return the assignment that leads to `target`, and the move.

    The move is None where no replica comes or goes. Replicas that only an earlier target added are
    removed when this target is reached. Until then they count like any other (R10).
    """
    full = (*target, *(replica for replica in replicas if replica not in target))
    original = replicas if move is None else move.original
    before = original or tuple(
        replica for replica in replicas if move is None or replica not in move.adding
    )
    adding = tuple(replica for replica in full if replica not in before)
    removing = tuple(replica for replica in full if replica not in target)
    if not adding and not removing:
        return full, None
    return full, Move(adding, removing, original)


def under_next_epoch(state: PartitionState, controller_epoch: int) -> PartitionState:
    """Return the same state under the next leader epoch.

    By the new epoch every replica takes note of another assignment (V33).
    """
    return replace(
        state,
        controller_epoch=controller_epoch,
        leader_epoch=state.leader_epoch + 1,
        partition_epoch=state.partition_epoch + 1,
        reassigned_to=(),
    )


def completed(
    state: PartitionState,
    target: Replicas,
    brokers: Brokers,
    absent: Container[int],
    controller_epoch: int,
) -> PartitionState | None:
    """Return the state that ends the move: ISR and leader in the target (V52).

    Returns None while a replica of the target is out of sync (V51), or an election is due first.
    """
    if state.leader == NO_LEADER or any(replica not in state.isr for replica in target):
        return None
    if any(replica not in brokers or replica in absent for replica in target):
        return None
    if incarnations.bounced_members(state, brokers):
        return None
    return replace(
        state,
        leader=state.leader if state.leader in target else target[0],
        leader_epoch=state.leader_epoch + 1,
        isr=tuple(member for member in state.isr if member in target),
        controller_epoch=controller_epoch,
        partition_epoch=state.partition_epoch + 1,
        # No member has bounced: a member that restarted kept its log, and counts in its present
        # incarnation.
        isr_epochs=tuple(brokers[member].broker_epoch for member in state.isr if member in target),
        # The whole target is in the ISR: no other replica is eligible (E1).
        elr=(),
        elr_epochs=(),
        last_leader=NO_LEADER,
        reassigned_to=target,
    )
