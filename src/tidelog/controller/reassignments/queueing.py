"""The queue of reassignments, which runs as many at a time as the limits allow (R8, R9).

The queued reassignments begin in order, whenever reassignments under way end. At most
`reassignment.max.concurrent.partitions` reassignments run at a time, and at most
`reassignment.max.concurrent.partitions.per.broker` for each broker that gains or loses a replica.
An entry stays in the queue's node until its reassignment is active, so that a change of the
controller does not lose the entry. An entry waits while its brokers are not alive, and later
entries may begin before it. All entries wait while reassignments are frozen.

If the partition of an entry is being reassigned, the controller first rolls that reassignment back
(R9). A reassignment takes a slot of the cluster's limit, and a slot of the limit of each broker
that gains or loses a replica. The rollback begins when enough slots are free for the entry,
including the slots of the old reassignment. The entry then moves to the front of the queue, and its
slots are reserved, so the entry need not wait after the rollback.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace

from tidelog.controller import records
from tidelog.controller.agenda import Agenda
from tidelog.controller.events import Event
from tidelog.controller.image import Image
from tidelog.controller.reassignments import targets, transitions
from tidelog.controller.reassignments.progress import ReassignmentsDraft
from tidelog.controller.reassignments.stored import (
    Newer,
    ReassignmentRefused,
    Route,
    StoredRequests,
)
from tidelog.controller.settings import ControllerSettings
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import KafkaError
from tidelog.core.types import ReassignmentEntry, TopicPartition


@dataclass(frozen=True, slots=True)
class QueueEmptied:
    """Notice: the last entry of the queue is active, or was dropped."""


@dataclass(frozen=True, slots=True)
class QueueLimitsRead(Event):
    """New values of reassignment.max.concurrent.partitions and .per.broker (R8)."""

    partitions: int
    per_broker: int


def limits_read(
    event: QueueLimitsRead, image: Image, agenda: Agenda, settings: ControllerSettings
) -> ControllerSettings:
    """Apply the new limits, and check whether more reassignments of the queue may begin.

    Reassignments under way continue, even if they are more than the new limits allow.
    """
    agenda.look_at_requests(image)
    return replace(
        settings,
        concurrent_reassignments=event.partitions,
        concurrent_reassignments_per_broker=event.per_broker,
    )


class Slots:
    """Free slots: how many more reassignments may begin, in the cluster and on each broker."""

    def __init__(self, image: Image, settings: ControllerSettings) -> None:
        self._per_broker = settings.concurrent_reassignments_per_broker
        self._free = settings.concurrent_reassignments - len(image.moving)
        self._used: Counter[int] = Counter()
        for topic_partition in image.moving:
            self._used.update(_used_by(topic_partition, image))

    def lack(self, brokers: Iterable[int], held: Collection[int] | None = None) -> str:
        """Return which limit forbids a reassignment between these brokers; "" if none does.

        `held` are the brokers of the reassignment under way that the new reassignment replaces,
        None if it replaces none.
        """
        if self._free + (held is not None) <= 0:
            return "as many partitions are being moved as may be at a time"
        own = held or ()
        busy = sorted(
            each for each in brokers if self._used[each] - (each in own) >= self._per_broker
        )
        if busy:
            return f"brokers {busy} have as many moves as may be at a time"
        return ""

    def take(self, brokers: Iterable[int]) -> None:
        """Take a slot of the cluster, and a slot of each of these brokers, for a reassignment."""
        self._free -= 1
        self._used.update(brokers)

    def keep(self, brokers: Iterable[int]) -> None:
        """Reserve the brokers' slots for the entry that follows a rolled back reassignment."""
        self._used.update(brokers)


def _used_by(topic_partition: TopicPartition, image: Image) -> set[int]:
    """Return the brokers on which a reassignment, or the entry replacing it, takes a slot."""
    move = image.move(topic_partition)
    assert move is not None
    used = {*move.adding, *move.removing}
    assigned = image.assigned(topic_partition)
    entry = None if image.queue is None else image.queue.entries.get(topic_partition)
    if entry is not None and transitions.goes_back(assigned, move):
        used |= _between(move.original, entry.replicas)
    return used


