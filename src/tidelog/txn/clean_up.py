"""Transactions that are older than their timeout, and ids that are not used (T61 to T63).

A clock that jumps may abort a transaction early, and never commits one.
"""

from __future__ import annotations

from tidelog.txn.ending import abort
from tidelog.txn.states import TransactionPhase
from tidelog.txn.turn import Coordinated, Purpose, TransactionTurn


def has_timed_out(coordinated: Coordinated, wall_ms: int) -> bool:
    """Return whether an ongoing transaction is to be aborted (T61)."""
    stored = coordinated.stored
    return (
        stored is not None
        and coordinated.pending is None
        and stored.phase is TransactionPhase.ONGOING
        and stored.started_ms + stored.timeout_ms < wall_ms
    )


def abort_timed_out(turn: TransactionTurn) -> None:
    """Abort each transaction that is older than its timeout, unless its abort is under way."""
    wanted = {want.transactional_id for want in turn.ledger.wants.values()}
    for coordinated in tuple(turn.ids.values()):
        is_due = has_timed_out(coordinated, turn.now.wall_ms)
        if is_due and coordinated.transactional_id not in wanted:
            stored = coordinated.stored
            assert stored is not None, "an id with a transaction has a stored state"
            abort(turn, coordinated, stored)


def remove_unused(turn: TransactionTurn) -> None:
    """Append tombstones of ids without a transaction whose last change is long ago (T63)."""
    oldest_ms = turn.now.wall_ms - turn.settings.id_expiration_ms
    for coordinated in tuple(turn.ids.values()):
        stored = coordinated.stored
        if (
            stored is not None
            and coordinated.pending is None
            and stored.phase.is_settled
            and stored.updated_ms <= oldest_ms
        ):
            turn.append(coordinated, None, Purpose.EXPIRE)
