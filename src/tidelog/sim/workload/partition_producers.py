"""Producers of one partition each: idempotent ones like librdkafka's, plain ones, and ones that
never retry.

An idempotent producer keeps up to five batches in flight. After any failure, it sends all
unacknowledged batches again in order, with their sequence numbers. It takes a new producer id only
if the broker does not know the old one, or if the run may lose acknowledged data. A plain producer
(acks=all, one batch in flight) retries, too, so a batch may be stored twice. A producer with acks=1
or 0 never retries.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from typing import Any, Final

from tidelog.client.producing import LogWriter
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, TidelogError
from tidelog.core.types import TopicPartition
from tidelog.sim.batches import encode_batch
from tidelog.sim.client_history import Outcome, Produce
from tidelog.sim.workload.client import ClientConnection, ClientNode
from tidelog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.wire.registry import PRODUCE

MAX_IN_FLIGHT: Final = 5
#: Time in ms that the broker may wait for replicas; `_ANSWER_MARGIN_MS` is how much longer the
#: client waits for the response.
PRODUCE_TIMEOUT_MS: Final = 1_500
_ANSWER_MARGIN_MS: Final = 700
_BACKOFF_MS: Final = (5, 100)
#: Retriable errors which say that the broker appended nothing.
NOT_APPENDED: Final = frozenset((
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
))  # fmt: skip
#: Retriable errors after which the batch may have been appended.
UNCERTAIN: Final = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
        # A deposed leader responds with NOT_LEADER_OR_FOLLOWER to all waiting requests, appended or
        # not (V38).
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
_NEW_ID: Final = frozenset((
    ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
))  # fmt: skip


class Numbers:
    """Record numbers that are unique in a run."""

    def __init__(self) -> None:
        self._last = 0

    def take(self, count: int) -> tuple[int, ...]:
        """Return the next `count` record numbers."""
        first = self._last + 1
        self._last += count
        return tuple(range(first, first + count))


@dataclass(slots=True, eq=False)
class UnsettledBatch:
    """A batch that has no final outcome yet."""

    operation: Produce
    #: For each record of the batch: the number of padding bytes in it.
    paddings: list[int]
    #: The encoded batch.
    batch: bytes = b""


class PartitionProducer:
    """A producer of one partition, with about one batch every `pace_ms`, until it is stopped."""

    def __init__(
        self,
        client: ClientNode,
        partition: TopicPartition,
        numbers: Numbers,
        draw: random.Random,
        *,
        acks: int = -1,
        idempotent: bool = True,
        pace_ms: int = 30,
        highest_version: int | None = None,
        keyed: bool = False,
        timed: bool = True,
    ) -> None:
        self.client = client
        self.partition = partition
        self.acks = acks
        self._keyed = keyed
        self._timed = timed
        self.idempotent = idempotent
        self.pace_ms = pace_ms
        #: Whether the producer begins no new batches, and only finishes open batches.
        self.stopping = False
        self._numbers = numbers
        self._draw = draw
        self._highest_version = highest_version
        self._repeats = acks == -1
        self._window = MAX_IN_FLIGHT if idempotent else 1
        self._producer_id = -1
        self._producer_epoch = -1
        self._next_sequence = 0
        self._waiting: deque[UnsettledBatch] = deque()
        self._next_batch_ns = 0
        self._broker_id = -1

    @property
    def is_done(self) -> bool:
        """Whether the producer was stopped and has no open batch."""
        return self.stopping and not self._waiting

    def abandon(self) -> None:
        """Stop without waiting for open batches, whose outcome stays unknown."""
        self.stopping = True
        self._waiting_end_unknown()

    async def run(self) -> None:
        """Produce until stopped."""
        while not self.is_done:
            try:
                if self.idempotent and self._producer_id < 0:
                    await self._take_id()
                leader, _ = await self.client.leader_of(self.partition)
                self._broker_id = leader.broker_id
                connection = await self.client.connection(leader.address)
            except TidelogError:
                await self._back_off()
                continue
            await self._pump(connection)
            await self._back_off()

    async def _take_id(self) -> None:
        writer = LogWriter(self.client.router)
        self._producer_id, self._producer_epoch = await self.client.run(writer.init_producer_id())
        self.client.history.producer_id_given(self.client.node_id, self._producer_id)
        self._next_sequence = 0

    async def _back_off(self) -> None:
        self.client.router.forget()
        await self.client.tasks.sleep(self._draw.randrange(*_BACKOFF_MS))

    async def _pump(self, connection: ClientConnection) -> None:
        """Keep as many batches in flight as allowed, until a batch fails or all batches are
        done.
        """
        in_flight: deque[tuple[UnsettledBatch, asyncio.Future[Any]]] = deque()
        healthy = True
        refused: UnsettledBatch | None = None
        while True:
            while healthy and len(in_flight) < self._window:
                waiting = await self._next(len(in_flight), may_wait=not in_flight)
                if waiting is None:
                    break
                in_flight.append((waiting, self._send(connection, waiting)))
            if not in_flight:
                return
            waiting, future = in_flight.popleft()
            answer, failed = await outcome_of(future)
            is_open = refused is not None and refused in self._waiting
            settled = self._settle(waiting, answer, failed)
            if is_open and refused is not None:
                self._check_order(refused, waiting)
            elif not settled and not failed and waiting in self._waiting:
                refused = waiting
            healthy = healthy and settled
            if self.is_done and not in_flight:
                return

    def _check_order(self, refused: UnsettledBatch, waiting: UnsettledBatch) -> None:
        """Report a violation: a broker acknowledged a batch after it had rejected an earlier batch
        (V38).
        """
        first, second = refused.operation, waiting.operation
        history = self.client.history
        remade = history.was_remade_since(first.topic, first.begin_ns)
        removed = (first.topic, first.partition) in history.removed
        if self.idempotent and second.outcome is Outcome.DONE and not remade and not removed:
            history.anomaly(
                f"broker {self._broker_id} acknowledged {second} behind {first}, which it refused"
            )

    async def _next(self, position: int, *, may_wait: bool) -> UnsettledBatch | None:
        """Return the open batch at a position; after the last one, return a new batch if it is time
        for one.
        """
        if position < len(self._waiting):
            return self._waiting[position]
        if self.stopping:
            return None
        early_ns = self._next_batch_ns - self.client.now_ns
        if early_ns > 0:
            if not may_wait:
                return None
            await self.client.tasks.sleep(early_ns / 1e6)
            if self.stopping:
                return None
        return self._new_batch()

    def _new_batch(self) -> UnsettledBatch:
        draw = self._draw
        count = draw.randrange(1, 5)
        numbers = self._numbers.take(count)
        timestamp_ms = self.client.ports.clock.wall_ms() if self._timed else -1
        paddings = [draw.randrange(120) for _ in numbers]
        operation = Produce(
            client=self.client.node_id,
            topic=self.partition.topic,
            partition=self.partition.partition,
            acks=self.acks,
            producer_id=self._producer_id,
            numbers=numbers,
            begin_ns=self.client.now_ns,
            timestamp_ms=timestamp_ms,
        )
        self.client.history.produce_begins(operation)
        burst = draw.random() < 0.2
        pause_ms = 0.0 if burst else self.pace_ms * 2 * draw.random()
        self._next_batch_ns = self.client.now_ns + int(pause_ms * 1e6)
        waiting = UnsettledBatch(operation, paddings)
        self._encode(waiting)
        self._waiting.append(waiting)
        return waiting

    def _encode(self, waiting: UnsettledBatch) -> None:
        """Encode a batch with the producer's next sequence numbers."""
        operation = waiting.operation
        waiting.batch = encode_batch(
            operation.numbers,
            waiting.paddings,
            timestamp_ms=operation.timestamp_ms,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=self._next_sequence if self.idempotent else -1,
            keyed=self._keyed,
        )
        self._next_sequence += len(operation.numbers)

    def _send(self, connection: ClientConnection, waiting: UnsettledBatch) -> asyncio.Future[Any]:
        waiting.operation.sent_ns.append(self.client.now_ns)
        data = PartitionProduceData(index=self.partition.partition, records=waiting.batch)
        topic = TopicProduceData(name=self.partition.topic, partition_data=[data])
        request = ProduceRequest(acks=self.acks, timeout_ms=PRODUCE_TIMEOUT_MS, topic_data=[topic])
        version = connection.version(PRODUCE, self._highest_version)
        if self.acks == 0:
            connection.post(PRODUCE, version, request)
            done: asyncio.Future[Any] = self.client.ports.loop.create_future()
            done.set_result(None)
            return done
        return connection.call(PRODUCE, version, request, PRODUCE_TIMEOUT_MS + _ANSWER_MARGIN_MS)

    def _settle(self, waiting: UnsettledBatch, answer: Any, failed: bool) -> bool:
        """Handle a response; return False if later batches must be sent again."""
        if failed:
            return self._lost(waiting)
        if answer is None:
            self._end(waiting, Outcome.UNKNOWN)
            return True
        result: PartitionProduceResponse = answer.responses[0].partition_responses[0]
        error = ErrorCode(result.error_code)
        if error is ErrorCode.NONE:
            self._end(waiting, Outcome.DONE, result.base_offset)
            return True
        if error is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._end(waiting, Outcome.DONE)
            return True
        return self._refused(waiting, error)

    def _refused(self, waiting: UnsettledBatch, error: ErrorCode) -> bool:
        if waiting not in self._waiting:
            # The producer has already given up this batch together with its former producer id.
            return False
        if error in NOT_APPENDED or error in UNCERTAIN:
            if not self._repeats:
                self._end(waiting, Outcome.UNKNOWN if error in UNCERTAIN else Outcome.REFUSED)
            return False
        if error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._waiting[0] is not waiting:
            return False  # expected after the rejection of an earlier batch
        operation = waiting.operation
        remade = self.client.history.was_remade_since(operation.topic, operation.begin_ns)
        if error in _NEW_ID or (error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and remade):
            # The leader does not know the producer. If the topic was recreated, its new leader may
            # have accepted a later batch first.
            self._renew()
            return False
        if error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            history = self.client.history
            history.sequence_refused(operation, self._broker_id)
            if not history.keeps_promises or operation.numbers[0] in history.expired_open:
                # The leader lacks earlier batches, so it will never accept this batch.
                self._renew()
            return False  # the batch is sent again, perhaps to another leader
        self.client.history.anomaly(f"{error.name} for the oldest open {operation}")
        self._end(waiting, Outcome.UNKNOWN)
        return False

    def _lost(self, waiting: UnsettledBatch) -> bool:
        """Handle a missing response: the batch may have been appended."""
        if not self._repeats:
            self._end(waiting, Outcome.UNKNOWN)
        return False

    def _renew(self) -> None:
        """Take a new producer id; the outcome of open batches stays unknown."""
        self._waiting_end_unknown()
        self._producer_id = -1

    def _waiting_end_unknown(self) -> None:
        for each in list(self._waiting):
            self._end(each, Outcome.UNKNOWN)

    def _end(self, waiting: UnsettledBatch, outcome: Outcome, base_offset: int = -1) -> None:
        if waiting not in self._waiting:
            return
        self._waiting.remove(waiting)
        history = self.client.history
        history.produce_ends(waiting.operation, outcome, self.client.now_ns, base_offset)


async def outcome_of(future: asyncio.Future[Any]) -> tuple[Any, bool]:
    """Return (response, False), or (None, True) if no response came."""
    try:
        return await future, False
    except TidelogError:
        return None, True
