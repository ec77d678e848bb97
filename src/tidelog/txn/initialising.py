"""InitProducerId: the identity of a transactional producer, and the fence of earlier ones.

The rules are T3 to T11, with table 1.
"""

from __future__ import annotations

from enum import Enum

from tidelog.core.errors import ErrorCode
from tidelog.core.limits import MAX_TRANSACTIONAL_ID_CHARS
from tidelog.txn import transitions
from tidelog.txn.asked import TransactionAsked
from tidelog.txn.ending import abort
from tidelog.txn.records import (
    EXHAUSTED_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Transaction,
)
from tidelog.txn.settings import TransactionSettings
from tidelog.txn.states import TransactionPhase
from tidelog.txn.turn import Coordinated, Purpose, TransactionTurn
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest


class Expectation(Enum):
    """What an InitProducerId expects the stored identity to be: a column of table 1."""

    NOTHING = "nothing"
    CURRENT = "current"
    #: The identity before the last raise: the request may be a repetition (KIP-360).
    LAST = "last"
    OTHER = "other"


def invalid(message: InitProducerIdRequest, settings: TransactionSettings) -> ErrorCode:
    """Return why no coordinator would serve a request, NONE if one may (T3, T83).

    The request has a transactional id, which may be "".
    """
    transactional_id = message.transactional_id or ""
    if (message.producer_id == NO_PRODUCER_ID) != (message.producer_epoch == NO_PRODUCER_EPOCH):
        return ErrorCode.INVALID_REQUEST
    if not 0 < len(transactional_id) <= MAX_TRANSACTIONAL_ID_CHARS:
        return ErrorCode.INVALID_REQUEST
    if not 0 < message.transaction_timeout_ms <= settings.max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


def expectation_of(message: InitProducerIdRequest, stored: Transaction) -> Expectation:
    """Return the column of table 1 to which a request belongs."""
    expected = (message.producer_id, message.producer_epoch)
    if expected == (NO_PRODUCER_ID, NO_PRODUCER_EPOCH):
        return Expectation.NOTHING
    if expected == (stored.producer_id, stored.producer_epoch):
        return Expectation.CURRENT
    last = stored.last_producer_epoch
    if last != NO_PRODUCER_EPOCH and (
        expected == (stored.producer_id, last)
        or (last >= EXHAUSTED_EPOCH and expected == (stored.previous_producer_id, last))
    ):
        return Expectation.LAST
    return Expectation.OTHER


def initialise(
    turn: TransactionTurn,
    coordinated: Coordinated | None,
    asked: TransactionAsked[InitProducerIdRequest],
) -> None:
    """Decide an InitProducerId by table 1; `coordinated` is None for an unknown id."""
    message = asked.message
    timeout_ms, now_ms = message.transaction_timeout_ms, turn.now.wall_ms
    if coordinated is not None and coordinated.pending is not None:
        turn.refuse(asked, ErrorCode.CONCURRENT_TRANSACTIONS)
    elif coordinated is None or coordinated.stored is None:
        if coordinated is None and len(turn.ids) >= turn.settings.max_ids:
            turn.refuse(asked, ErrorCode.POLICY_VIOLATION)
            return
        coordinated = coordinated or Coordinated(asked.transactional_id)
        if turn.fresh_id is None:
            turn.want_id(coordinated, asked)
            return
        turn.ids[asked.transactional_id] = coordinated
        value = transitions.first(turn.fresh_id, timeout_ms, now_ms)
        turn.append(coordinated, value, Purpose.INITIALISE, asked)
    else:
        _continue(turn, coordinated, coordinated.stored, asked)


def _continue(
    turn: TransactionTurn,
    coordinated: Coordinated,
    stored: Transaction,
    asked: TransactionAsked[InitProducerIdRequest],
) -> None:
    """Decide an InitProducerId of a known id without a pending transition."""
    expectation = expectation_of(asked.message, stored)
    # Compared before anything is aborted: a fenced producer must not end its successor's
    # transaction (T6).
    if expectation is Expectation.OTHER:
        turn.refuse(asked, ErrorCode.PRODUCER_FENCED)
    elif stored.phase.is_prepared:
        turn.refuse(asked, ErrorCode.CONCURRENT_TRANSACTIONS)
    elif stored.phase is TransactionPhase.ONGOING:
        abort(turn, coordinated, stored, asked)
    else:
        _give_identity(turn, coordinated, stored, asked, expectation)


def _give_identity(
    turn: TransactionTurn,
    coordinated: Coordinated,
    stored: Transaction,
    asked: TransactionAsked[InitProducerIdRequest],
    expectation: Expectation,
) -> None:
    """Give the producer of an id without a transaction its next identity."""
    timeout_ms, now_ms = asked.message.transaction_timeout_ms, turn.now.wall_ms
    is_expected = expectation is Expectation.CURRENT
    if expectation is Expectation.LAST:
        value = transitions.repeated(stored, timeout_ms, now_ms)
    elif not stored.is_exhausted:
        value = transitions.raised(stored, timeout_ms, now_ms, is_expected=is_expected)
    elif turn.fresh_id is None:
        turn.want_id(coordinated, asked)
        return
    else:
        value = transitions.rotated(
            stored, turn.fresh_id, timeout_ms, now_ms, is_expected=is_expected
        )
    turn.append(coordinated, value, Purpose.INITIALISE, asked)
