"""The wait for consumer groups to read partitions before their removal (V71).

Runs while a controller's term lasts and partitions wait. `drains` asks the coordinators for the
progress of their groups. The result counts only if leaders and coordinators stayed the same
meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidelog.broker.controller.drains import Drains
from tidelog.broker.controller.term import Term
from tidelog.broker.services import Services
from tidelog.controller.events import Event
from tidelog.controller.partitions import removal
from tidelog.controller.partitions.removal import DrainRead
from tidelog.core.names import CONSUMER_OFFSETS
from tidelog.core.types import PartitionState, TopicPartition

#: Pause between two looks at the progress of consumer groups.
_DRAIN_LOOK_MS = 500


class Draining:
    """The drains of one term."""

    def __init__(
        self,
        services: Services,
        progress: Drains,
        term: Term,
        is_on: Callable[[], bool],
        offer: Callable[[Event], None],
    ) -> None:
        """`is_on`: whether the term lasts; `offer` takes the partitions that are read."""
        self._services = services
        self._progress = progress
        self._term = term
        self._is_on = is_on
        self._offer = offer

    async def run(self) -> None:
        """Look again and again, until no partition waits for its readers."""
        try:
            while self._is_on():
                image = self._term.controller.image
                waiting = removal.to_drain(image)
                if not waiting:
                    return
                watched = self._watched_states(waiting)
                if watched is not None:
                    leaders = {partition: watched[partition].leader for partition in waiting}
                    coordinators = {
                        state.leader
                        for partition, state in watched.items()
                        if partition.topic == CONSUMER_OFFSETS
                    }
                    read = await self._progress.read_to_the_end(leaders, coordinators)
                    # Another broker may have led, or coordinated, meanwhile.
                    if read and watched == self._watched_states(waiting):
                        self._offer(DrainRead(read))
                await self._services.tasks.sleep(_DRAIN_LOOK_MS)
        finally:
            self._term.is_draining = False

    def _watched_states(
        self, waiting: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PartitionState] | None:
        """Return the states of draining partitions and of the partitions that hold group offsets.

        None where a partition has no live leader, or where the leader of a draining partition has
        not yet responded to its commands.
        """
        image = self._term.controller.image
        offsets = image.topics.get(CONSUMER_OFFSETS)
        found: dict[TopicPartition, PartitionState] = {}
        for partition in (*waiting, *(() if offsets is None else offsets.partitions)):
            state = image.states.get(partition)
            if state is None or state.leader not in image.brokers:
                return None
            found[partition] = state
        has_acknowledged = all(
            self._term.channels.is_idle(found[partition].leader) for partition in waiting
        )
        return found if has_acknowledged else None
