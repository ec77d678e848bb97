"""Reassignments requested by nodes of the store, from acceptance to the end (R1, R12, R20).

An entry of `/admin/reassign_partitions` and an accepted request stay until their reassignment is
over, so that a later controller continues the reassignment. A newer request, from a client or in
the store, overrules the stored entries for its partition: the controller removes these entries
before the reassignment begins. A request node is rejected while `/admin/reassign_partitions` has an
entry of its partition (R20). The controller handles request nodes before
`/admin/reassign_partitions`, one request node in each step. While reassignments are frozen, entries
of `/admin/reassign_partitions` wait. While all reassignments are being cancelled, entries of
`/admin/reassign_partitions` are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum

from tidelog.controller import records
from tidelog.controller.draft import Draft
from tidelog.controller.image import Image
from tidelog.controller.reassignments import targets, transitions
from tidelog.controller.reassignments.progress import ReassignmentsDraft
from tidelog.controller.reassignments.stored_nodes import (
    AcceptRequest,
    ForgetAccepted,
    ForgetRequestNode,
    KeepQueue,
    KeepReassignments,
)
from tidelog.controller.records import Replicas, RequestedReassignments, RequestNode
from tidelog.controller.writes import Write
from tidelog.core import limits
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import ReassignmentEntry, TopicPartition

#: Maximum size in bytes of an entry's JSON without its topic and its replicas.
_ENTRY_BYTES = 112


class Route(Enum):
    """The kinds of store nodes that request a reassignment."""

    NODE = "/admin/reassign_partitions"
    REQUEST = "/admin/reassignments"
    QUEUE = "/admin/reassign_partitions_queue"


@dataclass(frozen=True, slots=True)
class Newer:
    """The newest reassignment request for a partition; it removes older requests (R20)."""

    target: tuple[int, ...]
    #: Throttle of the newest request; it also applies to older requests that remain.
    throttle: int | None = None
    #: Targets of the older requests to remove; if empty, all older requests are removed whose
    #: target differs from `target`. A client's cancellation ends only reassignments to targets that
    #: the client knew.
    ended: Collection[tuple[int, ...]] = ()

    def left(self, entry: ReassignmentEntry) -> ReassignmentEntry | None:
        """Return an older entry, perhaps with a new throttle; None if this request removes it."""
        if self.goes(entry.replicas):
            return None
        if entry.replicas != self.target or self.throttle is None:
            return entry
        return entry._replace(throttle=self.throttle)

    def goes(self, replicas: tuple[int, ...]) -> bool:
        """Return whether this request removes an older entry with the target `replicas`."""
        return replicas != self.target and (not self.ended or replicas in self.ended)


Wanted = Mapping[TopicPartition, Newer]


@dataclass(frozen=True, slots=True)
class ReassignmentRefused:
    """Notice: a reassignment that a node of the store requests cannot be carried out."""

    topic_partition: TopicPartition
    reason: str
    route: Route = Route.NODE


class Entries:
    """The entries that remain in a reassignment node after the writes of this decision."""

    def __init__(
        self,
        draft: Draft,
        found: RequestedReassignments | None,
        write: Callable[[Mapping[TopicPartition, ReassignmentEntry], int], Write],
    ) -> None:
        """Start with the entries `found` in a node; `write(entries, version)` replaces them."""
        self._draft = draft
        self._found = found
        self._write = write
        self.left = {} if found is None else dict(found.entries)
        #: Index of the write that replaces the entries; None while no entry changes.
        self.index: int | None = None

    def keep(
        self,
        entries: Mapping[TopicPartition, ReassignmentEntry],
        first: Mapping[TopicPartition, None] | None = None,
    ) -> None:
        """Replace the entries of the reassignment node; remove the node if no entry is left.

        Entries for partitions in `first` move to the front.
        """
        order = {**{each: None for each in first or () if each in self.left}, **self.left}
        kept = {each: entries[each] for each in order if each in entries}
        if self._found is None or (kept and [*kept.items()] == [*self.left.items()]):
            return
        self.left = kept
        write = self._write(kept, self._found.version)
        if self.index is None:
            self.index = self._draft.add(write)
        else:
            self._draft.decision.writes[self.index] = write

    def overrule(self, wanted: Wanted) -> None:
        """Remove entries that a newer request overrules (R20), and give the other entries the newer
        request's throttle.
        """
        kept = {}
        for topic_partition, entry in self.left.items():
            newer = wanted.get(topic_partition)
            left = entry if newer is None else newer.left(entry)
            if left is not None:
                kept[topic_partition] = left
        if kept != self.left:
            self.keep(kept)


class StoredRequests:
    """The nodes of the store that request reassignments, as one decision changes them."""

    def __init__(self, reassignments: ReassignmentsDraft) -> None:
        self._reassignments = reassignments
        self._draft: Draft = reassignments.draft
        self._image: Image = self._draft.image
        self._node = Entries(self._draft, self._image.reassignments, KeepReassignments)
        self.queue = Entries(self._draft, self._image.queue, KeepQueue)
        #: Accepted requests that this decision ends, with the index of the write that removes each
        #: node.
        self._forgotten: dict[TopicPartition, int] = {}
        #: Partitions for which this decision accepts a request.
        self._accepted: dict[TopicPartition, None] = {}

    def close(self) -> None:
        """Set `is_last` in each write that removes a topic's last accepted request."""
        kept = {each.topic for each in self._accepted}
        kept.update(each.topic for each in self._image.accepted if each not in self._forgotten)
        last = {topic_partition.topic: topic_partition for topic_partition in self._forgotten}
        for topic, topic_partition in last.items():
            if topic not in kept:
                write = ForgetAccepted(topic_partition, is_last=True)
                self._draft.decision.writes[self._forgotten[topic_partition]] = write

    # newer requests

    def waiting(self, topic_partition: TopicPartition) -> list[tuple[int, ...]]:
        """Return the targets to which nodes of the store request to move a partition."""
        found = [
            entries.left[topic_partition].replicas
            for entries in (self._node, self.queue)
            if topic_partition in entries.left
        ]
        if topic_partition in self._image.accepted and topic_partition not in self._forgotten:
            found.append(self._image.accepted[topic_partition].replicas)
        return found

    def overrule(self, wanted: Wanted, *, spare_queue: bool = False) -> int | None:
        """Remove entries of the partitions in `wanted`, unless an entry has the same target (R20).

        With `spare_queue`, entries of the queue stay. Returns the index of one of the writes that
        remove entries, None if no entry was removed.
        """
        before = len(self._draft.decision.writes)
        self._node.overrule(wanted)
        if not spare_queue:
            self.queue.overrule(wanted)
        for topic_partition, newer in wanted.items():
            accepted = self._image.accepted.get(topic_partition)
            if accepted is not None and newer.goes(accepted.replicas):
                self._forget(topic_partition)
        return before if len(self._draft.decision.writes) > before else None

    def _forget(self, topic_partition: TopicPartition) -> None:
        assert topic_partition not in self._accepted, f"a newer request counts: {topic_partition}"
        if topic_partition not in self._forgotten:
            write = ForgetAccepted(topic_partition)
            self._forgotten[topic_partition] = self._draft.add(write)

    # request nodes

    def look_at_requests(self) -> None:
        """Accept or reject each partition of the oldest request node (R12).

        While all reassignments are being cancelled, every request node is rejected at once (R2).
        """
        image = self._image
        if image.cancels_all:
            for request in image.request_nodes:
                self._look_at_request(request)
        elif image.request_nodes and not image.is_frozen:
            self._look_at_request(image.request_nodes[0])

    def _look_at_request(self, request: RequestNode) -> None:
        image = self._image
        accepted: dict[TopicPartition, tuple[int, ...]] = {}
        for topic_partition, target in request.assignments.items():
            try:
                self._check_request(topic_partition, target)
            except KafkaError as error:
                self._refuse(topic_partition, error, Route.REQUEST)
                continue
            if not self._is_there(topic_partition, target):
                accepted[topic_partition] = target
        self.queue.overrule({each: Newer(target) for each, target in accepted.items()})
        for topic_partition, target in accepted.items():
            earlier = image.accepted.get(topic_partition)
            if topic_partition in self._forgotten:
                earlier = None
            if earlier is None or earlier.replicas != target:
                self._draft.add(AcceptRequest(topic_partition, target, earlier is not None))
                self._accepted[topic_partition] = None
        self._draft.add(ForgetRequestNode(request.path))

    def _check_request(self, topic_partition: TopicPartition, target: tuple[int, ...]) -> None:
        image = self._image
        targets.topic_of(topic_partition, image)
        targets.check_not_cancelled(topic_partition, image)
        if topic_partition in self._node.left:
            raise KafkaError(
                ErrorCode.REASSIGNMENT_IN_PROGRESS,
                f"{Route.NODE.value} has {topic_partition}: ask again when that reassignment is"
                " over, or cancel it first",
            )
        targets.check_target(topic_partition, target, image)
        minimum = self._draft.minimum(topic_partition)
        targets.check_minimum(topic_partition, target, minimum, image)

    def _is_there(self, topic_partition: TopicPartition, target: tuple[int, ...]) -> bool:
        image = self._image
        return image.move(topic_partition) is None and image.assigned(topic_partition) == target

    # Steps of the reassignments in accepted requests and in `/admin/reassign_partitions`.

    def look_at_accepted(self) -> None:
        """Begin the reassignments of accepted requests; forget requests that are over (R12)."""
        for topic_partition, request in list(self._image.accepted.items()):
            if topic_partition in self._forgotten or topic_partition in self._accepted:
                continue
            entry = ReassignmentEntry(topic_partition, request.replicas)
            try:
                left = self._look_at(entry, Route.REQUEST)
            except KafkaError as error:
                self._refuse(topic_partition, error, Route.REQUEST)
                left = None
            if left is None:
                self._forget(topic_partition)

    def look_at_node(self) -> None:
        """Begin the reassignments of `/admin/reassign_partitions` (R1).

        Entries that are done or cannot be carried out are removed. Each remaining entry records the
        original replicas of its reassignment. A reassignment that begins replaces the partition's
        queue entry and accepted request.
        """
        if self._image.reassignments is None:
            return
        kept: dict[TopicPartition, ReassignmentEntry] = {}
        for topic_partition, entry in self._node.left.items():
            try:
                left = self._look_at(entry, Route.NODE)
            except KafkaError as error:
                self._refuse(topic_partition, error, Route.NODE)
                continue
            if left is not None:
                kept[topic_partition] = left
        if size_of(kept) > limits.MAX_NODE_BYTES:
            # The written entries can omit the original replicas, because the topics' nodes record
            # them.
            kept = {each: entry._replace(original=()) for each, entry in kept.items()}
        self._node.keep(kept)

    def _look_at(self, entry: ReassignmentEntry, route: Route) -> ReassignmentEntry | None:
        """Return the entry if it stays in its node, None if it is done."""
        topic_partition, target = entry.topic_partition, entry.replicas
        image = self._image
        if topic_partition.topic in image.unreadable or topic_partition in image.unreadable_states:
            return entry
        targets.topic_of(topic_partition, image)
        if not self._reassignments.is_free(topic_partition):
            return entry
        move = image.move(topic_partition)
        if self._is_there(topic_partition, target):
            return None
        if self._is_being_cancelled(topic_partition, target):
            return None
        if not image.is_completing(topic_partition):
            targets.check_not_cancelled(topic_partition, image)
        if move is not None and records.target_of(image.assigned(topic_partition), move) == target:
            if entry.throttle:
                self._reassignments.begin(topic_partition, target, entry.throttle)
            return entry._replace(original=move.original)
        if image.is_frozen or image.is_completing(topic_partition):
            return entry
        targets.check_target(topic_partition, target, image)
        minimum = self._draft.minimum(topic_partition)
        targets.check_minimum(topic_partition, target, minimum, image)
        if route is Route.NODE:
            # An entry of `/admin/reassign_partitions` replaces older queue entries when its
            # reassignment begins. An accepted request replaced older queue entries when it was
            # accepted.
            self._precede(entry)
        self._reassignments.begin(topic_partition, target, entry.throttle or None)
        begun = self._reassignments.begun(topic_partition)
        # If only the order of the replicas changes, the reassignment ends with its write. The entry
        # stays until the next check, because the write may conflict.
        return entry if begun is None else entry._replace(original=begun.original)

    def _is_being_cancelled(self, topic_partition: TopicPartition, target: Replicas) -> bool:
        """Return whether the cancellation of all reassignments ends an entry's reassignment (R2).

        The entry of a cancelled reassignment ends with the reassignment, and is not reported as
        rejected.
        """
        image = self._image
        move = image.move(topic_partition)
        if not image.cancels_all or move is None or image.is_completing(topic_partition):
            return False
        assigned = image.assigned(topic_partition)
        if records.target_of(assigned, move) == target:
            return True
        return transitions.goes_back(assigned, move) and {*target} <= {*assigned}

    def _precede(self, entry: ReassignmentEntry) -> None:
        """Remove the queue entry and the accepted request of a partition with a newer request."""
        self.queue.overrule({entry.topic_partition: Newer(entry.replicas)})
        accepted = self._image.accepted.get(entry.topic_partition)
        if accepted is not None and accepted.replicas != entry.replicas:
            self._forget(entry.topic_partition)

    def _refuse(self, topic_partition: TopicPartition, error: KafkaError, route: Route) -> None:
        self._draft.notice(ReassignmentRefused(topic_partition, error.message, route))


def size_of(entries: Mapping[TopicPartition, ReassignmentEntry]) -> int:
    """Return the maximum size in bytes of a node with these entries."""
    return sum(
        _ENTRY_BYTES
        + len(topic_partition.topic)
        + sum(len(str(replica)) + 1 for replica in (*entry.replicas, *entry.original))
        for topic_partition, entry in entries.items()
    )
