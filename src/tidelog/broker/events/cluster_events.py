"""The writer of cluster events to the topic `__cluster_events` (V80).

Each broker writes the events that it knows of. The controller writes its durable decisions. Each
new leader writes how long it took until its followers fetched and a record was committed. No caller
waits for a write: `record` puts an event into a bounded queue. One task, an idempotent producer,
sends the queued events to the leader of the topic's only partition, so the topic has each event
once or not at all. The broker counts events that do not fit into the queue, and writes an event
that reports how many are missing. With `cluster.events.enable=false` the broker records no events.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final, NamedTuple

from tidelog.broker.events.metrics import EVENTS_DROPPED
from tidelog.broker.services import Services
from tidelog.controller import cluster_events
from tidelog.controller.cluster_events import ClusterEvent
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, TidelogError
from tidelog.core.limits import MAX_CLUSTER_EVENTS_QUEUED
from tidelog.core.names import CLUSTER_EVENTS
from tidelog.core.tasks import Signal
from tidelog.core.types import NO_LEADER, TopicPartition
from tidelog.records.builder import NewRecord, Producer, build_batch
from tidelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.wire.registry import PRODUCE

#: The topic's only partition; with one partition, all events have one order.
_PARTITION: Final = TopicPartition(CLUSTER_EVENTS, 0)
_VERSION: Final = 9
#: The purpose of the connection to the topic's leader; it becomes the client id, by which leaders
#: recognize permitted writers.
_PURPOSE: Final = "cluster-events"
#: Maximum number of events in a batch, so that the encoding of a batch takes only a few
#: milliseconds.
_BATCH_EVENTS: Final = 200
_RETRY_MS: Final = 200
#: Milliseconds that the creation of the topic waits if the cluster has fewer live brokers than the
#: topic's replication factor, because other brokers may still be starting.
_FEW_BROKERS_MS: Final = 15_000
_TIMEOUT_MS: Final = 5_000
#: The sequence number at which the broker takes a new producer id, long before the sequence numbers
#: run out.
_MAX_SEQUENCE: Final = 1 << 30
#: Retriable errors, after which the same batch is sent again. After an error that is not retriable,
#: the leader would never accept the batch.
_PASSING: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)


class _TimedEvent(NamedTuple):
    """An event and the wall-clock time at which it was recorded."""

    time_ms: int
    event: ClusterEvent


@dataclass(slots=True)
class _Recorded:
    """A group of events in the queue, recorded by one call. `events` makes each event when it is
    sent.
    """

    time_ms: int
    events: Iterator[ClusterEvent | None]
    #: Number of events that `events` still yields.
    count: int


class ClusterEvents:
    """The events that one broker records and sends."""

    def __init__(
        self,
        services: Services,
        producer_id: Callable[[], Awaitable[int | None]],
        create_topics: Callable[[Iterable[str]], None],
    ) -> None:
        """`producer_id` returns an id, None if the controller did not grant one in time.

        `create_topics` requests the creation of topics, unless a request is in flight.
        """
        self._services = services
        self._next_producer_id = producer_id
        self._create_topics = create_topics
        self._queue: deque[_Recorded] = deque()
        #: Number of events in the queue.
        self._waiting = 0
        self._wake = Signal(services.ports.loop)
        self._is_running = False
        #: Records that were sent with unknown outcome, or that must be sent again.
        self._batch: list[NewRecord] = []
        self._producer_id = -1
        self._sequence = 0
        #: Monotonic time at which this broker first found the topic missing; None if the topic
        #: exists.
        self._lacking_since_ms: int | None = None
        #: Number of events that did not fit into the queue since the last report of lost events.
        self._dropped = 0
        #: Number of events so far that report lost events; each of them carries its number as
        #: identification.
        self._times_dropped = 0
        #: The reason, as last logged, why no event can be sent.
        self._reason = ""

    @property
    def is_on(self) -> bool:
        """Whether events are recorded."""
        return self._services.config.cluster_events_enable

    @property
    def is_idle(self) -> bool:
        """Whether every recorded event was sent."""
        return not self._queue and not self._batch

    def record(self, events: Iterable[ClusterEvent]) -> None:
        """Record events and return at once; a caller does not learn the outcome."""
        all_events = list(events)
        self.record_later(len(all_events), iter(all_events))

    def record_later(self, count: int, events: Iterator[ClusterEvent | None]) -> None:
        """Record `count` events, which `events` makes when they are sent.

        For each None that `events` yields, no event is sent. Events are not made
        earlier, because thousands of them would delay the commands to brokers.
        """
        if not self.is_on or count == 0:
            return
        room = max(0, MAX_CLUSTER_EVENTS_QUEUED - self._waiting)
        if count > room:
            self._drop(count - room)
            count = room
        if count:
            self._queue.append(_Recorded(self._services.clock.wall_ms(), events, count))
            self._waiting += count
        if not self._is_running:
            self._is_running = True
            self._services.tasks.spawn("cluster events", self._run())
        self._wake.set()

    def close(self) -> None:
        """Log the number of unsent events, as the broker stops."""
        left = self._waiting + len(self._batch)
        if left:
            self._log(
                f"the broker is stopping: {left} cluster events are missing in {CLUSTER_EVENTS}"
            )

    def _drop(self, count: int) -> None:
        if self._dropped == 0:
            self._log(
                f"too many cluster events wait: from here on some are missing in {CLUSTER_EVENTS}"
            )
        self._dropped += count
        self._services.metrics.add(EVENTS_DROPPED, count)

    # sending

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            while self._batch or self._queue:
                if not await self._send():
                    await self._services.tasks.sleep(_RETRY_MS)

    async def _send(self) -> bool:
        """Send the next batch; return False if the batch must be sent again."""
        services = self._services
        partition = services.view.partition(_PARTITION)
        if partition is None:
            return self._failed(self._make_topic())
        if partition.leader == NO_LEADER:
            return self._failed("it has no leader")
        if self._producer_id < 0 or (not self._batch and self._sequence > _MAX_SEQUENCE):
            taken = await self._next_producer_id()
            if taken is None:
                return self._failed("no producer id yet")
            self._producer_id, self._sequence = taken, 0
        if not self._batch:
            self._batch = self._next_batch()
            if not self._batch:
                return True
        producer = Producer(self._producer_id, 0, self._sequence)
        data = PartitionProduceData(0, build_batch(self._batch, producer=producer))
        request = ProduceRequest(
            acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=[TopicProduceData(CLUSTER_EVENTS, [data])]
        )
        try:
            connection = services.peers.connection(partition.leader, _PURPOSE)
            answer: ProduceResponse = await connection.call(
                PRODUCE, _VERSION, request, 2 * _TIMEOUT_MS
            )
        except TidelogError as error:
            return self._failed(str(error))
        return self._answered(ErrorCode(answer.responses[0].partition_responses[0].error_code))

    def _make_topic(self) -> str:
        """Request the topic's creation; return why the events still wait.

        While too few brokers are alive for the replication factor, the broker waits a while before
        it requests the topic, because it could not add the missing replicas later.
        """
        services = self._services
        now_ms = services.clock.monotonic_ms()
        if self._lacking_since_ms is None:
            self._lacking_since_ms = now_ms
        live, wanted = (
            len(services.view.brokers),
            services.config.cluster_events_topic_replication_factor,
        )
        if live < wanted and now_ms - self._lacking_since_ms < _FEW_BROKERS_MS:
            return f"the topic does not exist yet: {live} of {wanted} brokers are alive"
        self._create_topics([CLUSTER_EVENTS])
        return "the topic does not exist yet"

    def _answered(self, code: ErrorCode) -> bool:
        if code is ErrorCode.NONE:
            self._reason = ""
            self._sequence += len(self._batch)
            self._batch = []
            return True
        if code not in _PASSING:
            # The log may hold the batch already; if the batch were sent again under another
            # producer id, the log could hold it twice.
            self._drop(len(self._batch))
            self._batch = []
            self._producer_id = -1
        return self._failed(code.name)

    def _next_batch(self) -> list[NewRecord]:
        broker_id, epoch = self._services.broker_id, self._services.broker_epoch
        timed: list[_TimedEvent] = []
        if self._dropped:
            count, self._dropped = self._dropped, 0
            self._times_dropped += 1
            missing = cluster_events.dropped(broker_id, epoch, self._times_dropped, count)
            timed.append(_TimedEvent(self._services.clock.wall_ms(), missing))
        for _ in range(_BATCH_EVENTS):
            if not self._queue:
                break
            first = self._queue[0]
            event = next(first.events, None)
            if event is not None:
                timed.append(_TimedEvent(first.time_ms, event))
            self._waiting -= 1
            first.count -= 1
            if first.count == 0:
                self._queue.popleft()
        return [
            NewRecord(entry.event.key, entry.event.value(broker_id, entry.time_ms), entry.time_ms)
            for entry in timed
        ]

    def _failed(self, reason: str) -> bool:
        if reason != self._reason:
            self._reason = reason
            self._log(f"cluster events wait for {CLUSTER_EVENTS}: {reason}")
        return False

    def _log(self, message: str) -> None:
        self._services.tracer.log("server", logging.WARNING, message)
