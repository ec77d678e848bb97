"""Topics that are created, deleted, recreated, extended and reconfigured.

Each kind of such changes has its own topics, with a producer and a consumer. Acknowledged changes
must hold: the checker of the history checks deletions and creations, and this module checks
partitions and configurations after the faults.

The setting `flush.before.ack` of one topic changes while producers wait (V69). Brokers learn of the
change at different times. `SyncedChecker` compares each commit with the disks if the leader has the
setting at this instant.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import ClassVar

from tidelog.client.admin import TopicAdmin
from tidelog.client.configs import TOPIC, ConfigResource
from tidelog.client.steps import Operation
from tidelog.core.errors import TidelogError
from tidelog.core.types import TopicPartition
from tidelog.sim.workload.administrator import Churn
from tidelog.sim.workload.churning import OfTopics, churn, churn_of_profiles
from tidelog.sim.workload.work import Workload

_MAX_PARTITIONS = 3
_FLUSH = "flush.before.ack"


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
        producers = [self.work.produce(self.writer, each) for each in partitions]
        consumers = [self.work.consume(self.reader, each) for each in partitions]
        await self.pause(100, 2_500)
        if self.stopping:
            return  # the topic stays, and all its records are read at the end of the run
        await self.admin.delete(topic)
        self.succeeded(f"{topic} deleted")
        for producer in producers:
            producer.abandon()
        for consumer in consumers:
            consumer.stopping = True
        await self.pause(0, 600)


@churn
class TopicsRecreated(OfTopics):
    """Deletions and recreations of a topic under the same name; its clients go on during these."""

    topic: ClassVar[str] = "recurring"
    pause_ms = 200, 3_000

    async def begin(self) -> None:
        partition = TopicPartition(self.topic, 0)
        await self.create(self.topic)
        self.work.produce(self.writer, partition)
        acks = self.draw.choice((0, 1, -1))
        self.work.produce(self.work.client(), partition, acks=acks, idempotent=False)
        self.work.consume(self.reader, partition)

    async def act(self) -> None:
        if not self.stopping:
            await self.admin.delete(self.topic)
            await self.client.tasks.sleep(self.draw.choice((0, 5, 200, 1_500)))
            await self.create(self.topic)
            self.succeeded("recreated")


class _Altered(OfTopics):
    """A topic that an administrator alters; at the end replicas must use its last configuration."""

    topic: ClassVar[str]
    grows: ClassVar[float]

    def __init__(self, work: Workload, draw: random.Random) -> None:
        super().__init__(work, draw)
        self._churn = Churn(self.client, draw, self.topic, self.work_on, self.grows)

    async def begin(self) -> None:
        await self.create(self.topic)
        self.work_on(TopicPartition(self.topic, 0))
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
    """Repeated removals and additions of a topic's highest partition.

    Only tidelog has a request to remove one partition of a topic. After the partition is added
    again, it must not have records from before the removal.
    """

    topic: ClassVar[str] = "shrinking"

    def __init__(self, work: Workload, draw: random.Random) -> None:
        super().__init__(work, draw)
        self._topics = TopicAdmin(self.client.router)
        self._last = TopicPartition(self.topic, 1)

    async def begin(self) -> None:
        await self.create(self.topic, 2)
        self.work_on(TopicPartition(self.topic, 0))
        await self._work_on_last()

    async def _work_on_last(self) -> None:
        self._clients = self.work_on(self._last)
        await self.pause(50, 1_500)

    async def act(self) -> None:
        self.stop_work_on(self._last, *self._clients)
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

        An error that contains the text `done` means that an earlier attempt without a response
        succeeded.
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


@churn_of_profiles
class FlushPolicyChanged(OfTopics):
    """Changes of `flush.before.ack` of a topic that is written with acks=all and acks=1."""

    topic: ClassVar[str] = "flushed"

    async def begin(self) -> None:
        partition = TopicPartition(self.topic, 0)
        await self.create(self.topic)
        self.work.produce(self.writer, partition)
        self.work.produce(self.work.client(), partition, acks=1, idempotent=False)
        self.work.consume(self.reader, partition)

    async def act(self) -> None:
        value = "true" if self.draw.random() < 0.7 else "false"
        await self.alter(ConfigResource(TOPIC, self.topic), {_FLUSH: value}, f"{_FLUSH}={value}")
        await self.pause(20, 900)
