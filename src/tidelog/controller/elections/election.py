"""The next published state of one partition: leader, ISR, eligible replicas (V11-V14, E1-E6, D3).

An election is level-triggered: its result depends on the published state and the circumstances
alone. Every controller therefore makes the same decision, and a repeated decision changes nothing.
A result of `None` means that the state needs no change. A member is proven if it provably has every
committed record, and bounced if it restarted without that proof. While a proven member is alive,
bounced members leave the ISR before any election (V10), and so do members whose broker lost the
replica (D3). A proven ISR member is elected; without one, a proven eligible replica is elected
(E2). While no proven member is alive, all members stay, and recovery by proof (a comparison of
logs) decides (E6). A leader that restarted gets a new leader epoch, also after a clean shutdown. A
broker that is leaving is not elected, and leaves every ISR in which another live broker stays. If
no live broker would stay, a leaving leader leads until it stops (V43).
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from functools import partial

from tidelog.controller import incarnations
from tidelog.controller.elections import recovery
from tidelog.controller.elections.circumstances import Circumstances
from tidelog.controller.incarnations import Brokers
from tidelog.controller.records import NO_LOG
from tidelog.controller.unproven_states import NOT_WRITTEN
from tidelog.core import eligible_replicas
from tidelog.core.dataclass import dataclass
from tidelog.core.eligible_replicas import BOUNCED_EPOCH
from tidelog.core.types import (
    NO_BROKER_EPOCH,
    NO_EPOCH,
    NO_LEADER,
    RECOVERING,
    PartitionState,
)


@dataclass(frozen=True, slots=True)
class Election:
    """The outcome of an election: the partition state that the controller must publish."""

    state: PartitionState
    #: Whether the leader must create an empty replica, because no candidate of the unclean election
    #: had a log.
    creates_leader: bool = False


def elect(state: PartitionState, around: Circumstances) -> Election | None:
    """Return the state to publish now, None if the state can stay."""
    if state.elr and len(state.isr) >= around.minimum and _leads_on(state, around):
        # The effective minimum was reduced after the eligible replicas left the ISR, so the ISR is
        # large enough without them. The list of eligible replicas must be cleared before the leader
        # may commit records without them.
        return _elect(replace(state, elr=(), elr_epochs=()), around) or _without_eligible(
            state, around
        )
    return _elect(state, around)


def _leads_on(state: PartitionState, around: Circumstances) -> bool:
    """Return whether the leader is alive in the incarnation that was elected."""
    leads = state.leader in around.brokers
    return leads and not incarnations.is_leader_restarted(state, around.brokers)


def _without_eligible(state: PartitionState, around: Circumstances) -> Election:
    """Return the same state without eligible replicas; leader and ISR stay (E1)."""
    return Election(
        replace(
            state,
            controller_epoch=around.controller_epoch,
            partition_epoch=state.partition_epoch + 1,
            elr=(),
            elr_epochs=(),
            isr_epochs=_kept_epochs(state, state.isr, around.brokers),
            mzxid=0,
        )
    )


def _elect(state: PartitionState, around: Circumstances) -> Election | None:
    brokers, absent = around.brokers, around.absent
    restarted = incarnations.restarted_members(state, brokers)
    leads_here = around.has_replica(state.leader) and state.leader not in restarted
    bounced = incarnations.bounced_members(state, brokers) if restarted else ()
    # An offline replica stays eligible: its disk may return with every record.
    is_whole = not state.elr or not any(replica in around.lost for replica in state.elr)
    if leads_here and not bounced and is_whole and all(map(around.can_lead, state.isr)):
        return None
    proven = [
        member
        for member in incarnations.proven_members(state, brokers, bounced)
        if member in around.replicas and around.has_replica(member)
    ]
    if not proven:
        return _elect_unproven(state, around)
    survivors = [m for m in state.isr if m not in bounced and m not in absent]
    candidates = [m for m in survivors if m in brokers and not brokers[m].is_leaving]
    if not candidates and leads_here and state.leader in survivors:
        # No other replica can lead, so the leaving leader continues to lead.
        candidates = [state.leader]
        if state.isr == (state.leader,):
            return None
    leader = _leader(state.leader if leads_here else NO_LEADER, around.replicas, candidates)
    if leader == NO_LEADER:
        eligible = [m for m in proven if m not in state.isr and around.can_lead(m)]
        leader = _leader(NO_LEADER, around.replicas, eligible)
        candidates = [leader]
    if leader != NO_LEADER:
        return Election(_published(state, leader, candidates, around))
    if around.unclean:
        election = _elect_uncleanly(state, around)
        if election is not None:
            return election
    return _leaderless(state, survivors or list(state.isr), around)


def proven_members(state: PartitionState, around: Circumstances) -> dict[int, int]:
    """Return broker epochs of live assigned members that provably have all committed data (E6)."""
    proven = incarnations.proven_members(state, around.brokers)
    return {member: epoch for member, epoch in proven.items() if member in around.replicas}


def needs_recovery(state: PartitionState, around: Circumstances) -> bool:
    """Return whether a partition waits for a recovery by proof (E6)."""
    return state.leader == NO_LEADER and not any(
        map(around.has_replica, proven_members(state, around))
    )


def _elect_unproven(state: PartitionState, around: Circumstances) -> Election | None:
    """Elect a leader, by recovery or uncleanly, while no live member provably has all records."""
    plan = recovery.plan(state, around)
    if plan.leader != NO_LEADER:
        return Election(_published(state, plan.leader, [plan.leader], around))
    if around.unclean and (around.is_forced or not plan.is_under_way):
        election = _elect_uncleanly(state, around)
        if election is not None:
            return election
    return _leaderless(state, state.isr, around)


def prefers_another(state: PartitionState, replicas: Sequence[int]) -> bool:
    """Return whether the leader is not the preferred replica, the first of the assignment."""
    return state.leader != replicas[0]


def elect_preferred(state: PartitionState, around: Circumstances) -> Election | None:
    """Elect the preferred replica (V46); return None unless it is alive and in the ISR.

    The caller must call `elect` first, because `elect` finds more urgent changes.
    """
    preferred = around.replicas[0]
    live = [member for member in state.isr if around.can_lead(member)]
    if preferred not in live or incarnations.bounced_members(state, around.brokers):
        return None
    return Election(_published(state, preferred, live, around))


def elect_instead(
    state: PartitionState, around: Circumstances, slow: Sequence[int]
) -> Election | None:
    """Elect another ISR member that is not in `slow` (F11); None if no other member can lead.

    `slow` are the brokers that reported slow reads, or a full or slow disk. The replaced leader
    stays in the ISR. If a member has bounced, the result is None, and `elect` decides.
    """
    live = [member for member in state.isr if around.can_lead(member)]
    heirs = [member for member in live if member != state.leader and member not in slow]
    leader = _leader(NO_LEADER, around.replicas, heirs)
    if leader == NO_LEADER or incarnations.bounced_members(state, around.brokers):
        return None
    return Election(_published(state, leader, live, around))


def elect_without(
    state: PartitionState, around: Circumstances, damaged: int, slow: Sequence[int]
) -> Election | None:
    """Return the next state without the damaged replica (V68); None if no member can lead.

    If the damaged replica led, a live member of the ISR is elected. A member of `slow` (brokers
    with slow reads, or a full or slow disk) is elected only if there is no other member. If another
    replica leads, it stays leader under the next leader epoch. With the command for that epoch, the
    damaged replica's broker learns that the replica left the ISR. The broker truncates the damaged
    log, so the damaged replica does not become an eligible leader replica. Without a leader, or
    with a bounced member, the result is None, and `elect` decides.
    """
    if state.leader == NO_LEADER or incarnations.bounced_members(state, around.brokers):
        return None
    without = replace(around, absent=(*around.absent, damaged))
    live = [member for member in state.isr if without.can_lead(member)]
    quick = [member for member in live if member not in slow]
    current = state.leader if state.leader in live else NO_LEADER
    leader = _leader(current, around.replicas, live if current in live else quick or live)
    if leader == NO_LEADER:
        return None
    return Election(_published(state, leader, live, without))


def is_untouched(state: PartitionState, brokers: Brokers) -> bool:
    """Return whether leader and ISR are alive in their recorded incarnations, and none is leaving.

    Such a state needs no change, unless a replica is lost, offline or eligible. A new controller
    checks all partitions, of which nearly all need no change, and this function costs much less
    than `elect`.
    """
    recorded = state.isr_epochs
    if recorded is None or len(recorded) != len(state.isr):
        return False
    for member, epoch in zip(state.isr, recorded, strict=True):
        broker = brokers.get(member)
        if broker is None or broker.broker_epoch != epoch or broker.is_leaving:
            return False
    return state.leader in state.isr


def _leader(current: int, replicas: Sequence[int], candidates: Container[int]) -> int:
    """Return the current leader if it can stay, else the first assigned candidate (V12)."""
    if current in candidates:
        return current
    return next((replica for replica in replicas if replica in candidates), NO_LEADER)


def _elect_uncleanly(state: PartitionState, around: Circumstances) -> Election | None:
    """Elect a live assigned replica with ISR = itself, RECOVERING (V13).

    The election prefers replicas that have a log, and among them members of the ISR and eligible
    replicas. After the election no other replica is eligible, so records that only other replicas
    have are lost.
    """
    members = eligible_replicas.members(state)
    live = [
        replica
        for replica in around.replicas
        if replica in around.brokers
        and not around.brokers[replica].is_leaving
        and replica not in around.offline
    ]
    if not live:
        return None
    logs = {} if around.recovery is None else around.recovery.logs

    def worth(replica: int) -> tuple[bool, bool, int, int]:
        log = logs.get(replica, NO_LOG) if state.is_unproven else NO_LOG
        is_member = replica in members
        return replica in around.absent, not is_member, -log.leader_epoch, -log.end_offset

    leader = min(live, key=worth)
    elected = replace(
        _published(state, leader, [leader], around),
        leader_recovery_state=RECOVERING,
        elr=(),
        elr_epochs=(),
    )
    return Election(elected, creates_leader=leader in around.absent)


def _published(
    state: PartitionState, leader: int, isr: Sequence[int], around: Circumstances
) -> PartitionState:
    """Return the next state with a leader; every member of the ISR is alive."""
    assert leader in isr, f"leader {leader} is not in the ISR {isr}"
    brokers = around.brokers
    published = state.in_next_epoch(
        leader,
        tuple(isr),
        around.controller_epoch,
        # Record the present broker epoch of each ISR member, whether it was a member before or
        # joins now.
        tuple([brokers[member].broker_epoch for member in isr]),
        *_eligible(state, isr, around),
        last_leader=NO_LEADER,
    )
    if state.is_unproven:
        return replace(published, leader_epoch=_epoch_above_all(state, around))
    return published


def _epoch_above_all(state: PartitionState, around: Circumstances) -> int:
    """Return a new leader's epoch, above all epochs assigned before a restore of the store (E8).

    After a restore, the leader epoch of `state` already skips the numbers that may have been
    assigned. A log has a later epoch only if the same backup was restored before, and more numbers
    were skipped then. Leaders elected after that earlier restore may have had epochs without any
    record in a log, so the returned epoch skips numbers once more.
    """
    logs = {} if around.recovery is None else around.recovery.logs
    latest = max((log.leader_epoch for log in logs.values()), default=NO_EPOCH)
    if latest > state.leader_epoch:
        return latest + around.epochs_skipped + 1
    return state.leader_epoch + 1


def _leaderless(
    state: PartitionState, survivors: Sequence[int], around: Circumstances
) -> Election | None:
    """Return the state without a leader; the ISR keeps members that may lead later (V13)."""
    is_written = state.mzxid != NOT_WRITTEN
    if is_written and state.leader == NO_LEADER and len(survivors) == len(state.isr):
        return None
    leaderless = state.in_next_epoch(
        NO_LEADER,
        tuple(survivors),
        around.controller_epoch,
        _kept_epochs(state, survivors, around.brokers),
        *_eligible(state, survivors, around),
        last_leader=state.last_leader if state.leader == NO_LEADER else state.leader,
    )
    if state.is_unproven:
        # Every assigned replica may have committed records, whatever the size of the ISR (E8).
        elr, elr_epochs = state.elr, state.elr_epochs
        leaderless = replace(leaderless, elr=elr, elr_epochs=elr_epochs, is_unproven=True)
    return Election(leaderless)


def _kept_epochs(
    state: PartitionState, survivors: Sequence[int], brokers: Brokers
) -> tuple[int, ...]:
    """Return the epochs to record for the members that stay in a partition without a leader.

    If the state records no broker epochs, a member counts as bounced if it registered after the
    node's last modification (V10). The write of the state without a leader also modifies the node,
    so this state must record the epochs.
    """
    recorded = eligible_replicas.members(state)
    bounced = incarnations.bounced_members(state, brokers)
    kept = []
    for member in survivors:
        epoch = recorded[member]
        if epoch == NO_BROKER_EPOCH:
            # Record the epoch now: if the broker restarts before this state is written, the node's
            # last modification would not show the restart.
            is_here = member in brokers and member not in bounced
            epoch = brokers[member].broker_epoch if is_here else BOUNCED_EPOCH
        kept.append(epoch)
    return tuple(kept)


def _eligible(
    state: PartitionState, isr: Sequence[int], around: Circumstances
) -> eligible_replicas.EligibleReplicas:
    """Return eligible replicas beside `isr`, with present broker epochs of proven members (E1)."""
    if len(isr) >= around.minimum:
        return eligible_replicas.NONE_ELIGIBLE
    return eligible_replicas.after(
        state,
        isr,
        around.minimum,
        around.replicas,
        lost=around.lost,
        proven=partial(proven_members, state, around),
    )


def cut_short(state: PartitionState, replicas: Sequence[int], brokers: Brokers) -> bool:
    """Return whether perhaps no broker has created its replica of the partition yet (D3).

    This is so if the state was not written after its first version, every assigned replica is
    alive, and no member has restarted.
    """
    return (
        state.partition_epoch == state.first_epochs[1]
        and all(replica in brokers for replica in replicas)
        and not incarnations.restarted_members(state, brokers)
    )
