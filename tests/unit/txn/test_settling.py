"""Outcomes of appends, markers, loads and ends of leaderships (T13 to T15, T43, T50 to T57)."""

from __future__ import annotations

import pytest
from tests.unit.txn.txn_harness import (
    ID,
    IN_0,
    IN_1,
    PRODUCER_ID,
    START_MS,
    TxnHarness,
    stored,
)

from tidelog.core.coordinator_shard import CoordinatorPhase, SetTimer
from tidelog.core.errors import ErrorCode, InvariantError
from tidelog.txn.effects import (
    LoadAgain,
    NeedProducerId,
    SendMarkers,
    StopMarkers,
    TransactionTimer,
    TransactionTimerKind,
)
from tidelog.txn.records import TransactionRecord
from tidelog.txn.states import TransactionPhase, check_transition
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest

Phase = TransactionPhase


def decided(leader_epoch: int = 7) -> TxnHarness:
    """Return a coordinator that has loaded a decided commit."""
    state = stored(
        Phase.PREPARE_COMMIT,
        partitions=[IN_0, IN_1],
        started_ms=START_MS,
        client_version=2,
    )
    return TxnHarness(state, leader_epoch=leader_epoch)


def markers(harness: TxnHarness) -> list[SendMarkers]:
    return [each for each in harness.effects if isinstance(each, SendMarkers)]


def test_an_overdue_transition_stays_pending_and_counts_when_it_is_committed() -> None:
    harness = TxnHarness(stored(Phase.ONGOING, partitions=[IN_0], started_ms=START_MS))
    ticket = harness.end(commits=True)
    harness.time_out()
    assert harness.error(ticket) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.error(harness.initialise()) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert not markers(harness), "no marker before the decision is committed (T50)"
    harness.commit(1)
    assert harness.state.phase is Phase.PREPARE_COMMIT and markers(harness)


def test_appends_are_committed_in_order_and_once() -> None:
    harness = TxnHarness()
    for name in (ID, "another"):
        harness.ask(InitProducerIdRequest(name, 1000))
    first, second = harness.uncommitted
    with pytest.raises(InvariantError, match="before an earlier one"):
        harness.coordinator.committed(second.number, harness.now)
    harness.commit()
    with pytest.raises(InvariantError, match="settled already"):
        harness.coordinator.committed(first.number, harness.now)


def test_a_first_record_that_fails_leaves_no_id() -> None:
    harness = TxnHarness()
    ticket = harness.initialise()
    harness.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert harness.error(ticket) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.coordinator.size == 0


def test_a_transaction_is_complete_after_its_last_marker() -> None:
    harness = decided()
    harness.mark(IN_0)
    assert not harness.uncommitted
    (sent,) = markers(harness)
    late = harness.coordinator.marked(ID, sent.number - 1, frozenset({IN_1}), harness.now)
    harness.take(late)
    assert not harness.uncommitted, "a report about an earlier decision says nothing"
    harness.mark(IN_1)
    assert len(harness.uncommitted) == 1
    harness.mark(IN_1)
    harness.commit()
    assert harness.state.phase is Phase.COMPLETE_COMMIT
    harness.mark(IN_1)
    assert not harness.uncommitted


def test_the_record_of_a_complete_transaction_is_appended_until_it_is_in_the_log() -> None:
    harness = decided()
    harness.mark(IN_0, IN_1)
    timer = TransactionTimer(TransactionTimerKind.COMPLETION, ID)
    for _ in range(2):
        harness.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
        assert SetTimer(timer, START_MS + 500) == harness.effects[-1]
        harness.take(harness.coordinator.timer_fired(timer, 0, harness.now))
    harness.take(harness.coordinator.timer_fired(timer, 0, harness.now))
    assert len(harness.uncommitted) == 1, "one at a time"
    harness.commit()
    harness.take(harness.coordinator.timer_fired(timer, 0, harness.now))
    other = TransactionTimer(TransactionTimerKind.COMPLETION, "other")
    harness.take(harness.coordinator.timer_fired(other, 0, harness.now))
    assert harness.state.phase is Phase.COMPLETE_COMMIT and not harness.uncommitted


