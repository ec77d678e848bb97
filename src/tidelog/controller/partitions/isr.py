"""AlterPartition: whether a requested ISR may become published state (A1-A4, V63).

This module judges one partition of a request at a time against published state and the live
brokers; the caller has checked the sender (A2). The checks have the same order as in Kafka's KRaft
controller. The module compares the broker epochs of *all* members (V63), because a member that
caught up in an earlier incarnation may not have caught up in its present incarnation. A leader of
Kafka's ZooKeeper mode sends no broker epochs. If such a leader adds a replica that may have
restarted, the controller raises the leader epoch, so that only fetches of the replica's present
incarnation can bring it into the ISR. After some refusals, a leader relies on the fact that the
proposed ISR never becomes published state, so the controller makes sure of this fact (A8).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tidelog.controller import incarnations
from tidelog.controller.incarnations import Brokers
from tidelog.core import eligible_replicas
from tidelog.core.dataclass import dataclass
from tidelog.core.eligible_replicas import EligibleReplicas
from tidelog.core.errors import ErrorCode
from tidelog.core.types import NO_BROKER_EPOCH, RECOVERED, RECOVERING, PartitionState
from tidelog.wire.messages.alter_partition import RequestPartitionData

#: First version of AlterPartition with the broker epoch of each member (KIP-903).
FIRST_VERSION_WITH_EPOCHS = 3
#: First version of AlterPartition whose senders understand INELIGIBLE_REPLICA (KIP-841).
FIRST_VERSION_WITH_INELIGIBLE = 2


@dataclass(frozen=True, slots=True)
class Proposal:
    """The ISR that a leader proposes."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    #: Broker epoch under which each member fetched, parallel to `isr`; -1 for an unknown epoch.
    isr_epochs: tuple[int, ...]
    leader_recovery_state: int


@dataclass(frozen=True, slots=True)
class ProposalVerdict:
    """The controller's verdict on a proposal.

    `is_new` says that `state` must be published before the leader receives the response, be it an
    acceptance or a refusal (`error`). Otherwise `state` is already published, or None.
    """

    error: ErrorCode = ErrorCode.NONE
    state: PartitionState | None = None
    is_new: bool = False


def proposal(sender: int, data: RequestPartitionData, version: int) -> Proposal:
    """Return the ISR that a request proposes for one partition.

    Only newer versions of the request have the members' broker epochs.
    """
    if version >= FIRST_VERSION_WITH_EPOCHS:
        members = [(member.broker_id, member.broker_epoch) for member in data.new_isr_with_epochs]
    else:
        members = [(broker_id, NO_BROKER_EPOCH) for broker_id in data.new_isr]
    return Proposal(
        leader=sender,
        leader_epoch=data.leader_epoch,
        partition_epoch=data.partition_epoch,
        isr=tuple(broker_id for broker_id, _ in members),
        isr_epochs=tuple(epoch for _, epoch in members),
        leader_recovery_state=data.leader_recovery_state,
    )


def judge(
    wanted: Proposal,
    state: PartitionState,
    replicas: Sequence[int],
    brokers: Brokers,
    controller_epoch: int,
    version: int,
    minimum: int = 1,
) -> ProposalVerdict:
    """Accept or reject a proposal; a proposal that equals published state succeeds (A3, A4).

    `minimum` is the effective minimum, on which the eligible replicas depend (E1).
    """
    error = fencing_error(wanted, state)
    if error is not ErrorCode.NONE:
        return ProposalVerdict(error)
    if holds_already(wanted, state):
        return ProposalVerdict(state=state)
    if wanted.partition_epoch < state.partition_epoch:
        return ProposalVerdict(ErrorCode.INVALID_UPDATE_VERSION)
    if not is_well_formed(wanted, state, replicas):
        return ProposalVerdict(ErrorCode.INVALID_REQUEST)
    ineligible = ineligible_members(wanted, state, brokers)
    if ineligible and all(_lacks_epoch(member, wanted, state, brokers) for member in ineligible):
        recounted = _under_next_leader_epoch(state, brokers, controller_epoch)
        if recounted is not None:
            return ProposalVerdict(ErrorCode.FENCED_LEADER_EPOCH, recounted, is_new=True)
    if ineligible:
        error = ErrorCode.INELIGIBLE_REPLICA
        if version < FIRST_VERSION_WITH_INELIGIBLE:
            error = ErrorCode.OPERATION_NOT_ATTEMPTED
        return _refused_for_good(error, wanted, state, controller_epoch)
    proven = partial(incarnations.proven_members, state, brokers)
    eligible = eligible_replicas.after(state, wanted.isr, minimum, replicas, proven=proven)
    accepted = _accepted(wanted, state, brokers, controller_epoch, eligible)
    return ProposalVerdict(state=accepted, is_new=True)


def fencing_error(wanted: Proposal, state: PartitionState) -> ErrorCode:
    """Return why the sender may not propose an ISR now (A3); NONE if it may."""
    if wanted.leader_epoch < 0 or wanted.partition_epoch < 0:
        # To the store, a negative version means "any version" (V6).
        return ErrorCode.INVALID_REQUEST
    if wanted.leader_epoch > state.leader_epoch or wanted.partition_epoch > state.partition_epoch:
        return ErrorCode.NOT_CONTROLLER
    if wanted.leader_epoch < state.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if wanted.leader != state.leader:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def holds_already(wanted: Proposal, state: PartitionState) -> bool:
    """Return whether published state already has the proposed ISR and recovery state (A4)."""
    return (
        sorted(wanted.isr) == sorted(state.isr)
        and wanted.leader_recovery_state == state.leader_recovery_state
    )


