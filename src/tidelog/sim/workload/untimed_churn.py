"""Churn of records that expire and carry no timestamp: they are as old as their segment (D21).

A record may be gone when `retention.ms` have passed since a replica first stored it. A replica may
keep it for longer. A log that begins above a younger record breaks a promise; the replication
checker compares the start of each log with the offset below which records may be gone.
"""

from __future__ import annotations

import random
from typing import ClassVar, Final

from tidelog.core.types import TopicId, TopicPartition
from tidelog.history.operations import Operation
from tidelog.sim.loop import NS_PER_MS
from tidelog.sim.workload.administrator import Administrator
from tidelog.sim.workload.churning import ChurnKind, Work, churn

#: Shorter than the time of the faults, longer than it takes to fill a segment.
_RETENTION_MS: Final = 2_500
#: Interval of looks at the records; a look allows for what expires until the next one.
_LOOK_MS: Final = 20


@churn
class UntimedRecords(ChurnKind):
    """A topic with little retention whose records carry no timestamps."""

    name: ClassVar[str] = "untimed_records"
    is_drawn: ClassVar[bool] = False
    topic: ClassVar[str] = "untimed"

    def __init__(self, work: Work, draw: random.Random) -> None:
        super().__init__(work, draw)
        self._partition = TopicPartition(self.topic, 0)
        self._topic_id: TopicId = b""
        #: Offset below which records may be gone.
        self._expired = 0

    async def run(self) -> None:
        work = self.work
        admin = Administrator(self.client, self.draw)
        admin.takes_existing = True
        configs = {
            **work.topic_configs,
            "retention.ms": str(_RETENTION_MS),
            "segment.bytes": str(self.draw.choice((1_500, 6_000, 12_000))),
            "file.delete.delay.ms": "300",
        }
        await admin.create(self.topic, 1, work.replication_factor, configs)
        self._topic_id = work.cluster.published.topics[self.topic].topic_id
        work.produce(work.client(), self._partition, acks=-1, idempotent=True, timed=False)
        work.consume(work.client(), self._partition, None)
        while not self.stopping:
            self._look()
            await self.client.tasks.sleep(_LOOK_MS)
        self.is_done = True
        # Records go on expiring until the run ends.
        while True:
            self._look()
            await self.client.tasks.sleep(_LOOK_MS)

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
            self._note(before)

    def _note(self, before: int) -> None:
        history, now_ns = self.client.history, self.client.now_ns
        history.record_deletion_begins(self._topic_id, self._partition.partition, before)
        name = f"{self.topic}@{self._topic_id.hex()}-{self._partition.partition}"
        history.operations.append(
            Operation("retention", "log_start", now_ns, now_ns, partitions={name: before})
        )
        self.succeeded(f"records below {before} may be gone")
