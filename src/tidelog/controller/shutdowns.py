"""Controlled shutdown: a broker that is about to go hands over what it has (V43, A3).

Decides whether a request is taken, in which order the broker's partitions are looked at, and what
remains of them. The leaderships go first, in batches of one decision each, then the places in the
ISRs: what becomes of each partition follows from published state and the live brokers, of which one
is leaving now (`elections`), without reading anything again. Knows nothing of the broker's own
retries, and does not remember a broker beyond its registration.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
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
    """A broker that is about to stop asks to be relieved of what it leads (V43)."""

    ticket: int
    request: ControlledShutdownRequest


@dataclass(frozen=True, slots=True)
class ShutdownBegun(Change):
    """A live broker has asked for a controlled shutdown (V43): it leaves with its registration."""

    broker_id: int

    def apply(self, image: Image) -> None:
        """Know that it is leaving."""
        leaving = replace(image.brokers[self.broker_id], is_leaving=True)
        image.brokers = {**image.brokers, self.broker_id: leaving}


@dataclass(frozen=True, slots=True)
class LeadershipsTransferred:
    """A broker has handed over; these partitions it leads nevertheless."""

    broker_id: int
    remaining: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class StopFollowing(Order):
    """Let a broker that shuts down stop to follow partitions; their logs stay (V43)."""

    broker_id: int
    topic_partitions: Sequence[TopicPartition]

    rank: ClassVar[Rank] = Rank.CONTROLLED_SHUTDOWN

    def give(self, builder: CommandBuilder) -> None:
        """Add the stops."""
        for topic_partition in self.topic_partitions:
            builder.stop_following(self.broker_id, topic_partition)


@dataclass(slots=True)
class Shutdown:
    """The controlled shutdown of one registration, under way."""

    broker_id: int
    #: Under which it is answered: more than one where the broker asked again meanwhile.
    tickets: list[int] = field(default_factory=list)
    #: Partitions to take the leadership of, and then those to take the broker out of the ISR of.
    led: dict[TopicPartition, None] = field(default_factory=dict)
    followed: dict[TopicPartition, None] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        """Whether every partition was looked at."""
        return not self.led and not self.followed

    def copy(self) -> Shutdown:
        """An independent copy."""
        return Shutdown(self.broker_id, list(self.tickets), dict(self.led), dict(self.followed))


@dataclass(frozen=True, slots=True)
class Batch:
    """Partitions of one decision."""

    partitions: Sequence[TopicPartition]
    #: The broker follows them, and is told to follow no longer.
    are_followed: bool


class Shutdowns:
    """The controlled shutdowns under way, by broker."""

    __slots__ = ("_under_way",)

    def __init__(self) -> None:
        self._under_way: dict[int, Shutdown] = {}

    def __bool__(self) -> bool:
        """Whether a decision would find anything here."""
        return bool(self._under_way)

    def begin(self, asked: ControlledShutdownAsked, draft: Draft) -> None:
        """A broker is leaving from now on, until its registration ends; asked again, what has come
        since is looked at."""
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
        """These registrations have ended, and their shutdowns with them."""
        for broker_id in brokers:
            shutdown = self._under_way.pop(broker_id, None)
            for ticket in () if shutdown is None else shutdown.tickets:
                _refuse(ticket, ErrorCode.STALE_BROKER_EPOCH, draft)

    def look_at_next(self, draft: Draft, agenda: Agenda) -> None:
        """Look at the next partitions of brokers that are leaving (V43)."""
        for broker_id, shutdown in self._under_way.items():
            batch = next_batch(shutdown)
            agenda.look_at(batch.partitions)
            if batch.are_followed and batch.partitions:
                draft.order(StopFollowing(broker_id, batch.partitions))

    def settle(self, settlement: Settlement) -> list[tuple[int, Any]]:
        """Answer brokers whose last partitions were decided; a partition that somebody else has
        changed is looked at again first."""
        image = settlement.image
        answers: list[tuple[int, Any]] = []
        for broker_id, shutdown in list(self._under_way.items()):
            if not shutdown.is_done:
                continue
            del self._under_way[broker_id]
            again = [
                one for one in image.hosted_by(broker_id) if one in settlement.agenda.partitions
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
        """An independent copy."""
        other = Shutdowns()
        other._under_way = {key: one.copy() for key, one in self._under_way.items()}
        return other

    def key(self) -> tuple[object, ...]:
        """Equal for those that go on alike; tickets are not told apart."""
        return tuple((key, len(one.led), len(one.followed)) for key, one in self._under_way.items())


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
    """Why a broker may not hand over, NONE where it may; before version 2 it tells no epoch."""
    broker = brokers.get(request.broker_id)
    if broker is None:
        return ErrorCode.BROKER_NOT_AVAILABLE
    if request.broker_epoch not in (NO_BROKER_EPOCH, broker.broker_epoch):
        return ErrorCode.STALE_BROKER_EPOCH
    return ErrorCode.NONE


def look_at(shutdown: Shutdown, image: Image, topic_partitions: Iterable[TopicPartition]) -> None:
    """Take down which of these partitions of the broker are to be looked at, and as what."""
    for topic_partition in topic_partitions:
        state = image.states.get(topic_partition)
        if state is None or image.is_deleting(topic_partition.topic):
            continue
        if state.leader == shutdown.broker_id:
            shutdown.led[topic_partition] = None
        else:
            shutdown.followed[topic_partition] = None


def next_batch(shutdown: Shutdown) -> Batch:
    """What one decision is about; leaderships and places in ISRs are never of the same."""
    are_followed = not shutdown.led
    source = shutdown.followed if are_followed else shutdown.led
    batch = tuple(islice(source, MAX_HAND_OVERS_PER_DECISION))
    for topic_partition in batch:
        del source[topic_partition]
    return Batch(batch, are_followed)


def remaining(image: Image, broker_id: int) -> list[TopicPartition]:
    """Partitions that the broker leads and that it might hand over if it waited: another replica is
    alive and is not leaving itself, and has to catch up."""
    found = []
    for topic_partition in image.hosted_by(broker_id):
        state = image.states.get(topic_partition)
        if state is None or state.leader != broker_id or image.is_deleting(topic_partition.topic):
            continue
        others = (image.brokers.get(one) for one in image.replicas(topic_partition))
        if any(one is not None and not one.is_leaving for one in others):
            found.append(topic_partition)
    return found
