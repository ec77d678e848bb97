"""An idempotent producer of several partitions, like librdkafka's.

All partitions share one producer id and one epoch. Each partition has up to five batches in flight.
After a failure, the producer waits for all open responses of the partition, then sends the
partition's batches again, in order. If a batch that follows an unacknowledged batch gets
OUT_OF_ORDER_SEQUENCE_NUMBER, the producer bumps its epoch as soon as no partition has a batch in
flight. It then sends all unacknowledged batches of every partition with the new epoch, from
sequence 0 on. A batch that was stored with the old epoch, but got no response, is stored again with
the new epoch. The acknowledgement of a batch also acknowledges all batches before it, because a
broker accepts no batch out of sequence. At some leader changes, the producer sends a new batch
before the batches that the former leader rejected, as a race of librdkafka's threads can do. The
producer follows librdkafka's rdkafka_idempotence.c (rd_kafka_idemp_drain_done); rdkafka_request.c
(rd_kafka_handle_idempotent_Produce_error, rd_kafka_dr_implicit_ack,
rd_kafka_msgbatch_handle_Produce_result); rdkafka_broker.c (rd_kafka_toppar_producer_serve).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from tidelog.client.producing import LogWriter
from tidelog.core.errors import ErrorCode
from tidelog.core.tasks import shield
from tidelog.core.types import TopicPartition
from tidelog.sim.client_history import Outcome
from tidelog.sim.workload.client import ClientConnection, ClientNode
from tidelog.sim.workload.partition_producers import (
    MAX_IN_FLIGHT,
    Numbers,
    PartitionProducer,
    UnsettledBatch,
    outcome_of,
)

_NO_ID = (-1, -1)


class SharedProducer:
    """One idempotent producer: its producer id and epoch, and its partitions."""

    def __init__(self, client: ClientNode) -> None:
        self.client = client
        self.partitions: list[SharedPartition] = []
        #: The producer id and epoch with which the producer sends batches now.
        self.identity = _NO_ID
        #: The next producer id and epoch, used as soon as no request awaits a response; None if no
        #: change is due.
        self._next_identity: tuple[int, int] | None = None
        self._taking: asyncio.Task[None] | None = None
        #: Number of epoch bumps.
        self.bumps = 0
        #: (share of the leader changes at which a new batch is sent before rejected batches, random
        #: stream for this choice); None for never.
        self.overtaking: tuple[float, random.Random] | None = None

    def add(
        self, partition: TopicPartition, numbers: Numbers, draw: random.Random, pace_ms: int
    ) -> SharedPartition:
        """Add a partition to the producer."""
        added = SharedPartition(self, partition, numbers, draw, pace_ms)
        self.partitions.append(added)
        return added

    def overtakes(self) -> bool:
        """Decide at random whether a new batch is sent before rejected batches at a leader
        change.
        """
        return self.overtaking is not None and self.overtaking[1].random() < self.overtaking[0]

    @property
    def may_send(self) -> bool:
        """Whether the producer id and epoch are known, and no change of them is due."""
        return self.identity != _NO_ID and self._next_identity is None

    async def take_id(self) -> None:
        """Request a producer id, once for all partitions that wait for the id."""
        if self.identity != _NO_ID:
            return
        if self._taking is None or self._taking.done():
            self._taking = asyncio.Task(
                self._take_id(), loop=self.client.ports.loop, name="take a shared producer id"
            )
        await shield(self._taking)

    async def _take_id(self) -> None:
        writer = LogWriter(self.client.router)
        self.identity = await self.client.run(writer.init_producer_id())
        self.client.history.producer_id_given(self.client.node_id, self.identity[0])

    def bump_epoch(self) -> None:
        """Bump the producer epoch as soon as no batch is in flight."""
        producer_id, epoch = self.identity
        if self._next_identity is None:
            self.bumps += 1
            self._next_identity = (producer_id, epoch + 1)

    def forget_id(self) -> None:
        """Request another producer id as soon as no batch is in flight."""
        self._next_identity = _NO_ID

    def answered(self) -> None:
        """Record a response; if no batch is in flight any more, change to the next producer id and
        epoch.
        """
        if self._next_identity is not None and not any(p.in_flight for p in self.partitions):
            self.identity, self._next_identity = self._next_identity, None


class SharedPartition(PartitionProducer):
    """One partition of a shared producer."""

    def __init__(
        self,
        shared: SharedProducer,
        partition: TopicPartition,
        numbers: Numbers,
        draw: random.Random,
        pace_ms: int,
    ) -> None:
        super().__init__(shared.client, partition, numbers, draw, pace_ms=pace_ms)
        self._shared = shared
        self.in_flight = 0
        #: The leader to which the last batches were sent.
        self._former_leader = -1

    async def _pump(self, connection: ClientConnection) -> None:
        former, self._former_leader = self._former_leader, self._broker_id
        if former not in (-1, self._broker_id) and self._waiting and self._may_overtake():
            waiting = self._new_batch()
            future = self._send(connection, waiting)
            if not self._settle(waiting, *await outcome_of(future)):
                return
        await super()._pump(connection)

    def _may_overtake(self) -> bool:
        """Return whether a new batch is sent next, before earlier batches that are not
        acknowledged.
        """
        shared = self._shared
        return (
            not self.stopping
            and len(self._waiting) < MAX_IN_FLIGHT
            and shared.may_send
            and (self._producer_id, self._producer_epoch) == shared.identity
            and shared.overtakes()
        )

    async def _take_id(self) -> None:
        await self._shared.take_id()
        self._take_identity()

    def _take_identity(self) -> None:
        """Use the shared producer's present id and epoch; give open batches new sequence numbers
        from 0 on.
        """
        self._producer_id, self._producer_epoch = self._shared.identity
        self._next_sequence = 0
        for waiting in self._waiting:
            self._encode(waiting)

    async def _next(self, position: int, *, may_wait: bool) -> UnsettledBatch | None:
        shared = self._shared
        if not shared.may_send:
            # If the shared producer has no id yet, `run` requests one before it sends a batch.
            self._producer_id = shared.identity[0]
            return None
        if (self._producer_id, self._producer_epoch) != shared.identity:
            self._take_identity()
        waiting = await super()._next(position, may_wait=may_wait)
        if (self._producer_id, self._producer_epoch) != shared.identity or not shared.may_send:
            return None  # the producer id or epoch changed during the wait
        return waiting

    def _send(self, connection: Any, waiting: UnsettledBatch) -> asyncio.Future[Any]:
        self.in_flight += 1
        return super()._send(connection, waiting)

    def _settle(self, waiting: UnsettledBatch, answer: Any, failed: bool) -> bool:
        if not failed and waiting in self._waiting:
            self._acknowledge_before(waiting, answer)
        settled = super()._settle(waiting, answer, failed)
        self.in_flight -= 1
        self._shared.answered()
        return settled

    def _acknowledge_before(self, waiting: UnsettledBatch, answer: Any) -> None:
        if answer.responses[0].partition_responses[0].error_code != ErrorCode.NONE:
            return
        earlier = list(self._waiting)[: self._waiting.index(waiting)]
        for each in earlier:
            self._end(each, Outcome.DONE)

    def _refused(self, waiting: UnsettledBatch, error: ErrorCode) -> bool:
        is_behind = waiting in self._waiting and self._waiting[0] is not waiting
        if error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and is_behind:
            self._shared.bump_epoch()
            return False
        return super()._refused(waiting, error)

    def _renew(self) -> None:
        self._waiting_end_unknown()
        self._shared.forget_id()


def begin_shared(
    client: ClientNode,
    topic: str,
    partitions: int,
    numbers: Numbers,
    draws: Sequence[random.Random],
) -> SharedProducer:
    """Start a shared producer of a topic's partitions, each with its own random stream."""
    shared = SharedProducer(client)
    for number in range(partitions):
        draw = draws[number]
        added = shared.add(TopicPartition(topic, number), numbers, draw, draw.choice((4, 12, 40)))
        client.tasks.spawn(f"produce shared {number}", added.run())
    return shared
