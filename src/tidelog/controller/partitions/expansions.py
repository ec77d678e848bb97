"""Expansions of ISRs that the controller holds back for a while, to merge them (A11).

A broker that was down catches up on its partitions one after the other. With `isr.expand.linger.ms`
the controller collects ISR expansions for a while and writes them together. Expansions written
together need fewer transactions of the metadata store, and the controller sends their states to the
brokers once. A held expansion may still be accepted, so its leader keeps the joining replica in the
maximal ISR (A8). A newer proposal for the partition replaces a held expansion. The controller holds
back neither a shrink nor the expansion of an ISR below the effective minimum. Expansions of a
partition that is being reassigned, or whose leader shuts down, are not held back either.
`alter_partition` judges the due expansions again.
"""

from __future__ import annotations

from tidelog.controller.events import Event
from tidelog.controller.partitions.isr import Proposal, ProposalVerdict
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode
from tidelog.core.types import PartitionState, TopicPartition
from tidelog.wire.messages.alter_partition import RequestPartitionData, RequestTopicData


@dataclass(frozen=True, slots=True)
class ExpansionsDue(Event):
    """isr.expand.linger.ms has passed since the controller began to hold expansions back."""


@dataclass(frozen=True, slots=True)
class ExpansionsHeld:
    """Notice: the controller begins to hold expansions back, and a timer must end the wait."""

    topic_partition: TopicPartition
    linger_ms: int


@dataclass(frozen=True, slots=True)
class HeldExpansion:
    """One partition of a leader's AlterPartition request."""

    sender: int
    sender_epoch: int
    version: int
    topic: RequestTopicData
    data: RequestPartitionData


class HeldExpansions:
    """The expansions that wait for the next ExpansionsDue, at most one of each partition."""

    def __init__(self) -> None:
        self._held: dict[TopicPartition, HeldExpansion] = {}

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, topic_partition: TopicPartition, expansion: HeldExpansion) -> bool:
        """Hold back an expansion of the partition; return whether none was held back before."""
        is_first = not self._held
        self._held[topic_partition] = expansion
        return is_first

    def take(self) -> dict[TopicPartition, HeldExpansion]:
        """Remove and return all expansions that are held back."""
        held, self._held = self._held, {}
        return held

    def copy(self) -> HeldExpansions:
        """Return an independent copy."""
        other = HeldExpansions()
        other._held = dict(self._held)
        return other

    def key(self) -> tuple[object, ...]:
        """Return a hashable form of the held expansions, for the model checker."""
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

    `minimum` is the effective minimum. An expansion of an ISR below the minimum does not wait,
    because producers wait for it. `is_moving` means that the partition is being reassigned.
    `is_leaving` means that its leader shuts down, and other replicas must join so that leadership
    can be transferred (V43).
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
