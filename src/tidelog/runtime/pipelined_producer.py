"""A producer for one thread, with several requests in flight to each leader.

The producer serves bulk writers, which give whole payloads of records by partition. `add` blocks
while too many bytes are unacknowledged, and `flush` returns when every record is acknowledged.
Batches of one partition stay in order (`client.produce_queue`). The producer survives changes and
deaths of leaders within the delivery timeout. A record that cannot be written ends the producer
with a DeliveryError that names the caller's row. The producer is idempotent unless its options say
otherwise.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Sequence
from dataclasses import field
from typing import Final

from tidelog.client.produce_queue import TOO_LARGE, ProduceBatch, ProduceQueue, Refused
from tidelog.client.retries import FIRST_BACKOFF_MS, UNKNOWN_TOPIC, UNKNOWN_TOPIC_PATIENCE_MS
from tidelog.client.steps import Address
from tidelog.client.versions import error_code
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import (
    ConnectionLost,
    ErrorCode,
    KafkaError,
    ProtocolError,
    RequestTimeout,
    TidelogError,
)
from tidelog.core.limits import MIB
from tidelog.core.ports import Buffer
from tidelog.core.types import TopicPartition
from tidelog.records import compression
from tidelog.records.batch import MAX_SEQUENCE
from tidelog.records.builder import NO_PRODUCER, Producer, seal_batch
from tidelog.runtime.blocking import BlockingClient
from tidelog.runtime.leader_connection import LeaderConnection, SentRequest
from tidelog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

_WAIT_MS: Final = 500
#: Minimum time in ms between two reads of metadata.
_REFRESH_MS: Final = 50
#: Bytes that are reserved in a request for each batch in addition to the batch's data: for the
#: topic name, the partition number and lengths.
_BATCH_OVERHEAD_BYTES: Final = 512
_SHOWN_ROWS: Final = 5


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """The settings of a producer; `acks` -1 waits for all in-sync replicas."""

    acks: int = -1
    idempotent: bool = True
    codec: int = compression.NONE
    level: int | None = None
    max_request_bytes: int = 8 * MIB
    max_in_flight: int = 5
    #: Number of unacknowledged bytes from which on `add` waits before it takes more records.
    buffer_bytes: int = 32 * MIB
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int = 120_000


class DeliveryError(TidelogError):
    """The error for records that were not written: partition, the caller's row numbers, reason."""

    def __init__(self, tp: TopicPartition, rows: Sequence[int], reason: str) -> None:
        super().__init__(f"{tp}: {_rows_in_words(rows)} not written: {reason}")
        self.tp = tp
        self.rows = rows
        self.reason = reason


