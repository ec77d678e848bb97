"""AddPartitionsToTxn (key 24), versions 0 to 5: partitions that a transaction writes to.

Version 2 may respond with PRODUCER_FENCED. Version 3 is flexible. Version 4 carries several
transactions, and lets brokers verify that a transaction has its partitions (KIP-890). Version 5 may
respond with TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, boolean, int16, int32, int64, string


@dataclass(slots=True)
class AddPartitionsToTxnTopic:
    """The partitions of one topic to add to a transaction."""

    name: str = string("0+")
    partitions: Sequence[int] = array("int32", "0+")


@dataclass(slots=True)
class AddPartitionsToTxnTransaction:
    """One transaction and its partitions; with `verify_only`, no partition is added."""

    transactional_id: str = string("4+")
    producer_id: int = int64("4+")
    producer_epoch: int = int16("4+")
    verify_only: bool = boolean("4+")
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "4+")


@dataclass(slots=True)
class AddPartitionsToTxnRequest:
    """The request with one transaction up to version 3, and several from version 4 on."""

    transactions: list[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, "4+")
    v3_and_below_transactional_id: str = string("0-3")
    v3_and_below_producer_id: int = int64("0-3")
    v3_and_below_producer_epoch: int = int16("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "0-3")


@dataclass(slots=True)
class AddPartitionsToTxnPartitionResult:
    """The outcome of adding one partition to a transaction."""

    partition_index: int = int32("0+")
    partition_error_code: int = int16("0+")


@dataclass(slots=True)
class AddPartitionsToTxnTopicResult:
    """The outcomes of adding one topic's partitions to a transaction."""

    name: str = string("0+")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(
        AddPartitionsToTxnPartitionResult, "0+"
    )


@dataclass(slots=True)
class AddPartitionsToTxnResult:
    """The outcomes of adding partitions to one transaction."""

    transactional_id: str = string("4+")
    topic_results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, "4+")


@dataclass(slots=True)
class AddPartitionsToTxnResponse:
    """The outcomes, by topic up to version 3 and by transaction from version 4 on."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("4+", ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = array(AddPartitionsToTxnResult, "4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, "0-3"
    )


API = Api(
    key=24,
    name="AddPartitionsToTxn",
    request=AddPartitionsToTxnRequest,
    response=AddPartitionsToTxnResponse,
    min_version=0,
    max_version=5,
    first_flexible_version=3,
)