def is_well_formed(wanted: Proposal, state: PartitionState, replicas: Sequence[int]) -> bool:
    """Return whether the ISR is within the assignment, without duplicates, and includes the leader.

    The leader recovery state may change only from recovering to recovered.
    """
    isr = wanted.isr
    if wanted.leader not in isr or len(dict.fromkeys(isr)) != len(isr):
        return False
    if any(member not in replicas for member in isr):
        return False
    if wanted.leader_recovery_state == RECOVERING:
        return state.leader_recovery_state == RECOVERING and len(isr) == 1
    return wanted.leader_recovery_state == RECOVERED


def ineligible_members(
    wanted: Proposal, state: PartitionState, brokers: Brokers
) -> tuple[int, ...]:
    """Return the proposed members that are not eligible.

    An ineligible member is not alive in the incarnation whose fetch brought it into the proposal
    (V63), or is leaving (V43). A leader that is itself leaving stays a member, because it adds
    members to which leadership can be transferred.
    """
    return tuple(
        member
        for member, epoch in zip(wanted.isr, wanted.isr_epochs, strict=True)
        if not _is_eligible(member, epoch, state, brokers)
        or (brokers[member].is_leaving and member != wanted.leader)
    )


def _is_eligible(member: int, epoch: int, state: PartitionState, brokers: Brokers) -> bool:
    broker = brokers.get(member)
    if broker is None:
        return False
    if epoch != NO_BROKER_EPOCH:
        return epoch == broker.broker_epoch
    if member in state.isr:
        return member not in incarnations.bounced_members(state, brokers)
    # True if the broker registered before the present state was written. A leader (Kafka's, too)
    # proposes a follower without an epoch only after a fetch that arrived when the leader knew the
    # present state. That fetch therefore came from the follower's present incarnation.
    return broker.broker_epoch <= state.mzxid


def _lacks_epoch(member: int, wanted: Proposal, state: PartitionState, brokers: Brokers) -> bool:
    """Return whether a joining member is ineligible only because the leader sent no epoch."""
    epoch = dict(zip(wanted.isr, wanted.isr_epochs, strict=True))[member]
    broker = brokers.get(member)
    return (
        epoch == NO_BROKER_EPOCH
        and member not in state.isr
        and broker is not None
        and not broker.is_leaving
    )


def _under_next_leader_epoch(
    state: PartitionState, brokers: Brokers, controller_epoch: int
) -> PartitionState | None:
    """Return the same state under the next leader epoch, for a leader that sends no broker epochs.

    The leader proposes the ISR again under the next leader epoch. Fetches of an earlier incarnation
    of the joining replica carry an earlier leader epoch, and the leader rejects them (V37). Under
    the next leader epoch, only fetches of the replica's present incarnation can thus bring it into
    the ISR. Returns None if a member of the ISR is down or has restarted (V10): this function would
    hide the restart, and the partition needs an election instead.
    """
    epochs = state.isr_epochs
    if epochs is None:
        if any(member not in brokers for member in state.isr):
            return None
        if incarnations.restarted_members(state, brokers):
            return None
        epochs = tuple(brokers[member].broker_epoch for member in state.isr)
    next_epoch = state.partition_epoch + 1
    return replace(
        state,
        controller_epoch=controller_epoch,
        leader_epoch=state.leader_epoch + 1,
        partition_epoch=next_epoch,
        isr_epochs=epochs,
    )


def _refused_for_good(
    error: ErrorCode, wanted: Proposal, state: PartitionState, controller_epoch: int
) -> ProposalVerdict:
    """Return a final refusal, after which the leader drops the ISR change (A8).

    A controller may later receive a resent copy of the request and, with other live brokers, accept
    it. Before a final refusal, the controller therefore advances the partition epoch, so that
    copies of the request name an outdated partition epoch. A deposed controller cannot make this
    write. The controller leaves the node unchanged if the state records no broker epochs (V10), or
    the request has none for a joining member (V63). In these cases the time of the node's last
    modification shows which members have restarted, and a write would change this time.
    """
    epochs = dict(zip(wanted.isr, wanted.isr_epochs, strict=True))
    joining = [epoch for member, epoch in epochs.items() if member not in state.isr]
    if state.isr_epochs is None or NO_BROKER_EPOCH in joining:
        return ProposalVerdict(error)
    next_epoch = state.partition_epoch + 1
    return ProposalVerdict(
        error, replace(state, controller_epoch=controller_epoch, partition_epoch=next_epoch), True
    )


def _accepted(
    wanted: Proposal,
    state: PartitionState,
    brokers: Brokers,
    controller_epoch: int,
    eligible: EligibleReplicas,
) -> PartitionState:
    return replace(
        state,
        isr=wanted.isr,
        controller_epoch=controller_epoch,
        partition_epoch=state.partition_epoch + 1,
        leader_recovery_state=wanted.leader_recovery_state,
        # Every member of the accepted ISR is alive, so its present broker epoch is recorded.
        isr_epochs=tuple(brokers[member].broker_epoch for member in wanted.isr),
        elr=eligible.elr,
        elr_epochs=eligible.elr_epochs,
        mzxid=0,
    )
