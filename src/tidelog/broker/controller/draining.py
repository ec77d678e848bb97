"""The wait until consumer groups have read partitions that are to be removed (V71).

An administrator may reduce the number of a topic's partitions, and may ask that groups first read
the removed partitions to the end. The controller checks the groups' progress repeatedly until no
partition waits for them. `drains` asks the coordinators how far their groups have read. A check of
the groups' progress counts only if leaders and coordinators stayed the same during the check.
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

#: Pause between two checks of the groups' progress, in milliseconds.
_DRAIN_LOOK_MS = 500


class Draining:
    """The check of one controller term whether consumer groups have read the partitions to be
    removed.
    """

    def __init__(
        self,
        services: Services,
        progress: Drains,
        term: Term,
        is_on: Callable[[], bool],
        offer: Callable[[Event], None],
    ) -> None:
        """`is_on` returns whether the term still lasts.

        `offer` gives the controller the partitions that all groups have read, as an event.
        """
        self._services = services
        self._progress = progress
        self._term = term
        self._is_on = is_on
        self._offer = offer

    async def run(self) -> None:
        """Check repeatedly, until no partition waits for its consumer groups."""
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
                    # While the controller waited for the progress of the groups, another broker may
                    # have become leader of a partition or coordinator of groups.
                    if read and watched == self._watched_states(waiting):
                        self._offer(DrainRead(read))
                await self._services.tasks.sleep(_DRAIN_LOOK_MS)
        finally:
            self._term.is_draining = False

    def _watched_states(
        self, waiting: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PartitionState] | None:
        """Return the states of partitions that wait for removal, and of `__consumer_offsets`.

        Returns None if a partition has no live leader, or if the leader of a waiting partition has
        unacknowledged commands.
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
