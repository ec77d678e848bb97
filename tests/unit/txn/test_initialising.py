"""InitProducerId: each cell of table 1 (T3 to T11), and the producer ids that it needs (T5)."""

from __future__ import annotations

import pytest
from tests.unit.txn.txn_harness import (
    FRESH_ID,
    ID,
    IN_0,
    PRODUCER_ID,
    START_MS,
    TIMEOUT_MS,
    TxnHarness,
    stored,
)

from tidelog.core.errors import ErrorCode
from tidelog.txn.effects import NeedProducerId, SendMarkers
from tidelog.txn.settings import TransactionSettings
from tidelog.txn.states import TransactionPhase
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest

Phase = TransactionPhase
NOTHING, CURRENT, LAST, OTHER = (-1, -1), (PRODUCER_ID, 3), (PRODUCER_ID, 2), (PRODUCER_ID, 1)
SETTLED = (Phase.EMPTY, Phase.COMPLETE_COMMIT, Phase.COMPLETE_ABORT)


def given(harness: TxnHarness, expected: tuple[int, int]) -> tuple[ErrorCode | None, int, int]:
    """Return error, producer id and epoch of an InitProducerId whose record is committed."""
    ticket = harness.initialise(expected)
    harness.commit(1)
    answer = harness.answers[ticket]
    return harness.error(ticket), answer.producer_id, answer.producer_epoch


@pytest.mark.parametrize("expected", [NOTHING, CURRENT, LAST, OTHER, (9, 9)])
def test_an_unknown_id_gets_a_new_producer_id_whatever_is_expected(
    expected: tuple[int, int],
) -> None:
    harness = TxnHarness()
    assert given(harness, expected) == (ErrorCode.NONE, FRESH_ID, 0)
    state = harness.state
    assert (state.phase, state.last_producer_epoch, state.timeout_ms) == (
        Phase.EMPTY,
        -1,
        TIMEOUT_MS,
    )
    assert (state.partitions, state.started_ms, state.updated_ms) == (frozenset(), -1, START_MS)


@pytest.mark.parametrize("phase", SETTLED)
@pytest.mark.parametrize(
    ("expected", "epoch", "last"), [(NOTHING, 4, -1), (CURRENT, 4, 3), (LAST, 3, 2)]
)
def test_a_settled_id_raises_its_epoch_unless_the_request_is_repeated(
    phase: Phase, expected: tuple[int, int], epoch: int, last: int
) -> None:
    harness = TxnHarness(stored(phase, last=2))
    assert given(harness, expected) == (ErrorCode.NONE, PRODUCER_ID, epoch)
    assert (harness.state.phase, harness.state.last_producer_epoch) == (Phase.EMPTY, last)
    assert given(harness, expected)[0] is ErrorCode.NONE


@pytest.mark.parametrize("phase", SETTLED)
@pytest.mark.parametrize("epoch", [32_766, 32_767])
def test_an_exhausted_epoch_gives_a_new_producer_id(phase: Phase, epoch: int) -> None:
    harness = TxnHarness(stored(phase, epoch=epoch))
    assert given(harness, NOTHING) == (ErrorCode.NONE, FRESH_ID, 0)
    assert harness.state.last_producer_epoch == -1
    assert harness.state.previous_producer_id == PRODUCER_ID


def test_the_repetition_of_a_rotation_gets_the_new_id_again() -> None:
    harness = TxnHarness(stored(epoch=32_766))
    expected = (PRODUCER_ID, 32_766)
    assert given(harness, expected) == (ErrorCode.NONE, FRESH_ID, 0)
    for _ in range(2):
        assert given(harness, expected) == (ErrorCode.NONE, FRESH_ID, 0), "previous id, last"
    assert given(harness, (FRESH_ID, 0)) == (ErrorCode.NONE, FRESH_ID, 1)
    assert given(harness, expected)[0] is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("phase", list(Phase)[:6])
def test_another_identity_is_fenced_and_changes_nothing(phase: Phase) -> None:
    harness = TxnHarness(stored(phase, last=2, partitions=[IN_0], started_ms=START_MS))
    harness.effects.clear()
    for expected in (OTHER, (PRODUCER_ID + 1, 3), (PRODUCER_ID, 4)):
        assert harness.error(harness.initialise(expected)) is ErrorCode.PRODUCER_FENCED
    assert not harness.uncommitted, "a fenced producer aborts nothing (T6)"
    assert harness.error(harness.initialise(OTHER, version=3)) is ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("phase", [Phase.PREPARE_COMMIT, Phase.PREPARE_ABORT])
