"""Eligible leader replicas, which left the ISR and have every committed record (E1, E5).

While the ISR is smaller than the effective minimum, the high watermark does not advance (V60), so a
replica whose removal makes the ISR too small has every committed record. The removed replica enters
`elr`, so every committed record is on all *members*, the union of the ISR and `elr` (E6). When the
ISR reaches the minimum again, records may be committed without the replicas in `elr`, so `elr` is
cleared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tidelog.core.types import NO_BROKER_EPOCH, PartitionState

#: The broker epoch that a state node records for a member that may have lost records: the member's
#: broker re-registered, and the node had no broker epoch of the member to compare with. No
#: registration has this epoch.
BOUNCED_EPOCH = 0


class EligibleReplicas(NamedTuple):
    """The ELR keys of a state node: the replicas, and the recorded broker epoch of each replica."""

    elr: tuple[int, ...] = ()
    elr_epochs: tuple[int, ...] = ()


NONE_ELIGIBLE = EligibleReplicas()


def isr_epochs(state: PartitionState) -> tuple[int, ...]:
    """Return the recorded broker epoch of each ISR member, in ISR order; -1 if none is recorded."""
    epochs = state.isr_epochs
    if epochs is None or len(epochs) != len(state.isr):
        return (NO_BROKER_EPOCH,) * len(state.isr)
    return epochs


def members(state: PartitionState) -> dict[int, int]:
    """Return the recorded broker epoch of each member, the ISR first; -1 if none is recorded."""
    found = dict(zip(state.isr, isr_epochs(state), strict=True))
    for replica, epoch in zip(state.elr, state.elr_epochs, strict=True):
        found.setdefault(replica, epoch)
    return found


def after(
    state: PartitionState,
    isr: Collection[int],
    minimum: int,
    replicas: Sequence[int],
    lost: Collection[int] = (),
    proven: Callable[[], Mapping[int, int]] = dict,
) -> EligibleReplicas:
    """Return the eligible replicas after `isr` replaces the ISR of `state` (E1).

    `minimum` is the effective minimum, min(min.insync.replicas, number of replicas). `lost` are
    members that lost their replica (D3). `proven` returns, for some members, a broker epoch that is
    newer than the recorded one: the member re-registered, and provably had lost no record until
    then. The result has these newer epochs. The function `proven` is called only if the new ISR is
    smaller than `minimum`.
    """
    if len(isr) >= minimum:
        return NONE_ELIGIBLE
    newer = proven()
    left = {
        member: newer.get(member, recorded)
        for member, recorded in members(state).items()
        if member in replicas and member not in isr and member not in lost
    }
    return EligibleReplicas(tuple(left), tuple(left.values()))


def strangers(state: PartitionState, replicas: Collection[int]) -> tuple[int, ...]:
    """Return the eligible replicas that are not assigned; a correct state node has none."""
    return tuple(replica for replica in state.elr if replica not in replicas)


def without_strangers(state: PartitionState, replicas: Collection[int]) -> PartitionState:
    """Return the state without eligible replicas that are not assigned (E1)."""
    if not strangers(state, replicas):
        return state
    kept = {
        replica: epoch
        for replica, epoch in zip(state.elr, state.elr_epochs, strict=True)
        if replica in replicas
    }
    return replace(state, elr=tuple(kept), elr_epochs=tuple(kept.values()))