class _BadRecordsError(KafkaError):
    """The error for a batch of which a leader rejected some records (KIP-467): their indexes and
    the reasons.
    """

    def __init__(self, code: ErrorCode, message: str, bad: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.bad = bad


@dataclass(slots=True)
class _Partition:
    """A partition with its queue, its next sequence number, and the leader of batches in flight."""

    queue: ProduceQueue
    next_sequence: int = 0
    sent_to: Address | None = None
    acknowledged: int = 0


@dataclass(slots=True)
class _Topic:
    """A topic's leaders by partition; `unknown_since_ms` is set while brokers lack the topic."""

    leaders: list[Address | None] = field(default_factory=list)
    unknown_since_ms: int | None = None


class PipelinedProducer:
    """A producer of record batches; all methods raise DeliveryError and KafkaError."""

    def __init__(
        self, bootstrap: str, options: ProducerOptions, client_id: str = "tidelog"
    ) -> None:
        """Connect lazily; raise ConfigError unless `bootstrap` is `host:port,...`."""
        self._options = options
        self._client_id = client_id
        self._client = BlockingClient(bootstrap, client_id, options.request_timeout_ms)
        self._producer: tuple[int, int] | None = None
        self._topics: dict[str, _Topic] = {}
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._connections: dict[Address, LeaderConnection] = {}
        self._unreachable_until_ms: dict[Address, int] = {}
        self._selector = selectors.DefaultSelector()
        self._stale: set[str] = set()
        self._refresh_after_ms = 0
        self._held_bytes = 0
        #: Number of records in the batches that leaders have acknowledged.
        self.acknowledged_records = 0
        #: Bytes of the batches that leaders have acknowledged.
        self.acknowledged_bytes = 0

    @property
    def acknowledged(self) -> dict[TopicPartition, int]:
        """Acknowledged records by partition."""
        return {tp: each.acknowledged for tp, each in self._partitions.items()}

    def close(self) -> None:
        """Close all connections; unacknowledged batches may or may not be stored."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._selector.close()
        self._client.close()

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions of a topic; wait a while for a new topic."""
        deadline_ms = _now_ms() + self._options.request_timeout_ms
        while topic not in self._topics or not self._topics[topic].leaders:
            self._read_metadata([topic])
            if not self._topics[topic].leaders:
                if _now_ms() > deadline_ms:
                    raise KafkaError(
                        ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic!r} has no partitions yet"
                    )
                time.sleep(_REFRESH_MS / 1000)
        return len(self._topics[topic].leaders)

    def add(
        self,
        tp: TopicPartition,
        payload: Buffer,
        rows: Sequence[int],
        timestamps_ms: tuple[int, int],
    ) -> None:
        """Take the encoded records of one batch; wait while too many bytes are unacknowledged.

        `rows` are row numbers by which the caller identifies the records. `timestamps_ms` are the
        first and the largest timestamp of the records.
        """
        options = self._options
        part = self._partitions.get(tp)
        if part is None:
            part = self._partitions[tp] = _Partition(ProduceQueue(tp, options.max_in_flight))
        producer = NO_PRODUCER
        if options.idempotent:
            if self._producer is None:
                self._producer = self._client.init_producer_id()
            producer = Producer(*self._producer, part.next_sequence)
            part.next_sequence = (part.next_sequence + len(rows)) & MAX_SEQUENCE
        data = seal_batch(
            payload,
            len(rows),
            timestamps_ms,
            attributes=options.codec,
            level=options.level,
            producer=producer,
        )
        while self._held_bytes and self._held_bytes + len(data) > options.buffer_bytes:
            self._step(_WAIT_MS)
        part.queue.add(
            ProduceBatch(tp, data, len(rows), rows, _now_ms() + options.delivery_timeout_ms)
        )
        self._held_bytes += len(data)
        self._step(0)

    def flush(self) -> None:
        """Return when every added record is acknowledged."""
        while any(part.queue.batches for part in self._partitions.values()):
            self._step(_WAIT_MS)

    # -- one step -------------------------------------------------------------------------------

    def _step(self, wait_ms: int) -> None:
        """Send all sendable batches, then wait for responses up to `wait_ms`."""
        now_ms = _now_ms()
        for part in self._partitions.values():
            batch = part.queue.expired(now_ms)
            if batch is not None:
                self._give_up_late(batch)
        if self._stale and now_ms >= self._refresh_after_ms:
            self._read_metadata(sorted(self._stale))
            now_ms = _now_ms()
        self._dispatch(now_ms)
        for connection in list(self._connections.values()):
            if connection.is_overdue(now_ms):
                self._drop(connection, RequestTimeout(f"no response from {connection.address}"))
        if wait_ms:
            wait_ms = min(wait_ms, self._next_event_ms(now_ms))
        for key, events in self._selector.select(wait_ms / 1000):
            connection = key.data
            try:
                if events & selectors.EVENT_WRITE:
                    connection.flush()
                if events & selectors.EVENT_READ:
                    for sent, response in connection.receive():
                        self._handle(sent, response)
            except (ConnectionLost, ProtocolError) as error:
                self._drop(connection, error)
            else:
                self._finish_unanswered(connection)
                self._watch(connection)

    def _next_event_ms(self, now_ms: int) -> int:
        """Return the ms until the producer must act even if no response arrives."""
        times = [
            max(part.queue.not_before_ms, self._refresh_after_ms if self._stale else 0)
            for part in self._partitions.values()
            if part.queue.batches and not part.queue.in_flight
        ]
        times += [each.deadline_ms for each in self._connections.values() if each.in_flight]
        return max(1, min(times, default=now_ms + _WAIT_MS) - now_ms)

    # -- sending --------------------------------------------------------------------------------

    def _dispatch(self, now_ms: int) -> None:
        """Send requests to every leader with waiting batches and room for a request."""
        by_leader: dict[Address, list[_Partition]] = {}
        for tp, part in self._partitions.items():
            if not part.queue.batches:
                continue
            leader = self._leader(tp)
            if leader is None:
                self._stale.add(tp.topic)
            elif part.sent_to in (None, leader) or not part.queue.in_flight:
                by_leader.setdefault(leader, []).append(part)
        for address, parts in by_leader.items():
            connection = self._connection(address, parts, now_ms)
            while connection is not None and connection.free_slots:
                batches = self._take(address, parts, now_ms)
                if not batches:
                    break
                self._send(connection, batches, now_ms)
                parts.append(parts.pop(0))  # the next request begins with another partition

    def _take(self, address: Address, parts: list[_Partition], now_ms: int) -> list[ProduceBatch]:
        """Take a batch of each partition until the request is full."""
        taken: list[ProduceBatch] = []
        size = 0
        for part in parts:
            batch = part.queue.next_batch(now_ms)
            if batch is None:
                continue
            more = len(batch.data) + _BATCH_OVERHEAD_BYTES
            if taken and size + more > self._options.max_request_bytes:
                break
            part.queue.sent(batch)
            part.sent_to = address
            taken.append(batch)
            size += more
        return taken

    def _send(self, connection: LeaderConnection, batches: list[ProduceBatch], now_ms: int) -> None:
        options = self._options
        by_topic: dict[str, TopicProduceData] = {}
        for batch in batches:
            topic = by_topic.setdefault(batch.tp.topic, TopicProduceData(batch.tp.topic))
            topic.partition_data.append(PartitionProduceData(batch.tp.partition, batch.data))
        message = ProduceRequest(
            acks=options.acks,
            timeout_ms=options.request_timeout_ms,
            topic_data=list(by_topic.values()),
        )
        try:
            connection.send(message, batches, now_ms + options.request_timeout_ms)
        except ConnectionLost as error:
            self._drop(connection, error)
            return
        self._finish_unanswered(connection)
        self._watch(connection)

    def _connection(
        self, address: Address, parts: list[_Partition], now_ms: int
    ) -> LeaderConnection | None:
        connection = self._connections.get(address)
        if connection is not None:
            return connection
        if now_ms < self._unreachable_until_ms.get(address, 0):
            return None
        if not any(part.queue.next_batch(now_ms) for part in parts):
            return None
        try:
            connection = LeaderConnection(
                address, self._client_id, self._options.max_in_flight, self._options.acks != 0
            )
        except (ConnectionLost, RequestTimeout, ProtocolError) as error:
            self._unreachable_until_ms[address] = now_ms + 5 * FIRST_BACKOFF_MS
            for part in parts:
                part.queue.batches[0].last_error = error
                self._stale.add(part.queue.tp.topic)
            return None
        self._connections[address] = connection
        self._selector.register(connection.socket, selectors.EVENT_READ, connection)
        return connection

    def _watch(self, connection: LeaderConnection) -> None:
        if connection.address not in self._connections:
            return
        events = selectors.EVENT_READ
        if connection.has_output:
            events |= selectors.EVENT_WRITE
        if self._selector.get_key(connection.socket).events != events:
            self._selector.modify(connection.socket, events, connection)

    # -- responses ------------------------------------------------------------------------------

    def _handle(self, sent: SentRequest, response: ProduceResponse) -> None:
        results = {
            (topic.name, result.index): result
            for topic in response.responses
            for result in topic.partition_responses
        }
        given_up: list[tuple[ProduceBatch, TidelogError]] = []
        for batch in sent.batches:
            result = results.get((batch.tp.topic, batch.tp.partition))
            error = _error_of(batch.tp, result)
            if error is None:
                self._stored(batch)
            elif self._failed(batch, error) is Refused.GIVE_UP:
                given_up.append((batch, error))
        for batch, error in given_up:
            self._give_up(batch, error)

    def _stored(self, batch: ProduceBatch) -> None:
        part = self._partitions[batch.tp]
        self.acknowledged_records += batch.count
        self.acknowledged_bytes += len(batch.data)
        part.acknowledged += batch.count
        for done in part.queue.acknowledged(batch):
            self._held_bytes -= len(done.data)

    def _failed(self, batch: ProduceBatch, error: TidelogError) -> Refused:
        queue = self._partitions[batch.tp].queue
        before = sum(len(each.data) for each in queue.batches)
        refused = queue.failed(batch, error, _now_ms())
        self._held_bytes += sum(len(each.data) for each in queue.batches) - before
        if refused is Refused.RETRY:
            self._stale.add(batch.tp.topic)
        return refused

    def _finish_unanswered(self, connection: LeaderConnection) -> None:
        """Count batches of acks=0 as stored when their bytes have been sent."""
        for sent in connection.take_unanswered():
            for batch in sent.batches:
                self._stored(batch)

    def _drop(self, connection: LeaderConnection, error: TidelogError) -> None:
        """Close a connection; every batch in flight on it has an unknown outcome."""
        self._selector.unregister(connection.socket)
        connection.close()
        del self._connections[connection.address]
        for sent in connection.in_flight:
            for batch in sent.batches:
                if self._failed(batch, error) is Refused.GIVE_UP:
                    self._give_up(batch, error)

    # -- giving up ------------------------------------------------------------------------------

    def _give_up(self, batch: ProduceBatch, error: TidelogError) -> None:
        rows, reason = batch.rows, str(error)
        code = error.code if isinstance(error, KafkaError) else None
        if isinstance(error, _BadRecordsError):
            shown = [(batch.rows[i], why) for i, why in error.bad if 0 <= i < batch.count]
            rows = [row for row, _ in shown]
            whys = "; ".join(f"row {row}: {why}" for row, why in shown[:_SHOWN_ROWS])
            reason = f"{error}: {whys}" if len(shown) > 1 else f"{error.code.name}: {shown[0][1]}"
        elif code in TOO_LARGE:
            reason = (
                f"a record makes a batch of {len(batch.data)} bytes, more than the topic takes"
                f" (max.message.bytes): {error}"
            )
        elif code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            reason = (
                "its leader lacks records of this producer that were acknowledged: they may be"
                f" lost ({error})"
            )
        raise DeliveryError(batch.tp, rows, reason) from error

    def _give_up_late(self, batch: ProduceBatch) -> None:
        limit_ms = self._options.delivery_timeout_ms
        last = batch.last_error
        why = "its leader did not respond" if last is None else f"the last try failed with {last}"
        error = DeliveryError(
            batch.tp, batch.rows, f"{limit_ms} ms (delivery.timeout.ms) are over; {why}"
        )
        raise error from last

    # -- metadata -------------------------------------------------------------------------------

    def _leader(self, tp: TopicPartition) -> Address | None:
        topic = self._topics.get(tp.topic)
        if topic is None or not 0 <= tp.partition < len(topic.leaders):
            return None
        return topic.leaders[tp.partition]

    def _read_metadata(self, topics: list[str]) -> None:
        """Read leaders again; raise KafkaError for a topic that stays unknown."""
        self._refresh_after_ms = _now_ms() + _REFRESH_MS
        try:
            cluster = self._client.metadata(topics)
        except (ConnectionLost, RequestTimeout) as error:
            heads = [p.queue.batches[0] for p in self._partitions.values() if p.queue.batches]
            if not heads:
                raise
            for batch in heads:
                batch.last_error = error
            return
        now_ms = _now_ms()
        self._refresh_after_ms = now_ms + _REFRESH_MS
        for name in topics:
            topic = self._topics.setdefault(name, _Topic())
            found = cluster.topics.get(name)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if found is None else found.error
            if code in UNKNOWN_TOPIC:
                self._await_topic(name, topic, now_ms)
                continue
            if code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
                raise KafkaError(code, f"topic {name!r} cannot be written to")
            topic.unknown_since_ms = None
            self._stale.discard(name)
            if found is not None and found.partitions:
                topic.leaders = [None] * (1 + max(found.partitions))
                for number in found.partitions:
                    node = cluster.leader_of(TopicPartition(name, number))
                    topic.leaders[number] = None if node is None else node.address

    def _await_topic(self, name: str, topic: _Topic, now_ms: int) -> None:
        if topic.unknown_since_ms is None:
            topic.unknown_since_ms = now_ms
        if now_ms - topic.unknown_since_ms < UNKNOWN_TOPIC_PATIENCE_MS:
            return
        error = KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"there is no topic {name!r}; create it before writing to it",
        )
        for tp, part in self._partitions.items():
            if tp.topic == name and part.queue.batches:
                raise DeliveryError(tp, part.queue.batches[0].rows, str(error))
        raise error


def _error_of(tp: TopicPartition, result: PartitionProduceResponse | None) -> TidelogError | None:
    """Return the error of one partition in a response; None if its batch is stored."""
    if result is None:
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the response does not mention {tp}")
    code = error_code(result.error_code)
    if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return None
    message = result.error_message or ""
    if result.record_errors:
        bad = [
            (each.batch_index, each.batch_index_error_message or message or code.name)
            for each in result.record_errors
        ]
        return _BadRecordsError(code, message, bad)
    return KafkaError(code, message)


def _rows_in_words(rows: Sequence[int]) -> str:
    if len(rows) == 1:
        return f"row {rows[0]} was"
    if len(rows) <= _SHOWN_ROWS:
        return f"rows {', '.join(str(row) for row in rows)} were"
    return f"{len(rows)} rows between {min(rows)} and {max(rows)} were"


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
