"""Records that are deleted (KIP-107), that expire without timestamps (D21), or are read again.

DeleteRecords removes only records below the requested offset; a log that begins above this offset
breaks a promise. An acknowledged deletion has reached all live replicas, so the low watermark in
the response is at least the requested offset. Afterwards the log start must not be below the low
watermark, unless the leader's broker dies, or all brokers that knew the low watermark die. As in
Kafka, brokers write log starts to disk only from time to time.

Records without a timestamp are as old as their segment. Retention may remove such a record when
`retention.ms` have passed since a replica first stored it, but not before; the replication checker
checks this.

New consumers read a partition from its beginning, one after the other, so that leaders read old
records from their disks; other consumers stay at the log ends.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, ClassVar, Final

from tidelog.client.fetching import EARLIEST, LogReader
from tidelog.client.upkeep import PartitionAdmin
from tidelog.core.types import NO_LEADER, READ_UNCOMMITTED, TopicId, TopicPartition
from tidelog.sim.loop import NS_PER_MS
from tidelog.sim.observed.replica_logs import LogKey
from tidelog.sim.workload.churning import ChurnKind, churn, churn_of_profiles
from tidelog.sim.workload.partition_consumers import SimPartitionConsumer
from tidelog.sim.workload.work import Workload

if TYPE_CHECKING:
    from tidelog.log.partition_log import PartitionLog
    from tidelog.sim.sim_broker import SimBroker

#: Retention in ms: shorter than the time of the faults, longer than it takes to fill a segment.
_RETENTION_MS: Final = 2_500
#: Interval in ms at which records that may expire before the next check are noted.
_AGE_LOOK_MS: Final = 20
#: Interval in ms of the checks of a reader's progress; `_READER_LOOKS` is the number of checks
#: after which the reader is given up.
_READER_LOOK_MS = (20, 60)
_READER_LOOKS = 60


class _Deletions(ChurnKind):
    """Deletions of records from one partition of a separate topic."""

    topic: ClassVar[str]
    configs: ClassVar[dict[str, str]]
    pause_ms = 100, 1_200
    #: Whether records have keys, so that compaction removes some.
    keyed: ClassVar[bool] = False

    def __init__(self, work: Workload, draw: random.Random) -> None:
        super().__init__(work, draw)
        self._deleter = PartitionAdmin(self.client.router)
        self._reader = LogReader(self.client.router)
        self._partition = TopicPartition(self.topic, 0)
        self._consumers: list[SimPartitionConsumer] = []
        self._topic_id: TopicId = b""
        #: The acknowledged low watermark; `_knowing` has the brokers that know it, with their
        #: incarnations.
        self._low_watermark = 0
        self._knowing: dict[int, int] = {}

    async def begin(self) -> None:
        work = self.work
        await self.create(self.topic, configs=self.configs)
        self._topic_id = self.topic_id(self.topic)
        reader = work.client()
        for _ in range(2):
            work.produce(work.client(), self._partition, keyed=self.keyed)
            self._consumers.append(work.consume(reader, self._partition, gaps=self.keyed))

    async def act(self) -> None:
        await self._delete()
        await self._look()

    async def finish(self) -> None:
        key = LogKey(self._topic_id, self._partition.partition)
        while not self.work.cluster.waits_for_operator(key) and not await self._look():
            await self.pause(50, 300)

    async def _delete(self) -> None:
        known_end = max(consumer.position for consumer in self._consumers)
        before = self.draw.choice(
            (self.draw.randrange(self._low_watermark, known_end + 1), *self._ends(known_end))
        )
        self.client.records_may_go(self._partition, self._topic_id, before, "deleter")
        what = f"deletion below {before}"
        with self.tried(what):
            found = await self.client.run(self._deleter.delete_records({self._partition: before}))
            low = found[self._partition]
            self.succeeded(f"{what}: {low}")
            self._check(low, "the low watermark", before)
            self._low_watermark = max(self._known_low_watermark(), low)
            self._knowing = self._who_knows()

    def _ends(self, known_end: int) -> list[int]:
        """Return the log ends of replicas, which are interesting offsets for a deletion.

        After a deletion up to the log end of an isolated old leader, the new leader's log begins
        there. Only the start offset of the leader epoch then shows the old leader that its records
        differ (V67). A random offset would hardly ever hit this log end.
        """
        logs = map(self._log, self.work.cluster.brokers.values())
        found = [log.log_end_offset for log in logs if log is not None]
        return [end for end in found if self._low_watermark <= end <= known_end]

    def _log(self, broker: SimBroker) -> PartitionLog | None:
        """Return a broker's log of the partition, if it has one."""
        partition = None if broker.broker is None else broker.broker.replicas.get(self._partition)
        return None if partition is None else partition.log

    def _who_knows(self) -> dict[int, int]:
        """Return the brokers that know the low watermark, with their incarnations.

        A broker forgets it only when its process ends.
        """
        return {
            broker.node_id: broker.incarnation
            for broker in self.work.cluster.brokers.values()
            if (log := self._log(broker)) is not None
            and log.log_start_offset >= self._low_watermark
        }

    def _known_low_watermark(self) -> int:
        """Return the acknowledged low watermark if the leader must still know it, else 0.

        As in Kafka, a broker that died may have forgotten the low watermark when it leads again.
        The low watermark is then no longer promised, even if other brokers know it.
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

    async def _look(self) -> bool:
        """Look up the log start and check it; return whether the lookup succeeded."""
        wanted = {self._partition: EARLIEST}
        with self.tried("looking for the beginning"):
            listed = await self.client.run(self._reader.list_offsets(wanted, READ_UNCOMMITTED))
            lowest = self._known_low_watermark()
            self._check(listed[self._partition].offset, "the log start", lowest)
            return True
        return False

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

    topic: ClassVar[str] = "trimmed"
    configs: ClassVar[dict[str, str]] = {"segment.bytes": "1500", "file.delete.delay.ms": "300"}


@churn
class CompactedAndDeleted(_Deletions):
    """Requests that delete the oldest records of a compacted topic."""

    topic: ClassVar[str] = "thinned"
    configs: ClassVar[dict[str, str]] = {
        "cleanup.policy": "compact,delete",
        "segment.bytes": "1500",
        "file.delete.delay.ms": "300",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "1000",
    }
    keyed: ClassVar[bool] = True


#: Topics of these clients whose records have keys.
COMPACTED_TOPICS: Final = (CompactedAndDeleted.topic,)


@churn_of_profiles
class UntimedRecords(ChurnKind):
    """Records without timestamps, in a topic with a short retention time."""

    topic: ClassVar[str] = "untimed"

    def __init__(self, work: Workload, draw: random.Random) -> None:
        super().__init__(work, draw)
        self._partition = TopicPartition(self.topic, 0)
        self._topic_id: TopicId = b""
        #: Offset below which retention may have removed the records.
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
        await self.client.tasks.sleep(_AGE_LOOK_MS)

    async def finish(self) -> None:
        self.is_done = True
        while True:  # until the run ends, because records expire until then
            await self.act()

    def _look(self) -> None:
        """Note the records that may expire before the next check."""
        replication = self.work.cluster.replication
        published = self.work.cluster.published
        key = published.key(self._topic_id, self._partition.partition)
        truth = replication.truths.get(key)
        if truth is None:
            return
        old_ns = self.client.now_ns - (_RETENTION_MS - 2 * _AGE_LOOK_MS) * NS_PER_MS
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


@churn_of_profiles
class RecordsReread(ChurnKind):
    """New consumers that read partitions of lasting topics from the beginning to the end."""

    pause_ms = 50, 500

    async def act(self) -> None:
        replication, published = self.work.cluster.replication, self.work.cluster.published
        partition = self.draw.choice(self.work.steady)
        key = published.find(partition)
        if key is None:
            return
        end = len(replication.truth(key).committed)
        consumer = self.work.consume(self.client, partition)
        for _ in range(_READER_LOOKS):
            if self.stopping or consumer.position >= end:
                break
            await self.pause(*_READER_LOOK_MS)
        if consumer.position >= end:
            self.succeeded(f"{partition} up to {end}")
        consumer.stopping = True
