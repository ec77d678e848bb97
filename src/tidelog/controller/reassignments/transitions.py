"""Reassignment of one partition: its replicas meanwhile, and when and how it ends (V50 to V52).

While replicas are being added, the assignment names all of them: the target first, in its order,
then the replicas to remove. The move is complete when every replica of the target is in the ISR
(V51). Then the controller publishes the state with the target alone, under the next leader epoch.
From there on no replica that is to be removed can rejoin the ISR under any controller, because the
state names the target (`reassigned_to`, V52).

Replicas that only an earlier target added leave the ISR with the write that begins another (R10).

A cancel turns a move back to its original replicas (R3). No replica is copied for it, so it ends at
once, by the same steps: ISR and leader among the originals first. It waits only where that would
leave fewer copies of committed records than min.insync.replicas asks for, and fewer than there are.
Everything follows from published state; knows nothing of other partitions, of requests or of
commands.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from tidelog.controller import incarnations
from tidelog.controller.incarnations import Brokers
from tidelog.controller.records import Move, Replicas, before, target_of
from tidelog.controller.records import unwanted as unwanted_by
from tidelog.core import eligible_replicas
from tidelog.core.types import NO_LEADER, PartitionState


def toward(
    target: Replicas, replicas: Replicas, move: Move | None, throttle: int = 0
) -> tuple[Replicas, Move | None]:
    """Return the assignment that leads to `target`, and the move, with its throttle (R4).

    The move is None where no replica comes or goes. Replicas that only an earlier target added are
    among those to remove (R10). A move whose target are the original replicas, in their order, adds
    none: it goes back (R3).
    """
    full = (*target, *(replica for replica in replicas if replica not in target))
    original = replicas if move is None else move.original
    former = replicas if move is None else before(replicas, move)
    goes_back = move is not None and target == former
    adding = () if goes_back else tuple(replica for replica in full if replica not in former)
    removing = tuple(replica for replica in full if replica not in target)
    if not adding and not removing:
        return full, None
    return full, Move(
        adding, removing, former if goes_back else original, throttle=0 if goes_back else throttle
    )


def goes_back(replicas: Replicas, move: Move) -> bool:
    """Return whether a move returns to the replicas of which it began (R3)."""
    return not move.adding and bool(move.original) and target_of(replicas, move) == move.original


def without_unwanted(
    state: PartitionState,
    replicas: Replicas,
    move: Move,
    brokers: Brokers,
    absent: Container[int],
    minimum: int,
    controller_epoch: int,
) -> PartitionState | None:
    """Return the state without in-sync replicas that only an earlier target added (R10).

    `minimum` is the effective minimum: as many others stay in sync. The leader stays. Returns None
    where no replica may leave, or an election is due first.
    """
    if state.leader == NO_LEADER or incarnations.bounced_members(state, brokers):
        return None
    live = [member for member in state.isr if member in brokers and member not in absent]
    superfluous = unwanted_by(replicas, move)
    unwanted = [member for member in live if member in superfluous and member != state.leader]
    unwanted = unwanted[: max(len(live) - minimum, 0)]
    if not unwanted:
        return None
    isr = tuple([member for member in state.isr if member not in unwanted])
    epochs = {**eligible_replicas.members(state), **_present(isr, brokers)}
    return replace(
        under_next_epoch(state, controller_epoch),
        isr=isr,
        isr_epochs=tuple([epochs[member] for member in isr]),
        # At least `minimum` members are left: no replica is eligible (E1).
        elr=(),
        elr_epochs=(),
    )


def _present(isr: Replicas, brokers: Brokers) -> dict[int, int]:
    """Return the broker epochs of the live members: none has bounced."""
    return {member: brokers[member].broker_epoch for member in isr if member in brokers}


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


def rolled_back(
    state: PartitionState,
    original: Replicas,
    brokers: Brokers,
    absent: Container[int],
    minimum: int,
    controller_epoch: int,
) -> PartitionState | None:
    """Return the state that ends a cancelled move: ISR and leader among the originals (R3, V52).

    `minimum` is the effective minimum of the original replicas. Returns None while the originals
    would be fewer live in-sync replicas than the minimum and than there are now, or hold fewer of
    the copies that a recovery by proof counts on (E1, E6). Returns None where an election is due
    first, too.
    """
    if state.leader == NO_LEADER or incarnations.bounced_members(state, brokers):
        return None
    isr = tuple([member for member in state.isr if member in original])
    live = [member for member in state.isr if member in brokers and member not in absent]
    kept = [member for member in original if member in live]
    if not kept or len(kept) < min(minimum, len(live)):
        return None
    members = eligible_replicas.members(state)
    eligible = eligible_replicas.after(state, isr, minimum, original)
    if len(isr) + len(eligible.elr) < min(minimum, len(members)):
        return None
    leader = state.leader
    if leader not in original:
        able = [member for member in kept if not brokers[member].is_leaving]
        leader = (able or kept)[0]
    return PartitionState(
        leader=leader,
        leader_epoch=state.leader_epoch + 1,
        isr=isr,
        controller_epoch=controller_epoch,
        partition_epoch=state.partition_epoch + 1,
        leader_recovery_state=state.leader_recovery_state,
        # No live member has bounced: each counts in its present incarnation.
        isr_epochs=tuple(
            [brokers[each].broker_epoch if each in brokers else members[each] for each in isr]
        ),
        elr=eligible.elr,
        elr_epochs=eligible.elr_epochs,
        # `last_leader` is that of a partition without a leader, and this one has one.
        reassigned_to=original,
        first_epochs=state.first_epochs,
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