def test_a_load_resumes_the_markers_under_its_own_epoch() -> None:
    harness = decided(leader_epoch=9)
    (sent,) = markers(harness)
    assert sent == SendMarkers(sent.number, ID, PRODUCER_ID, 3, 9, True, 2, frozenset({IN_0, IN_1}))
    without = TxnHarness(stored(Phase.PREPARE_ABORT, started_ms=START_MS))
    without.commit()
    assert without.state.phase is Phase.COMPLETE_ABORT
    assert not markers(TxnHarness(stored(Phase.ONGOING, partitions=[IN_0], started_ms=START_MS)))


def test_a_load_applies_tombstones_and_refuses_requests_until_its_end() -> None:
    harness = TxnHarness(stored())
    harness.log.append(TransactionRecord(ID, None))
    harness.load(8)
    assert harness.coordinator.size == 0
    loading = TxnHarness(stored())
    loading.coordinator.phase = CoordinatorPhase.LOADING
    assert loading.error(loading.add(IN_0)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    timer = TransactionTimer(TransactionTimerKind.TIMEOUTS)
    assert loading.coordinator.timer_fired(timer, 0, loading.now) == ()


def test_an_unload_answers_all_and_forgets_all() -> None:
    harness = TxnHarness(stored(), gives_ids=False)
    add, waiting = harness.add(IN_0), harness.add(IN_1)
    wanting = harness.ask(InitProducerIdRequest("another", 1000))
    (append,) = harness.uncommitted
    want = next(each for each in harness.effects if isinstance(each, NeedProducerId))
    harness.take(harness.coordinator.unload())
    for ticket in (add, waiting, wanting):
        assert harness.error(ticket) is ErrorCode.NOT_COORDINATOR
    coordinator, now = harness.coordinator, harness.now
    assert coordinator.committed(append.number, now) == ()
    assert coordinator.failed(append.number, ErrorCode.NOT_LEADER_OR_FOLLOWER, now) == ()
    assert coordinator.timed_out(append.number, ErrorCode.REQUEST_TIMED_OUT, now) == ()
    assert coordinator.producer_id_given(want.number, 1, now) == ()
    assert harness.error(harness.add(IN_0)) is ErrorCode.NOT_COORDINATOR
    assert coordinator.size == 0


def test_an_unload_stops_markers() -> None:
    harness = decided()
    harness.take(harness.coordinator.unload())
    assert harness.effects[-1] == StopMarkers(ID)


def test_a_marker_that_a_leader_fences_makes_the_coordinator_load_again() -> None:
    harness = decided()
    (sent,) = markers(harness)
    assert harness.coordinator.marker_fenced(ID, sent.number - 1) == ()
    assert harness.coordinator.marker_fenced("other", sent.number) == ()
    fenced = harness.coordinator.marker_fenced(ID, sent.number)
    assert fenced == (StopMarkers(ID), LoadAgain())


def test_other_transitions_are_faults_of_the_coordinator() -> None:
    allowed = {
        (former, phase, raises)
        for former in Phase
        for phase in Phase
        for raises in (False, True)
        if _is_allowed(former, phase, raises=raises)
    }
    settled = {Phase.EMPTY, Phase.COMPLETE_COMMIT, Phase.COMPLETE_ABORT}
    plain = (
        {(former, Phase.EMPTY) for former in settled}
        | {(former, Phase.ONGOING) for former in settled | {Phase.ONGOING}}
        | {(Phase.ONGOING, Phase.PREPARE_COMMIT), (Phase.ONGOING, Phase.PREPARE_ABORT)}
        | {(Phase.PREPARE_COMMIT, Phase.COMPLETE_COMMIT)}
        | {(Phase.PREPARE_ABORT, Phase.COMPLETE_ABORT)}
    )
    raising = {(former, Phase.PREPARE_ABORT) for former in settled}
    assert allowed == {(*pair, flag) for pair in plain for flag in (False, True)} | {
        (*pair, True) for pair in raising
    }


def _is_allowed(former: Phase, phase: Phase, *, raises: bool) -> bool:
    try:
        check_transition(former, phase, raises=raises)
    except InvariantError:
        return False
    return True


def test_copies_are_independent_and_equal() -> None:
    harness = TxnHarness(stored())
    harness.add(IN_0)
    before = harness.coordinator.key()
    copy = harness.coordinator.copy()
    assert copy.key() == before
    harness.commit()
    assert copy.key() == before != harness.coordinator.key()
    fresh = TxnHarness()
    fresh.initialise()
    assert fresh.coordinator.copy().key() == fresh.coordinator.key()
