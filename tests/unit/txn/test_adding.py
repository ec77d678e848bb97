"""Adding partitions to a transaction and verifying them: each row of table 2, and T24 to T27."""

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

from tidelog.core.errors import ErrorCode
from tidelog.txn.settings import TransactionSettings
from tidelog.txn.states import TransactionPhase
from tidelog.wire.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)

Phase = TransactionPhase
SETTLED = (Phase.EMPTY, Phase.COMPLETE_COMMIT, Phase.COMPLETE_ABORT)


def ongoing() -> TxnHarness:
    return TxnHarness(stored(Phase.ONGOING, partitions=[IN_0], started_ms=START_MS - 5))


@pytest.mark.parametrize("phase", SETTLED)
def test_the_first_partitions_begin_a_transaction(phase: Phase) -> None:
    harness = TxnHarness(stored(phase, last=2, client_version=2))
    ticket = harness.add(IN_0, IN_1)
    assert harness.error(ticket) is None and harness.state.phase is phase
    harness.commit()
    assert harness.error(ticket) is ErrorCode.NONE
    state = harness.state
    assert (state.phase, state.partitions) == (Phase.ONGOING, frozenset({IN_0, IN_1}))
    assert (state.started_ms, state.last_producer_epoch, state.client_version) == (START_MS, 2, 0)


def test_later_partitions_keep_the_start_and_known_ones_are_answered_at_once() -> None:
    harness = ongoing()
    assert harness.error(harness.add(IN_0)) is ErrorCode.NONE
    assert not harness.uncommitted
    ticket = harness.add(IN_0, IN_1)
    harness.commit()
    assert harness.error(ticket) is ErrorCode.NONE
    assert harness.state.started_ms == START_MS - 5
    assert harness.state.partitions == {IN_0, IN_1}


@pytest.mark.parametrize("verify_only", [False, True])
def test_rows_of_identity_and_of_decided_transactions(verify_only: bool) -> None:
    def error(harness: TxnHarness, identity: tuple[int, int]) -> ErrorCode | None:
        return harness.error(harness.add(IN_0, identity=identity, verify_only=verify_only))

    right, mapping = (PRODUCER_ID, 3), ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert error(TxnHarness(), right) is mapping
    for phase in list(Phase)[:6]:
        harness = TxnHarness(stored(phase, partitions=[IN_1], started_ms=START_MS))
        before = len(harness.uncommitted)
        assert error(harness, (PRODUCER_ID + 1, 3)) is mapping
        for epoch in (2, 4):
            assert error(harness, (PRODUCER_ID, epoch)) is ErrorCode.PRODUCER_FENCED
        if phase.is_prepared:
            assert error(harness, right) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert len(harness.uncommitted) == before


def test_an_unconfirmed_id_is_unknown() -> None:
    harness = TxnHarness()
    harness.initialise()
    for verify_only in (False, True):
        ticket = harness.add(IN_0, verify_only=verify_only)
        assert harness.error(ticket) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_verification_confirms_only_stored_partitions_and_adds_none() -> None:
    harness = ongoing()
    pending = harness.add(IN_1)
    ticket = harness.add(IN_0, IN_1, verify_only=True)
    results = harness.answers[ticket].topic_results[0].results_by_partition
    assert [(each.partition_index, each.partition_error_code) for each in results] == [
        (0, ErrorCode.NONE),
        (1, ErrorCode.TRANSACTION_ABORTABLE),
    ], "what is pending is not confirmed (T27)"
    harness.commit()
    assert harness.error(pending) is ErrorCode.NONE
    assert harness.error(harness.add(IN_0, IN_1, verify_only=True)) is ErrorCode.NONE
    settled = TxnHarness(stored())
    assert settled.error(settled.add(IN_0, verify_only=True)) is ErrorCode.TRANSACTION_ABORTABLE


def test_an_add_waits_for_a_pending_add_of_the_same_producer() -> None:
    harness = TxnHarness(stored())
    first, second, third = harness.add(IN_0), harness.add(IN_0), harness.add(IN_1)
    assert len(harness.uncommitted) == 1
    other = harness.add(IN_1, identity=(PRODUCER_ID, 2))
    assert harness.error(other) is ErrorCode.CONCURRENT_TRANSACTIONS
    harness.commit(1)
    assert [harness.error(each) for each in (first, second, third)] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        None,
    ], "decided afterwards (T26)"
    harness.commit()
    assert harness.error(third) is ErrorCode.NONE


def test_waiting_adds_are_decided_after_a_failed_add_and_refused_after_a_late_one() -> None:
    harness = TxnHarness(stored())
    first, second = harness.add(IN_0), harness.add(IN_1)
    harness.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert harness.error(first) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.error(second) is None
    third = harness.add(IN_1)
    harness.time_out()
    for ticket in (second, third):
        assert harness.error(ticket) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.error(harness.add(IN_1)) is ErrorCode.CONCURRENT_TRANSACTIONS
    harness.commit()
    assert harness.state.partitions == {IN_1}, "a late record counts (T15)"


def test_an_add_does_not_wait_for_other_transitions() -> None:
    harness = ongoing()
    harness.end(commits=True)
    assert harness.error(harness.add(IN_0)) is ErrorCode.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize(
    ("version", "error"),
    [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)],
)
def test_early_versions_get_an_error_that_they_know(version: int, error: ErrorCode) -> None:
    harness = ongoing()
    identity = (PRODUCER_ID, 2)
    assert harness.error(harness.add(IN_0, identity=identity, version=version)) is error
    offsets = AddOffsetsToTxnRequest(ID, *identity, "readers")
    assert harness.error(harness.ask(offsets, version, [IN_1])) is error


def test_the_partition_of_a_group_is_added_like_any_other() -> None:
    harness = ongoing()
    ticket = harness.ask(AddOffsetsToTxnRequest(ID, PRODUCER_ID, 3, "readers"), 4, [IN_1])
    harness.commit()
    assert harness.answers[ticket] == AddOffsetsToTxnResponse()
    assert harness.state.partitions == {IN_0, IN_1}
    again = harness.ask(AddOffsetsToTxnRequest(ID, PRODUCER_ID, 3, "readers"), 4, [IN_1])
    assert harness.error(again) is ErrorCode.NONE


def test_a_transaction_has_so_many_partitions_at_most() -> None:
    state = stored(Phase.ONGOING, partitions=[IN_0], started_ms=START_MS)
    harness = TxnHarness(state, settings=TransactionSettings(max_partitions=1))
    assert harness.error(harness.add(IN_1)) is ErrorCode.POLICY_VIOLATION
    assert harness.error(harness.add(IN_0)) is ErrorCode.NONE


def test_a_record_that_is_too_large_is_a_matter_of_the_client() -> None:
    harness = ongoing()
    ticket = harness.add(IN_1)
    harness.fail(ErrorCode.MESSAGE_TOO_LARGE)
    assert harness.error(ticket) is ErrorCode.POLICY_VIOLATION


def test_an_id_without_name_is_refused() -> None:
    harness = ongoing()
    message = AddOffsetsToTxnRequest("", PRODUCER_ID, 3, "readers")
    assert harness.error(harness.ask(message, 4, [IN_1])) is ErrorCode.INVALID_REQUEST
