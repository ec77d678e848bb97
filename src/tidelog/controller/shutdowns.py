"""Controlled shutdown: a broker that is about to go hands over what it has (V43, A3).

Decides whether a request is taken, in which order the broker's partitions are looked at, and what
remains of them. The leaderships go first, in batches of one decision each, then the places in the
ISRs: what becomes of each partition follows from published state and the live brokers, of which one
is leaving now (`elections`), without reading anything again. Knows nothing of the broker's own
retries, and does not remember a broker beyond its registration.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from tidelog.controller.image import Image
from tidelog.controller.liveness import Brokers
from tidelog.core.errors import ErrorCode
from tidelog.core.limits import MAX_HAND_OVERS_PER_DECISION
from tidelog.core.types import NO_BROKER_EPOCH, TopicPartition
from tidelog.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)


@dataclass(slots=True)
class HandOver:
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

    def copy(self) -> HandOver:
        """An independent copy."""
        return HandOver(self.broker_id, list(self.tickets), dict(self.led), dict(self.followed))


@dataclass(frozen=True, slots=True)
class Batch:
    """Partitions of one decision."""

    partitions: Sequence[TopicPartition]
    #: The broker follows them, and is told to follow no longer.
    are_followed: bool


@dataclass(slots=True)
class ShutdownAnswer:
    """Answer to ControlledShutdown."""

    ticket: int
    error: ErrorCode = ErrorCode.NONE
    remaining: Sequence[TopicPartition] = ()

    def message(self) -> ControlledShutdownResponse:
        """The answer as it stands."""
        return ControlledShutdownResponse(
            self.error, [RemainingPartition(name, number) for name, number in self.remaining]
        )


def refusal(request: ControlledShutdownRequest, brokers: Brokers) -> ErrorCode:
    """Why a broker may not hand over, NONE where it may; before version 2 it tells no epoch."""
    broker = brokers.get(request.broker_id)
    if broker is None:
        return ErrorCode.BROKER_NOT_AVAILABLE
    if request.broker_epoch not in (NO_BROKER_EPOCH, broker.broker_epoch):
        return ErrorCode.STALE_BROKER_EPOCH
    return ErrorCode.NONE


def look_at(hand_over: HandOver, image: Image, topic_partitions: Iterable[TopicPartition]) -> None:
    """Take down which of these partitions of the broker are to be looked at, and as what."""
    for topic_partition in topic_partitions:
        state = image.states.get(topic_partition)
        if state is None or image.is_deleting(topic_partition.topic):
            continue
        if state.leader == hand_over.broker_id:
            hand_over.led[topic_partition] = None
        else:
            hand_over.followed[topic_partition] = None


def next_batch(hand_over: HandOver) -> Batch:
    """What one decision is about; leaderships and places in ISRs are never of the same."""
    are_followed = not hand_over.led
    source = hand_over.followed if are_followed else hand_over.led
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
