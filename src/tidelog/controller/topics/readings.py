"""Readings of topics' nodes and states: changes of the image, and commands to brokers (V25).

The controller applies a reading to the image at once, and checks every partition of a topic that
was read. If another writer changed a topic's node, the controller accepts only the changes that
`edits` allows. If brokers may not know a topic, and no write of its states is due, the controller
sends brokers full commands (V35).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidelog.controller.agenda import Agenda
from tidelog.controller.draft import Draft
from tidelog.controller.events import Event
from tidelog.controller.image import Image
from tidelog.controller.partitions.addition import FormerFound
from tidelog.controller.partitions.removal import RemovalsAdded
from tidelog.controller.state_writes import (
    StatePublished,
    StateUnreadable,
    last_known,
    strangers_reported,
)
from tidelog.controller.topics import edits
from tidelog.controller.topics.changes import TopicFound, TopicGone, TopicUnreadable
from tidelog.core import eligible_replicas
from tidelog.core.dataclass import dataclass
from tidelog.core.types import PartitionState, TopicPartition


@dataclass(frozen=True, slots=True)
class TopicsRead(Event):
    """Event: the controller has read the names of all topics, and the nodes of topics that its
    image lacks.
    """

    names: Sequence[str]
    found: Sequence[TopicFound | TopicUnreadable]


@dataclass(frozen=True, slots=True)
class StatesRead(Event):
    """Event: unreadable state nodes were read again.

    By partition: its state, or why its node is still unreadable.
    """

    found: Mapping[TopicPartition, PartitionState | str]


@dataclass(frozen=True, slots=True)
class TopicNodeRemoved:
    """Notice: another writer has removed the node of a topic."""

    name: str


def topics_read(event: TopicsRead, draft: Draft, agenda: Agenda) -> None:
    """Apply topics that are new or changed, and drop topics that are gone."""
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
    taken = _without_strangers(taken, draft)
    if _is_news_to_brokers(taken, image):
        draft.send_everything(image.brokers)
    _report_unreadable(taken, draft)
    image.apply(taken)
    # `changes` come after `taken`, which drops all recorded former incarnations of the topic's
    # partitions: `changes` may record new ones.
    for change in changes:
        image.apply(change)
    topic = taken.topic
    agenda.look_at(topic.partitions)
    draft.show(topic.partitions)
    moving = [TopicPartition(topic.name, partition) for partition in topic.moves]
    agenda.look_at_departures(moving, image)


def _without_strangers(found: TopicFound, draft: Draft) -> TopicFound:
    """Remove eligible replicas outside the assignment from the states, and report them (E1)."""
    topic, states = found.topic, dict(found.states)
    for partition, state in found.states.items():
        assigned = topic.assignments.get(partition)
        if not state.elr or assigned is None:
            continue
        topic_partition = TopicPartition(topic.name, partition)
        report = strangers_reported(topic_partition, state, assigned)
        if report:
            draft.report(report)
            states[partition] = eligible_replicas.without_strangers(state, assigned)
    return replace(found, states=states)


def _vanished(name: str, draft: Draft) -> None:
    """Drop a topic whose node another writer has removed (V25).

    Brokers get full commands that omit the topic, so that its replicas become strays. If a deletion
    of the topic is under way, the brokers delete the topic's replicas instead.
    """
    image = draft.image
    deletion = image.deletions.get(name)
    if deletion is None or not deletion.commanded:
        draft.notice(TopicNodeRemoved(name))
        draft.send_everything(image.brokers)
    image.apply(TopicGone(name))


def _is_news_to_brokers(found: TopicFound, image: Image) -> bool:
    """Return whether brokers need full commands because of a topic, even if no write is due.

    Brokers that registered while the topic could not be read do not know the topic. Brokers do not
    know a topic whose nodes another writer has restored together with published states. If the
    topic has replaced another topic of the same name, brokers must set the replaced topic's
    replicas aside as strays.
    """
    name = found.topic.name
    known = image.topics.get(name)
    if known is not None and known.topic_id != found.topic.topic_id:
        return True
    if name in image.unreadable or any(
        partition.topic == name and partition.partition in found.states
        for partition in image.unreadable_states
    ):
        return True
    return name not in image.topics and bool(found.states)


def _report_unreadable(found: TopicFound, draft: Draft) -> None:
    """Report the last known state of partitions whose states can no longer be read."""
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
            draft.report(f"topic {name!r} is left alone until its node is repaired: {fault}")
        return TopicUnreadable(name, fault), ()
    adopted = edits.adopt(known, found, image)
    if adopted.report:
        draft.report(adopted.report)
    return adopted.found, adopted.changes


def states_read(event: StatesRead, draft: Draft, agenda: Agenda) -> None:
    """Apply states that could not be read before; their replicas get roles now (V35)."""
    image = draft.image
    for topic_partition, found in event.found.items():
        if topic_partition not in image.unreadable_states:
            continue
        if isinstance(found, str):
            image.apply(StateUnreadable(topic_partition, found))
            continue
        assigned = image.assigned(topic_partition)
        report = strangers_reported(topic_partition, found, assigned)
        if report:
            draft.report(report)
        found = eligible_replicas.without_strangers(found, assigned)
        image.apply(StatePublished(topic_partition, found))
        draft.send_everything(image.brokers)
        agenda.look_at((topic_partition,))
        draft.show((topic_partition,))
        agenda.look_at_departures((topic_partition,), image)
        agenda.look_at_requests(image)
