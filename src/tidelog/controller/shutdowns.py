"""Controlled shutdown: a broker that is about to stop transfers its leaderships (V43, A3).

This module decides whether to accept a request, in which order to check the broker's partitions,
and which leaderships remain. The controller first transfers the leaderships, in batches of one
decision each, and then removes the broker from ISRs. `elections` decides each partition from
published state and the live brokers, in which the leaving broker is marked. The controller forgets
a controlled shutdown when the broker's registration ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from itertools import islice
from typing import Any, ClassVar

from tidelog.controller.agenda import Agenda
from tidelog.controller.answers import Answer, Precedence
from tidelog.controller.command_builder import CommandBuilder
from tidelog.controller.draft import Draft
from tidelog.controller.events import Event
from tidelog.controller.image import Change, Image
from tidelog.controller.incarnations import Brokers
from tidelog.controller.orders import Order, Rank
from tidelog.controller.settlement import Settlement
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode
from tidelog.core.limits import MAX_HAND_OVERS_PER_DECISION
from tidelog.core.types import NO_BROKER_EPOCH, TopicPartition
from tidelog.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)


@dataclass(frozen=True, slots=True)
class ControlledShutdownAsked(Event):
    """A stopping broker's request to transfer its leaderships (V43)."""

    ticket: int
    request: ControlledShutdownRequest


@dataclass(frozen=True, slots=True)
class ShutdownBegun(Change):
    """A live broker has requested a controlled shutdown, and counts as leaving (V43)."""

    broker_id: int

    def apply(self, image: Image) -> None:
        """Mark the broker as leaving."""
        leaving = replace(image.brokers[self.broker_id], is_leaving=True)
        image.brokers = {**image.brokers, self.broker_id: leaving}


@dataclass(frozen=True, slots=True)
class LeadershipsTransferred:
    """Notice: a broker's leaderships were transferred, except for `remaining` partitions."""

    broker_id: int
    remaining: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class StopFollowing(Order):
    """Command a leaving broker to stop following partitions and to keep their logs (V43)."""

    broker_id: int
    topic_partitions: Sequence[TopicPartition]

    rank: ClassVar[Rank] = Rank.CONTROLLED_SHUTDOWN

    def give(self, builder: CommandBuilder) -> None:
        """Add the StopReplicas to the broker's commands."""
        for topic_partition in self.topic_partitions:
            builder.stop_following(self.broker_id, topic_partition)


@dataclass(slots=True)
class Shutdown:
    """The controlled shutdown of one broker, while it is under way."""

    broker_id: int
    #: Numbers (tickets) of the requests to answer; several if the broker repeated its request.
    tickets: list[int] = field(default_factory=list)
    #: Partitions that the stopping broker leads, and whose leadership is transferred first. After
    #: that, the broker leaves the ISRs of the partitions in `followed`.
    led: dict[TopicPartition, None] = field(default_factory=dict)
    followed: dict[TopicPartition, None] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        """Whether every partition of the shutdown was checked."""
        return not self.led and not self.followed

    def copy(self) -> Shutdown:
        """Return an independent copy."""
        return Shutdown(self.broker_id, list(self.tickets), dict(self.led), dict(self.followed))


@dataclass(frozen=True, slots=True)
class ShutdownBatch:
    """The partitions of a leaving broker that one decision of the controller checks."""

    partitions: Sequence[TopicPartition]
    #: Whether the broker is a follower of these partitions, and must stop following; otherwise it
    #: leads them.
    are_followed: bool


