"""EndTxn, and aborts by the coordinator itself (T17 to T22, tables 3 and 4).

From version 5 on, EndTxn raises the producer's epoch, so that nothing of one transaction can reach
the next one.
"""

from __future__ import annotations

from typing import Any

from tidelog.core.errors import ErrorCode
from tidelog.txn import transitions
from tidelog.txn.asked import RAISING_END_VERSION, TransactionAsked, ended
from tidelog.txn.records import (
    EXHAUSTED_EPOCH,
    MAX_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    RAISING_VERSION,
    Transaction,
)
from tidelog.txn.settings import RAISING_LEVEL
from tidelog.txn.states import TransactionPhase
from tidelog.txn.turn import Coordinated, Purpose, TransactionTurn
from tidelog.wire.messages.end_txn import EndTxnRequest

#: The state after the decision of a transaction; the key is True for a commit. _COMPLETE has the
#: state after the last marker.
_PREPARED = {True: TransactionPhase.PREPARE_COMMIT, False: TransactionPhase.PREPARE_ABORT}
_COMPLETE = {True: TransactionPhase.COMPLETE_COMMIT, False: TransactionPhase.COMPLETE_ABORT}


def end(
    turn: TransactionTurn, coordinated: Coordinated | None, asked: TransactionAsked[EndTxnRequest]
) -> None:
    """Decide an EndTxn, up to version 4 by table 3 and from version 5 on by table 4 (T17).

    The cluster's `transaction.version` has no effect on the choice of the table.
    """
    if coordinated is None or coordinated.stored is None:
        turn.refuse(asked, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    elif asked.version < RAISING_END_VERSION:
        _end_plainly(turn, coordinated, coordinated.stored, asked)
    else:
        _end_with_raise(turn, coordinated, coordinated.stored, asked)


def _end_plainly(
    turn: TransactionTurn,
    coordinated: Coordinated,
    stored: Transaction,
    asked: TransactionAsked[EndTxnRequest],
) -> None:
    """Decide an EndTxn up to version 4 by table 3."""
    message = asked.message
    phase = stored.phase
    if message.producer_id != stored.producer_id:
        turn.refuse(asked, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    elif message.producer_epoch != stored.producer_epoch:
        turn.refuse(asked, ErrorCode.PRODUCER_FENCED)
    elif coordinated.pending is not None:
        turn.refuse(asked, ErrorCode.CONCURRENT_TRANSACTIONS)
    elif phase is TransactionPhase.ONGOING:
        value = transitions.decided(stored, _PREPARED[message.committed], turn.now.wall_ms)
        turn.append(coordinated, value, Purpose.END, asked)
    elif phase is _PREPARED[message.committed]:
        turn.refuse(asked, ErrorCode.CONCURRENT_TRANSACTIONS)
    elif phase is _COMPLETE[message.committed]:
        turn.reply(asked, ended(asked, stored.producer_id, stored.producer_epoch))
    else:
        turn.refuse(asked, ErrorCode.INVALID_TXN_STATE)


def is_retry(message: EndTxnRequest, stored: Transaction) -> bool:
    """Return whether an EndTxn may be the repetition of one that has raised the epoch (table 4).

    A retry names the epoch before the raise, so the decision of the stored state must have raised
    the epoch. Without this condition, a fenced producer's EndTxn could succeed after its successor
    ended a transaction by an earlier version of EndTxn, and would get the successor's identity.
    """
    if stored.client_version != RAISING_VERSION:
        return False
    if message.producer_id == stored.producer_id:
        return message.producer_epoch == stored.producer_epoch - 1 >= 0
    return (
        message.producer_id == stored.previous_producer_id
        and message.producer_epoch == EXHAUSTED_EPOCH
        and stored.producer_epoch == 0
    )


def _end_with_raise(
    turn: TransactionTurn,
    coordinated: Coordinated,
    stored: Transaction,
    asked: TransactionAsked[EndTxnRequest],
) -> None:
    """Decide an EndTxn from version 5 on by table 4."""
    message = asked.message
    repeats = is_retry(message, stored)
    if coordinated.pending is not None:
        turn.refuse(asked, ErrorCode.CONCURRENT_TRANSACTIONS)
    elif repeats:
        _end_again(turn, stored, asked)
    elif message.producer_id != stored.producer_id:
        turn.refuse(asked, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    elif message.producer_epoch != stored.producer_epoch or stored.phase.is_prepared:
        turn.refuse(asked, ErrorCode.PRODUCER_FENCED)
    elif stored.producer_epoch == MAX_PRODUCER_EPOCH:
        # No producer was ever given this epoch (T9).
        turn.refuse(asked, ErrorCode.PRODUCER_FENCED)
    elif stored.phase.is_settled and message.committed:
        turn.refuse(asked, ErrorCode.INVALID_TXN_STATE)
    else:
        _decide_with_raise(turn, coordinated, stored, asked)


def _end_again(
    turn: TransactionTurn, stored: Transaction, asked: TransactionAsked[EndTxnRequest]
) -> None:
    """Answer the repetition of an EndTxn by the columns "retry" of table 4."""
    is_commit, phase = asked.message.committed, stored.phase
    if phase in (TransactionPhase.EMPTY, TransactionPhase.ONGOING):
        turn.refuse(asked, ErrorCode.PRODUCER_FENCED)
    elif phase is _PREPARED[is_commit]:
        turn.refuse(asked, ErrorCode.CONCURRENT_TRANSACTIONS)
    elif phase is not _COMPLETE[is_commit]:
        turn.refuse(asked, ErrorCode.INVALID_TXN_STATE)
    elif stored.producer_epoch == MAX_PRODUCER_EPOCH:
        # Below `transaction.version` 2, the coordinator fences the last epoch by the highest one,
        # without a new producer id. No producer may use the highest epoch (T9), so this producer
        # needs an InitProducerId.
        turn.refuse(asked, ErrorCode.PRODUCER_FENCED)
    else:
        turn.reply(asked, ended(asked, stored.producer_id, stored.producer_epoch))


def _decide_with_raise(
    turn: TransactionTurn,
    coordinated: Coordinated,
    stored: Transaction,
    asked: TransactionAsked[EndTxnRequest],
) -> None:
    """Append the decision of an EndTxn from version 5 on.

    If the epoch is exhausted, the decision waits until the broker has a new producer id.
    """
    needs_id = transitions.needs_id_to_decide(stored)
    if needs_id and turn.fresh_id is None:
        turn.want_id(coordinated, asked)
        return
    value = transitions.decided_with_raise(
        stored,
        _PREPARED[asked.message.committed],
        _next_id(turn, needs_id=needs_id),
        turn.now.wall_ms,
    )
    turn.append(coordinated, value, Purpose.END, asked)


def abort(
    turn: TransactionTurn,
    coordinated: Coordinated,
    stored: Transaction,
    asked: TransactionAsked[Any] | None = None,
) -> None:
    """Abort an ongoing transaction on the coordinator's own decision (T22).

    `asked` is the InitProducerId of the next producer; it gets CONCURRENT_TRANSACTIONS when the
    abort is decided. The abort raises the epoch once, whatever `transaction.version` is (T10).
    """
    if turn.level < RAISING_LEVEL:
        value = transitions.fenced(stored, turn.now.wall_ms)
    else:
        needs_id = transitions.needs_id_to_decide(stored)
        if needs_id and turn.fresh_id is None:
            turn.want_id(coordinated, asked)
            return
        value = transitions.decided_with_raise(
            stored,
            TransactionPhase.PREPARE_ABORT,
            _next_id(turn, needs_id=needs_id),
            turn.now.wall_ms,
        )
    turn.append(coordinated, value, Purpose.FENCE, asked)


def _next_id(turn: TransactionTurn, *, needs_id: bool) -> int:
    if not needs_id:
        return NO_PRODUCER_ID
    assert turn.fresh_id is not None, "a decision takes its producer id first (T5)"
    return turn.fresh_id
