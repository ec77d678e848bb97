"""Churn of preferred leader elections by request (ElectLeaders, KIP-183).

If a response says that a partition's preferred leader was elected, that leader must have led at
some time since the request. This module does not check whether it leads in the end, which depends
on automatic balance.
"""

from __future__ import annotations

import random

from tidelog.client.upkeep import ElectionType, PartitionAdmin
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.sim.observed.published_state import PublishedPartition
from tidelog.sim.observed.replica_logs import LogKey
from tidelog.sim.workload.churning import ChurnKind, churn
from tidelog.sim.workload.work import Workload


@churn
class LeadersElected(ChurnKind):
    """Elections of preferred leaders by request; a reported election must have happened."""

    pause_ms = 50, 1_200

    def __init__(self, work: Workload, draw: random.Random) -> None:
        super().__init__(work, draw)
        self._partitions = PartitionAdmin(self.client.router)
        #: Time at which published state last had each leader.
        self._led_ns: dict[tuple[LogKey, int], int] = {}
        work.cluster.published.on_state.append(self._follow)

    def _follow(self, before: PublishedPartition | None, now: PublishedPartition) -> None:
        now_ns = self.work.cluster.simulator.now_ns
        self._led_ns[(now.key, now.leader)] = now_ns
        if before is not None:
            self._led_ns[(now.key, before.leader)] = now_ns

    async def act(self) -> None:
        asked = list(self.work.steady) if self.draw.random() < 0.5 else None
        begin_ns = self.client.now_ns
        with self.tried("election"):
            results = await self.client.run(
                self._partitions.elect_leaders(ElectionType.PREFERRED, asked)
            )
            self.succeeded(f"{len(results)} elections")
            for partition, result in results.items():
                if result.error is ErrorCode.NONE:
                    self._check(partition, begin_ns)

    def _check(self, partition: TopicPartition, begin_ns: int) -> None:
        """Check that the preferred replica led at some time since the request."""
        published = self.work.cluster.published
        topic = published.topics.get(partition.topic)
        if topic is None or topic.created_ns >= begin_ns:
            return  # it was recreated meanwhile: the request may mean either topic
        if topic.assigned_ns.get(partition.partition, -1) >= begin_ns:
            return  # another replica is preferred since then
        key = published.key(topic.topic_id, partition.partition)
        preferred = topic.assignment[partition.partition][0]
        state = published.partitions[key]
        if state.leader != preferred and self._led_ns.get((key, preferred), -1) < begin_ns:
            self.client.history.anomaly(
                f"the preferred leader {preferred} of {partition} was reported as elected;"
                f" {state.leader} leads, and the preferred one has not since the request"
            )
