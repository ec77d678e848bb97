"""EndTxn: each cell of tables 3 and 4 (T17 to T21), and what its records store (T18, T19)."""

from __future__ import annotations

import pytest
from tests.unit.txn.txn_harness import (
    FRESH_ID,
    ID,
    IN_0,
    PRODUCER_ID,
    START_MS,
    TxnHarness,
    stored,
)

from tidelog.core.errors import ErrorCode
from tidelog.txn.effects import NeedProducerId, SendMarkers
from tidelog.txn.states import TransactionPhase
from tidelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

Phase = TransactionPhase
PHASES = list(Phase)[:6]
NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
INVALID = ErrorCode.INVALID_TXN_STATE
FENCED = ErrorCode.PRODUCER_FENCED
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING

#: Table 3, commit and abort; None stands for an appended decision.
TABLE_3 = {
    Phase.EMPTY: (INVALID, INVALID),
    Phase.ONGOING: (None, None),
    Phase.PREPARE_COMMIT: (CONCURRENT, INVALID),
    Phase.PREPARE_ABORT: (INVALID, CONCURRENT),
    Phase.COMPLETE_COMMIT: (NONE, INVALID),
    Phase.COMPLETE_ABORT: (INVALID, NONE),
}
#: Table 4: abort as retry, abort, commit as retry, commit; None stands for an appended decision.
TABLE_4 = {
    Phase.EMPTY: (FENCED, None, FENCED, INVALID),
    Phase.ONGOING: (FENCED, None, FENCED, None),
    Phase.PREPARE_ABORT: (CONCURRENT, FENCED, INVALID, FENCED),
    Phase.PREPARE_COMMIT: (INVALID, FENCED, CONCURRENT, FENCED),
    Phase.COMPLETE_ABORT: (NONE, None, INVALID, INVALID),
    Phase.COMPLETE_COMMIT: (INVALID, None, NONE, INVALID),
}


def harness_of(
    phase: Phase, *, level: int = 2, epoch: int = 3, client_version: int = 2
) -> TxnHarness:
    has_partitions = phase is Phase.ONGOING or phase.is_prepared
    is_ended = phase not in (Phase.EMPTY, Phase.ONGOING)
    return TxnHarness(
        stored(
            phase,
            epoch=epoch,
            last=2,
            partitions=[IN_0] if has_partitions else [],
            started_ms=START_MS - 5,
            client_version=client_version if is_ended else 0,
        ),
        level=level,
    )


@pytest.mark.parametrize("version", [2, 4])
@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("phase", PHASES)
def test_table_3(phase: Phase, level: int, version: int) -> None:
    for commits, expected in zip((True, False), TABLE_3[phase], strict=True):
        harness = harness_of(phase, level=level)
        before = len(harness.uncommitted)
        ticket = harness.end(commits=commits, version=version)
        assert harness.error(ticket) is expected
        assert len(harness.uncommitted) - before == (expected is None)
        wrong = harness.end(commits=commits, identity=(PRODUCER_ID + 1, 3), version=version)
        assert harness.error(wrong) is MAPPING, "compared before the pending transition"
        for epoch in (2, 4):
            late = harness.end(commits=commits, identity=(PRODUCER_ID, epoch), version=version)
            assert harness.error(late) is FENCED


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("phase", PHASES)
def test_table_4(phase: Phase, level: int) -> None:
    columns = ((False, 2), (False, 3), (True, 2), (True, 3))
    for (commits, epoch), expected in zip(columns, TABLE_4[phase], strict=True):
        harness = harness_of(phase, level=level)
        before = len(harness.uncommitted)
        ticket = harness.end(commits=commits, identity=(PRODUCER_ID, epoch))
        assert harness.error(ticket) is expected
        assert len(harness.uncommitted) - before == (expected is None)
        if expected is NONE:
            assert harness.answers[ticket] == EndTxnResponse(
                producer_id=PRODUCER_ID, producer_epoch=3
            )
        elif expected is not None:
            assert harness.answers[ticket] == EndTxnResponse(error_code=expected)
        for identity, error in (((PRODUCER_ID + 1, 3), MAPPING), ((PRODUCER_ID, 1), FENCED)):
            wrong = harness.error(harness.end(commits=commits, identity=identity))
            assert wrong is (CONCURRENT if expected is None else error)


@pytest.mark.parametrize("commits", [True, False])
def test_an_end_up_to_version_4_keeps_the_epoch(commits: bool) -> None:
    harness = harness_of(Phase.ONGOING)
    ticket = harness.end(commits=commits, version=4)
    assert not any(isinstance(each, SendMarkers) for each in harness.effects)
    harness.commit(1)
    assert harness.answers[ticket] == EndTxnResponse()
    state = harness.state
    assert (state.producer_epoch, state.last_producer_epoch, state.client_version) == (3, 2, 0)
    sent = harness.effects[-1]
    assert sent == SendMarkers(sent.number, ID, PRODUCER_ID, 3, 7, commits, 0, frozenset({IN_0}))
    harness.mark(IN_0)
    harness.commit()
    assert harness.state.phase is (Phase.COMPLETE_COMMIT if commits else Phase.COMPLETE_ABORT)
    assert (harness.state.partitions, harness.state.started_ms) == (frozenset(), START_MS - 5)


