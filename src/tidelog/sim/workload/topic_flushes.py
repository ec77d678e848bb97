"""Churn of `flush.before.ack`: a topic whose setting changes while producers wait (V69).

Brokers learn of a change at different times. The checker of synced commits compares each commit
with the disks, under the setting that the leader has at that instant.
"""

from __future__ import annotations

from typing import ClassVar

from tidelog.client.configs import TOPIC, ConfigResource
from tidelog.core.types import TopicPartition
from tidelog.sim.workload.churning import churn_of_profiles
from tidelog.sim.workload.topic_churn import OfTopics

_KEY = "flush.before.ack"


@churn_of_profiles
class FlushPolicyChanged(OfTopics):
    """Changes of `flush.before.ack` of a topic that is written with acks=all and acks=1."""

    topic: ClassVar[str] = "flushed"

    async def begin(self) -> None:
        partition = TopicPartition(self.topic, 0)
        await self.create(self.topic)
        self.work.produce(self._writer, partition)
        self.work.produce(self.work.client(), partition, acks=1, idempotent=False)
        self.work.consume(self._reader, partition)

    async def act(self) -> None:
        value = "true" if self.draw.random() < 0.7 else "false"
        await self.alter(ConfigResource(TOPIC, self.topic), {_KEY: value}, f"{_KEY}={value}")
        await self.pause(20, 900)
