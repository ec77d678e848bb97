"""Topics' nodes that another writer changed: which changes the controller accepts (V25).

An edit of a topic's node counts as a request to add partitions, or to remove the highest
partitions, with the checks of such a request. If an edit changes anything else, the controller
ignores the edit, and its next write of the topic's node overwrites the edit. If the topic is new to
this controller, and the node contradicts the states of its partitions, the node counts as
unreadable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tidelog.controller.image import Image
from tidelog.controller.partitions.addition import FormerFound, changeable
from tidelog.controller.partitions.assignments import explicit
from tidelog.controller.partitions.removal import RemovalsAdded
from tidelog.controller.records import Topic
from tidelog.controller.topics.changes import TopicFound
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import PartitionState, TopicPartition, topic_id_to_text


@dataclass(frozen=True, slots=True)
class Adopted:
    """The result for an edited topic: the topic to keep, and further changes of the image.

    `report` gives the reason if the edit is ignored; it is empty otherwise.
    """

    found: TopicFound
    changes: tuple[FormerFound | RemovalsAdded, ...] = ()
    report: str = ""


def adopt(before: Topic, found: TopicFound, image: Image) -> Adopted:
    """Return the result of a new reading of a known topic's node.

    A partition that an edit removed from the topic's node stays until its removal is done.
    Partitions that the edit added begin a new incarnation, even if they have state nodes already.
    """
    name, after = before.name, found.topic
    states = dict(found.states)
    unreadable = _unreadable(found, image)
    added = tuple(number for number in after.assignments if number not in before.assignments)
    removed = tuple(number for number in before.assignments if number not in after.assignments)
    kept = {number: state for number, state in states.items() if number not in added}
    kept.update(_known_states(name, removed, image))
    try:
        _check(before, after, added, removed, image)
    except KafkaError as error:
        left = replace(after, topic_id=before.topic_id, assignments=before.assignments)
        return Adopted(
            TopicFound(left, kept, _of(left, unreadable)),
            report=f"the node of topic {name!r} was edited, the edit is ignored: {error.message}",
        )
    if removed:
        assignments = {
            **after.assignments,
            **{number: before.assignments[number] for number in removed},
        }
        request = RemovalsAdded(name, dict.fromkeys(removed, False), by_edit=True)
        left = replace(after, assignments=assignments)
        return Adopted(TopicFound(left, kept, _of(left, unreadable)), (request,))
    former = FormerFound({TopicPartition(name, number): states.get(number) for number in added})
    return Adopted(TopicFound(after, kept, unreadable), (former,))


def is_another(known: Topic, found: TopicFound, image: Image) -> bool:
    """Return whether a topic's nodes show that it was deleted and recreated.

    A recreated topic has another id, and shares no state with its predecessor, because state nodes
    are deleted before the topic's own node.
    """
    return known.topic_id != found.topic.topic_id and not any(
        state == before and state.mzxid == before.mzxid
        for number, state in found.states.items()
        if (before := image.states.get(TopicPartition(known.name, number))) is not None
    )


def fault(found: TopicFound) -> str:
    """Return why the nodes of a topic new to this controller are faulty; "" if they are not.

    The nodes are faulty if an ISR member is missing in the topic's node. Only an edit by hand
    causes that, because controllers keep every ISR member in the node. If the controller used a
    faulty node, brokers would set aside replicas that are still in use.
    """
    numbers = sorted(found.topic.assignments)
    if not numbers or numbers != list(range(len(numbers))):
        return f"its partitions are {numbers[:10]}: numbers 0 to n-1 expected, at least one"
    for number, state in sorted(found.states.items()):
        replicas = found.topic.assignments.get(number, ())
        strangers = [member for member in state.isr if member not in replicas]
        if strangers:
            return (
                f"its replicas of partition {number} are {list(replicas)}, and {strangers} of the"
                f" ISR {list(state.isr)} are not among them"
            )
    return ""


def _check(
    before: Topic,
    after: Topic,
    added: tuple[int, ...],
    removed: tuple[int, ...],
    image: Image,
) -> None:
    """Raise KafkaError unless the edit of a topic's node can be carried out."""
    old, new = before.assignments, after.assignments
    moved = [number for number in old if number in new and new[number] != old[number]]
    if before.topic_id != after.topic_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_TOPIC_ID,
            f"it has another topic id, {topic_id_to_text(after.topic_id)} instead of"
            f" {topic_id_to_text(before.topic_id)}: replicas of the former id would be"
            " set aside",
        )
    if not (added or removed or moved):
        return
    changeable(before.name, image)
    if moved:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"it has other replicas for partition {moved[0]}, {list(new[moved[0]])} instead of"
            f" {list(old[moved[0]])}: partitions that exist do not move by an edit",
        )
    if not new or sorted(new) != list(range(len(new))):
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"its partitions are {sorted(new)[:10]}: numbers 0 to n-1 expected, at least one",
        )
    if added:
        chosen = [new[number] for number in added]
        explicit(chosen, len(added), len(old), len(old[0]), image.brokers)


def _unreadable(found: TopicFound, image: Image) -> dict[int, str]:
    """Return the partitions that stay unchanged because of unreadable state nodes, with reasons.

    The result includes a partition whose state node was unreadable and is now gone: its last state
    is unknown, so the controller must not create it as a new partition.
    """
    name = found.topic.name
    before = {
        topic_partition.partition: reason
        for topic_partition, reason in image.unreadable_states.items()
        if topic_partition.topic == name and topic_partition.partition not in found.states
    }
    return {**before, **found.unreadable}


def _of(topic: Topic, unreadable: Mapping[int, str]) -> dict[int, str]:
    return {number: reason for number, reason in unreadable.items() if number in topic.assignments}


def _known_states(name: str, partitions: Iterable[int], image: Image) -> dict[int, PartitionState]:
    known = {number: image.states.get(TopicPartition(name, number)) for number in partitions}
    return {number: state for number, state in known.items() if state is not None}
