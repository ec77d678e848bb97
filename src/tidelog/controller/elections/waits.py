"""The replicas for which partitions without a leader wait, shown to observers (E4, E6).

A member of a partition is a replica that is in the ISR or an eligible leader replica. This module
derives the members to wait for from the partition's state and its circumstances, as `election`
derives a leader. No decision depends on the members to wait for. The image keeps the members that
were last sent to the brokers, so that each change is sent once.
"""

from __future__ import annotations

from tidelog.controller.draft import Draft
from tidelog.controller.elections import recovery
from tidelog.controller.elections.circumstances import Circumstances
from tidelog.controller.image import Change, Image
from tidelog.controller.records import NO_LOG, UNREADABLE_LOG, Recovery
from tidelog.controller.settlement import Settlement
from tidelog.core import eligible_replicas
from tidelog.core.dataclass import dataclass
from tidelog.core.leader_wait import LeaderWait, MemberStatus
from tidelog.core.types import NO_LEADER, PartitionState, TopicId, TopicPartition


@dataclass(frozen=True, slots=True)
class WaitChanged:
    """Notice: a partition without a leader waits for other members than before."""

    topic_partition: TopicPartition
    topic_id: TopicId
    leader_epoch: int
    #: The leader before this wait; -1 if none is recorded.
    last_leader: int
    wait: LeaderWait


@dataclass(frozen=True, slots=True)
class WaitKnown(Change):
    """Change: the members for which a partition without a leader waits."""

    topic_partition: TopicPartition
    wait: LeaderWait

    def apply(self, image: Image) -> None:
        """Record why the partition waits, unless it has a leader again or is gone."""
        state = image.states.get(self.topic_partition)
        if state is not None and state.leader == NO_LEADER:
            image.waits[self.topic_partition] = self.wait


def wait_of(state: PartitionState, around: Circumstances) -> LeaderWait:
    """Return the members for which a partition without a leader waits, with their statuses."""
    plan = recovery.plan(state, around)
    found = around.recovery or Recovery()
    asked = (*found.asked, *plan.asked)
    members = tuple(
        (member, _status(member, around, found, member in asked))
        for member in eligible_replicas.members(state)
        if member in around.replicas
    )
    is_waiting = plan.is_under_way and bool(plan.missing) and not found.is_due
    return LeaderWait(members, plan.quorum, is_waiting)


def _status(member: int, around: Circumstances, found: Recovery, is_asked: bool) -> MemberStatus:
    broker = around.brokers.get(member)
    log = found.logs.get(member)
    if broker is None:
        return MemberStatus.NOT_REGISTERED
    if broker.is_leaving:
        return MemberStatus.LEAVING
    if log == UNREADABLE_LOG or member in around.offline:
        return MemberStatus.UNREADABLE
    if member in around.absent or log == NO_LOG:
        return MemberStatus.LOST
    if log is not None:
        return MemberStatus.COMPARED
    if not broker.reports_log_ends:
        return MemberStatus.SILENT
    return MemberStatus.ASKED if is_asked else MemberStatus.REGISTERED


def look_at(
    topic_partition: TopicPartition,
    state: PartitionState,
    around: Circumstances,
    draft: Draft,
    *,
    is_news: bool,
) -> None:
    """Send all brokers the reason why a partition has no leader, if the reason has changed.

    `is_news` means that this decision publishes a state of the partition, and sends the reason with
    the state.
    """
    wait = wait_of(state, around)
    if draft.image.waits.get(topic_partition) == wait:
        return
    topic_id = draft.image.topics[topic_partition.topic].topic_id
    draft.notice(
        WaitChanged(topic_partition, topic_id, state.leader_epoch, state.last_leader, wait)
    )
    if not is_news:
        draft.show((topic_partition,))


def settle(settlement: Settlement) -> None:
    """Record in the image the waits for a leader that this decision found."""
    for changed in settlement.notices.of(WaitChanged):
        settlement.apply(WaitKnown(changed.topic_partition, changed.wait))
