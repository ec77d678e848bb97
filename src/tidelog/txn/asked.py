"""Requests to a transaction coordinator, each about one transactional id, and their answers.

Requests and answers are wire messages, or the part of a message that is about one id.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Final, Generic, TypeVar

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.txn.records import MAX_PRODUCER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from tidelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from tidelog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    TransactionState,
)
from tidelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

#: From this version on, a request may get PRODUCER_FENCED; earlier ones get INVALID_PRODUCER_EPOCH
#: (table 5).
_FENCED_SINCE: Final = {
    InitProducerIdRequest: 4,
    EndTxnRequest: 2,
    AddPartitionsToTxnTransaction: 2,
    AddOffsetsToTxnRequest: 2,
}
#: From this version on, EndTxn raises the epoch, and its response names the next identity (T19).
RAISING_END_VERSION: Final = 5

M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class TransactionAsked(Generic[M]):
    """A request about one transactional id, as the broker passes it to the coordinator.

    The broker splits AddPartitionsToTxn by transaction and DescribeTransactions by id.
    AddPartitionsToTxn up to version 3 has only one transaction, which the broker passes on.
    """

    ticket: int
    transactional_id: str
    message: M = field(hash=False)
    version: int
    #: The partitions that an add or a verification names. For AddOffsetsToTxn, the broker derives
    #: the partition of `__consumer_offsets` from the group (T25).
    named_partitions: frozenset[TopicPartition] = frozenset()


def refusal(asked: TransactionAsked[Any], error: ErrorCode) -> Any:
    """Return the answer that carries `error`, with the code that the request's version knows."""
    error = error_of_version(asked, error)
    match asked.message:
        case InitProducerIdRequest():
            return InitProducerIdResponse(
                error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
            )
        case AddPartitionsToTxnTransaction() as message:
            return added_response(message, dict.fromkeys(sorted(asked.named_partitions), error))
        case AddOffsetsToTxnRequest():
            return AddOffsetsToTxnResponse(error_code=error)
        case EndTxnRequest():
            return EndTxnResponse(error_code=error)
        case _:
            assert isinstance(asked.message, DescribeTransactionsRequest)
            return TransactionState(error_code=error, transactional_id=asked.transactional_id)


def error_of_version(asked: TransactionAsked[Any], error: ErrorCode) -> ErrorCode:
    """Return the error that a request of this version may get in the place of `error` (T20)."""
    since = _FENCED_SINCE.get(type(asked.message), 0)
    if error is ErrorCode.PRODUCER_FENCED and asked.version < since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def initialised(producer_id: int, producer_epoch: int) -> InitProducerIdResponse:
    """Return the answer that gives a producer its id and epoch."""
    assert producer_epoch < MAX_PRODUCER_EPOCH, "no response has the highest epoch (T9)"
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=producer_epoch)


def ended(
    asked: TransactionAsked[EndTxnRequest], producer_id: int, producer_epoch: int
) -> EndTxnResponse:
    """Return the answer to the end of a transaction, with the next identity from version 5 on."""
    if asked.version < RAISING_END_VERSION:
        return EndTxnResponse()
    assert producer_epoch < MAX_PRODUCER_EPOCH, "no response has the highest epoch (T9)"
    return EndTxnResponse(producer_id=producer_id, producer_epoch=producer_epoch)


def added(
    asked: TransactionAsked[Any], errors: dict[TopicPartition, ErrorCode] | None = None
) -> Any:
    """Return the answer to an add or verification; partitions without an error get NONE."""
    match asked.message:
        case AddPartitionsToTxnTransaction() as message:
            return added_response(message, errors or {})
        case _:
            assert isinstance(asked.message, AddOffsetsToTxnRequest)
            assert not errors, "the partition of a group is added, not verified"
            return AddOffsetsToTxnResponse()


def added_response(
    message: AddPartitionsToTxnTransaction, errors: dict[TopicPartition, ErrorCode]
) -> AddPartitionsToTxnResult:
    """Return the result of one transaction, with its partitions in the order of the request."""
    return AddPartitionsToTxnResult(
        message.transactional_id,
        [
            AddPartitionsToTxnTopicResult(
                topic.name,
                [
                    AddPartitionsToTxnPartitionResult(
                        number, errors.get(TopicPartition(topic.name, number), ErrorCode.NONE)
                    )
                    for number in topic.partitions
                ],
            )
            for topic in message.topics
        ],
    )
