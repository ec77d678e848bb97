"""Random walks of transactional ids (tests.unit.txn.txn_walks.py), and proof that they notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from tests.support.draws import for_draws
from tests.unit.txn.txn_walks import TxnWalk

from tidelog.core.errors import ErrorCode, InvariantError
from tidelog.txn import adding, ending, initialising, settling, transitions
from tidelog.txn.asked import ended
from tidelog.txn.initialising import Expectation
from tidelog.txn.partition import TransactionPartition
from tidelog.txn.records import Transaction
from tidelog.txn.states import TransactionPhase
from tidelog.txn.turn import Coordinated, PendingTransition, Purpose, TransactionTurn

STEPS = 400
#: Walks after which a broken rule must have been noticed.
WALKS = 60


def test_transactions_keep_their_promises_whatever_happens() -> None:
    seen: dict[str, int] = {}

    def check(random: Random) -> None:
        walk = TxnWalk(random)
        walk.walk(STEPS)
        for what, count in walk.seen.items():
            seen[what] = seen.get(what, 0) + count

    for_draws(40, "transaction walks", check)
    usual = ("add", "commit", "abort", "rotation", "failover", "late", "refused", "completion")
    assert {what: seen.get(what, 0) for what in usual if seen.get(what, 0) < 5} == {}


# Rules taken away one by one, by the names of Kafka's faults.


def marker_before_decision(patch: pytest.MonkeyPatch) -> None:
    append = TransactionTurn.append

    def early(
        turn: TransactionTurn,
        coordinated: Coordinated,
        value: Any,
        purpose: Purpose,
        asked: Any = None,
    ) -> None:
        append(turn, coordinated, value, purpose, asked)
        if value is not None and value.phase.is_prepared and value.partitions:
            stored, coordinated.stored = coordinated.stored, value
            coordinated.unmarked = set(value.partitions)
            turn.send_markers(coordinated)
            coordinated.stored = stored

    patch.setattr(TransactionTurn, "append", early)


def answered_before_decision(patch: pytest.MonkeyPatch) -> None:
    append = TransactionTurn.append

    def early(
        turn: TransactionTurn,
        coordinated: Coordinated,
        value: Any,
        purpose: Purpose,
        asked: Any = None,
    ) -> None:
        if purpose is Purpose.END:
            turn.reply(asked, ended(asked, *value.next_identity))
            asked = None
        append(turn, coordinated, value, purpose, asked)

    patch.setattr(TransactionTurn, "append", early)


def complete_before_markers(patch: pytest.MonkeyPatch) -> None:
    def early(turn: TransactionTurn, coordinated: Coordinated, partitions: Any) -> None:
        if coordinated.pending is None and len(coordinated.unmarked - partitions) <= 1:
            coordinated.unmarked = set()
            settling._complete(turn, coordinated)
        coordinated.unmarked -= partitions

    patch.setattr(settling, "marked", early)


def open_append_forgotten(patch: pytest.MonkeyPatch) -> None:
    timed_out = settling.timed_out

    def forgetful(turn: TransactionTurn, number: int, error: ErrorCode) -> None:
        timed_out(turn, number, error)
        turn.ids[turn.ledger.transactional_id_of(number)].pending = None

    patch.setattr(settling, "timed_out", forgetful)


def end_without_raise(patch: pytest.MonkeyPatch) -> None:
    raising = transitions.decided_with_raise

    def same(stored: Transaction, *rest: Any) -> Transaction:
        return replace(raising(stored, *rest), producer_epoch=stored.producer_epoch)

    patch.setattr(transitions, "decided_with_raise", same)


def epoch_not_rotated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(transitions, "needs_id_to_decide", lambda stored: False)


def rotation_answers_old_id(patch: pytest.MonkeyPatch) -> None:
    def old(stored: Transaction) -> tuple[int, int]:
        return stored.producer_id, 0 if stored.next_producer_id != -1 else stored.producer_epoch

    patch.setattr(
        settling,
        "_answer",
        lambda asked, value, purpose: (
            ended(asked, *old(value)) if purpose is Purpose.END else ANSWER(asked, value, purpose)
        ),
    )


ANSWER = settling._answer


def _replays_without(patch: pytest.MonkeyPatch, **defaults: Any) -> None:
    replay = TransactionPartition.replay

    def forgetful(partition: TransactionPartition, record: Any) -> None:
        value = record.value
        replay(partition, replace(record, value=value and replace(value, **defaults)))

    patch.setattr(TransactionPartition, "replay", forgetful)


def rotation_not_logged(patch: pytest.MonkeyPatch) -> None:
    _replays_without(patch, next_producer_id=-1)


def last_epoch_not_logged(patch: pytest.MonkeyPatch) -> None:
    _replays_without(patch, last_producer_epoch=-1)


def raised_without_record(patch: pytest.MonkeyPatch) -> None:
    failed = settling.failed

    def raising(turn: TransactionTurn, number: int, error: ErrorCode) -> None:
        coordinated = turn.ids[turn.ledger.transactional_id_of(number)]
        pending = coordinated.pending
        failed(turn, number, error)
        if coordinated.stored is not None and pending is not None and pending.value is not None:
            epoch = pending.value.producer_epoch
            coordinated.stored = replace(coordinated.stored, producer_epoch=epoch)

    patch.setattr(settling, "failed", raising)


def stale_init_aborts(patch: pytest.MonkeyPatch) -> None:
    expectation_of = initialising.expectation_of

    def lenient(message: Any, stored: Transaction) -> Expectation:
        found = expectation_of(message, stored)
        is_ongoing = stored.phase is TransactionPhase.ONGOING
        return Expectation.CURRENT if is_ongoing else found

    patch.setattr(initialising, "expectation_of", lenient)


def stale_end_is_served(patch: pytest.MonkeyPatch) -> None:
    def lenient(message: Any, stored: Transaction) -> bool:
        return bool(message.producer_id == stored.producer_id)

    patch.setattr(ending, "is_retry", lenient)


def any_epoch_adds(patch: pytest.MonkeyPatch) -> None:
    error_of = adding._error

    def lenient(asked: Any, stored: Transaction) -> ErrorCode:
        error = error_of(asked, stored)
        return ErrorCode.NONE if error is ErrorCode.PRODUCER_FENCED else error

    patch.setattr(adding, "_error", lenient)


def add_confirmed_while_pending(patch: pytest.MonkeyPatch) -> None:
    append = TransactionTurn.append

    def early(
        turn: TransactionTurn,
        coordinated: Coordinated,
        value: Any,
        purpose: Purpose,
        asked: Any = None,
    ) -> None:
        if purpose is Purpose.ADD:
            turn.reply(asked, ANSWER(asked, value, purpose))
            asked = None
        append(turn, coordinated, value, purpose, asked)

    patch.setattr(TransactionTurn, "append", early)


def completion_tried_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(settling, "complete_again", lambda turn, coordinated: None)


def waiting_adds_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(settling, "_decide_waiting", lambda turn, coordinated: None)


def two_transitions_at_once(patch: pytest.MonkeyPatch) -> None:
    take = settling._take

    def lenient(
        turn: TransactionTurn, number: int, *, in_order: bool
    ) -> tuple[Coordinated, PendingTransition]:
        found = take(turn, number, in_order=in_order)
        found[0].pending = None
        return found

    add = adding.add

    def overlapping(turn: TransactionTurn, coordinated: Coordinated | None, asked: Any) -> None:
        if coordinated is not None:
            coordinated.pending = None
        add(turn, coordinated, asked)

    patch.setattr(settling, "_take", lenient)
    patch.setattr(adding, "add", overlapping)


BROKEN: list[Callable[[pytest.MonkeyPatch], None]] = [
    marker_before_decision,
    answered_before_decision,
    complete_before_markers,
    open_append_forgotten,
    end_without_raise,
    epoch_not_rotated,
    rotation_answers_old_id,
    rotation_not_logged,
    last_epoch_not_logged,
    raised_without_record,
    stale_init_aborts,
    stale_end_is_served,
    any_epoch_adds,
    add_confirmed_while_pending,
    completion_tried_once,
    waiting_adds_are_forgotten,
    two_transitions_at_once,
]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_a_broken_rule_is_noticed(
    broken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    for number in range(WALKS):
        try:
            TxnWalk(Random(f"{broken.__name__} {number}")).walk(STEPS)
        except (AssertionError, InvariantError, KeyError):
            return
    pytest.fail(f"{WALKS} walks did not notice {broken.__name__}")
