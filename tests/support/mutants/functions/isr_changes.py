"""Mutants of ISR changes whose outcome is open: superseded, refused, held back.

Each forgets a change that the controller may still accept, or waits for an outcome that has come.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support.mutants.mutant import mutant

from tidelog.core.errors import ErrorCode
from tidelog.replication import isr as isr_rules
from tidelog.replication.effects import SendAlterPartition


@mutant("A9", "tidelog.replication.leader:LeaderReplica._commit", profile="superseded_changes")
def pending_kept_at_newer_epoch(commit: Any) -> Any:
    """A newer partition epoch leaves the changes in flight pending."""

    def committed(leader: Any, *rest: Any) -> Any:
        before = leader.isr
        effects = commit(leader, *rest)
        if before.in_flight:
            leader.isr = replace(
                leader.isr, in_flight=before.in_flight, awaits=before.awaits, queued=None
            )
            leader._mark()
            effects = tuple(each for each in effects if not isinstance(each, SendAlterPartition))
        return effects

    return committed


@mutant(
    "A7",
    "tidelog.replication.leader:LeaderReplica._advance",
    profile="superseded_changes",
    why_no_seed="a leader commits below the minimum; the eligible replicas make up for it (E1)",
)
def minimum_of_maximal_isr(advance: Any) -> Any:
    """min.insync.replicas counts members whose joining the controller has not confirmed."""

    def advanced(leader: Any, now_ms: int) -> Any:
        state = leader.isr
        try:
            leader.isr = replace(state, committed=isr_rules.maximal_isr(state))
            return advance(leader, now_ms)
        finally:
            leader.isr = state

    return advanced


@mutant(
    "A11",
    "tidelog.replication.leader:LeaderReplica.change_unanswered",
    profile="held_expansions",
)
def held_change_dropped(unanswered: Any) -> Any:
    """An expansion that the controller holds back no longer counts."""

    def dropped(leader: Any, change: Any, now_ms: int, held_ms: int = 0) -> Any:
        if held_ms:
            return leader.change_refused(change, ErrorCode.OPERATION_NOT_ATTEMPTED, now_ms)
        return unanswered(leader, change, now_ms)

    return dropped


@mutant(
    "A11",
    "tidelog.controller.partitions.alter_partition:alter_held",
    profile="held_expansions",
)
def expansions_held_for_ever(_: Any) -> Any:
    """The controller never decides on the expansions that it holds back."""

    def nothing(held: Any, draft: Any) -> None:
        held.take()

    return nothing


@mutant(
    "A9",
    "tidelog.broker.replicas.isr.foreign_isr_changes:ForeignIsrChanges.published",
    profile="rogue_isr_changes",
)
def foreign_isr_change_ignored(_: Any) -> Any:
    """A leader does not look whether the published ISR is newer than its own."""
    return lambda self, message: None


@mutant(
    "A9",
    "tidelog.broker.replicas.isr.foreign_isr_changes:ForeignIsrChanges.published",
    profile="rogue_isr_changes",
)
def own_isr_change_hides_a_later_one(original: Any) -> Any:
    """A leader with a change in flight does not look whether a later change was published."""

    def published(self: Any, message: Any) -> None:
        original(self, message)
        for name in [name for name in self._behind if self._has_change_in_flight(name)]:
            del self._behind[name]

    return published
