"""Keys and values of the records of `__transaction_state`, in the versions of Kafka 4.3.

Version 1 of the value is flexible, so that readers skip tags that they do not know (KIP-915). Its
tags carry the producer ids before and after a change of the producer id, and the client's
transaction version (KIP-890). A null value, which ends its transactional id, is handled outside
this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import array, int8, int16, int32, int64, string
from tidelog.wire.versioned import Versioned

#: The tag of the producer epoch before its last increase. Kafka 4.3 keeps that epoch in memory
#: only, and skips the tag; later versions of Kafka have a tag of their own for it (KAFKA-20357).
LAST_PRODUCER_EPOCH_TAG: Final = 20_000


@dataclass(frozen=True, slots=True)
class TransactionLogKey:
    """The key of a transactional id."""

    transactional_id: str = string("0+")


@dataclass(slots=True)
class TransactionPartitions:
    """The partitions of one topic in a transaction."""

    topic: str = string("0+")
    partition_ids: Sequence[int] = array("int32", "0+")


@dataclass(slots=True)
class TransactionLogValue:
    """The state of a transactional id; the partitions are null in the state Empty.

    Times are wall clock in ms, -1 if there is none, and so are producer ids and epochs.
    """

    producer_id: int = int64("0+")
    previous_producer_id: int = int64("1+", -1, ignorable=True, tag=0)
    next_producer_id: int = int64("1+", -1, tag=1)
    producer_epoch: int = int16("0+")
    last_producer_epoch: int = int16("1+", -1, ignorable=True, tag=LAST_PRODUCER_EPOCH_TAG)
    transaction_timeout_ms: int = int32("0+")
    transaction_status: int = int8("0+")
    transaction_partitions: Sequence[TransactionPartitions] | None = array(
        TransactionPartitions, "0+", nullable="0+"
    )
    transaction_last_update_timestamp_ms: int = int64("0+")
    transaction_start_timestamp_ms: int = int64("0+")
    client_transaction_version: int = int16("1+", 0, tag=2)


TRANSACTION_LOG_KEY: Final = Versioned(TransactionLogKey, 0, 0)
TRANSACTION_LOG_VALUE: Final = Versioned(TransactionLogValue, 0, 1, first_flexible_version=1)