class Queue:
    """The queue of reassignments, as one decision changes it."""

    def __init__(self, reassignments: ReassignmentsDraft, stored: StoredRequests) -> None:
        self._reassignments = reassignments
        self._stored = stored
        self._draft = reassignments.draft
        self._image = self._draft.image

    def look_at(self) -> None:
        """Begin the entries that the limits allow; remove active, done and impossible entries."""
        image, queue = self._image, self._stored.queue
        if image.queue is None:
            return
        slots = Slots(image, self._draft.settings)
        kept: dict[TopicPartition, ReassignmentEntry] = {}
        first: dict[TopicPartition, None] = {}
        for topic_partition, entry in queue.left.items():
            try:
                if self._look_at(entry, slots, first):
                    kept[topic_partition] = entry
            except KafkaError as error:
                self._draft.notice(ReassignmentRefused(topic_partition, error.message, Route.QUEUE))
        queue.keep(kept, first)
        if not kept:
            self._draft.notice(QueueEmptied())

    def _look_at(
        self, entry: ReassignmentEntry, slots: Slots, first: dict[TopicPartition, None]
    ) -> bool:
        """Return whether an entry stays in the queue. Raises KafkaError for an impossible entry.

        `first` collects the partitions whose queue entry moves to the front, because a reassignment
        is rolled back for the entry.
        """
        topic_partition, target = entry.topic_partition, entry.replicas
        image = self._image
        if topic_partition.topic in image.unreadable or topic_partition in image.unreadable_states:
            return True
        targets.topic_of(topic_partition, image)
        move, assigned = image.move(topic_partition), image.assigned(topic_partition)
        if target == (assigned if move is None else records.target_of(assigned, move)):
            return self._takes_throttle(entry)
        targets.check_not_cancelled(topic_partition, image)
        if reason_to_wait(entry, image, slots) or not self._reassignments.is_free(topic_partition):
            return True
        targets.check_target(topic_partition, target, image)
        if move is not None:
            original = targets.original_of(topic_partition, image)
            self._stored.overrule({topic_partition: Newer(original)}, spare_queue=True)
            self._reassignments.begin(topic_partition, original)
            slots.keep(_between(original, target) - {*move.adding, *move.removing})
            first[topic_partition] = None
            return True
        self._stored.overrule({topic_partition: Newer(target)}, spare_queue=True)
        self._reassignments.begin(topic_partition, target, entry.throttle)
        between = _between(assigned, target)
        if between:
            slots.take(between)
        return True

    def _takes_throttle(self, entry: ReassignmentEntry) -> bool:
        """Apply a queue entry's throttle to its reassignment; return whether the entry stays."""
        topic_partition, move = entry.topic_partition, self._image.move(entry.topic_partition)
        if move is None or entry.throttle in (0, move.throttle):
            return False
        if not self._reassignments.is_free(topic_partition):
            return True
        self._stored.overrule(
            {topic_partition: Newer(entry.replicas, entry.throttle)}, spare_queue=True
        )
        return (
            self._reassignments.begin(topic_partition, entry.replicas, entry.throttle) is not None
        )


def reason_to_wait(entry: ReassignmentEntry, image: Image, slots: Slots) -> str:
    """Return why a queued reassignment does not begin now; an empty string if it may begin."""
    topic_partition, target = entry.topic_partition, entry.replicas
    if image.is_frozen:
        return "reassignments are frozen"
    dead = sorted({each for each in target if each not in image.brokers})
    if dead:
        return f"brokers {dead} are not alive"
    move, assigned = image.move(topic_partition), image.assigned(topic_partition)
    if move is not None:
        goes_on = not move.original or transitions.goes_back(assigned, move)
        if goes_on or image.is_completing(topic_partition):
            return "another move of the partition ends first"
        if targets.goes_offline(topic_partition, move.original, image):
            return "its original replicas are not in sync, and it would go offline"
        between = _between(move.original, target)
        return slots.lack(between, held={*move.adding, *move.removing}) if between else ""
    between = _between(assigned, target)
    return slots.lack(between) if between else ""


def _between(assigned: tuple[int, ...], target: tuple[int, ...]) -> set[int]:
    """Return the brokers that gain or lose a replica; none if only the order changes (R21)."""
    return set(assigned) ^ set(target)
