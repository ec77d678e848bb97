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
from tidelog.sim.workload.administrator import Administrator
from tidelog.sim.workload.churn import Churn
from tidelog.sim.workload.churning import ChurnKind, Work, churn

_MAX_PARTITIONS = 3


class OfTopics(ChurnKind):
    """A kind of churn with an administrator, and a writer and a reader for its topics."""

    def __init__(self, work: Work, draw: random.Random) -> None:
        super().__init__(work, draw)
        self._admin = Administrator(self.client, draw)
        self._admin.chooses_replicas = 0.3
        self._admin.takes_existing = True
        self._writer, self._reader = work.client(), work.client()

    async def _create(self, name: str, partitions: int) -> None:
        work = self.work
        await self._admin.create(
            name, partitions, work.replication_factor, dict(work.topic_configs)
        )


@churn
class TopicsComeAndGo(OfTopics):
    """Topics that are created, written and read for a while, and deleted."""

    name: ClassVar[str] = "topics_come_and_go"

    async def run(self) -> None:
        number = 0
        while not self.stopping:
            number += 1
            topic = f"passing-{number}"
            count = self.draw.randrange(1, _MAX_PARTITIONS + 1)
            await self._create(topic, count)
            self.succeeded(f"{topic} created")
            partitions = [TopicPartition(topic, each) for each in range(count)]
            producers = [
                self.work.produce(self._writer, each, acks=-1, idempotent=True)
                for each in partitions
            ]
            consumers = [self.work.consume(self._reader, each, None) for each in partitions]
            await self.pause(100, 2_500)
            if self.stopping:
                break  # it stays, and all its records are read in the end
            await self._admin.delete(topic)
            self.succeeded(f"{topic} deleted")
            for producer in producers:
                producer.abandon()
            for consumer in consumers:
                consumer.stopping = True
            await self.pause(0, 600)
        self.is_done = True


@churn
class TopicsRecreated(OfTopics):
    """Deletions and recreations of a topic under its name, unnoticed by its clients."""

    name: ClassVar[str] = "topics_recreated"

    async def run(self) -> None:
        topic = TopicPartition("recurring", 0)
        await self._create(topic.topic, 1)
        self.work.produce(self._writer, topic, acks=-1, idempotent=True)
        acks = self.draw.choice((0, 1, -1))
        self.work.produce(self.work.client(), topic, acks=acks, idempotent=False)
        self.work.consume(self._reader, topic, None)
        while not self.stopping:
            await self.pause(200, 3_000)
            if self.stopping:
                break
            await self._admin.delete(topic.topic)
            await self.client.tasks.sleep(self.draw.choice((0, 5, 200, 1_500)))
            await self._create(topic.topic, 1)
            self.succeeded("recreated")
        self.is_done = True


class _Altered(OfTopics):
    """A topic that `Churn` changes; in the end every replica uses the values that were set last."""

    topic: ClassVar[str]
    grows: ClassVar[float]

    def __init__(self, work: Work, draw: random.Random) -> None:
        super().__init__(work, draw)
        self._churn = Churn(self.client, draw, self.topic, self._work, self.grows)

    def _work(self, partition: TopicPartition) -> None:
        self.work.produce(self._writer, partition, acks=-1, idempotent=True)
        self.work.consume(self._reader, partition, None)

    async def run(self) -> None:
        await self._create(self.topic, 1)
        self._work(TopicPartition(self.topic, 0))
        self.client.tasks.spawn("churn", self._churn.run())
        while not self._churn.is_done:
            self._churn.stopping = self.stopping
            await self.pause(20, 40)
        self.acknowledged = self._acknowledged()
        self.is_done = True

    def _acknowledged(self) -> int:
        raise NotImplementedError

    def unsettled(self) -> str:
        cluster = self.work.cluster
        count = len(cluster.published.topics[self.topic].assignment)
        if count < self._churn.partitions:
            return f"{self.topic} has {count} of {self._churn.partitions} partitions acknowledged"
        return "; ".join(
            self._churn.differences(
                (f"{partition.topic_partition} on broker {node_id}", partition.log.config)
                for node_id, node in cluster.brokers.items()
                if node.broker is not None
                for partition in node.broker.replicas.all()
                if partition.topic_partition.topic == self.topic
            )
        )


@churn
class PartitionsAdded(_Altered):
    """Partitions that are added to a topic, one after the other."""

    name: ClassVar[str] = "partitions_added"
    topic: ClassVar[str] = "growing"
    grows: ClassVar[float] = 0.6

    def _acknowledged(self) -> int:
        return self._churn.partitions - 1


@churn
class ConfigsChanged(_Altered):
    """Changes of a topic's configuration, one after the other."""

    name: ClassVar[str] = "configs_changed"
    topic: ClassVar[str] = "tuned"
    grows: ClassVar[float] = 0.0

    def _acknowledged(self) -> int:
        return self._churn.alterations


@churn
class PartitionsRemoved(OfTopics):
    """Removals and additions of a topic's highest partition, over and over.

    Records that are written to it belong to its present life alone.
    """

    name: ClassVar[str] = "partitions_removed"
    is_drawn: ClassVar[bool] = False
    topic: ClassVar[str] = "shrinking"

    def __init__(self, work: Work, draw: random.Random) -> None:
        super().__init__(work, draw)
        self._topics = TopicAdmin(self.client.router)

    async def run(self) -> None:
        await self._create(self.topic, 2)
        self.work.produce(self._writer, TopicPartition(self.topic, 0), acks=-1, idempotent=True)
        self.work.consume(self._reader, TopicPartition(self.topic, 0), None)
        last = TopicPartition(self.topic, 1)
        while True:
            producer = self.work.produce(self._writer, last, acks=-1, idempotent=True)
            consumer = self.work.consume(self._reader, last, None)
            await self.pause(50, 1_500)
            if self.stopping:
                break  # it stays, and all its records are read in the end
            self.client.history.removal_begins(*last)
            producer.abandon()
            consumer.stopping = True
            await self._until_done(
                "removed", lambda: self._topics.remove_partitions(self.topic, 1), "fewer than that"
            )
            await self.client.tasks.sleep(self.draw.choice((0, 5, 200, 1_500)))
            await self._until_done(
                "added again", lambda: self._topics.add_partitions(self.topic, 2, None), "already"
            )
        self.is_done = True

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
