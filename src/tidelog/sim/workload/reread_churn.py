"""Churn of readers: consumers that read a partition from its beginning, one after the other.

Other consumers stay at the end of their logs, where every record was just written. These read the
old records from the leaders' disks.
"""

from __future__ import annotations

from tidelog.sim.workload.churning import ChurnKind, churn_of_profiles

#: How often a reader's progress is looked at, and how many times before it ends anyway.
_LOOK_MS = (20, 60)
_LOOKS = 60


@churn_of_profiles
class RecordsReread(ChurnKind):
    """New consumers of partitions that exist all the time, from the beginning to the end."""

    pause_ms = 50, 500

    async def act(self) -> None:
        replication, published = self.work.cluster.replication, self.work.cluster.published
        partition = self.draw.choice(self.work.steady)
        key = published.find(partition)
        if key is None:
            return
        end = len(replication.truth(key).committed)
        consumer = self.work.consume(self.client, partition)
        for _ in range(_LOOKS):
            if self.stopping or consumer.position >= end:
                break
            await self.pause(*_LOOK_MS)
        if consumer.position >= end:
            self.succeeded(f"{partition} up to {end}")
        consumer.stopping = True
