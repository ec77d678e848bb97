"""The next state of a transactional id for each transition of its transaction (T4, T8, T18).

Each function takes the stored state and returns the state that the next record stores.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tidelog.core.types import TopicPartition
from tidelog.txn.records import (
    EXHAUSTED_EPOCH,
    MAX_PRODUCER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NOT_STARTED_MS,
    PLAIN_VERSION,
    RAISING_VERSION,
    Transaction,
)
from tidelog.txn.states import TransactionPhase


def first(producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
    """Return the first state of an id, which begins with epoch 0."""
    return Transaction(
        producer_id=producer_id,
        producer_epoch=0,
        last_producer_epoch=NO_PRODUCER_EPOCH,
        previous_producer_id=producer_id,
        next_producer_id=NO_PRODUCER_ID,
        timeout_ms=timeout_ms,
        phase=TransactionPhase.EMPTY,
        partitions=frozenset(),
        updated_ms=now_ms,
        started_ms=NOT_STARTED_MS,
    )


def _empty(stored: Transaction, timeout_ms: int, now_ms: int) -> Transaction:
    return replace(
        stored,
        timeout_ms=timeout_ms,
        phase=TransactionPhase.EMPTY,
        partitions=frozenset(),
        updated_ms=now_ms,
        started_ms=NOT_STARTED_MS,
        next_producer_id=NO_PRODUCER_ID,
        client_version=PLAIN_VERSION,
    )


def raised(stored: Transaction, timeout_ms: int, now_ms: int, *, is_expected: bool) -> Transaction:
    """Return the state after an InitProducerId that raises the epoch (T4, table 1).

    `is_expected` means that the producer named its present epoch: then it may repeat the request.
    """
    assert not stored.is_exhausted, "an exhausted epoch needs a new producer id (T8)"
    return replace(
        _empty(stored, timeout_ms, now_ms),
        producer_epoch=stored.producer_epoch + 1,
        last_producer_epoch=stored.producer_epoch if is_expected else NO_PRODUCER_EPOCH,
        previous_producer_id=stored.producer_id,
    )


def rotated(
    stored: Transaction, producer_id: int, timeout_ms: int, now_ms: int, *, is_expected: bool
) -> Transaction:
    """Return the state after an InitProducerId that gives a new producer id (T8, table 1)."""
    return replace(
        _empty(stored, timeout_ms, now_ms),
        producer_id=producer_id,
        producer_epoch=0,
        last_producer_epoch=stored.producer_epoch if is_expected else NO_PRODUCER_EPOCH,
        previous_producer_id=stored.producer_id,
    )


def repeated(stored: Transaction, timeout_ms: int, now_ms: int) -> Transaction:
    """Return the state after the repetition of an InitProducerId: id and epochs stay (table 1)."""
    return _empty(stored, timeout_ms, now_ms)


def with_partitions(
    stored: Transaction, partitions: Iterable[TopicPartition], now_ms: int
) -> Transaction:
    """Return the state with partitions added; the first ones begin the transaction (T27)."""
    is_ongoing = stored.phase is TransactionPhase.ONGOING
    return replace(
        stored,
        phase=TransactionPhase.ONGOING,
        partitions=stored.partitions.union(partitions),
        updated_ms=now_ms,
        started_ms=stored.started_ms if is_ongoing else now_ms,
        previous_producer_id=stored.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        client_version=PLAIN_VERSION,
    )


def _decided(stored: Transaction, phase: TransactionPhase, now_ms: int) -> Transaction:
    return replace(
        stored,
        phase=phase,
        updated_ms=now_ms,
        # An abort without a transaction only raises the epoch (T18). The new state then has a
        # transaction that has no partitions, and that begins and ends at the same time.
        started_ms=now_ms if stored.phase.is_settled else stored.started_ms,
        partitions=frozenset() if stored.phase.is_settled else stored.partitions,
        previous_producer_id=stored.producer_id,
        client_version=PLAIN_VERSION,
    )


def decided(stored: Transaction, phase: TransactionPhase, now_ms: int) -> Transaction:
    """Return the state that decides a transaction by an EndTxn up to version 4 (T18)."""
    return _decided(stored, phase, now_ms)


def needs_id_to_decide(stored: Transaction) -> bool:
    """Return whether `decided_with_raise` needs a new producer id (T8, T9)."""
    return stored.producer_epoch == EXHAUSTED_EPOCH


def decided_with_raise(
    stored: Transaction, phase: TransactionPhase, next_producer_id: int, now_ms: int
) -> Transaction:
    """Return the state that decides a transaction and raises the epoch (T8, T18, T22).

    `next_producer_id` is the producer id that follows an exhausted epoch, else -1. A state that has
    the highest epoch already keeps it, and the next InitProducerId gives a new id (T9).
    """
    assert needs_id_to_decide(stored) == (next_producer_id != NO_PRODUCER_ID)
    if stored.producer_epoch == MAX_PRODUCER_EPOCH:
        return replace(_decided(stored, phase, now_ms), client_version=RAISING_VERSION)
    return replace(
        _decided(stored, phase, now_ms),
        producer_epoch=stored.producer_epoch + 1,
        last_producer_epoch=stored.producer_epoch,
        next_producer_id=next_producer_id,
        client_version=RAISING_VERSION,
    )


def fenced(stored: Transaction, now_ms: int) -> Transaction:
    """Return the state after the coordinator decides an abort, below `transaction.version` 2.

    The abort raises the epoch to fence the producer (T9, T10, T22).
    """
    return replace(
        _decided(stored, TransactionPhase.PREPARE_ABORT, now_ms),
        producer_epoch=min(stored.producer_epoch + 1, MAX_PRODUCER_EPOCH),
        last_producer_epoch=NO_PRODUCER_EPOCH,
    )


def completed(stored: Transaction, now_ms: int) -> Transaction:
    """Return the state after the last marker; a next producer id takes effect now (T8)."""
    is_commit = stored.phase is TransactionPhase.PREPARE_COMMIT
    producer_id, producer_epoch = stored.next_identity
    return replace(
        stored,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        previous_producer_id=stored.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        phase=TransactionPhase.COMPLETE_COMMIT if is_commit else TransactionPhase.COMPLETE_ABORT,
        partitions=frozenset(),
        updated_ms=now_ms,
    )
