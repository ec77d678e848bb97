"""Nodes of the store that request reassignments, as events, changes and writes (R1, R8, R11, R12).

There are five kinds of nodes: `/admin/reassign_partitions`, the queue
`/admin/reassign_partitions_queue`, requests for one or for several partitions, accepted requests
(`/admin/reassignments/T/P`) and the freeze `/admin/reassign_cancel`. Operators may write nodes of
all five kinds by hand. `stored` and `queueing` decide what the nodes' requests mean.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.controller.agenda import Agenda
from tidelog.controller.events import Event
from tidelog.controller.image import Change, Image
from tidelog.controller.records import AcceptedRequest, RequestedReassignments, RequestNode
from tidelog.controller.settlement import Settlement
from tidelog.controller.writes import Conflict, Outcome, Write
from tidelog.core.dataclass import dataclass
from tidelog.core.types import ReassignmentEntry, TopicPartition


@dataclass(frozen=True, slots=True)
class ReassignmentsRead(Event):
    """Event: the controller has read `/admin/reassign_partitions` (R1).

    `found` is None if the node does not exist.
    """

    found: RequestedReassignments | None


@dataclass(frozen=True, slots=True)
class RoutesRead(Event):
    """Event: the controller has read all reassignment nodes but `/admin/reassign_partitions`.

    These are the freeze, the queue, and the requested and accepted reassignments (R8, R11, R12,
    R20).
    """

    is_frozen: bool
    queue: RequestedReassignments | None
    #: Reassignment requests that the controller has not accepted yet, in the order of their
    #: creation.
    requests: tuple[RequestNode, ...]
    accepted: Mapping[TopicPartition, AcceptedRequest]


@dataclass(frozen=True, slots=True)
class ReassignmentsFound(Change):
    """Change: new content of `/admin/reassign_partitions`; None if it does not exist."""

    found: RequestedReassignments | None

    def apply(self, image: Image) -> None:
        """Record the content of `/admin/reassign_partitions` in the image."""
        image.reassignments = self.found


@dataclass(frozen=True, slots=True)
class QueueFound(Change):
    """Change: new content of the reassignment queue; None if its node does not exist."""

    found: RequestedReassignments | None

    def apply(self, image: Image) -> None:
        """Record the content of the queue in the image."""
        image.queue = self.found


@dataclass(frozen=True, slots=True)
class FreezeFound(Change):
    """Change: the node `/admin/reassign_cancel`, which freezes reassignments, was created or
    removed.
    """

    is_frozen: bool

    def apply(self, image: Image) -> None:
        """Record in the image whether reassignments are frozen."""
        image.is_frozen = self.is_frozen


@dataclass(frozen=True, slots=True)
class RequestsFound(Change):
    """Change: the stored reassignment requests that the controller has not accepted yet."""

    requests: tuple[RequestNode, ...]

    def apply(self, image: Image) -> None:
        """Replace the image's requests that are not accepted yet."""
        image.request_nodes = self.requests


@dataclass(frozen=True, slots=True)
class AcceptedFound(Change):
    """Change: the accepted request for one partition; `found` is None if the request is gone."""

    topic_partition: TopicPartition
    request: AcceptedRequest | None

    def apply(self, image: Image) -> None:
        """Keep the accepted request in the image, or drop the request if its node is gone."""
        if self.request is None:
            image.accepted.pop(self.topic_partition, None)
        else:
            image.accepted[self.topic_partition] = self.request


@dataclass(frozen=True, slots=True)
class KeepReassignments(Write):
    """Keep only `entries` in `/admin/reassign_partitions` (R1).

    `/admin/reassign_partitions` is removed if no entry is left.
    """

    entries: Mapping[TopicPartition, ReassignmentEntry]
    expected_version: int

    def settle(self, outcome: Outcome, settlement: Settlement) -> None:
        """Record the remaining entries of `/admin/reassign_partitions` in the image.

        A node that another writer has changed is read again when its watch fires.
        """
        if isinstance(outcome, Conflict):
            return
        left = RequestedReassignments(self.expected_version + 1, self.entries)
        settlement.apply(ReassignmentsFound(left if self.entries else None))


