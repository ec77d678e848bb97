"""Churn of records that expire and carry no timestamp: they are as old as their segment (D21).

A record may be gone when `retention.ms` have passed since a replica first stored it. A replica may
keep it for longer. A log that begins above a younger record breaks a promise; the replication
checker compares the start of each log with the offset below which records may be gone.
"""

from __future__ import annotations

import random
from typing import ClassVar, Final

from tidelog.core.types import TopicId, TopicPartition
from tidelog.sim.loop import NS_PER_MS
from tidelog.sim.workload.churning import ChurnKind, churn_of_profiles
from tidelog.sim.workload.work import Workload

#: Shorter than the time of the faults, longer than it takes to fill a segment.
_RETENTION_MS: Final = 2_500
#: Interval of looks at the records; a look allows for what expires until the next one.
_LOOK_MS: Final = 20


@churn_of_profiles
class UntimedRecords(ChurnKind):
    """A topic with little retention whose records carry no timestamps."""

    topic: ClassVar[str] = "untimed"

    def __init__(self, work: Workload, draw: random.Random) -> None:
        super().__init__(work, draw)
        self._partition = TopicPartition(self.topic, 0)
        self._topic_id: TopicId = b""
        #: Offset below which records may be gone.
        self._expired = 0

    async def begin(self) -> None:
        work = self.work
        configs = {
            "retention.ms": str(_RETENTION_MS),
            "segment.bytes": str(self.draw.choice((1_500, 6_000, 12_000))),
            "file.delete.delay.ms": "300",
        }
        await self.create(self.topic, configs=configs)
        self._topic_id = self.topic_id(self.topic)
        work.produce(work.client(), self._partition, timed=False)
        work.consume(work.client(), self._partition)

    async def act(self) -> None:
        self._look()
        await self.client.tasks.sleep(_LOOK_MS)

    async def finish(self) -> None:
        self.is_done = True
        while True:  # records go on expiring until the run ends
            await self.act()

    def _look(self) -> None:
        """Note which records may be gone until the next look."""
        replication = self.work.cluster.replication
        key = replication.published.key(self._topic_id, self._partition.partition)
        truth = replication.truths.get(key)
        if truth is None:
            return
        old_ns = self.client.now_ns - (_RETENTION_MS - 2 * _LOOK_MS) * NS_PER_MS
        stored_ns = replication.first_stored_ns
        before = self._expired
        while before < len(truth.committed):
            if stored_ns.get(truth.committed[before], 0) > old_ns:
                break
            before += 1
        if before > self._expired:
            self._expired = before
            self.client.records_may_go(self._partition, self._topic_id, before)
            self.succeeded(f"records below {before} may be gone")
