"""An administrator that alters a topic's configuration and adds partitions all the time.

Acknowledged changes must hold: the number of partitions never falls below the acknowledged one.
After the faults every replica uses the values that were set last. A change with an unknown outcome
may hold or not. So in the end the administrator sets each key once more.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tidelog.client.admin import TopicAdmin
from tidelog.client.configs import TOPIC, ConfigAdmin, ConfigChange, ConfigResource
from tidelog.core.dynamic_config import ConfigOperation
from tidelog.core.errors import TidelogError
from tidelog.core.types import TopicPartition
from tidelog.log.config import LogConfig
from tidelog.sim.sim_cluster import SimCluster
from tidelog.sim.workload.client import ClientNode

#: Keys and the values drawn for them; none changes the promise of an acknowledgement.
VALUES: Final[Mapping[str, Sequence[int]]] = {
    "segment.bytes": (2_048, 8_192, 65_536),
    "index.interval.bytes": (128, 512, 4_096),
    "max.message.bytes": (200_000, 500_000, 1_000_000),
    "file.delete.delay.ms": (100, 500, 3_000),
}
MAX_PARTITIONS: Final = 5
_PAUSE_MS: Final = (50, 900)


class Churn:
    """The churn of one topic, which begins with one partition.

    `added` is called with each further partition.
    """

    def __init__(
        self,
        client: ClientNode,
        draw: random.Random,
        topic: str,
        added: Callable[[TopicPartition], object],
        growing: float = 0.15,
    ) -> None:
        """Begin with one partition.

        `growing` is the share of changes that add a partition, up to MAX_PARTITIONS.
        """
        self.client = client
        self.topic = topic
        self.stopping = False
        self.is_done = False
        #: Number of acknowledged partitions.
        self.partitions = 1
        #: Acknowledged values without a later change of unknown outcome.
        self.values: dict[str, int] = {}
        self.alterations = 0
        self._draw = draw
        self._added = added
        self._growing = growing
        self._topics = TopicAdmin(client.router)
        self._configs = ConfigAdmin(client.router)

    async def run(self) -> None:
        """Change the topic until stopped, then set each key once more."""
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
        """Return whether an attempt without a response added the partition.

        If this cannot be determined now, the next attempt determines it.
        """
        try:
            metadata = await self.client.run(self.client.router.metadata([self.topic]))
        except TidelogError:
            return False
        topic = metadata.topics.get(self.topic)
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
        """Return acknowledged changes that do not hold yet; empty if all hold."""
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
