"""Churn of topics: they are created, deleted, recreated, extended and reconfigured.

Each kind has topics of its own, with a producer and a consumer. Acknowledged changes must hold. The
history shows this for deletions and creations; partitions and configurations are checked after the
faults.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import ClassVar

from tidelog.client.admin import TopicAdmin
from tidelog.client.steps import Operation
from tidelog.core.errors import TidelogError
from tidelog.core.types import TopicPartition
from tidelog.sim.workload.churn import Churn
from tidelog.sim.workload.churning import ChurnKind, churn, churn_of_profiles
from tidelog.sim.workload.partition_consumers import SimPartitionConsumer
from tidelog.sim.workload.partition_producers import PartitionProducer
from tidelog.sim.workload.work import Workload

_MAX_PARTITIONS = 3


class OfTopics(ChurnKind):
    """A kind of churn with a writer and a reader for its topics."""

    def __init__(self, work: Workload, draw: random.Random) -> None:
        super().__init__(work, draw)
        self.admin.chooses_replicas = 0.3
        self._writer, self._reader = work.client(), work.client()

    def _work_on(self, partition: TopicPartition) -> tuple[PartitionProducer, SimPartitionConsumer]:
        """Start a producer and a consumer of a partition."""
        producer = self.work.produce(self._writer, partition)
        return producer, self.work.consume(self._reader, partition)


@churn
class TopicsComeAndGo(OfTopics):
    """Topics that are created, written and read for a while, and deleted."""

    number = 0

    async def act(self) -> None:
        self.number += 1
        topic = f"passing-{self.number}"
        count = self.draw.randrange(1, _MAX_PARTITIONS + 1)
        await self.create(topic, count)
        self.succeeded(f"{topic} created")
        partitions = [TopicPartition(topic, each) for each in range(count)]
        producers = [self.work.produce(self._writer, each) for each in partitions]
        consumers = [self.work.consume(self._reader, each) for each in partitions]
        await self.pause(100, 2_500)
        if self.stopping:
            return  # it stays, and all its records are read in the end
        await self.admin.delete(topic)
        self.succeeded(f"{topic} deleted")
        for producer in producers:
            producer.abandon()
        for consumer in consumers:
            consumer.stopping = True
        await self.pause(0, 600)


@churn
class TopicsRecreated(OfTopics):
    """Deletions and recreations of a topic under its name, unnoticed by its clients."""

    topic: ClassVar[str] = "recurring"
    pause_ms = 200, 3_000

    async def begin(self) -> None:
        partition = TopicPartition(self.topic, 0)
        await self.create(self.topic)
        self.work.produce(self._writer, partition)
        acks = self.draw.choice((0, 1, -1))
        self.work.produce(self.work.client(), partition, acks=acks, idempotent=False)
        self.work.consume(self._reader, partition)

    async def act(self) -> None:
        if not self.stopping:
            await self.admin.delete(self.topic)
            await self.client.tasks.sleep(self.draw.choice((0, 5, 200, 1_500)))
            await self.create(self.topic)
            self.succeeded("recreated")


class _Altered(OfTopics):
    """A topic that `Churn` changes; in the end every replica uses the values that were set last."""

    topic: ClassVar[str]
    grows: ClassVar[float]

    def __init__(self, work: Workload, draw: random.Random) -> None:
        super().__init__(work, draw)
        self._churn = Churn(self.client, draw, self.topic, self._work_on, self.grows)

    async def begin(self) -> None:
        await self.create(self.topic)
        self._work_on(TopicPartition(self.topic, 0))
        self.client.tasks.spawn("churn", self._churn.run())

    async def act(self) -> None:
        self._churn.stopping = self.stopping
        await self.pause(20, 40)

    async def finish(self) -> None:
        while not self._churn.is_done:
            await self.act()
        self.acknowledged = self._acknowledged()

    def _acknowledged(self) -> int:
        raise NotImplementedError

    def unsettled(self) -> str:
        return self._churn.unsettled(self.work.cluster)


@churn
class PartitionsAdded(_Altered):
    """Partitions that are added to a topic, one after the other."""

    topic: ClassVar[str] = "growing"
    grows: ClassVar[float] = 0.6

    def _acknowledged(self) -> int:
        return self._churn.partitions - 1


@churn
class ConfigsChanged(_Altered):
    """Changes of a topic's configuration, one after the other."""

    topic: ClassVar[str] = "tuned"
    grows: ClassVar[float] = 0.0

    def _acknowledged(self) -> int:
        return self._churn.alterations


@churn_of_profiles
class PartitionsRemoved(OfTopics):
    """Removals and additions of a topic's highest partition, over and over.

    Records that are written to it belong to its present life alone.
    """

    topic: ClassVar[str] = "shrinking"

    def __init__(self, work: Workload, draw: random.Random) -> None:
        super().__init__(work, draw)
        self._topics = TopicAdmin(self.client.router)
        self._last = TopicPartition(self.topic, 1)

    async def begin(self) -> None:
        await self.create(self.topic, 2)
        self._work_on(TopicPartition(self.topic, 0))
        await self._work_on_last()

    async def _work_on_last(self) -> None:
        self._clients = self._work_on(self._last)
        await self.pause(50, 1_500)

    async def act(self) -> None:
        producer, consumer = self._clients
        self.client.history.removal_begins(*self._last)
        producer.abandon()
        consumer.stopping = True
        await self._until_done(
            "removed", lambda: self._topics.remove_partitions(self.topic, 1), "fewer than that"
        )
        await self.client.tasks.sleep(self.draw.choice((0, 5, 200, 1_500)))
        await self._until_done(
            "added again", lambda: self._topics.add_partitions(self.topic, 2, None), "already"
        )
        await self._work_on_last()

    async def _until_done(self, what: str, ask: Callable[[], Operation[None]], done: str) -> None:
        """Retry a request until it is done.

        An error with the text `done` means that an attempt without a response succeeded.
        """
        while True:
            try:
                await self.client.run(ask())
            except TidelogError as error:
                self.failed(what, error)
                self.client.router.forget()
                if done not in str(error):
                    await self.pause(20, 300)
                    continue
            self.succeeded(what)
            return
