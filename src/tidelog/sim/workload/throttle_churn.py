"""Churn of the replication throttle: rates and lists of replicas are set, changed and removed.

As `kafka-reassign-partitions --throttle` does, the administrator lists replicas by topic and sets
rates by broker, of brokers that are down too. Afterwards all of it is removed, and no broker may
throttle anything. The rates are low enough for moved replicas to wait.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from tidelog.client.configs import BROKER, TOPIC, ConfigResource
from tidelog.core.throttle_keys import THROTTLE_RATES, UNLIMITED
from tidelog.sim.workload.churning import ChurnKind, churn_of_profiles
from tidelog.sim.workload.move_churn import PartitionsMoved
from tidelog.sim.workload.work import Workload
from tidelog.wire.messages.alter_partition_reassignments import NO_THROTTLE

#: Bytes a second; 0 holds replicas outside the ISR back until it changes.
_RATES: Final = (0, 300, 1_000, 4_000, 20_000)
_LISTS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
_ALL_REPLICAS: Final = 0.5
_REMOVED: Final = 0.15


@churn_of_profiles
class MovesThrottled(PartitionsMoved):
    """Moves that bring a throttle along, which is changed meanwhile (R4)."""

    def _throttle(self) -> int | None:
        """Return the throttle of the next moves; None keeps what they have."""
        return self.draw.choice((None, NO_THROTTLE, 300, 1_000, 4_000, 20_000))

    async def finish(self) -> None:
        """Remove the throttles of moves under way: they are too low for moves to end in time."""
        while True:
            with self.tried("the throttle of moves", forgets=True):
                moves = await self.client.run(self._moves.list_reassignments())
                targets = {each: move.target for each, move in moves.items() if move.throttle}
                if not targets:
                    return
                await self._reassign(targets, throttle=NO_THROTTLE)
            await self.pause(50, 300)


@churn_of_profiles
class ThrottlesChanged(ChurnKind):
    """Rates of brokers and lists of the steady topic's replicas, changed at any time."""

    def __init__(self, work: Workload, draw: random.Random) -> None:
        super().__init__(work, draw)
        self._topics = list(dict.fromkeys(each.topic for each in work.steady))

    async def act(self) -> None:
        draw = self.draw
        if draw.random() < _REMOVED:
            await self._remove()
        else:
            for topic in self._topics:
                await self._set(ConfigResource(TOPIC, topic), _LISTS, self._replicas(topic))
            brokers = list(self.work.cluster.brokers)
            for broker in draw.sample(brokers, draw.randint(1, len(brokers))):
                rate = str(draw.choice(_RATES))
                await self._set(ConfigResource(BROKER, str(broker)), THROTTLE_RATES, rate)
        await self.pause(200, 4_000)

    async def finish(self) -> None:
        await self.until_done(self._remove)

    def _replicas(self, topic: str) -> str:
        """Return a list of throttled replicas, all or some."""
        if self.draw.random() < _ALL_REPLICAS:
            return "*"
        return ",".join(
            f"{each.partition}:{broker}"
            for each in self.work.steady
            if each.topic == topic
            for broker in self.work.cluster.brokers
            if self.draw.random() < _ALL_REPLICAS
        )

    async def _remove(self) -> bool:
        """Remove every rate and list; return whether all is acknowledged."""
        resources = [(ConfigResource(TOPIC, topic), _LISTS) for topic in self._topics]
        resources += [
            (ConfigResource(BROKER, str(each)), THROTTLE_RATES)
            for each in self.work.cluster.brokers
        ]
        return all([await self._set(resource, keys, None) for resource, keys in resources])

    async def _set(self, resource: ConfigResource, keys: Sequence[str], value: str | None) -> bool:
        what = f"the throttle of {resource}"
        return await self.alter(resource, dict.fromkeys(keys, value), what, f": {value}")

    def unsettled(self) -> str:
        for node_id, node in self.work.cluster.brokers.items():
            if node.broker is None:
                continue
            throttles = node.broker.replicas.throttles
            for side in (throttles.leader, throttles.follower):
                if side.is_active or side.rate != UNLIMITED:
                    return f"broker {node_id} has a throttle: {side.rate} bytes/s"
        return ""
