"""The encoding and decoding of records of `__transaction_state` (T58, T59).

As in Kafka (KIP-915), the coordinator skips records whose key or value has an unknown version. A
record that cannot be read is an error, because the coordinator must not decide a transaction whose
state it does not know.
"""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter

from tidelog.core.errors import ProtocolError
from tidelog.core.types import TopicPartition
from tidelog.records.builder import NewRecord
from tidelog.txn.records import Transaction, TransactionRecord
from tidelog.txn.states import TransactionPhase
from tidelog.wire.data.transaction_log import (
    TRANSACTION_LOG_KEY,
    TRANSACTION_LOG_VALUE,
    TransactionLogKey,
    TransactionLogValue,
    TransactionPartitions,
)
from tidelog.wire.versioned import UnknownVersion

_KEY_VERSION = 0
#: States that a record may have. The other states exist only in memory, and in the state filters
#: of ListTransactions (T12).
_STORED = frozenset(TransactionPhase) - {
    TransactionPhase.DEAD,
    TransactionPhase.PREPARE_EPOCH_FENCE,
}


def encode(record: TransactionRecord, timestamp_ms: int) -> NewRecord:
    """Encode a record; raise SchemaError for a string or a set of partitions that is too long."""
    key = TRANSACTION_LOG_KEY.encode(TransactionLogKey(record.transactional_id), _KEY_VERSION)
    value = record.value
    if value is None:
        return NewRecord(key, None, timestamp_ms)
    encoded = TRANSACTION_LOG_VALUE.encode(_log_value(value), record.version)
    return NewRecord(key, encoded, timestamp_ms)


def _log_value(value: Transaction) -> TransactionLogValue:
    partitions = None
    if value.phase is not TransactionPhase.EMPTY:
        partitions = [
            TransactionPartitions(topic, [tp.partition for tp in of_topic])
            for topic, of_topic in groupby(sorted(value.partitions), attrgetter("topic"))
        ]
    return TransactionLogValue(
        producer_id=value.producer_id,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        producer_epoch=value.producer_epoch,
        last_producer_epoch=value.last_producer_epoch,
        transaction_timeout_ms=value.timeout_ms,
        transaction_status=int(value.phase),
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=value.updated_ms,
        transaction_start_timestamp_ms=value.started_ms,
        client_transaction_version=value.client_version,
    )


def decode(key: bytes | None, value: bytes | None) -> TransactionRecord | None:
    """Decode the record of a key and a value; return None for a version that is not known.

    Raises ProtocolError for bytes that cannot be decoded as a record.
    """
    try:
        name: TransactionLogKey = TRANSACTION_LOG_KEY.decode(b"" if key is None else key)
        if value is None:
            return TransactionRecord(name.transactional_id, None)
        found: TransactionLogValue = TRANSACTION_LOG_VALUE.decode(value)
    except UnknownVersion:
        return None
    version = int.from_bytes(value[:2], "big")
    return TransactionRecord(name.transactional_id, _transaction(found), version)


def _transaction(found: TransactionLogValue) -> Transaction:
    if found.transaction_status not in _STORED:
        raise ProtocolError(
            f"a transaction in state {found.transaction_status}: records have the states 0 to 5"
        )
    has_previous = found.previous_producer_id >= 0
    return Transaction(
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        last_producer_epoch=found.last_producer_epoch,
        # Version 0 has no previous producer id, so the record shows no change of the producer id.
        previous_producer_id=found.previous_producer_id if has_previous else found.producer_id,
        next_producer_id=found.next_producer_id,
        timeout_ms=found.transaction_timeout_ms,
        phase=TransactionPhase(found.transaction_status),
        partitions=frozenset(
            TopicPartition(each.topic, number)
            for each in found.transaction_partitions or ()
            for number in each.partition_ids
        ),
        updated_ms=found.transaction_last_update_timestamp_ms,
        started_ms=found.transaction_start_timestamp_ms,
        client_version=found.client_transaction_version,
    )
