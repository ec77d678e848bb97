"""Expansions of ISRs that the controller holds back for a while, to merge them (A11).

A broker that comes back catches up on many partitions, one after the other. With
`isr.expand.linger.ms` the controller collects their expansions and writes them together: fewer
transactions, and one round of metadata. A held expansion may still be accepted, so its leader goes
on counting it (A8). A newer proposal for the partition takes its place. Nothing urgent is held:
no shrink, no expansion of an ISR below the effective minimum, none of a partition that is being
reassigned, none of a leader that shuts down. Does not write: `alter_partition` judges again what is
due.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.controller.events import Event
from tidelog.controller.partitions.isr import Proposal, ProposalVerdict
from tidelog.core.errors import ErrorCode
from tidelog.core.types import PartitionState, TopicPartition
from tidelog.wire.messages.alter_partition import RequestPartitionData, RequestTopicData


@dataclass(frozen=True, slots=True)
class ExpansionsDue(Event):
    """isr.expand.linger.ms has passed since the first of the held expansions."""


@dataclass(frozen=True, slots=True)
class ExpansionsHeld:
    """The controller begins to hold expansions back: the wait is to be timed."""

    topic_partition: TopicPartition
    linger_ms: int


@dataclass(frozen=True, slots=True)
class HeldExpansion:
    """One partition of a leader's request."""

    sender: int
    sender_epoch: int
    version: int
    topic: RequestTopicData
    data: RequestPartitionData


class HeldExpansions:
    """The expansions that wait for the next ExpansionsDue, the newest of each partition."""

    def __init__(self) -> None:
        self._held: dict[TopicPartition, HeldExpansion] = {}

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, topic_partition: TopicPartition, expansion: HeldExpansion) -> bool:
        """Hold an expansion in place of an earlier one; return whether it is the first of all."""
        is_first = not self._held
        self._held[topic_partition] = expansion
        return is_first

    def take(self) -> dict[TopicPartition, HeldExpansion]:
        """Return everything that is held, and hold nothing more."""
        held, self._held = self._held, {}
        return held

    def copy(self) -> HeldExpansions:
        """Return an independent copy."""
        other = HeldExpansions()
        other._held = dict(self._held)
        return other

    def key(self) -> tuple[object, ...]:
        """Return a value that is equal where the same expansions are held."""
        return tuple(
            (
                topic_partition,
                held.sender,
                held.sender_epoch,
                held.data.leader_epoch,
                held.data.partition_epoch,
                held.data.minimum,
                tuple(held.data.new_isr),
                tuple(
                    (member.broker_id, member.broker_epoch)
                    for member in held.data.new_isr_with_epochs
                ),
            )
            for topic_partition, held in self._held.items()
        )


def may_wait(
    wanted: Proposal,
    verdict: ProposalVerdict,
    state: PartitionState,
    minimum: int,
    *,
    is_moving: bool,
    is_leaving: bool,
) -> bool:
    """Return whether a proposal that would be accepted may be held back (A11).

    `minimum` is the effective minimum. Below it, acknowledgements wait for the expansion.
    `is_moving`: the partition is being reassigned. `is_leaving`: its leader shuts down, and others
    must join so that leadership can be transferred (V43).
    """
    return (
        verdict.error is ErrorCode.NONE
        and verdict.is_new
        and set(wanted.isr) > set(state.isr)
        and len(state.isr) >= minimum
        and wanted.leader_recovery_state == state.leader_recovery_state
        and not is_moving
        and not is_leaving
    )
