"""Produce (key 0), versions 3 to 11: append batches to partitions that this broker leads.

A request with acks=0 gets no response. With acks=1 the broker responds when the leader has written
the batch, with acks=-1 when the high watermark passes the batch (V64). An idempotent producer's
batches are acknowledged in order, even after one of them timed out (V38). If the topic has
`flush.before.ack`, acks=1 waits until the leader has synced the batch (V69). One response covers
all partitions, each with its own error. Transactions are not supported yet: a transactional id gets
INVALID_TXN_STATE. A refused acks=0 request closes the connection, as in Kafka, since no response
could report the refusal. As in Kafka 4, ApiVersions advertises Produce from version 0 on. Otherwise
librdkafka would not compress with gzip, snappy or lz4, although it never sends version 0
(KAFKA-18659). The broker refuses versions 0 to 2 like any other version that it does not serve.
Internal topics (`__consumer_offsets`, `__cluster_events`) accept records from brokers only, as in
Kafka.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tidelog.broker.apis.support import errors
from tidelog.broker.replicas.isr import frozen_watermarks
from tidelog.broker.server.requests import Card, Pending, Request, RequestConnection
from tidelog.core.authorization import WRITE_TOPIC, WRITE_TRANSACTIONAL_ID
from tidelog.core.completion import Completion
from tidelog.core.errors import ErrorCode, KafkaError, StorageError
from tidelog.core.limits import MAX_RECORD_ERRORS
from tidelog.core.names import CLUSTER_EVENTS, is_internal_topic
from tidelog.core.types import TopicPartition
from tidelog.log.append_plan import NotFlushedError
from tidelog.log.append_validation import RecordsRejected
from tidelog.log.refused_batches import EarlierBatchRefusedError
from tidelog.records.walk import Bad
from tidelog.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.apis.support.context import ApiContext
    from tidelog.broker.replicas.hosting.partition import Partition
    from tidelog.log.partition_log import AppendInfo
    from tidelog.log.refused_batches import SentBatch

CARD = Card(
    api_key=0,
    min_version=3,
    max_version=11,
    note="no transactions yet",
    advertised_min_version=0,
    rights=(WRITE_TRANSACTIONAL_ID, WRITE_TOPIC),
)

_LEADER_HINT_VERSION = 10
#: Clients with a lower Produce version do not know KAFKA_STORAGE_ERROR (KIP-112).
_STORAGE_ERROR_VERSION = 4
#: The client id that may produce to internal topics (Kafka's AdminUtils.ADMIN_CLIENT_ID).
_ADMIN_CLIENT_ID = "__admin_client"
#: The client id of brokers that write cluster events.
_EVENTS_CLIENT_ID = re.compile(r"broker-\d+-cluster-events")


class _Produce:
    """A Produce request in progress, with the number of partitions without an outcome."""

    __slots__ = (
        "acks",
        "begun_ns",
        "connection",
        "context",
        "pending",
        "record_errors_left",
        "remaining",
        "response",
        "timeout",
        "unanswered",
        "version",
        "waits_for_sync",
    )

    def __init__(
        self,
        context: ApiContext,
        acks: int,
        version: int = _STORAGE_ERROR_VERSION,
        connection: RequestConnection | None = None,
    ) -> None:
        self.context = context
        self.begun_ns = context.services.clock.monotonic_ns()
        self.acks = acks
        self.version = version
        #: The client's connection. If the response names brokers, it gives their endpoints on the
        #: listener of this connection.
        self.connection = connection
        self.response = ProduceResponse()
        self.pending: Pending | None = None
        self.timeout: object = None
        #: Number of partitions without an outcome, plus 1 until this broker has begun the appends
        #: of all partitions.
        self.remaining = 1
        self.unanswered: dict[_PartitionAppend, None] = {}
        #: Whether a partition acknowledges acks=1 only after a sync, so that the response waits
        #: (V69).
        self.waits_for_sync = False
        #: Number of further bad records that the response may name.
        self.record_errors_left = MAX_RECORD_ERRORS

    def one_done(self) -> None:
        self.remaining -= 1
        if self.remaining == 0 and self.pending is not None:
            if self.timeout is not None:
                self.timeout.cancel()  # type: ignore[attr-defined]
            self.pending.complete(self.answer())

    def answer(self) -> ProduceResponse | None:
        """Return the response in the form of the request's version; None for acks=0."""
        time_ns = self.context.services.clock.monotonic_ns() - self.begun_ns
        self.context.replicas.topic_meters.acknowledged(self.acks, time_ns)
        if self.version < _STORAGE_ERROR_VERSION:
            _hide_storage_errors(self.response)
        if self.version >= _LEADER_HINT_VERSION and self.connection is not None:
            _add_leader_hints(self.context, self.connection.listener, self.response)
        return self.response if self.acks != 0 else None

    def timed_out(self) -> None:
        for append in list(self.unanswered):
            append.refused(ErrorCode.REQUEST_TIMED_OUT, self._overdue(append.partition))

    def _overdue(self, partition: Partition) -> str:
        if self.acks != -1:
            return "the leader did not sync the records to its disk in time"
        frozen = frozen_watermarks.reason(self.context.services, partition)
        return frozen or "the in-sync replicas did not replicate the records in time"


