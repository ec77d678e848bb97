"""Churn of readers: consumers that read a partition from its beginning, one after the other.

Other consumers stay at the end of their logs, where every record was just written. These read the
old records from the leaders' disks.
"""

from __future__ import annotations

from typing import ClassVar

from tidelog.sim.workload.churning import ChurnKind, churn

#: How often a reader's progress is looked at, and how many times before it ends anyway.
_LOOK_MS = (20, 60)
_LOOKS = 60


@churn
class RecordsReread(ChurnKind):
    """New consumers of partitions that exist all the time, from the beginning to the end."""

    name: ClassVar[str] = "records_reread"
    is_drawn: ClassVar[bool] = False

    async def run(self) -> None:
        replication, published = self.work.cluster.replication, self.work.cluster.published
        while not self.stopping:
            await self.pause(50, 500)
            partition = self.draw.choice(self.work.steady)
            topics = [t for t in published.topics.values() if t.name == partition.topic]
            if not topics:
                continue
            key = published.key(topics[0].topic_id, partition.partition)
            end = len(replication.truth(key).committed)
            consumer = self.work.consume(self.client, partition, None)
            for _ in range(_LOOKS):
                if self.stopping or consumer.position >= end:
                    break
                await self.pause(*_LOOK_MS)
            if consumer.position >= end:
                self.succeeded(f"{partition} up to {end}")
            consumer.stopping = True
        self.is_done = True
