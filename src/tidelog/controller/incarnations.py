"""Incarnations of brokers: restarted, bounced and proven members (V10, E3, E6, E7).

A broker epoch is the creation transaction id of a registration. A broker id with another broker
epoch is another incarnation of the broker. The state node of a partition records each ISR member's
broker epoch. A member that registers under another epoch has restarted; without proof that it kept
its log, it has bounced (V10). A registration may prove that the previous incarnation ended cleanly
(E3), or that its process still runs (E7). The log of a member that bounced may be shorter than
published state assumes. The elections that use these functions are in `elections`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tidelog.core import eligible_replicas
from tidelog.core.types import NO_BROKER_EPOCH, BrokerInfo, PartitionState

Brokers = Mapping[int, BrokerInfo]


def restarted_members(state: PartitionState, brokers: Brokers) -> tuple[int, ...]:
    """Return ISR members that have restarted since they were in sync, cleanly or not.

    If the state records no broker epoch of a member, the member has restarted if its broker
    registered after the last modification of the state node.
    """
    restarted: tuple[int, ...] = ()
    for member, recorded in zip(state.isr, eligible_replicas.isr_epochs(state), strict=True):
        broker = brokers.get(member)
        if broker is None or broker.broker_epoch == recorded:
            continue
        if recorded != NO_BROKER_EPOCH or broker.broker_epoch > state.mzxid:
            restarted = (*restarted, member)
    return restarted


def is_leader_restarted(state: PartitionState, brokers: Brokers) -> bool:
    """Return whether the leader's broker has restarted since it was elected, and is alive.

    An election is then due. The broker must not lead before the election, because its log may have
    lost records (V10).
    """
    leader = brokers.get(state.leader)
    if leader is None or state.leader not in state.isr:
        return False
    recorded = eligible_replicas.isr_epochs(state)[state.isr.index(state.leader)]
    if leader.broker_epoch == recorded:
        return False
    return recorded != NO_BROKER_EPOCH or leader.broker_epoch > state.mzxid


def lost_nothing(broker: BrokerInfo, recorded_epoch: int) -> bool:
    """Return whether a broker provably lost no record since its incarnation `recorded_epoch`.

    There is a proof if the process of the incarnation `recorded_epoch` shut down cleanly (E3), or
    still runs under another registration (E7). A broker names the epochs of several earlier
    incarnations, because perhaps no controller recorded the latest of them. Only the named epochs
    count, not epochs between them. An incarnation between two named epochs may have used another
    disk, and the present disk may come from an older backup.
    """
    if recorded_epoch == NO_BROKER_EPOCH:
        return False
    return (
        broker.previous_broker_epoch == recorded_epoch
        or recorded_epoch in broker.earlier_broker_epochs
    )


def bounced_members(state: PartitionState, brokers: Brokers) -> tuple[int, ...]:
    """Return ISR members that restarted without proof that they lost nothing.

    The log of such a member may lack committed records (V10).
    """
    restarted = restarted_members(state, brokers)
    if not restarted:
        return ()
    recorded = eligible_replicas.members(state)
    return tuple(
        member for member in restarted if not lost_nothing(brokers[member], recorded[member])
    )


def proven_members(
    state: PartitionState, brokers: Brokers, bounced: Collection[int] | None = None
) -> dict[int, int]:
    """Return the broker epochs of live members that provably have every committed record.

    Each returned member is alive in its recorded incarnation, or lost nothing when its recorded
    incarnation ended (E6). Members of the ISR come first in the result. `bounced` is the result of
    `bounced_members`, if the caller has it.
    """
    if bounced is None:
        bounced = bounced_members(state, brokers)
    if not bounced and not state.elr:
        return {each: brokers[each].broker_epoch for each in state.isr if each in brokers}
    proven: dict[int, int] = {}
    for member, recorded in eligible_replicas.members(state).items():
        broker = brokers.get(member)
        if broker is None or member in bounced:
            continue
        is_recorded = recorded != NO_BROKER_EPOCH and recorded == broker.broker_epoch
        if member in state.isr or is_recorded or lost_nothing(broker, recorded):
            proven[member] = broker.broker_epoch
    return proven
