"""The states of a transaction, and the transitions that its coordinator may make (T12, T13).

A transition outside this table is a fault of the coordinator, and raises InvariantError.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from tidelog.core.errors import InvariantError


class TransactionPhase(IntEnum):
    """The state of a transactional id, with the number that records of `__transaction_state` have.

    DEAD and PREPARE_EPOCH_FENCE are never written: they are names that Kafka's clients may use as a
    filter of ListTransactions.
    """

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """The name of the state in responses and in tools, for example PrepareCommit."""
        return _TITLES[self]

    @property
    def is_prepared(self) -> bool:
        """Whether the transaction is decided, and markers are still to be written."""
        return self in (TransactionPhase.PREPARE_COMMIT, TransactionPhase.PREPARE_ABORT)

    @property
    def is_settled(self) -> bool:
        """Whether the transactional id has no transaction."""
        return self in _SETTLED


_TITLES: Final = {
    phase: "".join(word.capitalize() for word in phase.name.split("_"))
    for phase in TransactionPhase
}
_SETTLED: Final = frozenset(
    {
        TransactionPhase.EMPTY,
        TransactionPhase.COMPLETE_COMMIT,
        TransactionPhase.COMPLETE_ABORT,
    }
)
#: The states by their names in requests.
BY_TITLE: Final = {phase.title: phase for phase in TransactionPhase}
#: For each state: the states from which a transactional id may go to this state.
_FORMER: Final = {
    TransactionPhase.EMPTY: _SETTLED,
    TransactionPhase.ONGOING: _SETTLED | {TransactionPhase.ONGOING},
    TransactionPhase.PREPARE_COMMIT: frozenset({TransactionPhase.ONGOING}),
    TransactionPhase.PREPARE_ABORT: frozenset({TransactionPhase.ONGOING}),
    TransactionPhase.COMPLETE_COMMIT: frozenset({TransactionPhase.PREPARE_COMMIT}),
    TransactionPhase.COMPLETE_ABORT: frozenset({TransactionPhase.PREPARE_ABORT}),
}


def check_transition(former: TransactionPhase, phase: TransactionPhase, *, raises: bool) -> None:
    """Raise InvariantError if a coordinator must not go from `former` to `phase` (T13).

    `raises` means that an abort raises the epoch of a producer that has no transaction (table 4).
    """
    if former in _FORMER.get(phase, ()):
        return
    if raises and phase is TransactionPhase.PREPARE_ABORT and former in _SETTLED:
        return
    raise InvariantError(f"a transaction does not go from {former.title} to {phase.title} (T13)")
