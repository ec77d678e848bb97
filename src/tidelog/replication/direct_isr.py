"""The ISR change that a leader writes into the state node itself (A12, E5).

Below `inter.broker.protocol.version` 2.7, leaders do not request ISR changes from the controller.
The leader reads the state node, decides here, and writes the node on the condition that its version
is unchanged (V6). If the node has a newer version, another write has superseded the change (A8,
A9). The leader computes the eligible replicas with the same function as the controller (E5). The
leader keeps the recorded broker epoch of a member that stays, so that the controller still detects
that this member restarted (V10). This module does not know the store, or which brokers are shutting
down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidelog.core import eligible_replicas
from tidelog.core.dataclass import dataclass
from tidelog.core.eligible_replicas import BOUNCED_EPOCH
from tidelog.core.errors import ErrorCode
from tidelog.core.types import NO_BROKER_EPOCH, PartitionState
from tidelog.replication.isr import IsrChange


@dataclass(frozen=True, slots=True)
class Verdict:
    """The leader's decision on an ISR change, given the content of the state node.

    `state` is the state to write if `is_new`, else the state that the node already has. If there is
    no valid state, `error` says why the change is refused (`LeaderReplica.change_refused`).
    """

    error: ErrorCode = ErrorCode.NONE
    state: PartitionState | None = None
    is_new: bool = False


def judge(
    change: IsrChange,
    state: PartitionState | None,
    leader: int,
    replicas: Sequence[int],
    minimum: int,
    registered: Mapping[int, int],
) -> Verdict:
    """Decide on an ISR change that the broker `leader` proposes.

    `state` is the content of the state node; None if there is no node. `minimum` is the effective
    minimum, min(min.insync.replicas, number of replicas). `registered` has the broker epoch of each
    registered broker among the change's members.
    """
    if state is None:
        return Verdict(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if state.leader_epoch != change.leader_epoch or state.leader != leader:
        # The node has another leader or leader epoch: refuse the change, and let this leader wait
        # for the controller's command.
        return Verdict(ErrorCode.FENCED_LEADER_EPOCH)
    if state.partition_epoch < change.partition_epoch:
        # The topic was recreated: the state node belongs to another topic id than the leader's
        # replica (V23).
        return Verdict(ErrorCode.UNKNOWN_TOPIC_ID)
    if state.partition_epoch > change.partition_epoch or holds_already(change, state):
        return Verdict(state=state)
    if any(member not in replicas for member in change.isr):
        return Verdict(ErrorCode.INVALID_REQUEST)
    if any(not _may_join(member, change, registered) for member in joining(change, state)):
        return Verdict(ErrorCode.OPERATION_NOT_ATTEMPTED)
    return Verdict(state=_next_state(change, state, replicas, minimum, registered), is_new=True)


def holds_already(change: IsrChange, state: PartitionState) -> bool:
    """Return whether the node's state already equals the leader's proposal (A4)."""
    return (
        sorted(change.isr) == sorted(state.isr)
        and change.leader_recovery_state == state.leader_recovery_state
    )


def joining(change: IsrChange, state: PartitionState) -> tuple[int, ...]:
    """Return the members that the change adds to the ISR."""
    return tuple(member for member in change.isr if member not in state.isr)


def _may_join(member: int, change: IsrChange, registered: Mapping[int, int]) -> bool:
    """Return whether a joining member is still registered with the broker epoch of its fetches
    (V63).

    If the follower re-registers before the write, the recorded broker epoch is older than its
    registration, which shows the restart (V10). A follower that sends no broker epoch need only be
    registered, as in Kafka; the leader proposes such a follower only in response to a fetch.
    """
    counted = _counted(change)[member]
    return member in registered and counted in (NO_BROKER_EPOCH, registered[member])


def _counted(change: IsrChange) -> dict[int, int]:
    return dict(zip(change.isr, change.isr_epochs, strict=True))


def _next_state(
    change: IsrChange,
    state: PartitionState,
    replicas: Sequence[int],
    minimum: int,
    registered: Mapping[int, int],
) -> PartitionState:
    eligible = eligible_replicas.after(state, change.isr, minimum, replicas)
    return replace(
        state,
        isr=change.isr,
        partition_epoch=state.partition_epoch + 1,
        leader_recovery_state=change.leader_recovery_state,
        isr_epochs=tuple(_epoch(member, change, state, registered) for member in change.isr),
        elr=eligible.elr,
        elr_epochs=eligible.elr_epochs,
        mzxid=0,
    )


def _epoch(
    member: int, change: IsrChange, state: PartitionState, registered: Mapping[int, int]
) -> int:
    """Return the broker epoch to record for a member of the new ISR."""
    if member not in state.isr:
        counted = _counted(change)[member]
        return registered[member] if counted == NO_BROKER_EPOCH else counted
    recorded = eligible_replicas.members(state)[member]
    if recorded != NO_BROKER_EPOCH:
        return recorded
    # No epoch is recorded for this member. If the member registered after the node's last
    # modification, it restarted; record this now, because the write changes `mzxid` (V10).
    live = registered.get(member, BOUNCED_EPOCH)
    return live if live <= state.mzxid else BOUNCED_EPOCH