class _PartitionAppend:
    """The append to one partition of a request, and its wait for acknowledgement (`AcksWait`)."""

    __slots__ = ("answer", "done", "partition", "produce", "sent")

    def __init__(
        self, produce: _Produce, partition: Partition, answer: PartitionProduceResponse
    ) -> None:
        self.produce = produce
        self.partition = partition
        self.answer = answer
        #: The appended batch, if an idempotent producer sent it.
        self.sent: SentBatch | None = None
        self.done = False

    def appended(self, completion: Completion[AppendInfo]) -> None:
        """Handle the outcome of the write to the leader's log."""
        error = completion.error
        if isinstance(error, NotFlushedError):
            # The log has the batch although a flush failed, so later batches of this producer wait
            # until the producer resends the batch (V38).
            self.sent = error.sent
            self.refused(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
            return
        if error is not None:
            _set_error(self.produce, self.partition.topic_partition, self.answer, error)
            self._finish()
            return
        info = completion.result()
        partition = self.partition
        answer = self.answer
        answer.base_offset = info.base_offset
        answer.log_append_time_ms = info.log_append_time_ms
        answer.log_start_offset = partition.log.log_start_offset
        size_bytes, records = (0, 0) if info.duplicate else (info.size_bytes, info.record_count)
        partition.produced_bytes += size_bytes
        self.produce.context.replicas.topic_meters.produced(
            partition.topic_partition.topic, size_bytes, records
        )
        self.sent = info.sent
        end = info.last_offset + 1
        waits_for_sync = self.produce.acks == 1 and partition.awaits_sync(end)
        if not waits_for_sync and (self.produce.acks != -1 or partition.high_watermark >= end):
            if self.sent is None:
                self._finish()
            else:
                self.acknowledged()
            return
        if not partition.is_leader:
            self.refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "leadership was lost while appending")
            return
        self.produce.unanswered[self] = None
        if waits_for_sync:
            partition.watchers.wait_for_sync(end, self)
        else:
            partition.watchers.wait_for_acks(end, self)

    def acknowledged(self) -> None:
        if self.done:
            return
        if self.sent is not None:
            services = self.produce.context.services
            try:
                self.partition.watchers.check_order(self.sent, services.clock.monotonic_ms())
            except EarlierBatchRefusedError as error:
                services.tracer.mark("produce_refused_behind_unanswered")
                self._answer_with(error.code, error.message)
                return
        self._finish()

    def refused(self, error: ErrorCode, message: str) -> None:
        if self.done:
            return
        if self.sent is not None:
            now_ms = self.produce.context.services.clock.monotonic_ms()
            self.partition.watchers.refused_after_append(self.sent, error, now_ms)
        self._answer_with(error, message)

    def _answer_with(self, error: ErrorCode, message: str) -> None:
        answer = self.answer
        topic = self.partition.topic_partition.topic
        self.produce.context.replicas.topic_meters.produce_failed(
            topic, is_counted=answer.base_offset >= 0
        )
        answer.error_code = error
        answer.error_message = message
        answer.base_offset = -1
        self._finish()

    def _finish(self) -> None:
        if not self.done:
            self.done = True
            self.produce.unanswered.pop(self, None)
            self.produce.one_done()


def handle(
    context: ApiContext, request: Request[ProduceRequest]
) -> ProduceResponse | Pending | None:
    """Plan the appends of the request; the broker then writes the appends of all requests that one
    read of the socket returned.
    """
    message = request.message
    acks = message.acks
    whole = _refusal(message)
    produce = _Produce(context, acks, request.header.api_version, request.connection)
    now_ms = context.services.clock.wall_ms()
    for topic in message.topic_data:
        answers: list[PartitionProduceResponse] = []
        refusal = whole or _topic_refusal(topic.name, request.header.client_id)
        produce.response.responses.append(TopicProduceResponse(topic.name, answers))
        for data in topic.partition_data:
            answer = PartitionProduceResponse(index=data.index, base_offset=-1)
            answers.append(answer)
            topic_partition = TopicPartition(topic.name, data.index)
            if refusal is not None:
                _set_error(produce, topic_partition, answer, refusal)
            else:
                _begin(context, produce, topic_partition, data, answer, now_ms)
    produce.remaining -= 1
    if acks == 0:
        if _any_error(produce.response):
            request.connection.close("a Produce with acks=0 was refused")
        return None
    if produce.remaining == 0:
        return produce.answer()
    produce.pending = Pending()
    if acks == -1 or produce.waits_for_sync:
        produce.timeout = context.services.serving_timers.after(
            message.timeout_ms, produce.timed_out
        )
    return produce.pending


