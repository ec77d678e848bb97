"""Reassignment of one partition: its replicas during the reassignment, and the end (V50 to V52).

While replicas are being added, the assignment names all replicas: the target in its order, then the
replicas to remove. The reassignment is complete when every replica of the target is in the ISR
(V51). Then the controller publishes a state with only the target replicas, under the next leader
epoch. The published state names the target (`reassigned_to`), so no replica that is to be removed
can rejoin the ISR under any controller (V52). A write that begins a move to another target removes
replicas from the ISR that only an earlier target added (R10).

A cancellation returns a reassignment to its original replicas (R3). A cancellation copies no
replica, so it ends as soon as ISR and leader are among the original replicas. A cancellation waits
only while fewer original replicas are in sync than min.insync.replicas requires, and an added
replica is in sync, too. All transitions depend on published state only.
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
    """Return the assignment and the reassignment with which a move to `target` begins (R4).

    The reassignment is None if no replica is added or removed. Replicas that only an earlier target
    added are among the replicas to remove (R10). If `target` is the original replicas in their
    order, the move is a rollback, and adds no replica (R3).
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
    """Return whether a reassignment returns to its original replicas (R3)."""
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

    At least `minimum` replicas, the effective minimum, stay in the ISR. The leader stays. Returns
    None if no replica may leave, or an election is due first.
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
        # At least `minimum` members remain in the ISR, so the list of eligible leader replicas is
        # empty (E1).
        elr=(),
        elr_epochs=(),
    )


def _present(isr: Replicas, brokers: Brokers) -> dict[int, int]:
    """Return the broker epochs of the live ISR members; the caller excludes bounced members."""
    return {member: brokers[member].broker_epoch for member in isr if member in brokers}


def under_next_epoch(state: PartitionState, controller_epoch: int) -> PartitionState:
    """Return the same state under the next leader epoch and the next partition epoch.

    With the new leader epoch every replica takes over a changed assignment (V33).
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
    """Return the state that ends a rollback: ISR and leader are original replicas (R3, V52).

    `minimum` is the effective minimum of the original replicas. Returns None while fewer original
    replicas are live and in sync than the lesser of `minimum` and the number of all live in-sync
    replicas. Returns None while the rollback would leave too few members for a recovery by proof
    (E1, E6). Returns None if the partition needs an election first.
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
        # No live member has bounced, so the present broker epoch of each live member is recorded.
        isr_epochs=tuple(
            [brokers[each].broker_epoch if each in brokers else members[each] for each in isr]
        ),
        elr=eligible.elr,
        elr_epochs=eligible.elr_epochs,
        # The field `last_leader` stays empty, because only a partition without a leader has one.
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
    """Return the state that completes a reassignment: ISR and leader are in the target (V52).

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
        # The caller has excluded bounced members: every member kept its log, so the state records
        # each member's present broker epoch.
        isr_epochs=tuple(brokers[member].broker_epoch for member in state.isr if member in target),
        # The whole target is in the ISR, so no other replica is eligible (E1).
        elr=(),
        elr_epochs=(),
        last_leader=NO_LEADER,
        reassigned_to=target,
    )
