"""DescribeTransactions and ListTransactions (T86)."""

from __future__ import annotations

from tests.unit.txn.txn_harness import (
    ID,
    IN_0,
    IN_1,
    PRODUCER_ID,
    START_MS,
    TIMEOUT_MS,
    TxnHarness,
    stored,
)

from tidelog.core.errors import ErrorCode
from tidelog.txn.effects import TransactionTimer, TransactionTimerKind
from tidelog.txn.listing import unknown_states
from tidelog.txn.records import TransactionRecord
from tidelog.txn.states import TransactionPhase
from tidelog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    TopicData,
    TransactionState,
)

Phase = TransactionPhase


def describe(harness: TxnHarness, name: str = ID) -> TransactionState:
    ticket = harness.ask(DescribeTransactionsRequest([name]), 0)
    found = harness.answers[ticket]
    assert isinstance(found, TransactionState)
    return found


def test_an_open_transaction_has_its_partitions_and_a_decided_one_those_without_marker() -> None:
    harness = TxnHarness(stored(Phase.ONGOING, partitions=[IN_1, IN_0], started_ms=START_MS))
    assert describe(harness) == TransactionState(
        ErrorCode.NONE,
        ID,
        "Ongoing",
        TIMEOUT_MS,
        START_MS,
        PRODUCER_ID,
        3,
        [TopicData("in", [0, 1])],
    )
    harness.end(commits=True)
    harness.commit()
    harness.mark(IN_0)
    found = describe(harness)
    assert (found.transaction_state, found.topics) == ("PrepareCommit", [TopicData("in", [1])])


def test_unknown_and_dying_ids_are_not_found() -> None:
    harness = TxnHarness(stored())
    assert describe(harness, "other").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert describe(harness, "").error_code == ErrorCode.INVALID_REQUEST
    harness.now_ms += harness.settings.id_expiration_ms
    timer = TransactionTimer(TransactionTimerKind.EXPIRY)
    harness.take(harness.coordinator.timer_fired(timer, 0, harness.now))
    assert describe(harness).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    (listed,) = harness.coordinator.list_ids(["Dead"], [], -1, harness.now_ms)
    assert (listed.transactional_id, listed.transaction_state) == (ID, "Dead")
    fresh = TxnHarness()
    fresh.initialise()
    assert describe(fresh).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert fresh.coordinator.list_ids([], [], -1, START_MS) == []


def test_filters_of_the_list_are_joined() -> None:
    harness = TxnHarness(stored(Phase.ONGOING, partitions=[IN_0], started_ms=START_MS - 100))
    harness.log.append(TransactionRecord("idle", stored()))
    harness.load(8)

    def names(titles: list[str], producer_ids: list[int], longer_than_ms: int) -> list[str]:
        found = harness.coordinator.list_ids(titles, producer_ids, longer_than_ms, START_MS)
        return [each.transactional_id for each in found]

    assert names([], [], -1) == [ID, "idle"]
    assert names(["Ongoing"], [], -1) == [ID]
    assert names(["Ongoing", "Empty", "Strange"], [PRODUCER_ID], -1) == [ID, "idle"]
    assert names(["Strange"], [], -1) == []
    assert names([], [1], -1) == []
    assert names([], [], 99) == [ID] and names([], [], 100) == []
    assert unknown_states(["Ongoing", "Strange", "PrepareEpochFence"]) == ["Strange"]
