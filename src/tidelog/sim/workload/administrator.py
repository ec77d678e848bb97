"""An administrator: creates the run's topics, and deletes and recreates some of them.

It uses the client package's operations, which retry. After an unknown outcome it requests the
operation again, until a response shows the state of the topic.
"""

from __future__ import annotations

import random

from tidelog.client.admin import TopicAdmin
from tidelog.core.errors import ErrorCode, KafkaError, TidelogError
from tidelog.sim.workload.client import ClientNode


class Administrator:
    """An administrator that creates and deletes topics."""

    def __init__(self, client: ClientNode, draw: random.Random) -> None:
        self.client = client
        self.stopping = False
        #: Whether an existing topic counts as the requested one, after an attempt with an unknown
        #: outcome. This is right only if no other client creates topics of that name.
        self.takes_existing = False
        #: Share of topics that are created with an explicit assignment.
        self.chooses_replicas = 0.0
        self._draw = draw
        self._admin = TopicAdmin(client.router)

    async def create(
        self, name: str, partitions: int, replication_factor: int, configs: dict[str, str]
    ) -> None:
        """Create a topic, however long it takes.

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
        """Return whether an attempt without a response created the topic.

        If this cannot be determined now, the next attempt determines it.
        """
        if not isinstance(error, KafkaError) or error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            return False
        try:
            metadata = await self.client.run(self.client.router.metadata([name]))
        except TidelogError:
            return False
        topic = metadata.topics.get(name)
        if topic is None or len(topic.partitions) != partitions:
            return False
        self.client.history.topic_created(name, topic.topic_id, self.client.now_ns)
        return True

    async def delete(self, name: str) -> None:
        """Delete a topic, however long it takes."""
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