@dataclass(frozen=True, slots=True)
class KeepQueue(Write):
    """Keep only `entries` in the reassignment queue, or create the queue from them (R8).

    The queue's node is removed if no entry is left.
    """

    entries: Mapping[TopicPartition, ReassignmentEntry]
    #: Version of the node that the write replaces; -1 to create the node.
    expected_version: int

    def settle(self, outcome: Outcome, settlement: Settlement) -> None:
        """Record the remaining entries of the queue in the image."""
        if isinstance(outcome, Conflict):
            return
        left = RequestedReassignments(self.expected_version + 1, self.entries)
        settlement.apply(QueueFound(left if self.entries else None))
        settlement.agenda.look_at_requests(settlement.image)


@dataclass(frozen=True, slots=True)
class SetFreeze(Write):
    """Create or remove `/admin/reassign_cancel`, which freezes reassignments (R11)."""

    is_frozen: bool

    def settle(self, outcome: Outcome, settlement: Settlement) -> None:
        """Record whether reassignments are frozen; without a freeze, they may begin from now on."""
        settlement.apply(FreezeFound(self.is_frozen))
        settlement.agenda.look_at_requests(settlement.image)


@dataclass(frozen=True, slots=True)
class AcceptRequest(Write):
    """Create `/admin/reassignments/T/P` for a partition of a request (R12)."""

    topic_partition: TopicPartition
    replicas: tuple[int, ...]
    #: Whether this request replaces an earlier accepted request for the partition.
    is_again: bool

    def settle(self, outcome: Outcome, settlement: Settlement) -> None:
        """Record the request, so that the next decision begins the reassignment.

        If another writer created the node first, the controller reads that node when its watch
        fires.
        """
        if isinstance(outcome, Conflict):
            return
        settlement.apply(
            AcceptedFound(self.topic_partition, AcceptedRequest(self.replicas, outcome.mzxid))
        )
        settlement.agenda.look_at_requests(settlement.image)


@dataclass(frozen=True, slots=True)
class ForgetAccepted(Write):
    """Write: remove `/admin/reassignments/T/P`: its request is done, overruled or rejected."""

    topic_partition: TopicPartition
    #: Whether this request is the last of its topic, so that the parent node is removed, too.
    is_last: bool = False

    def settle(self, outcome: Outcome, settlement: Settlement) -> None:
        """Drop the accepted request from the image, even if another writer removed its node."""
        settlement.apply(AcceptedFound(self.topic_partition, None))


@dataclass(frozen=True, slots=True)
class ForgetRequestNode(Write):
    """Remove a request node after each of its partitions was accepted or rejected (R12)."""

    path: str

    def settle(self, outcome: Outcome, settlement: Settlement) -> None:
        """Drop the request from the image, even if another writer removed its node."""
        left = tuple(node for node in settlement.image.request_nodes if node.path != self.path)
        settlement.apply(RequestsFound(left))


def requests_read(event: ReassignmentsRead, image: Image, agenda: Agenda) -> None:
    """Apply the content of `/admin/reassign_partitions` to the image."""
    image.apply(ReassignmentsFound(event.found))
    agenda.look_at_requests(image)


def routes_read(event: RoutesRead, image: Image, agenda: Agenda) -> None:
    """Record in the image all nodes about reassignments except `/admin/reassign_partitions`."""
    image.apply(FreezeFound(event.is_frozen))
    image.apply(QueueFound(event.queue))
    image.apply(RequestsFound(event.requests))
    for topic_partition in [*image.accepted]:
        if topic_partition not in event.accepted:
            image.apply(AcceptedFound(topic_partition, None))
    for topic_partition, request in event.accepted.items():
        image.apply(AcceptedFound(topic_partition, request))
    agenda.look_at_requests(image)
