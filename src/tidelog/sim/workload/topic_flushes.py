"""Churn of `flush.before.ack`: a topic whose setting changes while producers wait (V69).

Brokers learn of a change at different times. The checker of synced commits compares each commit
with the disks, under the setting that the leader has at that instant.
"""

from __future__ import annotations

import random
from typing import ClassVar

from tidelog.client.configs import TOPIC, ConfigAdmin, ConfigChange, ConfigOperation, ConfigResource
from tidelog.core.errors import TidelogError
from tidelog.core.types import TopicPartition
from tidelog.sim.workload.churning import Work, churn
from tidelog.sim.workload.topic_churn import OfTopics

_KEY = "flush.before.ack"


@churn
class FlushPolicyChanged(OfTopics):
    """Changes of `flush.before.ack` of a topic that is written with acks=all and acks=1."""

    name: ClassVar[str] = "flush_policy_changed"
    is_drawn: ClassVar[bool] = False
    topic: ClassVar[str] = "flushed"

    def __init__(self, work: Work, draw: random.Random) -> None:
        super().__init__(work, draw)
        self._configs = ConfigAdmin(self.client.router)

    async def run(self) -> None:
        partition = TopicPartition(self.topic, 0)
        await self._create(self.topic, 1)
        self.work.produce(self._writer, partition, acks=-1, idempotent=True)
        self.work.produce(self.work.client(), partition, acks=1, idempotent=False)
        self.work.consume(self._reader, partition, None)
        while not self.stopping:
            value = "true" if self.draw.random() < 0.7 else "false"
            change = ConfigChange(ConfigOperation.SET, _KEY, value)
            try:
                await self.client.run(
                    self._configs.alter(ConfigResource(TOPIC, self.topic), [change], False)
                )
            except TidelogError as error:
                self.failed(f"{_KEY}={value}", error)
            else:
                self.succeeded(f"{_KEY}={value}")
            await self.pause(20, 900)
        self.is_done = True
