"""The handling of the outcome of an append: committed, failed, or not replicated in time.

When a record is committed, its state becomes the stored state, and the answers that waited for it
are sent. A record that failed is not in the log and never will be, so the stored state stays. A
record that is overdue stays pending, because it may still be committed (T15).
"""

from __future__ import annotations

from typing import Any, Final

from tidelog.core.errors import ErrorCode, InvariantError
from tidelog.core.types import TopicPartition
from tidelog.txn import adding, transitions
from tidelog.txn.asked import TransactionAsked, added, ended, initialised
from tidelog.txn.effects import TransactionTimer, TransactionTimerKind
from tidelog.txn.records import Transaction
from tidelog.txn.turn import Coordinated, PendingTransition, Purpose, TransactionTurn

#: Errors of an append after which the client should try the same coordinator again.
_UNAVAILABLE: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
)
#: Errors of an append after which the client should look for the coordinator again.
_MOVED: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
_TOO_LARGE: Final = (
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.INVALID_FETCH_SIZE,
)


def append_error(error: ErrorCode, purpose: Purpose) -> ErrorCode:
    """Return the error for a client whose transition could not be appended (table 5, T83)."""
    if error in _UNAVAILABLE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error in _MOVED:
        return ErrorCode.NOT_COORDINATOR
    if error in _TOO_LARGE:
        is_add = purpose is Purpose.ADD
        return ErrorCode.POLICY_VIOLATION if is_add else ErrorCode.UNKNOWN_SERVER_ERROR
    return error


def _take(
    turn: TransactionTurn, number: int, *, in_order: bool
) -> tuple[Coordinated, PendingTransition]:
    """Remove the append with this number, and return it with its transactional id.

    With `in_order`, raises InvariantError unless all earlier appends have an outcome.
    """
    transactional_id = turn.ledger.transactional_id_of(number)
    if in_order and number != next(iter(turn.ledger.appends)):
        raise InvariantError(f"append {number} is committed before an earlier one is settled")
    del turn.ledger.appends[number]
    coordinated = turn.ids[transactional_id]
    pending = coordinated.pending
    assert pending is not None and pending.number == number, "an append is pending (T14)"
    coordinated.pending = None
    return coordinated, pending


def committed(turn: TransactionTurn, number: int) -> None:
    """Apply an append that the high watermark has passed (T55).

    Raises InvariantError if an earlier append is not settled yet.
    """
    coordinated, pending = _take(turn, number, in_order=True)
    coordinated.stored = value = pending.value
    if value is None:
        del turn.ids[coordinated.transactional_id]
    else:
        _apply(turn, coordinated, value, pending)
    _decide_waiting(turn, coordinated)


def _apply(
    turn: TransactionTurn, coordinated: Coordinated, value: Transaction, pending: PendingTransition
) -> None:
    asked, purpose = pending.asked, pending.purpose
    if asked is not None:
        if purpose is Purpose.FENCE:
            turn.refuse(asked, ErrorCode.CONCURRENT_TRANSACTIONS)
        else:
            turn.reply(asked, _answer(asked, value, purpose))
    if value.phase.is_prepared:
        resume(turn, coordinated)


def resume(turn: TransactionTurn, coordinated: Coordinated) -> None:
    """Have the markers of a decided transaction written, or complete it if it has no partition."""
    stored = coordinated.stored
    assert stored is not None and stored.phase.is_prepared, "markers follow a decision (T50)"
    coordinated.unmarked = set(stored.partitions)
    if coordinated.unmarked:
        turn.send_markers(coordinated)
    else:
        _complete(turn, coordinated)


def _answer(asked: TransactionAsked[Any], value: Transaction, purpose: Purpose) -> Any:
    """Return the answer to a request whose record is committed."""
    if purpose is Purpose.INITIALISE:
        return initialised(value.producer_id, value.producer_epoch)
    if purpose is Purpose.ADD:
        return added(asked)
    assert purpose is Purpose.END, "no request waits for a complete transaction or its id's end"
    return ended(asked, *value.next_identity)


def failed(turn: TransactionTurn, number: int, error: ErrorCode) -> None:
    """Drop an append whose record will never be in the log."""
    coordinated, pending = _take(turn, number, in_order=False)
    turn.refuse(pending.asked, append_error(error, pending.purpose))
    if coordinated.stored is None:
        del turn.ids[coordinated.transactional_id]
    elif pending.purpose is Purpose.COMPLETE:
        # All markers are written, so the coordinator repeats the append until it succeeds (T51).
        timer = TransactionTimer(TransactionTimerKind.COMPLETION, coordinated.transactional_id)
        turn.set_timer(timer, turn.settings.completion_backoff_ms)
    _decide_waiting(turn, coordinated)


def timed_out(turn: TransactionTurn, number: int, error: ErrorCode) -> None:
    """Answer the requests of an append that is in the log but was not replicated in time (T15)."""
    coordinated = turn.ids[turn.ledger.transactional_id_of(number)]
    pending = coordinated.pending
    assert pending is not None and pending.number == number, "an append is pending (T14)"
    answer = append_error(error, pending.purpose)
    turn.refuse(pending.asked, answer)
    waiting, coordinated.waiting = coordinated.waiting, ()
    for each in waiting:
        turn.refuse(each, answer)
    coordinated.pending = PendingTransition(
        pending.number, pending.value, pending.purpose, None, is_overdue=True
    )


def _decide_waiting(turn: TransactionTurn, coordinated: Coordinated) -> None:
    """Decide the adds that waited for the outcome of another add (T26)."""
    waiting, coordinated.waiting = coordinated.waiting, ()
    for each in waiting:
        adding.add(turn, turn.ids.get(coordinated.transactional_id), each)


def marked(
    turn: TransactionTurn, coordinated: Coordinated, partitions: frozenset[TopicPartition]
) -> None:
    """Note partitions whose marker is written, or that the store no longer has (T42, table 6)."""
    coordinated.unmarked -= partitions
    if not coordinated.unmarked and coordinated.pending is None:
        _complete(turn, coordinated)


def complete_again(turn: TransactionTurn, coordinated: Coordinated | None) -> None:
    """Append the record of a complete transaction again, after it could not be appended (T51)."""
    if (
        coordinated is not None
        and coordinated.pending is None
        and coordinated.stored is not None
        and coordinated.stored.phase.is_prepared
        and not coordinated.unmarked
    ):
        _complete(turn, coordinated)


def _complete(turn: TransactionTurn, coordinated: Coordinated) -> None:
    """Append the record of a complete transaction, after its last marker (T51)."""
    stored = coordinated.stored
    assert stored is not None and not coordinated.unmarked, "every partition is marked (T51)"
    value = transitions.completed(stored, turn.now.wall_ms)
    turn.append(coordinated, value, Purpose.COMPLETE)
