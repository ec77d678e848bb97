"""Administrators: one creates and recreates the run's topics, another alters a topic all the time.

Administrators use the operations of `tidelog.client`, which retry. If the outcome of an operation
is unknown, an administrator repeats it until a response shows the state of the topic.

The second administrator adds partitions and changes the configuration. Acknowledged changes must
hold: the number of partitions never falls below the acknowledged number, and after the faults every
replica uses the configuration that was set last. If the outcome of a change is unknown, it may or
may not have taken effect, so at the end of the run the administrator sets each configuration key
once more.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tidelog.client.admin import TopicAdmin
from tidelog.client.configs import TOPIC, ConfigAdmin, ConfigChange, ConfigResource
from tidelog.core.dynamic_config import ConfigOperation
from tidelog.core.errors import ErrorCode, KafkaError, TidelogError
from tidelog.core.types import TopicPartition
from tidelog.log.config import LogConfig
from tidelog.sim.sim_cluster import SimCluster
from tidelog.sim.workload.client import ClientNode

#: Configuration keys and the values that they get. The keys do not affect which records must
#: survive.
VALUES: Final[Mapping[str, Sequence[int]]] = {
    "segment.bytes": (2_048, 8_192, 65_536),
    "index.interval.bytes": (128, 512, 4_096),
    "max.message.bytes": (200_000, 500_000, 1_000_000),
    "file.delete.delay.ms": (100, 500, 3_000),
}
MAX_PARTITIONS: Final = 5
_PAUSE_MS: Final = (50, 900)


class Administrator:
    """An administrator that creates and deletes topics."""

    def __init__(self, client: ClientNode, draw: random.Random) -> None:
        self.client = client
        self.stopping = False
        #: Whether an existing topic counts as created by an earlier attempt whose outcome is
        #: unknown. This requires that no other client creates topics of the same name.
        self.takes_existing = False
        #: Share of topics that are created with an explicit replica assignment.
        self.chooses_replicas = 0.0
        self._draw = draw
        self._admin = TopicAdmin(client.router)

    async def create(
        self, name: str, partitions: int, replication_factor: int, configs: dict[str, str]
    ) -> None:
        """Create a topic; retry until it exists.

        Some topics get an explicit assignment, whose brokers need not be alive.
        """
        assignment = None
        if self._draw.random() < self.chooses_replicas:
            assignment = {
                partition: self._draw.sample(range(1, replication_factor + 1), replication_factor)
                for partition in range(partitions)
            }
        while True:
            try:
                topic_id = await self.client.run(
                    self._admin.create(name, partitions, replication_factor, configs, assignment)
                )
            except TidelogError as error:
                self.client.ports.tracer.event("create failed", topic=name, error=str(error))
                self.client.router.forget()
                if self.takes_existing and await self._is_there(name, partitions, error):
                    return
                await self.client.tasks.sleep(self._draw.randrange(50, 500))
            else:
                self.client.history.topic_created(name, topic_id, self.client.now_ns)
                self.client.ports.tracer.event("created", topic=name, id=topic_id)
                return

    async def _is_there(self, name: str, partitions: int, error: TidelogError) -> bool:
        """Return whether an attempt without a response created the topic; False if this cannot be
        found out, so that the caller tries again.

        """
        if not isinstance(error, KafkaError) or error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            return False
        topic = await self.client.topic(name)
        if topic is None or len(topic.partitions) != partitions:
            return False
        self.client.history.topic_created(name, topic.topic_id, self.client.now_ns)
        return True

    async def delete(self, name: str) -> None:
        """Delete a topic; retry until it is gone."""
        self.client.history.deletion_begins(name, self.client.now_ns)
        while True:
            try:
                await self.client.run(self._admin.delete(name))
            except TidelogError as error:
                self.client.ports.tracer.event("delete failed", topic=name, error=str(error))
                if "UNKNOWN_TOPIC_OR_PARTITION" in str(error):
                    return
                self.client.router.forget()
                await self.client.tasks.sleep(self._draw.randrange(50, 500))
            else:
                self.client.ports.tracer.event("deleted", topic=name)
                return

    async def recreate_now_and_then(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        configs: dict[str, str],
        life_ms: tuple[int, int],
    ) -> None:
        """Delete a topic and create it again under its name, until stopped."""
        while not self.stopping:
            await self.client.tasks.sleep(self._draw.randrange(*life_ms))
            if self.stopping:
                return
            await self.delete(name)
            await self.client.tasks.sleep(self._draw.choice((0, 5, 200, 1_500)))
            await self.create(name, partitions, replication_factor, configs)


class Churn:
    """An administrator that alters one topic all the time.

    `added` is called with each partition that the administrator adds.
    """

    def __init__(
        self,
        client: ClientNode,
        draw: random.Random,
        topic: str,
        added: Callable[[TopicPartition], object],
        growing: float = 0.15,
    ) -> None:
        """The topic begins with one partition.

        `growing` is the share of changes that add a partition, up to MAX_PARTITIONS.
        """
        self.client = client
        self.topic = topic
        self.stopping = False
        self.is_done = False
        #: Number of acknowledged partitions.
        self.partitions = 1
        #: Acknowledged value of each configuration key; a key is missing if the outcome of its last
        #: change is unknown.
        self.values: dict[str, int] = {}
        self.alterations = 0
        self._draw = draw
        self._added = added
        self._growing = growing
        self._topics = TopicAdmin(client.router)
        self._configs = ConfigAdmin(client.router)

    async def run(self) -> None:
        """Change the topic until stopped, then set each configuration key once more."""
        draw = self._draw
        while not self.stopping:
            await self.client.tasks.sleep(draw.randrange(*_PAUSE_MS))
            if self.partitions < MAX_PARTITIONS and draw.random() < self._growing:
                await self._grow()
            else:
                key = draw.choice(list(VALUES))
                await self._set(key, draw.choice(VALUES[key]))
        for key, values in VALUES.items():
            while not await self._set(key, draw.choice(values)):
                await self.client.tasks.sleep(draw.randrange(*_PAUSE_MS))
        self.is_done = True

    async def _grow(self) -> None:
        wanted = self.partitions + 1
        try:
            await self.client.run(self._topics.add_partitions(self.topic, wanted, None))
        except TidelogError as error:
            self.client.ports.tracer.event("growth failed", topic=self.topic, error=str(error))
            if not await self._has(wanted):
                return
        self.partitions = wanted
        self.client.ports.tracer.event("grown", topic=self.topic, partitions=wanted)
        self._added(TopicPartition(self.topic, wanted - 1))

    async def _has(self, wanted: int) -> bool:
        """Return whether an attempt without a response added the partition; False if this cannot be
        found out, so that the caller tries again.

        """
        topic = await self.client.topic(self.topic)
        return topic is not None and len(topic.partitions) == wanted

    async def _set(self, key: str, value: int) -> bool:
        change = ConfigChange(ConfigOperation.SET, key, str(value))
        resource = ConfigResource(TOPIC, self.topic)
        self.values.pop(key, None)
        try:
            await self.client.run(self._configs.alter(resource, [change], False))
        except TidelogError as error:
            self.client.ports.tracer.event("alteration failed", key=key, error=str(error))
            return False
        self.values[key] = value
        self.alterations += 1
        self.client.ports.tracer.event("altered", key=key, value=value)
        return True

    def unsettled(self, cluster: SimCluster) -> str:
        """Describe acknowledged changes that the cluster does not show yet; empty if there are
        none.
        """
        count = len(cluster.published.topics[self.topic].assignment)
        if count < self.partitions:
            return f"{self.topic} has {count} of {self.partitions} partitions acknowledged"
        return "; ".join(
            difference
            for node_id, node in cluster.brokers.items()
            if node.broker is not None
            for partition in node.broker.replicas.all()
            if partition.topic_partition.topic == self.topic
            for difference in self.differences(
                f"{partition.topic_partition} on broker {node_id}", partition.log.config
            )
        )

    def differences(self, name: str, config: LogConfig) -> list[str]:
        """Return the differences between acknowledged values and the configuration of a replica."""
        return [
            f"{name} has {key}={found}, not {wanted}"
            for key, wanted in self.values.items()
            if (found := getattr(config, key.replace(".", "_"))) != wanted
        ]
