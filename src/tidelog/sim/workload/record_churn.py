"""Churn of DeleteRecords (KIP-107), on plain and on compacted topics.

Deleted records are below a requested offset; a log that begins above it breaks a promise. An
acknowledged deletion has reached all live replicas, so its low watermark is at least the requested
offset. From then on the log start is never below it, unless the leader's broker dies or all brokers
die that knew it. As in Kafka, brokers write log starts to disk only from time to time.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, ClassVar, Final

from tidelog.client.fetching import EARLIEST, LogReader
from tidelog.client.upkeep import PartitionAdmin
from tidelog.core.errors import TidelogError
from tidelog.core.types import NO_LEADER, READ_UNCOMMITTED, TopicId, TopicPartition
from tidelog.history.operations import Operation
from tidelog.sim.checkers.replica_logs import LogKey
from tidelog.sim.workload.administrator import Administrator
from tidelog.sim.workload.churning import ChurnKind, Work, churn
from tidelog.sim.workload.partition_consumers import PartitionConsumer

if TYPE_CHECKING:
    from tidelog.sim.sim_broker import SimBroker


class _Deletions(ChurnKind):
    """Churn of deletions from one partition of a topic of its own."""

    topic: ClassVar[str]
    configs: ClassVar[dict[str, str]]
    #: Whether records have keys, so that compaction removes some.
    keyed: ClassVar[bool] = False

    def __init__(self, work: Work, draw: random.Random) -> None:
        super().__init__(work, draw)
        self._admin = PartitionAdmin(self.client.router)
        self._reader = LogReader(self.client.router)
        self._partition = TopicPartition(self.topic, 0)
        self._consumers: list[PartitionConsumer] = []
        self._topic_id: TopicId = b""
        #: The acknowledged low watermark, and the incarnations of brokers that know it, by broker.
        self._low_watermark = 0
        self._knowing: dict[int, int] = {}

    async def run(self) -> None:
        work = self.work
        admin = Administrator(self.client, self.draw)
        admin.takes_existing = True
        configs = dict(work.topic_configs) | self.configs
        await admin.create(self.topic, 1, work.replication_factor, configs)
        self._topic_id = work.cluster.published.topics[self.topic].topic_id
        reader = work.client()
        for _ in range(2):
            work.produce(work.client(), self._partition, acks=-1, idempotent=True, keyed=self.keyed)
            consumer = work.consume(reader, self._partition, None, gaps=self.keyed)
            self._consumers.append(consumer)
        while not self.stopping:
            await self.pause(100, 1_200)
            await self._delete()
            await self._look()
        key = LogKey(self._topic_id, self._partition.partition)
        while not work.cluster.waits_for_operator(key) and not await self._look():
            await self.pause(50, 300)
        self.is_done = True

    async def _delete(self) -> None:
        known_end = max(consumer.position for consumer in self._consumers)
        before = self.draw.choice(
            (self.draw.randrange(self._low_watermark, known_end + 1), *self._ends(known_end))
        )
        self._begins(before)
        try:
            low = await self.client.run(self._admin.delete_records({self._partition: before}))
        except TidelogError as error:
            self.failed(f"deletion below {before}", error)
            return
        self.succeeded(f"deletion below {before}: {low[self._partition]}")
        self._check(low[self._partition], "the low watermark", before)
        self._low_watermark = max(self._known_low_watermark(), low[self._partition])
        self._knowing = self._who_knows()

    def _ends(self, known_end: int) -> list[int]:
        """Return ends of replicas' logs that a deletion may request.

        The log of an isolated old leader may end where its successors' logs begin. Then only the
        start of the epoch shows that records below differ (V67). A random offset hardly ever meets
        that end.
        """
        found = (self._log_end(broker) for broker in self.work.cluster.brokers.values())
        return [end for end in found if self._low_watermark <= end <= known_end]

    def _log_end(self, broker: SimBroker) -> int:
        """Return a broker's log end offset, -1 if it has no log."""
        if broker.broker is None:
            return -1
        partition = broker.broker.replicas.get(self._partition)
        return -1 if partition is None else partition.log.log_end_offset

    def _who_knows(self) -> dict[int, int]:
        """Return the brokers that know the low watermark, with their incarnations.

        A broker does not forget it within an incarnation.
        """
        return {
            broker.node_id: broker.incarnation
            for broker in self.work.cluster.brokers.values()
            if self._log_start(broker) >= self._low_watermark
        }

    def _log_start(self, broker: SimBroker) -> int:
        """Return a broker's log start offset, -1 if it has no log."""
        if broker.broker is None:
            return -1
        partition = broker.broker.replicas.get(self._partition)
        return -1 if partition is None else partition.log.log_start_offset

    def _known_low_watermark(self) -> int:
        """Return the acknowledged low watermark while the leader knows it, else 0.

        As in Kafka, a broker that dies may forget it and lead again. Then it is no longer promised,
        even if other brokers know it.
        """
        cluster = self.work.cluster
        self._knowing |= self._who_knows()
        lives = {node_id: broker.incarnation for node_id, broker in cluster.brokers.items()}
        key = cluster.published.key(self._topic_id, self._partition.partition)
        state = cluster.published.partitions.get(key)
        leader = NO_LEADER if state is None else state.leader
        has_forgotten = leader != NO_LEADER and self._knowing.get(leader) != lives[leader]
        if has_forgotten or all(lives[broker] != life for broker, life in self._knowing.items()):
            self._low_watermark = 0
        return self._low_watermark

    def _begins(self, before: int) -> None:
        history = self.client.history
        history.record_deletion_begins(self._topic_id, self._partition.partition, before)
        name = f"{self.topic}@{self._topic_id.hex()}-{self._partition.partition}"
        now_ns = self.client.now_ns
        history.operations.append(
            Operation("deleter", "log_start", now_ns, now_ns, partitions={name: before})
        )

    async def _look(self) -> bool:
        """Look up the log start and check it; return whether the lookup succeeded."""
        wanted = {self._partition: EARLIEST}
        try:
            listed = await self.client.run(self._reader.list_offsets(wanted, READ_UNCOMMITTED))
        except TidelogError as error:
            self.failed("looking for the beginning", error)
            return False
        self._check(listed[self._partition].offset, "the log start", self._known_low_watermark())
        return True

    def _check(self, offset: int, what: str, lowest: int) -> None:
        key = (self._topic_id, self._partition.partition)
        highest = self.client.history.deleted_before.get(key, 0)
        if not lowest <= offset <= highest:
            self.client.history.broken_promise(
                f"{what} of {self._partition} is {offset}: deletions below {lowest} were"
                f" acknowledged and none above {highest} was requested"
            )


@churn
class RecordsDeleted(_Deletions):
    """Requests that delete the oldest records of a topic."""

    name: ClassVar[str] = "records_deleted"
    topic: ClassVar[str] = "trimmed"
    configs: ClassVar[dict[str, str]] = {"segment.bytes": "1500", "file.delete.delay.ms": "300"}


@churn
class CompactedAndDeleted(_Deletions):
    """Requests that delete the oldest records of a compacted topic."""

    name: ClassVar[str] = "compacted_and_deleted"
    topic: ClassVar[str] = "thinned"
    configs: ClassVar[dict[str, str]] = {
        "cleanup.policy": "compact,delete",
        "segment.bytes": "1500",
        "file.delete.delay.ms": "300",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "1000",
    }
    keyed: ClassVar[bool] = True


#: Topics of churn whose records have keys.
COMPACTED_TOPICS: Final = (CompactedAndDeleted.topic,)