def _hide_storage_errors(response: ProduceResponse) -> None:
    """Replace KAFKA_STORAGE_ERROR by an error that makes old clients refresh metadata (D4)."""
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER


def _refusal(message: ProduceRequest) -> KafkaError | None:
    if message.acks not in (-1, 0, 1):
        return KafkaError(
            ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {message.acks}; -1, 0 and 1 are valid"
        )
    if message.transactional_id is not None:
        return KafkaError(ErrorCode.INVALID_TXN_STATE, "transactions are not supported yet")
    return None


def _topic_refusal(topic: str, client_id: str | None) -> KafkaError | None:
    """Return an error if only brokers may write to the topic and the client is not a broker."""
    if is_internal_topic(topic) and client_id != _ADMIN_CLIENT_ID:
        if topic == CLUSTER_EVENTS and _EVENTS_CLIENT_ID.fullmatch(client_id or ""):
            return None
        return KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"cannot append to internal topic {topic!r}"
        )
    return None


def _begin(
    context: ApiContext,
    produce: _Produce,
    topic_partition: TopicPartition,
    data: PartitionProduceData,
    answer: PartitionProduceResponse,
    now_ms: int,
) -> None:
    # `records` is a `memoryview` in a decoded request, a list of buffers in a request to encode.
    records = data.records if isinstance(data.records, memoryview) else b""
    partition = context.replicas.get(topic_partition)
    if partition is None:
        error = context.replicas.missing_replica_error(topic_partition)
        monotonic_ms = context.services.clock.monotonic_ms()
        context.replicas.early_batches.refused(topic_partition, records, error, monotonic_ms)
        _set_error(produce, topic_partition, answer, KafkaError(error))
        return
    try:
        completion = partition.role.append(records, produce.acks, now_ms)
    except (KafkaError, StorageError) as error:
        _set_error(produce, topic_partition, answer, error)
        return
    produce.remaining += 1
    if produce.acks == 1 and partition.log.config.flush_before_ack:
        produce.waits_for_sync = True
    completion.then(_PartitionAppend(produce, partition, answer).appended)


def _set_error(
    produce: _Produce,
    topic_partition: TopicPartition,
    answer: PartitionProduceResponse,
    error: BaseException,
) -> None:
    produce.context.replicas.topic_meters.produce_failed(
        topic_partition.topic,
        is_corrupt=isinstance(error, KafkaError) and error.code is ErrorCode.CORRUPT_MESSAGE,
    )
    if isinstance(error, KafkaError):
        answer.error_code = error.code
        answer.error_message = error.message or None
        if isinstance(error, RecordsRejected):
            named = error.bad[: produce.record_errors_left]
            produce.record_errors_left -= len(named)
            answer.record_errors = [_record_error(topic_partition.topic, bad) for bad in named]
    elif isinstance(error, StorageError):
        answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        answer.error_message = str(error)
    else:
        produce.context.services.unexpected(f"append to {topic_partition}", error)
        answer.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
    answer.base_offset = -1


def _record_error(topic: str, bad: Bad) -> BatchIndexAndErrorMessage:
    """Return a bad record's index in the batch, and why its topic refuses the record (KIP-467)."""
    if bad.keyless:
        return BatchIndexAndErrorMessage(bad.record, "no key; a compacted topic needs one")
    return BatchIndexAndErrorMessage(
        bad.record,
        f"timestamp {bad.timestamp_ms} lies outside message.timestamp.before.max.ms or "
        f"message.timestamp.after.max.ms of {topic}",
    )


def _any_error(response: ProduceResponse) -> bool:
    return any(
        answer.error_code for topic in response.responses for answer in topic.partition_responses
    )


def _add_leader_hints(context: ApiContext, listener: str, response: ProduceResponse) -> None:
    """Name the new leader and its address in the response (KIP-951)."""
    named: dict[int, None] = {}
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                partition = TopicPartition(topic.name, answer.index)
                latest = context.services.view.latest_leader(partition)
                if latest is not None:
                    answer.current_leader = LeaderIdAndEpoch(*latest)
                    named[latest.leader] = None
    for leader in named:
        endpoint = context.services.view.endpoint(leader, listener)
        if endpoint is not None:
            response.node_endpoints.append(NodeEndpoint(leader, endpoint.host, endpoint.port))


def error_response(
    request: Request[ProduceRequest], error: ErrorCode, message: str | None = None
) -> ProduceResponse | None:
    """Return the response that gives `error` to each partition; None for acks=0."""
    if request.message.acks == 0:
        return None
    response: ProduceResponse = errors.error_response(request, error, message)
    return response
