"""A transaction coordinator of one partition over a list as log, driven by hand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tidelog.core.coordinator_shard import CoordinatorAppend, Now, Reply
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.txn.asked import TransactionAsked
from tidelog.txn.effects import NeedProducerId, TransactionEffects
from tidelog.txn.partition import TransactionPartition
from tidelog.txn.records import Transaction, TransactionRecord
from tidelog.txn.settings import TransactionSettings
from tidelog.txn.states import TransactionPhase
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tidelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from tidelog.wire.messages.end_txn import EndTxnRequest
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest

ID = "payments"
IN_0, IN_1 = TopicPartition("in", 0), TopicPartition("in", 1)
START_MS = 1_000_000
TIMEOUT_MS = 60_000
#: The producer id of `stored`, and the next one that the broker's block gives.
PRODUCER_ID, FRESH_ID = 4000, 5000


def stored(
    phase: TransactionPhase = TransactionPhase.EMPTY,
    *,
    epoch: int = 3,
    last: int = -1,
    previous: int = PRODUCER_ID,
    next_id: int = -1,
    partitions: Iterable[TopicPartition] = (),
    client_version: int = 0,
    started_ms: int = -1,
    updated_ms: int = START_MS,
) -> Transaction:
    """Return a state with the given fields and usual ones else."""
    return Transaction(
        PRODUCER_ID,
        epoch,
        last,
        previous,
        next_id,
        TIMEOUT_MS,
        phase,
        frozenset(partitions),
        updated_ms,
        started_ms,
        client_version,
    )


class TxnHarness:
    """The coordinator, its log, and all effects so far."""

    def __init__(
        self,
        *states: Transaction,
        level: int = 2,
        leader_epoch: int = 7,
        settings: TransactionSettings | None = None,
        gives_ids: bool = True,
    ) -> None:
        self.log = [TransactionRecord(ID, state) for state in states]
        self.level, self.settings = level, settings or TransactionSettings()
        self.now_ms = START_MS
        self.gives_ids = gives_ids
        self.effects: list[Any] = []
        self.answers: dict[int, Any] = {}
        self.uncommitted: list[CoordinatorAppend] = []
        self.fresh_id = FRESH_ID
        self._tickets = 0
        self.load(leader_epoch)

    def load(self, leader_epoch: int) -> None:
        """Begin a leadership: replay the log."""
        self.coordinator = TransactionPartition(0, leader_epoch, self.settings, self.level)
        for record in self.log:
            self.coordinator.replay(record)
        self.take(self.coordinator.loaded(self.now))

    @property
    def now(self) -> Now:
        return Now(self.now_ms, self.now_ms)

    @property
    def state(self) -> Transaction:
        """The stored state of ID."""
        found = self.coordinator.ids[ID].stored
        assert found is not None
        return found

    def take(self, effects: TransactionEffects) -> None:
        """Carry out effects: note answers and appends, give producer ids."""
        for effect in effects:
            self.effects.append(effect)
            if isinstance(effect, Reply):
                assert effect.ticket not in self.answers, "each request gets one answer"
                self.answers[effect.ticket] = effect.answer
            elif isinstance(effect, CoordinatorAppend):
                self.uncommitted.append(effect)
            elif isinstance(effect, NeedProducerId) and self.gives_ids:
                self.give_id(effect.number)

    def give_id(self, number: int) -> None:
        """Give the next producer id of the block."""
        self.fresh_id += 1
        self.take(self.coordinator.producer_id_given(number, self.fresh_id - 1, self.now))

    def ask(self, message: Any, version: int = 5, partitions: Iterable[TopicPartition] = ()) -> int:
        """Pass a request to the coordinator; return its ticket."""
        self._tickets += 1
        named = getattr(message, "transactional_id", ID)
        if isinstance(message, DescribeTransactionsRequest):
            (named,) = message.transactional_ids
        asked = TransactionAsked(
            self._tickets, named or "", message, version, frozenset(partitions)
        )
        self.take(self.coordinator.ask(asked, self.now))
        return self._tickets

    def error(self, ticket: int) -> ErrorCode | None:
        """Return the error of the answer, None while there is no answer."""
        answer = self.answers.get(ticket)
        if answer is None:
            return None
        if hasattr(answer, "topic_results"):
            codes = {
                each.partition_error_code
                for topic in answer.topic_results
                for each in topic.results_by_partition
            }
            (code,) = codes
            return ErrorCode(code)
        return ErrorCode(answer.error_code)

    def commit(self, count: int | None = None) -> None:
        """Have the high watermark pass appends, and those which that brings."""
        done = 0
        while self.uncommitted and done != count:
            append = self.uncommitted.pop(0)
            self.log += append.records
            self.take(self.coordinator.committed(append.number, self.now))
            done += 1

    def fail(self, error: ErrorCode) -> None:
        """Have the log refuse the oldest append."""
        append = self.uncommitted.pop(0)
        self.take(self.coordinator.failed(append.number, error, self.now))

    def time_out(self, error: ErrorCode = ErrorCode.REQUEST_TIMED_OUT) -> None:
        """Report that the oldest append is not replicated in time."""
        number = self.uncommitted[0].number
        self.take(self.coordinator.timed_out(number, error, self.now))

    def mark(self, *partitions: TopicPartition) -> None:
        """Report that the markers of the present state are written."""
        number = self.coordinator.ids[ID].marking
        assert number is not None, "markers were sent"
        self.take(self.coordinator.marked(ID, number, frozenset(partitions), self.now))

    # Requests.

    def initialise(self, expected: tuple[int, int] = (-1, -1), version: int = 5) -> int:
        return self.ask(InitProducerIdRequest(ID, TIMEOUT_MS, *expected), version)

    def add(
        self,
        *partitions: TopicPartition,
        identity: tuple[int, int] = (PRODUCER_ID, 3),
        verify_only: bool = False,
        version: int = 5,
    ) -> int:
        topics: dict[str, list[int]] = {}
        for topic, number in partitions:
            topics.setdefault(topic, []).append(number)
        message = AddPartitionsToTxnTransaction(
            ID,
            *identity,
            verify_only,
            [AddPartitionsToTxnTopic(topic, numbers) for topic, numbers in topics.items()],
        )
        return self.ask(message, version, partitions)

    def end(
        self, *, commits: bool, identity: tuple[int, int] = (PRODUCER_ID, 3), version: int = 5
    ) -> int:
        return self.ask(EndTxnRequest(ID, *identity, commits), version)
