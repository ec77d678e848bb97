"""Incarnations of brokers: restarted and bounced ISR members (V10, E3).

A broker epoch is the creation transaction id of a registration. Another epoch under the same broker
id is another incarnation. The state node of a partition records under which epoch each ISR member
was in sync. So any controller detects a bounce, also a controller that was elected meanwhile (V10).
A registration may prove that the previous incarnation ended cleanly (E3). The log of a member that
bounced may be shorter than published state believes. Knows nothing of leaders.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.core.types import NO_BROKER_EPOCH, BrokerInfo, PartitionState

Brokers = Mapping[int, BrokerInfo]


def recorded_epochs(state: PartitionState) -> tuple[int, ...]:
    """Return the broker epoch recorded for each ISR member, in ISR order; -1 where none is."""
    epochs = state.isr_epochs
    if epochs is None or len(epochs) != len(state.isr):
        return (NO_BROKER_EPOCH,) * len(state.isr)
    return epochs


def restarted_members(state: PartitionState, brokers: Brokers) -> tuple[int, ...]:
    """Return ISR members that have restarted since they were in sync, cleanly or not.

    Where no epoch is recorded, a registration above the node's last modification counts as a
    restart.
    """
    restarted: tuple[int, ...] = ()
    for member, recorded in zip(state.isr, recorded_epochs(state), strict=True):
        broker = brokers.get(member)
        if broker is None or broker.broker_epoch == recorded:
            continue
        if recorded != NO_BROKER_EPOCH or broker.broker_epoch > state.mzxid:
            restarted = (*restarted, member)
    return restarted


def shut_down_cleanly(broker: BrokerInfo, recorded_epoch: int) -> bool:
    """Return whether the recorded incarnation provably ended with a flushed log (E3)."""
    return recorded_epoch != NO_BROKER_EPOCH and broker.previous_broker_epoch == recorded_epoch


def bounced_members(state: PartitionState, brokers: Brokers) -> tuple[int, ...]:
    """Return ISR members that restarted without such a proof.

    Their logs may have lost records (V10).
    """
    restarted = restarted_members(state, brokers)
    if not restarted:
        return ()
    recorded = dict(zip(state.isr, recorded_epochs(state), strict=True))
    return tuple(
        member for member in restarted if not shut_down_cleanly(brokers[member], recorded[member])
    )
