"""The next published state of one partition: its leader and its ISR (V11-V14, V20, V46, D3).

Level-triggered: the decision follows from published state and the live brokers alone. Every
controller therefore decides the same, and deciding twice changes nothing. `None` means that no
change is due. Members that bounced leave the ISR before any election, as long as another member
remains, alive or not (V10). Members whose broker has no such replica leave it likewise (D3). When
all members bounced, one of them is elected and alone stays in the ISR: the others catch up from it.
A leader that restarted gets a new leader epoch, also after a clean shutdown. A broker that is
leaving is no candidate, and leaves every ISR in which a live broker stays. Where none stays, a
leader leads until it goes (V43).
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from tidelog.controller import incarnations
from tidelog.controller.incarnations import Brokers
from tidelog.core.types import NO_LEADER, RECOVERING, PartitionState


@dataclass(frozen=True, slots=True)
class Election:
    """A partition state to publish."""

    state: PartitionState
    #: The leader has no replica and must create an empty one: an unclean election with no log left.
    creates_leader: bool = False


def elect(
    state: PartitionState,
    replicas: Sequence[int],
    brokers: Brokers,
    absent: Sequence[int],
    unclean: bool,
    controller_epoch: int,
) -> Election | None:
    """Return the state to publish now, None when the state can stay.

    `absent`: live brokers that reported the replica missing (D3). `unclean`: the effective
    unclean.leader.election.enable.
    """
    if not absent and _is_untouched(state, brokers):
        return None
    restarted = incarnations.restarted_members(state, brokers)
    leads_here = _is_here(state.leader, brokers, absent) and state.leader not in restarted
    bounced = incarnations.bounced_members(state, brokers) if restarted else ()
    if leads_here and not bounced and all(_can_lead(m, brokers, absent) for m in state.isr):
        return None
    survivors = [m for m in state.isr if m not in bounced and m not in absent]
    all_bounced = not survivors
    if all_bounced:
        survivors = [m for m in state.isr if m not in absent]
    candidates = [m for m in survivors if m in brokers and not brokers[m].is_leaving]
    if not candidates and leads_here and state.leader in survivors:
        # No other replica can take over the leadership.
        candidates = [state.leader]
        if state.isr == (state.leader,):
            return None
    leader = _leader(state.leader if leads_here else NO_LEADER, replicas, candidates)
    if leader != NO_LEADER:
        isr = [leader] if all_bounced else candidates
        return Election(
            _published(state, leader, isr, brokers, controller_epoch, state.leader_recovery_state)
        )
    if unclean:
        election = _elect_uncleanly(state, replicas, brokers, absent, controller_epoch)
        if election is not None:
            return election
    return _leaderless(state, survivors or list(state.isr), controller_epoch)


def prefers_another(state: PartitionState, replicas: Sequence[int]) -> bool:
    """Return whether another replica leads than the preferred one, the first of the assignment."""
    return state.leader != replicas[0]


def elect_preferred(
    state: PartitionState,
    replicas: Sequence[int],
    brokers: Brokers,
    absent: Container[int],
    controller_epoch: int,
) -> Election | None:
    """Elect the preferred replica as leader (V46); None where it is not alive and in sync.

    No other change may be due: call `elect` first.
    """
    preferred = replicas[0]
    live = [member for member in state.isr if _can_lead(member, brokers, absent)]
    if preferred not in live or preferred in incarnations.bounced_members(state, brokers):
        return None
    return Election(
        _published(state, preferred, live, brokers, controller_epoch, state.leader_recovery_state)
    )


def _is_untouched(state: PartitionState, brokers: Brokers) -> bool:
    """Return whether leader and ISR are alive in their recorded incarnations, and none is leaving.

    This holds of nearly all partitions that a new controller reads; one look at each is enough.
    """
    recorded = state.isr_epochs
    if recorded is None or len(recorded) != len(state.isr):
        return False
    for member, epoch in zip(state.isr, recorded, strict=True):
        broker = brokers.get(member)
        if broker is None or broker.broker_epoch != epoch or broker.is_leaving:
            return False
    return state.leader in state.isr


def _is_here(broker_id: int, brokers: Brokers, absent: Container[int]) -> bool:
    """Return whether a replica exists and its broker is alive, leaving or not."""
    return broker_id in brokers and broker_id not in absent


def _can_lead(broker_id: int, brokers: Brokers, absent: Container[int]) -> bool:
    return _is_here(broker_id, brokers, absent) and not brokers[broker_id].is_leaving


def _leader(current: int, replicas: Sequence[int], candidates: Sequence[int]) -> int:
    """Return the current leader if it can stay, else the first candidate as assigned (V12)."""
    if current in candidates:
        return current
    return next((replica for replica in replicas if replica in candidates), NO_LEADER)


def _elect_uncleanly(
    state: PartitionState,
    replicas: Sequence[int],
    brokers: Brokers,
    absent: Container[int],
    controller_epoch: int,
) -> Election | None:
    """Elect a live assigned replica with ISR = itself, RECOVERING (V13).

    A replica with a log goes first.
    """
    live = [
        replica for replica in replicas if replica in brokers and not brokers[replica].is_leaving
    ]
    if not live:
        return None
    with_log = [replica for replica in live if replica not in absent]
    leader = (with_log or live)[0]
    return Election(
        _published(state, leader, [leader], brokers, controller_epoch, RECOVERING),
        creates_leader=not with_log,
    )


def _published(
    state: PartitionState,
    leader: int,
    isr: Sequence[int],
    brokers: Brokers,
    controller_epoch: int,
    recovery_state: int,
) -> PartitionState:
    """Return the next state with a leader; every member of the ISR is alive."""
    assert leader in isr, f"leader {leader} is not in the ISR {isr}"
    return PartitionState(
        leader=leader,
        leader_epoch=state.leader_epoch + 1,
        isr=tuple(isr),
        controller_epoch=controller_epoch,
        partition_epoch=state.partition_epoch + 1,
        leader_recovery_state=recovery_state,
        # A member that stayed, or that others follow from now on, counts in its present
        # incarnation.
        isr_epochs=tuple(brokers[member].broker_epoch for member in isr),
        elr=state.elr,
        last_leader=state.last_leader,
        reassigned_to=state.reassigned_to,
        first_epochs=state.first_epochs,
    )


def _leaderless(
    state: PartitionState, survivors: Sequence[int], controller_epoch: int
) -> Election | None:
    """Return the state without a leader; its ISR keeps the members that may lead later (V13)."""
    if state.leader == NO_LEADER and len(survivors) == len(state.isr):
        return None
    recorded = dict(zip(state.isr, incarnations.recorded_epochs(state), strict=True))
    return Election(
        PartitionState(
            leader=NO_LEADER,
            leader_epoch=state.leader_epoch + 1,
            isr=tuple(survivors),
            controller_epoch=controller_epoch,
            partition_epoch=state.partition_epoch + 1,
            leader_recovery_state=state.leader_recovery_state,
            isr_epochs=tuple(recorded[member] for member in survivors),
            elr=state.elr,
            last_leader=state.last_leader,
            reassigned_to=state.reassigned_to,
            first_epochs=state.first_epochs,
        )
    )


def cut_short(state: PartitionState, replicas: Sequence[int], brokers: Brokers) -> bool:
    """Return whether the partition may never have been created on any broker (D3).

    Its state was not written since the first time, every assigned replica is alive, and no member
    has bounced.
    """
    return (
        state.partition_epoch == state.first_epochs[1]
        and all(replica in brokers for replica in replicas)
        and not incarnations.restarted_members(state, brokers)
    )
