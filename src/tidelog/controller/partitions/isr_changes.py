"""ISR changes that leaders wrote into state nodes themselves (A12, A13).

The controller learns of these changes from notifications, and cannot refuse them. A state that is
newer than the image's state replaces it. Every broker gets the metadata of the new state; the
leader gets no command, because it wrote the state. The controller then checks whether members are
dead, leaving or restarted (V10, V11), and whether a reassignment of the partition is complete
(A13).
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.controller.agenda import Agenda
from tidelog.controller.cluster_events import StateChange
from tidelog.controller.draft import Draft
from tidelog.controller.events import Event
from tidelog.controller.isr_shrinks import shrinks
from tidelog.controller.orders import SendRoleAgain
from tidelog.controller.records import Presence
from tidelog.controller.state_writes import (
    StatePublished,
    StateUnreadable,
    last_known,
    strangers_reported,
)
from tidelog.core import eligible_replicas
from tidelog.core.dataclass import dataclass
from tidelog.core.types import PartitionState, TopicPartition


@dataclass(frozen=True, slots=True)
class IsrChangesRead(Event):
    """States from nodes that leaders have written, or the reason why a state cannot be read."""

    found: Mapping[TopicPartition, PartitionState | str]


def isr_changes_read(event: IsrChangesRead, draft: Draft, agenda: Agenda) -> None:
    """Apply states that are newer than the image; a repeated notification changes nothing."""
    for topic_partition, found in event.found.items():
        topic = draft.image.topics.get(topic_partition.topic)
        if topic is None or topic_partition.partition not in topic.assignments:
            # The image does not have the partition: it is gone, or its topic is new and will be
            # read.
            continue
        if isinstance(found, str):
            _unreadable(topic_partition, found, draft)
        else:
            _changed(topic_partition, found, draft, agenda)


def _changed(
    topic_partition: TopicPartition, found: PartitionState, draft: Draft, agenda: Agenda
) -> None:
    image = draft.image
    before = image.states.get(topic_partition)
    if before is None or before.partition_epoch >= found.partition_epoch:
        # If the image has no state of the partition, its node was unreadable, or the partition is
        # new; a reading of its topic or node brings the state (V35, V20).
        return
    assigned = image.assigned(topic_partition)
    report = strangers_reported(topic_partition, found, assigned)
    if report:
        draft.report(report)
        found = eligible_replicas.without_strangers(found, assigned)
    # Only the leader knows why a live member left the ISR, and no node records the cause, so the
    # cause is unknown here.
    left = shrinks(
        before,
        found,
        assigned,
        image.brokers,
        ended=image.ended,
        absent=image.absent(topic_partition),
        offline=image.offline(topic_partition),
    )
    image.apply(StatePublished(topic_partition, found, left))
    agenda.look_at((topic_partition,))
    agenda.look_at_departures((topic_partition,), image)
    draft.show((topic_partition,))
    for broker_id, presence in image.presence(topic_partition).items():
        if presence is Presence.LOST and broker_id not in eligible_replicas.members(found):
            # The broker had lost its replica while it was an ISR member. Now that it is no longer a
            # member, the broker may create the replica again (D3).
            draft.order(SendRoleAgain(broker_id, topic_partition))
    topic_id = image.topics[topic_partition.topic].topic_id
    draft.notice(StateChange(topic_partition, topic_id, before, found, True, left))


def _unreadable(topic_partition: TopicPartition, reason: str, draft: Draft) -> None:
    image = draft.image
    before = image.states.get(topic_partition)
    if before is None:
        return
    draft.report(last_known(topic_partition, before))
    image.apply(StateUnreadable(topic_partition, reason))
    draft.send_everything(image.brokers)
