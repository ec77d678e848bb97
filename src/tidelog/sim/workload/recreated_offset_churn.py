"""Churn of a topic that is deleted and created again while groups have offsets of it (G6).

The groups have no members, and their clerk sends one request after the other. When every broker
shows the new topic, the offsets of the former one are over: no group may read the new topic from
one of them. A commit that was acknowledged since then holds. A commit that was retried, or got no
response, may take effect at any later time.
"""

from __future__ import annotations

import random
from typing import ClassVar, Final

from tidelog.client.coordinators import Coordinators
from tidelog.client.groups import CommittedOffset, GroupAdmin
from tidelog.core.errors import TidelogError
from tidelog.core.names import CONSUMER_OFFSETS
from tidelog.core.types import TopicPartition
from tidelog.sim.checkers.replica_logs import LogKey
from tidelog.sim.workload.churning import Work, churn
from tidelog.sim.workload.offset_churn import Attempts
from tidelog.sim.workload.topic_churn import OfTopics

_GROUPS: Final = ("rereaders", "returners", "repeaters", "recaller")
_PARTITION: Final = TopicPartition("reread", 0)
#: No offset.
_NONE: Final = -1


@churn
class OffsetsOfRecreatedTopics(OfTopics):
    """Commits of groups for a topic that is deleted and created again under its name."""

    name: ClassVar[str] = "offsets_of_recreated_topics"
    is_drawn: ClassVar[bool] = False

    def __init__(self, work: Work, draw: random.Random) -> None:
        super().__init__(work, draw)
        router = self.client.router
        self._groups = GroupAdmin(router, Coordinators(router))
        self._next_offset = 0
        #: The acknowledged offset of each group, and other offsets that it may have.
        self._certain = dict.fromkeys(_GROUPS, _NONE)
        self._possible: dict[str, dict[int, None]] = {group: {} for group in _GROUPS}

    async def run(self) -> None:
        await self._create(_PARTITION.topic, 1)
        while not self.stopping:
            for _ in range(self.draw.randrange(1, 4)):
                for group in self.draw.sample(_GROUPS, 2):
                    await self._commit(group)
                await self.pause(5, 150)
                await self._look(self.draw.choice(_GROUPS))
            former = self._present_id()
            await self._admin.delete(_PARTITION.topic)
            await self.client.tasks.sleep(self.draw.choice((0, 0, 5, 200, 1_500)))
            await self._create(_PARTITION.topic, 1)
            self.succeeded("recreated")
            while former in self._shown():
                await self.pause(5, 100)
            self._certain = dict.fromkeys(_GROUPS, _NONE)
            for group in _GROUPS:
                await self._look(group)
        for group in _GROUPS:
            while not self._waits_for_operator(group) and not await self._look(group):
                await self.pause(50, 300)
        self.is_done = True

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

    def _present_id(self) -> bytes:
        return self.work.cluster.published.topics[_PARTITION.topic].topic_id

    def _waits_for_operator(self, group: str) -> bool:
        """Return whether the partition of the group's coordinator waits for an operator."""
        cluster = self.work.cluster
        topic = cluster.published.topics.get(CONSUMER_OFFSETS)
        partition = cluster.groups.partition_of(group)
        return topic is not None and cluster.waits_for_operator(LogKey(topic.topic_id, partition))

    async def _commit(self, group: str) -> None:
        self._next_offset += 1
        offset, attempts = self._next_offset, Attempts()
        operation = self._groups.commit(group, {_PARTITION: CommittedOffset(offset)})
        try:
            await self.client.run(attempts.of(operation))
        except TidelogError as error:
            self.failed("committed", error)
        else:
            self.succeeded("committed")
            self._certain[group] = offset
            if attempts.count == 1:
                return
        self._possible[group][offset] = None

    async def _look(self, group: str) -> bool:
        """Read a group's offset and check it; return whether the read succeeded."""
        try:
            found = await self.client.run(self._groups.committed(group, [_PARTITION]))
        except TidelogError as error:
            self.failed("read", error)
            return False
        offset = found[_PARTITION].offset if _PARTITION in found else _NONE
        if offset != self._certain[group] and offset not in self._possible[group]:
            self.client.history.broken_promise(
                f"group {group} got offset {offset} for {_PARTITION}; {self._certain[group]} was"
                f" acknowledged last since the topic was created, and"
                f" {list(self._possible[group])} may hold besides (G6)"
            )
        return True