class Shutdowns:
    """The controlled shutdowns under way, by broker."""

    __slots__ = ("_under_way",)

    def __init__(self) -> None:
        self._under_way: dict[int, Shutdown] = {}

    def __bool__(self) -> bool:
        """Return whether a decision has partitions of a leaving broker to check."""
        return bool(self._under_way)

    def begin(self, asked: ControlledShutdownAsked, draft: Draft) -> None:
        """Mark a broker as leaving until its registration ends.

        If the broker repeats its request, its partitions are checked again, including partitions
        added since.
        """
        image = draft.image
        error = refusal(asked.request, image.brokers)
        if error is not ErrorCode.NONE:
            _refuse(asked.ticket, error, draft)
            return
        broker_id = asked.request.broker_id
        image.apply(ShutdownBegun(broker_id))
        shutdown = self._under_way.setdefault(broker_id, Shutdown(broker_id))
        shutdown.tickets.append(asked.ticket)
        look_at(shutdown, image, image.hosted_by(broker_id))

    def registrations_over(self, brokers: Iterable[int], draft: Draft) -> None:
        """Forget the controlled shutdowns of registrations that have ended."""
        for broker_id in brokers:
            shutdown = self._under_way.pop(broker_id, None)
            for ticket in () if shutdown is None else shutdown.tickets:
                _refuse(ticket, ErrorCode.STALE_BROKER_EPOCH, draft)

    def look_at_next(self, draft: Draft, agenda: Agenda) -> None:
        """Let the next decision check the next partitions of leaving brokers (V43)."""
        for broker_id, shutdown in self._under_way.items():
            batch = next_batch(shutdown)
            agenda.look_at(batch.partitions)
            if batch.are_followed and batch.partitions:
                draft.order(StopFollowing(broker_id, batch.partitions))

    def settle(self, settlement: Settlement) -> list[tuple[int, Any]]:
        """Return responses to brokers whose controlled shutdowns have no partition left to check.

        A partition that another writer has changed is first checked again.
        """
        image = settlement.image
        answers: list[tuple[int, Any]] = []
        for broker_id, shutdown in list(self._under_way.items()):
            if not shutdown.is_done:
                continue
            del self._under_way[broker_id]
            again = [
                partition
                for partition in image.hosted_by(broker_id)
                if partition in settlement.agenda.partitions
            ]
            if again:
                look_at(shutdown, image, again)
                self._under_way[broker_id] = shutdown
                continue
            left = remaining(image, broker_id)
            settlement.notices.add(LeadershipsTransferred(broker_id, left))
            response = _response(ErrorCode.NONE, left)
            answers.extend((ticket, response) for ticket in shutdown.tickets)
        return answers

    def copy(self) -> Shutdowns:
        """Return an independent copy."""
        other = Shutdowns()
        other._under_way = {key: shutdown.copy() for key, shutdown in self._under_way.items()}
        return other

    def key(self) -> tuple[object, ...]:
        """Return a hashable form for the model checker; equal forms mean equal next decisions."""
        return tuple(
            (key, len(shutdown.led), len(shutdown.followed))
            for key, shutdown in self._under_way.items()
        )


def _refuse(ticket: int, error: ErrorCode, draft: Draft) -> None:
    response = _response(error, ())
    draft.answer(
        Answer[TopicPartition](ticket, Precedence.CONTROLLED_SHUTDOWN, lambda results: response)
    )


def _response(error: ErrorCode, left: Sequence[TopicPartition]) -> ControlledShutdownResponse:
    return ControlledShutdownResponse(
        error, [RemainingPartition(name, number) for name, number in left]
    )


def refusal(request: ControlledShutdownRequest, brokers: Brokers) -> ErrorCode:
    """Return the error of a controlled shutdown, NONE if it may begin.

    ControlledShutdown requests below version 2 have no broker epoch.
    """
    broker = brokers.get(request.broker_id)
    if broker is None:
        return ErrorCode.BROKER_NOT_AVAILABLE
    if request.broker_epoch not in (NO_BROKER_EPOCH, broker.broker_epoch):
        return ErrorCode.STALE_BROKER_EPOCH
    return ErrorCode.NONE


def look_at(shutdown: Shutdown, image: Image, topic_partitions: Iterable[TopicPartition]) -> None:
    """Add partitions to the shutdown, by whether the broker leads or follows them."""
    for topic_partition in topic_partitions:
        state = image.states.get(topic_partition)
        if state is None or image.is_deleting(topic_partition.topic):
            continue
        if state.leader == shutdown.broker_id:
            shutdown.led[topic_partition] = None
        else:
            shutdown.followed[topic_partition] = None


def next_batch(shutdown: Shutdown) -> ShutdownBatch:
    """Remove and return the partitions of a shutdown that the next decision checks.

    The leaving broker leads all partitions of a batch, or follows all of them.
    """
    are_followed = not shutdown.led
    source = shutdown.followed if are_followed else shutdown.led
    batch = tuple(islice(source, MAX_HAND_OVERS_PER_DECISION))
    for topic_partition in batch:
        del source[topic_partition]
    return ShutdownBatch(batch, are_followed)


def remaining(image: Image, broker_id: int) -> list[TopicPartition]:
    """Return partitions whose leadership the broker could still transfer if it waited.

    Each returned partition has another replica that is alive and not leaving, but has not caught up
    yet.
    """
    found = []
    for topic_partition in image.hosted_by(broker_id):
        state = image.states.get(topic_partition)
        if state is None or state.leader != broker_id or image.is_deleting(topic_partition.topic):
            continue
        others = (image.brokers.get(replica) for replica in image.replicas(topic_partition))
        if any(broker is not None and not broker.is_leaving for broker in others):
            found.append(topic_partition)
    return found
