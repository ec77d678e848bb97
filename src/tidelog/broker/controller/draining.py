"""Waits for consumer groups to read partitions that are to be removed then (V71).

Runs while a controller's term lasts and anything waits. What groups have read is asked of their
coordinators (`drains`); it counts only if nobody else led, or coordinated, meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from tidelog.broker.controller.term import Term
from tidelog.controller.events import Event
from tidelog.controller.partitions import removal
from tidelog.controller.partitions.removal import DrainRead
from tidelog.core.names import CONSUMER_OFFSETS
from tidelog.core.types import PartitionState, TopicPartition

if TYPE_CHECKING:
    from tidelog.broker.services import Services

#: Between two looks at what consumer groups have read.
_DRAIN_LOOK_MS = 500


class GroupProgress(Protocol):
    """What consumer groups have read."""

    async def read_to_the_end(
        self, leaders: Mapping[TopicPartition, int], coordinators: Iterable[int]
    ) -> list[TopicPartition]:
        """Return which of these partitions every group with offsets in them has read to their end.

        `leaders`: who leads each; `coordinators`: every broker that coordinates groups.
        """


class Draining:
    """The drains of one term."""

    def __init__(
        self,
        services: Services,
        progress: GroupProgress,
        term: Term,
        is_on: Callable[[], bool],
        offer: Callable[[Event], None],
    ) -> None:
        """`is_on`: whether the term lasts; `offer` takes what was found."""
        self._services = services
        self._progress = progress
        self._term = term
        self._is_on = is_on
        self._offer = offer

    async def run(self) -> None:
        """Look again and again, until nothing waits for them."""
        try:
            while self._is_on():
                image = self._term.controller.image
                waiting = removal.to_drain(image)
                if not waiting:
                    return
                watched = self._watched_states(waiting)
                if watched is not None:
                    leaders = {one: watched[one].leader for one in waiting}
                    coordinators = {
                        state.leader
                        for one, state in watched.items()
                        if one.topic == CONSUMER_OFFSETS
                    }
                    read = await self._progress.read_to_the_end(leaders, coordinators)
                    # Somebody else may have led, or coordinated, meanwhile.
                    if read and watched == self._watched_states(waiting):
                        self._offer(DrainRead(read))
                await self._services.tasks.sleep(_DRAIN_LOOK_MS)
        finally:
            self._term.is_draining = False

    def _watched_states(
        self, waiting: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PartitionState] | None:
        """States of partitions that drain and of those that groups are kept in; None where one is
        not led, or where a broker has not answered yet what it was told of its role."""
        image = self._term.controller.image
        offsets = image.topics.get(CONSUMER_OFFSETS)
        found: dict[TopicPartition, PartitionState] = {}
        for one in (*waiting, *(() if offsets is None else offsets.partitions)):
            state = image.states.get(one)
            if state is None or state.leader not in image.brokers:
                return None
            found[one] = state
        is_told = all(self._term.channels.is_idle(found[one].leader) for one in waiting)
        return found if is_told else None
