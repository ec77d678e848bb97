"""Churn of a topic that is deleted and created again while groups have offsets of it (G6).

The groups have no members, and their clerk sends one request after the other. When every broker
shows the new topic, the offsets of the former one are over: no group may read the new topic from
one of them. A commit that was acknowledged since then holds. A commit that was retried, or got no
response, may take effect at any later time.
"""

from __future__ import annotations

import random
from typing import Final

from tidelog.core.types import TopicPartition
from tidelog.sim.workload.churning import churn_of_profiles
from tidelog.sim.workload.offset_churn import NO_OFFSET, OffsetLedger
from tidelog.sim.workload.topic_churn import OfTopics
from tidelog.sim.workload.work import Workload

_GROUPS: Final = ("rereaders", "returners", "repeaters", "recaller")
_PARTITION: Final = TopicPartition("reread", 0)


@churn_of_profiles
class OffsetsOfRecreatedTopics(OfTopics):
    """Commits of groups for a topic that is deleted and created again under its name."""

    def __init__(self, work: Workload, draw: random.Random) -> None:
        super().__init__(work, draw)
        since = " since the topic was created"
        self._ledgers = {
            group: OffsetLedger(self, group, [_PARTITION], since, " (G6)") for group in _GROUPS
        }
        self._next_offset = 0

    async def begin(self) -> None:
        await self.create(_PARTITION.topic)

    async def act(self) -> None:
        for _ in range(self.draw.randrange(1, 4)):
            for group in self.draw.sample(_GROUPS, 2):
                self._next_offset += 1
                await self._ledgers[group].commit({_PARTITION: self._next_offset})
            await self.pause(5, 150)
            await self._ledgers[self.draw.choice(_GROUPS)].look()
        former = self.topic_id(_PARTITION.topic)
        await self.admin.delete(_PARTITION.topic)
        await self.client.tasks.sleep(self.draw.choice((0, 0, 5, 200, 1_500)))
        await self.create(_PARTITION.topic)
        self.succeeded("recreated")
        while former in self._shown():
            await self.pause(5, 100)
        for ledger in self._ledgers.values():
            ledger.certain[_PARTITION] = NO_OFFSET
        for ledger in self._ledgers.values():
            await ledger.look()

    async def finish(self) -> None:
        for ledger in self._ledgers.values():
            await ledger.look_at_last()

    def _shown(self) -> list[bytes]:
        """Return the topic's id in the view of each broker."""
        views = [
            node.broker.services.view
            for node in self.work.cluster.brokers.values()
            if node.broker is not None
        ]
        return [
            view.topics[_PARTITION.topic].topic_id
            for view in views
            if _PARTITION.topic in view.topics
        ]
