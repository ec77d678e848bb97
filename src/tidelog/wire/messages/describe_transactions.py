"""DescribeTransactions (key 65), version 0: states of transactions (KIP-664).

Version 0 is flexible.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, int16, int32, int64, string


@dataclass(slots=True)
class DescribeTransactionsRequest:
    """The transactional ids to describe."""

    transactional_ids: Sequence[str] = array("string", "0+")


@dataclass(slots=True)
class TopicData:
    """The partitions of one topic to which a transaction writes."""

    topic: str = string("0+")
    partitions: Sequence[int] = array("int32", "0+")


@dataclass(slots=True)
class TransactionState:
    """One transaction; its start time is -1 if it is not open."""

    error_code: int = int16("0+")
    transactional_id: str = string("0+")
    transaction_state: str = string("0+")
    transaction_timeout_ms: int = int32("0+")
    transaction_start_time_ms: int = int64("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    topics: list[TopicData] = array(TopicData, "0+")


@dataclass(slots=True)
class DescribeTransactionsResponse:
    """The states of transactions, one per transactional id."""

    throttle_time_ms: int = int32("0+")
    transaction_states: list[TransactionState] = array(TransactionState, "0+")


API = Api(
    key=65,
    name="DescribeTransactions",
    request=DescribeTransactionsRequest,
    response=DescribeTransactionsResponse,
    min_version=0,
    max_version=0,
    first_flexible_version=0,
)
