"""Adding partitions to a transaction, and verifying them for leaders (T16, T24 to T27, table 2).

A leader verifies a partition before it lets the first batch of a transaction into its log.
"""

from __future__ import annotations

from typing import Any

from tidelog.core.errors import ErrorCode
from tidelog.txn import transitions
from tidelog.txn.asked import TransactionAsked, added
from tidelog.txn.records import Transaction
from tidelog.txn.states import TransactionPhase
from tidelog.txn.turn import Coordinated, Purpose, TransactionTurn
from tidelog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnTransaction


def add(
    turn: TransactionTurn, coordinated: Coordinated | None, asked: TransactionAsked[Any]
) -> None:
    """Decide an AddPartitionsToTxn without `verify_only`, or an AddOffsetsToTxn."""
    if coordinated is None or coordinated.stored is None:
        turn.refuse(asked, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return
    stored, pending = coordinated.stored, coordinated.pending
    if pending is not None:
        if pending.purpose is Purpose.ADD and not pending.is_overdue and _fits(asked, stored):
            coordinated.waiting = (*coordinated.waiting, asked)
        else:
            turn.refuse(asked, ErrorCode.CONCURRENT_TRANSACTIONS)
        return
    error = _error(asked, stored)
    if error is not ErrorCode.NONE:
        turn.refuse(asked, error)
    elif stored.phase is TransactionPhase.ONGOING and asked.named_partitions <= stored.partitions:
        turn.reply(asked, added(asked))
    else:
        value = transitions.with_partitions(stored, asked.named_partitions, turn.now.wall_ms)
        if len(value.partitions) > turn.settings.max_partitions:
            turn.refuse(asked, ErrorCode.POLICY_VIOLATION)
        else:
            turn.append(coordinated, value, Purpose.ADD, asked)


def verify(
    turn: TransactionTurn,
    coordinated: Coordinated | None,
    asked: TransactionAsked[AddPartitionsToTxnTransaction],
) -> None:
    """Answer whether partitions belong to a transaction; a pending add does not count (T27)."""
    stored = None if coordinated is None else coordinated.stored
    if stored is None:
        turn.refuse(asked, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return
    error = _error(asked, stored)
    if error is not ErrorCode.NONE:
        turn.refuse(asked, error)
        return
    errors = dict.fromkeys(
        sorted(asked.named_partitions - stored.partitions), ErrorCode.TRANSACTION_ABORTABLE
    )
    turn.reply(asked, added(asked, errors))


def _identity(asked: TransactionAsked[Any]) -> tuple[int, int]:
    return asked.message.producer_id, asked.message.producer_epoch


def _fits(asked: TransactionAsked[Any], stored: Transaction) -> bool:
    return _identity(asked) == (stored.producer_id, stored.producer_epoch)


def _error(asked: TransactionAsked[Any], stored: Transaction) -> ErrorCode:
    """Return the error of a request with a wrong identity or a decided transaction (table 2)."""
    producer_id, producer_epoch = _identity(asked)
    if producer_id != stored.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if producer_epoch != stored.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.CONCURRENT_TRANSACTIONS if stored.phase.is_prepared else ErrorCode.NONE
