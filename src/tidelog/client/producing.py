"""Produce requests, which send a caller's record batch to the leader of a partition.

A rejected batch was not appended; the client retries after a retriable error. A try has an unknown
outcome when the connection broke, no response came in time, or too few replicas were in sync after
the append. After an unknown outcome, a batch with a producer id is resent, because brokers
recognise its sequence. After an unknown outcome, a batch without a producer id raises
OutcomeUnknownError: a resend could store its records twice.
"""

from __future__ import annotations

from typing import Final

from tidelog.client.retries import Patience
from tidelog.client.routing import ClusterRouter, ask, expect
from tidelog.client.steps import Call, NotSent, Operation, always
from tidelog.client.versions import error_code
from tidelog.core.errors import ConnectionLost, ErrorCode, KafkaError, RequestTimeout, TidelogError
from tidelog.core.types import TopicPartition
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.wire.primitives import Buffer
from tidelog.wire.registry import INIT_PRODUCER_ID, PRODUCE

#: Byte position of the producer id in a batch v2 (KIP-98).
_PRODUCER_ID_AT: Final = 43
#: Errors after an append: the batch is in the leader's log, and may or may not be committed.
_APPENDED_ERRORS: Final = (
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NETWORK_EXCEPTION,
)
_ANSWER_MARGIN_MS: Final = 2_000


class OutcomeUnknownError(TidelogError):
    """The error for a batch that may be stored or not; a resend could store its records twice."""


class LogWriter:
    """Operations that write batches, or prepare such writes."""

    def __init__(self, router: ClusterRouter) -> None:
        self._router = router

    def produce(
        self, tp: TopicPartition, batch: Buffer, acks: int = -1, timeout_ms: int = 10_000
    ) -> Operation[int]:
        """Append one batch and return its base offset (-1 with acks=0, which has no response).

        The broker may wait up to `timeout_ms` for replicas. A duplicate that the broker recognises
        is a success; its offset is -1 if unknown. Raises KafkaError, OutcomeUnknownError.
        """
        message = ProduceRequest(acks=acks, timeout_ms=timeout_ms)
        part = PartitionProduceData(index=tp.partition, records=batch)
        message.topic_data = [TopicProduceData(name=tp.topic, partition_data=[part])]
        idempotent = _has_producer_id(batch)

        def attempt(patience: Patience) -> Operation[int]:
            leader = yield from self._router.leader(tp, patience)
            call = Call(
                leader.address,
                PRODUCE,
                always(message),
                timeout_ms + _ANSWER_MARGIN_MS,
                answered=acks != 0,
            )
            try:
                answer = yield call
            except NotSent:
                raise
            except (ConnectionLost, RequestTimeout) as error:
                if idempotent:
                    raise
                raise OutcomeUnknownError(
                    f"producing to {tp} at {leader.address}: {error}"
                ) from error
            if acks == 0:
                return -1
            return _base_offset(tp, expect(answer, ProduceResponse), idempotent)

        return self._router.repeat(f"producing to {tp}", attempt)

    def init_producer_id(self) -> Operation[tuple[int, int]]:
        """Return a new producer id and its epoch, for idempotent batches without transactions."""
        message = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0x7FFFFFFF)

        def attempt(patience: Patience) -> Operation[tuple[int, int]]:
            node = yield from self._router.any_broker(patience)
            response = yield from ask(
                node, INIT_PRODUCER_ID, message, patience, InitProducerIdResponse
            )
            return response.producer_id, response.producer_epoch

        return self._router.repeat("getting a producer id", attempt)


def _has_producer_id(batch: Buffer) -> bool:
    raw = bytes(memoryview(batch)[_PRODUCER_ID_AT : _PRODUCER_ID_AT + 8])
    return len(raw) == 8 and int.from_bytes(raw, "big", signed=True) >= 0


def _base_offset(tp: TopicPartition, response: ProduceResponse, idempotent: bool) -> int:
    result = _result_of(tp, response)
    code = error_code(result.error_code)
    if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return result.base_offset
    reasons = [
        f"record {each.batch_index}: {each.batch_index_error_message}"
        for each in result.record_errors
        if each.batch_index_error_message != result.error_message  # do not repeat the message
    ]
    detail = "; ".join([result.error_message or "", *reasons]).strip("; ")
    error = KafkaError(code, f"{tp}: {detail}" if detail else str(tp))
    if code in _APPENDED_ERRORS and not idempotent:
        raise OutcomeUnknownError(f"producing to {tp}: {error}") from error
    raise error


def _result_of(tp: TopicPartition, response: ProduceResponse) -> PartitionProduceResponse:
    for topic in response.responses:
        for result in topic.partition_responses:
            if topic.name == tp.topic and result.index == tp.partition:
                return result
    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the answer does not mention {tp}")
