"""Nodes of the store that ask for reassignments, as events, changes and writes (R1, R8, R11, R12).

There are five kinds: `/admin/reassign_partitions`, the queue `/admin/reassign_partitions_queue`,
requests for one or for several partitions, requests that were accepted (`/admin/reassignments/T/P`)
and the freeze `/admin/reassign_cancel`. Any of them may be written by hand. What they mean is
decided by `stored` and `queueing`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.controller.agenda import Agenda
from tidelog.controller.events import Event
from tidelog.controller.image import Change, Image
from tidelog.controller.records import AcceptedRequest, RequestedReassignments, RequestNode
from tidelog.controller.settlement import Settlement
from tidelog.controller.writes import Conflict, Outcome, Write
from tidelog.core.types import ReassignmentEntry, TopicPartition


@dataclass(frozen=True, slots=True)
class ReassignmentsRead(Event):
    """The content of `/admin/reassign_partitions`, None where the node does not exist (R1)."""

    found: RequestedReassignments | None


@dataclass(frozen=True, slots=True)
class RoutesRead(Event):
    """The other nodes that ask for reassignments, or forbid them (R8, R11, R12, R20)."""

    is_frozen: bool
    queue: RequestedReassignments | None
    #: Requests that were not accepted yet, in the order of their making.
    requests: tuple[RequestNode, ...]
    accepted: Mapping[TopicPartition, AcceptedRequest]


@dataclass(frozen=True, slots=True)
class ReassignmentsFound(Change):
    """New content of `/admin/reassign_partitions`, None where the node does not exist."""

    found: RequestedReassignments | None

    def apply(self, image: Image) -> None:
        """Take over the content."""
        image.reassignments = self.found


@dataclass(frozen=True, slots=True)
class QueueFound(Change):
    """New content of the queue, None where the node does not exist."""

    found: RequestedReassignments | None

    def apply(self, image: Image) -> None:
        """Take over the content."""
        image.queue = self.found


@dataclass(frozen=True, slots=True)
class FreezeFound(Change):
    """The node that forbids reassignments to begin is there, or not."""

    is_frozen: bool

    def apply(self, image: Image) -> None:
        """Take it over."""
        image.is_frozen = self.is_frozen


@dataclass(frozen=True, slots=True)
class RequestsFound(Change):
    """The requests that were not accepted yet."""

    requests: tuple[RequestNode, ...]

    def apply(self, image: Image) -> None:
        """Take them over."""
        image.request_nodes = self.requests


@dataclass(frozen=True, slots=True)
class AcceptedFound(Change):
    """An accepted request for one partition, None where it has gone."""

    topic_partition: TopicPartition
    request: AcceptedRequest | None

    def apply(self, image: Image) -> None:
        """Take it over."""
        if self.request is None:
            image.accepted.pop(self.topic_partition, None)
        else:
            image.accepted[self.topic_partition] = self.request


@dataclass(frozen=True, slots=True)
class KeepReassignments(Write):
    """Keep these entries in `/admin/reassign_partitions` (R1).

    The node is removed when none is left.
    """

    entries: Mapping[TopicPartition, ReassignmentEntry]
    expected_version: int

    def settle(self, outcome: Outcome, settlement: Settlement) -> None:
        """Take over the remaining entries.

        A node that another writer has changed is read again when its watch fires.
        """
        if isinstance(outcome, Conflict):
            return
        left = RequestedReassignments(self.expected_version + 1, self.entries)
        settlement.apply(ReassignmentsFound(left if self.entries else None))


@dataclass(frozen=True, slots=True)
class KeepQueue(Write):
    """Keep these entries in the queue, or make it of them (R8).

    The node is removed when none is left.
    """

    entries: Mapping[TopicPartition, ReassignmentEntry]
    #: -1 where the node is to be made.
    expected_version: int

    def settle(self, outcome: Outcome, settlement: Settlement) -> None:
        """Take over the remaining entries, as those of `/admin/reassign_partitions`."""
        if isinstance(outcome, Conflict):
            return
        left = RequestedReassignments(self.expected_version + 1, self.entries)
        settlement.apply(QueueFound(left if self.entries else None))
        settlement.agenda.look_at_requests(settlement.image)


@dataclass(frozen=True, slots=True)
class SetFreeze(Write):
    """Make or remove `/admin/reassign_cancel` (R11)."""

    is_frozen: bool

    def settle(self, outcome: Outcome, settlement: Settlement) -> None:
        """Let reassignments begin from now on, or not."""
        settlement.apply(FreezeFound(self.is_frozen))
        settlement.agenda.look_at_requests(settlement.image)


@dataclass(frozen=True, slots=True)
class AcceptRequest(Write):
    """Make `/admin/reassignments/T/P` for a partition of a request (R12)."""

    topic_partition: TopicPartition
    replicas: tuple[int, ...]
    #: An earlier request for the partition was accepted, and ends with this one.
    is_again: bool

    def settle(self, outcome: Outcome, settlement: Settlement) -> None:
        """Begin the reassignment by the next decision.

        A node that another writer has made meanwhile is read when its watch fires.
        """
        if isinstance(outcome, Conflict):
            return
        settlement.apply(
            AcceptedFound(self.topic_partition, AcceptedRequest(self.replicas, outcome.mzxid))
        )
        settlement.agenda.look_at_requests(settlement.image)


@dataclass(frozen=True, slots=True)
class ForgetAccepted(Write):
    """Remove `/admin/reassignments/T/P`: done, overruled, or refused."""

    topic_partition: TopicPartition
    #: No other one of the topic is left: its parent is removed, too.
    is_last: bool = False

    def settle(self, outcome: Outcome, settlement: Settlement) -> None:
        """Forget it: the node is gone, whoever removed it."""
        settlement.apply(AcceptedFound(self.topic_partition, None))


@dataclass(frozen=True, slots=True)
class ForgetRequestNode(Write):
    """Remove a request of which each partition was accepted or refused (R12)."""

    path: str

    def settle(self, outcome: Outcome, settlement: Settlement) -> None:
        """Forget it: the node is gone, whoever removed it."""
        left = tuple(node for node in settlement.image.request_nodes if node.path != self.path)
        settlement.apply(RequestsFound(left))


def requests_read(event: ReassignmentsRead, image: Image, agenda: Agenda) -> None:
    """Take over the content of the administrator's node."""
    image.apply(ReassignmentsFound(event.found))
    agenda.look_at_requests(image)


def routes_read(event: RoutesRead, image: Image, agenda: Agenda) -> None:
    """Take over the content of the other nodes."""
    image.apply(FreezeFound(event.is_frozen))
    image.apply(QueueFound(event.queue))
    image.apply(RequestsFound(event.requests))
    for topic_partition in [*image.accepted]:
        if topic_partition not in event.accepted:
            image.apply(AcceptedFound(topic_partition, None))
    for topic_partition, request in event.accepted.items():
        image.apply(AcceptedFound(topic_partition, request))
    agenda.look_at_requests(image)