@pytest.mark.parametrize("commits", [True, False])
def test_an_end_from_version_5_on_raises_the_epoch_and_names_it(commits: bool) -> None:
    harness = harness_of(Phase.ONGOING, level=0)
    ticket = harness.end(commits=commits)
    harness.commit(1)
    assert harness.answers[ticket] == EndTxnResponse(producer_id=PRODUCER_ID, producer_epoch=4)
    state = harness.state
    assert (state.producer_epoch, state.last_producer_epoch, state.client_version) == (4, 3, 2)
    sent = harness.effects[-1]
    assert sent == SendMarkers(sent.number, ID, PRODUCER_ID, 4, 7, commits, 2, frozenset({IN_0}))
    harness.mark(IN_0)
    harness.commit()
    again = harness.end(commits=commits)
    assert harness.answers[again] == EndTxnResponse(producer_id=PRODUCER_ID, producer_epoch=4)


@pytest.mark.parametrize("phase", [Phase.EMPTY, Phase.COMPLETE_COMMIT, Phase.COMPLETE_ABORT])
def test_an_abort_without_transaction_raises_the_epoch(phase: Phase) -> None:
    harness = harness_of(phase)
    ticket = harness.end(commits=False)
    harness.commit(1)
    assert harness.answers[ticket] == EndTxnResponse(producer_id=PRODUCER_ID, producer_epoch=4)
    assert (harness.state.phase, harness.state.started_ms) == (Phase.PREPARE_ABORT, START_MS)
    harness.commit()
    assert harness.state.phase is Phase.COMPLETE_ABORT, "no partition, no marker"


def test_an_exhausted_epoch_rotates_the_producer_id_at_the_end() -> None:
    harness = harness_of(Phase.ONGOING, epoch=32_766)
    identity = (PRODUCER_ID, 32_766)
    ticket = harness.end(commits=True, identity=identity)
    harness.commit(1)
    fresh = EndTxnResponse(producer_id=FRESH_ID, producer_epoch=0)
    assert harness.answers[ticket] == fresh
    state = harness.state
    assert (state.producer_id, state.producer_epoch) == (PRODUCER_ID, 32_767)
    assert (state.last_producer_epoch, state.next_producer_id) == (32_766, FRESH_ID)
    assert harness.error(harness.end(commits=True, identity=identity)) is CONCURRENT
    harness.mark(IN_0)
    harness.commit()
    state = harness.state
    assert (state.producer_id, state.producer_epoch, state.next_producer_id) == (FRESH_ID, 0, -1)
    assert (state.previous_producer_id, state.last_producer_epoch) == (PRODUCER_ID, 32_766)
    assert harness.answers[harness.end(commits=True, identity=identity)] == fresh
    assert harness.error(harness.end(commits=False, identity=identity)) is INVALID


def test_no_producer_ends_a_transaction_with_the_highest_epoch() -> None:
    harness = harness_of(Phase.COMPLETE_ABORT, epoch=32_767)
    for commits in (True, False):
        ticket = harness.end(commits=commits, identity=(PRODUCER_ID, 32_767))
        assert harness.error(ticket) is FENCED


@pytest.mark.parametrize("phase", [phase for phase in PHASES if phase.value > 1])
def test_the_epoch_before_one_that_no_end_has_raised_is_fenced(phase: Phase) -> None:
    harness = harness_of(phase, client_version=0)
    for commits in (True, False):
        ticket = harness.end(commits=commits, identity=(PRODUCER_ID, 2))
        assert harness.error(ticket) is FENCED, "a successor's success is not a fenced producer's"


def test_a_retry_does_not_give_the_highest_epoch_to_a_producer() -> None:
    harness = harness_of(Phase.COMPLETE_ABORT, epoch=32_767)
    ticket = harness.end(commits=False, identity=(PRODUCER_ID, 32_766))
    assert harness.error(ticket) is FENCED, "fenced below level 2, so without a new id"


def test_an_epoch_below_0_is_no_retry() -> None:
    harness = TxnHarness(stored(Phase.COMPLETE_COMMIT, epoch=0))
    assert harness.error(harness.end(commits=True, identity=(PRODUCER_ID, -1))) is FENCED


def test_a_rotation_waits_for_the_new_producer_id() -> None:
    state = stored(Phase.ONGOING, epoch=32_766, partitions=[IN_0], started_ms=START_MS)
    harness = TxnHarness(state, gives_ids=False)
    ticket = harness.end(commits=True, identity=(PRODUCER_ID, 32_766))
    (want,) = [each.number for each in harness.effects if isinstance(each, NeedProducerId)]
    assert not harness.uncommitted and harness.error(ticket) is None
    harness.take(harness.coordinator.producer_id_given(want, None, harness.now))
    assert harness.error(ticket) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert harness.state == state


@pytest.mark.parametrize("version", [4, 5])
def test_unknown_ids_and_ids_without_name(version: int) -> None:
    harness = TxnHarness()
    assert harness.error(harness.end(commits=True, version=version)) is MAPPING
    harness.initialise()
    assert harness.error(harness.end(commits=True, version=version)) is MAPPING
    nameless = EndTxnRequest("", PRODUCER_ID, 3, True)
    assert harness.error(harness.ask(nameless, version)) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_RECORD),
    ],
)
def test_a_failed_append_leaves_the_stored_state(error: ErrorCode, answer: ErrorCode) -> None:
    harness = harness_of(Phase.ONGOING)
    before = harness.state
    ticket = harness.end(commits=True)
    harness.fail(error)
    assert harness.error(ticket) is answer and harness.state == before
    again = harness.end(commits=False)
    harness.commit(1)
    assert harness.answers[again].producer_epoch == 4, "nothing was raised in memory (T10)"


def test_early_versions_get_an_error_that_they_know() -> None:
    harness = harness_of(Phase.ONGOING)
    late = harness.end(commits=True, identity=(PRODUCER_ID, 2), version=1)
    assert harness.error(late) is ErrorCode.INVALID_PRODUCER_EPOCH
