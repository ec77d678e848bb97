"""Topics' nodes and states as they were read: what becomes known, what brokers must be sent (V25).

Readings are facts: they enter the image at once. Every partition of a topic that was read is looked
at. A node that somebody else changed counts as far as `edits` allows. Brokers are sent everything
where a topic may be news to them although nothing of it is decided (V35).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidelog.controller.agenda import Agenda
from tidelog.controller.draft import Draft
from tidelog.controller.events import Event
from tidelog.controller.image import Image
from tidelog.controller.partitions.addition import FormerFound
from tidelog.controller.partitions.removal import RemovalsAdded
from tidelog.controller.state_writes import StatePublished, StateUnreadable, last_known
from tidelog.controller.topics import edits
from tidelog.controller.topics.changes import TopicFound, TopicGone, TopicUnreadable
from tidelog.core.types import PartitionState, TopicPartition


@dataclass(frozen=True, slots=True)
class TopicsRead(Event):
    """The names of all topics, and the nodes of those that the image does not hold."""

    names: Sequence[str]
    found: Sequence[TopicFound | TopicUnreadable]


@dataclass(frozen=True, slots=True)
class StatesRead(Event):
    """State nodes that could not be read, read again: the state, or why it still cannot be."""

    found: Mapping[TopicPartition, PartitionState | str]


@dataclass(frozen=True, slots=True)
class TopicNodeRemoved:
    """Somebody has removed the node of a topic."""

    name: str


def topics_read(event: TopicsRead, draft: Draft, agenda: Agenda) -> None:
    """Take over topics that are new or changed, and forget those that have gone."""
    image = draft.image
    names = dict.fromkeys(event.names)
    for name in [*image.topics, *image.unreadable]:
        if name not in names:
            _vanished(name, draft)
    for found in event.found:
        if isinstance(found, TopicFound):
            _topic_read(found, draft, agenda)
        else:
            image.apply(found)
    agenda.look_at_requests(image)


def _topic_read(found: TopicFound, draft: Draft, agenda: Agenda) -> None:
    image = draft.image
    taken, changes = _adopted(found, draft)
    if isinstance(taken, TopicUnreadable):
        image.apply(taken)
        return
    if _is_news_to_brokers(taken, image):
        draft.send_everything(image.brokers)
    _report_unreadable(taken, draft)
    image.apply(taken)
    # What is known of former lives of partitions goes when the topic is taken over.
    for change in changes:
        image.apply(change)
    topic = taken.topic
    agenda.look_at(topic.partitions)
    draft.show(topic.partitions)
    moving = [TopicPartition(topic.name, partition) for partition in topic.moves]
    agenda.look_at_departures(moving, image)


def _vanished(name: str, draft: Draft) -> None:
    """Somebody has removed the node of a topic (V25): brokers are sent everything without it at
    once, which makes its replicas strays. Those of a deletion under way are deleted."""
    image = draft.image
    deletion = image.deletions.get(name)
    if deletion is None or not deletion.commanded:
        draft.notice(TopicNodeRemoved(name))
        draft.send_everything(image.brokers)
    image.apply(TopicGone(name))


def _is_news_to_brokers(found: TopicFound, image: Image) -> bool:
    """Whether brokers must be sent a topic even if nothing of it is decided: it could not be read,
    and some may have registered meanwhile; somebody has brought its nodes back, with what was
    published in them; or it has taken the place of another one of its name, whose replicas are
    strays."""
    name = found.topic.name
    known = image.topics.get(name)
    if known is not None and known.topic_id != found.topic.topic_id:
        return True
    if name in image.unreadable or any(
        TopicPartition(name, number) in image.unreadable_states for number in found.states
    ):
        return True
    return name not in image.topics and bool(found.states)


def _report_unreadable(found: TopicFound, draft: Draft) -> None:
    """Report the last known state of partitions whose states cannot be read any more."""
    for partition in found.unreadable:
        topic_partition = TopicPartition(found.topic.name, partition)
        state = draft.image.states.get(topic_partition)
        if state is not None:
            draft.report(last_known(topic_partition, state))


def _adopted(
    found: TopicFound, draft: Draft
) -> tuple[TopicFound | TopicUnreadable, Sequence[FormerFound | RemovalsAdded]]:
    name, image = found.topic.name, draft.image
    known = image.topics.get(name)
    if known is None or edits.is_another(known, found, image):
        fault = edits.fault(found)
        if not fault:
            return found, ()
        if image.unreadable.get(name) != fault:
            draft.report(f"topic {name!r} is left alone until its node is mended: {fault}")
        return TopicUnreadable(name, fault), ()
    adopted = edits.adopt(known, found, image)
    if adopted.report:
        draft.report(adopted.report)
    return adopted.found, adopted.changes


def states_read(event: StatesRead, draft: Draft, agenda: Agenda) -> None:
    """Take over states that could not be read: brokers that had no role meanwhile get one (V35)."""
    image = draft.image
    for topic_partition, found in event.found.items():
        if topic_partition not in image.unreadable_states:
            continue
        if isinstance(found, str):
            image.apply(StateUnreadable(topic_partition, found))
            continue
        image.apply(StatePublished(topic_partition, found))
        draft.send_everything(image.brokers)
        agenda.look_at((topic_partition,))
        draft.show((topic_partition,))
        agenda.look_at_departures((topic_partition,), image)
        agenda.look_at_requests(image)