@pytest.mark.parametrize("expected", [NOTHING, CURRENT, LAST])
def test_a_decided_transaction_is_awaited(phase: Phase, expected: tuple[int, int]) -> None:
    harness = TxnHarness(stored(phase, last=2, partitions=[IN_0], started_ms=START_MS))
    assert harness.error(harness.initialise(expected)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert not harness.uncommitted


@pytest.mark.parametrize("expected", [NOTHING, CURRENT, LAST])
@pytest.mark.parametrize(("level", "last", "version"), [(0, -1, 0), (1, -1, 0), (2, 3, 2)])
def test_an_ongoing_transaction_is_aborted_with_one_raise_of_the_epoch(
    expected: tuple[int, int], level: int, last: int, version: int
) -> None:
    harness = TxnHarness(
        stored(Phase.ONGOING, last=2, partitions=[IN_0], started_ms=START_MS), level=level
    )
    ticket = harness.initialise(expected)
    assert harness.error(ticket) is None, "the abort is answered when it is decided"
    harness.commit()
    assert harness.error(ticket) is ErrorCode.CONCURRENT_TRANSACTIONS
    state = harness.state
    assert (state.phase, state.producer_epoch) == (Phase.PREPARE_ABORT, 4)
    assert (state.last_producer_epoch, state.client_version) == (last, version)
    (sent,) = [each for each in harness.effects if isinstance(each, SendMarkers)]
    assert sent == SendMarkers(
        sent.number, ID, PRODUCER_ID, 4, 7, False, version, frozenset({IN_0})
    )


@pytest.mark.parametrize("level", [0, 2])
def test_the_highest_epoch_is_aborted_without_a_raise(level: int) -> None:
    state = stored(Phase.ONGOING, epoch=32_767, partitions=[IN_0], started_ms=START_MS)
    harness = TxnHarness(state, level=level)
    harness.initialise()
    harness.commit()
    harness.mark(IN_0)
    harness.commit()
    assert (harness.state.phase, harness.state.producer_epoch) == (Phase.COMPLETE_ABORT, 32_767)
    assert given(harness, NOTHING) == (ErrorCode.NONE, FRESH_ID, 0)


def test_an_abort_of_an_exhausted_epoch_rotates_the_producer_id() -> None:
    state = stored(Phase.ONGOING, epoch=32_766, partitions=[IN_0], started_ms=START_MS)
    harness = TxnHarness(state)
    harness.initialise()
    harness.commit()
    assert (harness.state.producer_epoch, harness.state.next_producer_id) == (32_767, FRESH_ID)
    harness.mark(IN_0)
    harness.commit()
    state = harness.state
    assert (state.producer_id, state.producer_epoch) == (FRESH_ID, 0)
    assert (state.previous_producer_id, state.last_producer_epoch) == (PRODUCER_ID, 32_766)


def test_a_pending_transition_is_awaited() -> None:
    harness = TxnHarness()
    first = harness.initialise()
    assert harness.error(harness.initialise()) is ErrorCode.CONCURRENT_TRANSACTIONS
    harness.commit()
    assert harness.error(first) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (InitProducerIdRequest("", TIMEOUT_MS), ErrorCode.INVALID_REQUEST),
        (InitProducerIdRequest(None, TIMEOUT_MS), ErrorCode.INVALID_REQUEST),
        (InitProducerIdRequest("x" * 1001, TIMEOUT_MS), ErrorCode.INVALID_REQUEST),
        (InitProducerIdRequest(ID, TIMEOUT_MS, 5, -1), ErrorCode.INVALID_REQUEST),
        (InitProducerIdRequest(ID, TIMEOUT_MS, -1, 5), ErrorCode.INVALID_REQUEST),
        (InitProducerIdRequest(ID, 0), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (InitProducerIdRequest(ID, 900_001), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_requests_that_no_coordinator_serves(
    message: InitProducerIdRequest, error: ErrorCode
) -> None:
    harness = TxnHarness()
    assert harness.error(harness.ask(message)) is error
    harness.take(harness.coordinator.unload())
    assert harness.error(harness.ask(message)) is error, "checked before the coordinator is"


def test_a_new_producer_id_is_taken_before_anything_is_pending() -> None:
    harness = TxnHarness(gives_ids=False)
    tickets = [harness.initialise() for _ in range(3)]
    wants = [each.number for each in harness.effects if isinstance(each, NeedProducerId)]
    assert len(wants) == 3 and not harness.uncommitted and harness.coordinator.size == 0
    harness.take(harness.coordinator.producer_id_given(wants[0], None, harness.now))
    assert harness.error(tickets[0]) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    harness.give_id(wants[1])
    harness.give_id(wants[2])
    assert harness.error(tickets[2]) is ErrorCode.CONCURRENT_TRANSACTIONS, "decided again"
    harness.commit()
    assert harness.error(tickets[1]) is ErrorCode.NONE
    assert harness.coordinator.producer_id_given(wants[1], 1, harness.now) == ()


def test_a_partition_has_so_many_ids_at_most() -> None:
    harness = TxnHarness(stored(), settings=TransactionSettings(max_ids=1))
    other = InitProducerIdRequest("another", TIMEOUT_MS)
    assert harness.error(harness.ask(other)) is ErrorCode.POLICY_VIOLATION
    assert given(harness, NOTHING)[0] is ErrorCode.NONE
