"""Timeouts of transactions and expiry of ids (T61 to T63)."""

from __future__ import annotations

import pytest
from tests.unit.txn.txn_harness import (
    FRESH_ID,
    IN_0,
    PRODUCER_ID,
    START_MS,
    TIMEOUT_MS,
    TxnHarness,
    stored,
)

from tidelog.core.coordinator_shard import CoordinatorAppend, SetTimer
from tidelog.core.errors import ErrorCode
from tidelog.txn.effects import NeedProducerId, TransactionTimer, TransactionTimerKind
from tidelog.txn.settings import TransactionSettings
from tidelog.txn.states import TransactionPhase

Phase = TransactionPhase
TIMEOUTS = TransactionTimer(TransactionTimerKind.TIMEOUTS)
EXPIRY = TransactionTimer(TransactionTimerKind.EXPIRY)
WEEK_MS = TransactionSettings().id_expiration_ms


def fire(harness: TxnHarness, timer: TransactionTimer) -> None:
    harness.take(harness.coordinator.timer_fired(timer, 0, harness.now))


def ongoing(epoch: int = 3, *, level: int = 2, gives_ids: bool = True) -> TxnHarness:
    state = stored(Phase.ONGOING, epoch=epoch, partitions=[IN_0], started_ms=START_MS)
    return TxnHarness(state, level=level, gives_ids=gives_ids)


def test_timers_are_set_at_the_load_and_again_when_they_fire() -> None:
    harness = TxnHarness()
    timers = [each for each in harness.effects if isinstance(each, SetTimer)]
    assert timers == [
        SetTimer(TIMEOUTS, START_MS + 10_000),
        SetTimer(EXPIRY, START_MS + 3_600_000),
    ]
    harness.now_ms += 5
    for timer, interval_ms in ((TIMEOUTS, 10_000), (EXPIRY, 3_600_000)):
        fire(harness, timer)
        assert harness.effects[-1] == SetTimer(timer, harness.now_ms + interval_ms)


def test_a_transaction_older_than_its_timeout_is_aborted() -> None:
    harness = ongoing()
    harness.now_ms = START_MS + TIMEOUT_MS
    fire(harness, TIMEOUTS)
    assert not harness.uncommitted
    harness.now_ms += 1
    fire(harness, TIMEOUTS)
    fire(harness, TIMEOUTS)
    assert len(harness.uncommitted) == 1, "one abort"
    harness.commit()
    assert (harness.state.phase, harness.state.producer_epoch) == (Phase.PREPARE_ABORT, 4)
    harness.mark(IN_0)
    harness.commit()
    retry = harness.end(commits=False)
    assert harness.error(retry) is ErrorCode.NONE, "the producer's abort is a retry (T62)"
    assert harness.answers[retry].producer_epoch == 4
    assert harness.error(harness.end(commits=True)) is ErrorCode.INVALID_TXN_STATE


def test_below_level_2_the_producer_is_fenced_after_a_timeout() -> None:
    harness = ongoing(level=1)
    harness.now_ms += TIMEOUT_MS + 1
    fire(harness, TIMEOUTS)
    harness.commit()
    harness.mark(IN_0)
    harness.commit()
    for commits in (True, False):
        ticket = harness.end(commits=commits, version=4)
        assert harness.error(ticket) is ErrorCode.PRODUCER_FENCED


def test_an_abort_that_needs_a_producer_id_is_decided_when_it_comes() -> None:
    harness = ongoing(32_766, gives_ids=False)
    harness.now_ms += TIMEOUT_MS + 1
    fire(harness, TIMEOUTS)
    fire(harness, TIMEOUTS)
    (want,) = [each.number for each in harness.effects if isinstance(each, NeedProducerId)]
    harness.take(harness.coordinator.producer_id_given(want, None, harness.now))
    assert not harness.uncommitted
    fire(harness, TIMEOUTS)
    harness.give_id(want + 1)
    harness.commit()
    assert harness.state.next_producer_id == FRESH_ID


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_producer_id_that_comes_late_aborts_nothing_else(is_gone: bool) -> None:
    harness = ongoing(32_766, gives_ids=False)
    harness.now_ms += TIMEOUT_MS + 1
    fire(harness, TIMEOUTS)
    (want,) = [each.number for each in harness.effects if isinstance(each, NeedProducerId)]
    harness.end(commits=True, identity=(PRODUCER_ID, 32_766), version=4)
    harness.commit()
    if is_gone:
        harness.coordinator.ids.clear()
    before = len(harness.effects)
    harness.give_id(want)
    assert len(harness.effects) == before


@pytest.mark.parametrize("phase", list(Phase)[:6])
def test_only_settled_ids_expire(phase: Phase) -> None:
    harness = TxnHarness(stored(phase, partitions=[IN_0], started_ms=START_MS))
    harness.now_ms = START_MS + WEEK_MS - 1
    fire(harness, EXPIRY)
    assert not harness.uncommitted
    harness.now_ms += 1
    fire(harness, EXPIRY)
    fire(harness, EXPIRY)
    assert len(harness.uncommitted) == phase.is_settled
    if phase.is_settled:
        assert harness.uncommitted[0].records[0].value is None
        assert harness.error(harness.initialise()) is ErrorCode.CONCURRENT_TRANSACTIONS
        harness.commit()
        assert harness.coordinator.size == 0


def test_an_id_is_back_if_its_tombstone_could_not_be_appended() -> None:
    harness = TxnHarness(stored())
    harness.now_ms = START_MS + WEEK_MS
    fire(harness, EXPIRY)
    harness.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert harness.coordinator.size == 1
    harness.initialise()
    assert any(isinstance(each, CoordinatorAppend) for each in harness.effects)
    fresh = TxnHarness()
    fresh.initialise()
    fire(fresh, EXPIRY)
    fire(fresh, TIMEOUTS)
    assert len(fresh.uncommitted) == 1, "an id whose first record is pending is left alone"
