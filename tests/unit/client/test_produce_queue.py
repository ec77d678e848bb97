"""The order of a partition's batches through failures, against brokers' rules of KIP-98."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.draws import examples

from tidelog.client.produce_queue import BatchState, ProduceBatch, ProduceQueue, Refused
from tidelog.core.errors import ConnectionLost, ErrorCode, KafkaError
from tidelog.core.types import TopicPartition
from tidelog.records.batch import BatchView
from tidelog.records.builder import NewRecord, Producer, build_batch
from tidelog.records.reader import iter_records

TP = TopicPartition("t", 0)


def make(values: list[int], sequence: int, deadline_ms: int = 1 << 60) -> ProduceBatch:
    records = [NewRecord(None, b"%d" % value) for value in values]
    data = build_batch(records, producer=Producer(7, 0, sequence))
    return ProduceBatch(TP, data, len(values), values, deadline_ms)


def filled(sizes: list[int], max_in_flight: int = 5) -> ProduceQueue:
    queue = ProduceQueue(TP, max_in_flight)
    first = 0
    for size in sizes:
        queue.add(make(list(range(first, first + size)), first))
        first += size
    return queue


class Log:
    """A leader's log: it remembers the last five batches of a producer."""

    def __init__(self, largest: int) -> None:
        self.values: list[int] = []
        self._largest = largest
        self._last: deque[tuple[int, int]] = deque(maxlen=5)

    def append(self, batch: ProduceBatch) -> KafkaError | None:
        view = BatchView(batch.data)
        if view.record_count > self._largest:
            return KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
        if (view.base_sequence, view.last_sequence) in self._last:
            return None
        if view.base_sequence != len(self.values):
            return KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        self._last.append((view.base_sequence, view.last_sequence))
        self.values += [int(record.value or b"") for record in iter_records(view)]
        return None


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=12),
    st.integers(1, 5),
    st.integers(1, 6),
    st.lists(st.sampled_from(["ok", "ok", "lost", "refused"]), max_size=12),
    st.data(),
)
@examples(150)
def test_whatever_fails_each_record_is_stored_once_and_in_order(
    sizes: list[int], max_in_flight: int, largest: int, outcomes: list[str], data: st.DataObject
) -> None:
    queue, log = filled(sizes, max_in_flight), Log(largest)
    wire: deque[ProduceBatch] = deque()
    now_ms = 0
    plan = deque(outcomes)
    while queue.batches:
        now_ms += 1_000
        while (batch := queue.next_batch(now_ms)) is not None:
            queue.sent(batch)
            wire.append(batch)
        assert len(wire) == queue.in_flight <= max_in_flight
        outcome = plan.popleft() if plan else "ok"
        if outcome == "lost":  # the connection: a part of what was sent had arrived
            arrived = data.draw(st.integers(0, len(wire)))
            for place, batch in enumerate(wire):
                if place < arrived:
                    log.append(batch)
                assert queue.failed(batch, ConnectionLost("gone"), now_ms) is Refused.RETRY
            wire.clear()
            continue
        batch = wire.popleft()
        refused = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        error = refused if outcome == "refused" else log.append(batch)
        if error is None:
            queue.acknowledged(batch)
        else:
            assert queue.failed(batch, error, now_ms) is not Refused.GIVE_UP
    assert log.values == list(range(sum(sizes)))
    assert queue.in_flight == 0


def test_nothing_is_sent_while_failed_batches_are_in_flight() -> None:
    queue = filled([1, 1, 1, 1], max_in_flight=3)
    flying = []
    while (batch := queue.next_batch(0)) is not None:
        queue.sent(batch)
        flying.append(batch)
    assert len(flying) == 3
    lost = KafkaError(ErrorCode.NETWORK_EXCEPTION)
    assert queue.failed(flying[0], lost, 0) is Refused.RETRY
    assert queue.next_batch(10_000) is None
    assert queue.acknowledged(flying[1]) == []
    assert queue.acknowledged(flying[2]) == []
    assert queue.next_batch(0) is None  # the pause after a failure
    assert queue.next_batch(10_000) is flying[0]
    queue.sent(flying[0])
    assert queue.acknowledged(flying[0]) == flying


def test_the_fourth_batch_waits_for_the_first_not_for_any() -> None:
    """Brokers would forget a first batch whose response was lost, were later ones to go on."""
    queue = filled([1] * 6, max_in_flight=2)
    first = queue.next_batch(0)
    assert first is not None
    queue.sent(first)
    second = queue.next_batch(0)
    assert second is not None
    queue.sent(second)
    queue.acknowledged(second)
    assert queue.next_batch(0) is None


def test_a_gap_before_the_oldest_batch_is_an_error_in_the_end() -> None:
    queue = filled([1])
    gap = KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    verdicts = []
    for _ in range(6):
        batch = queue.next_batch(1 << 50)
        assert batch is not None
        queue.sent(batch)
        verdicts.append(queue.failed(batch, gap, 0))
    assert verdicts == [Refused.RETRY] * 5 + [Refused.GIVE_UP]


@pytest.mark.parametrize(
    "code", [ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE]
)
def test_errors_that_do_not_pass_end_the_queue(code: ErrorCode) -> None:
    queue = filled([1])
    batch = queue.next_batch(0)
    assert batch is not None
    queue.sent(batch)
    assert queue.failed(batch, KafkaError(code), 0) is Refused.GIVE_UP


def test_halves_have_the_records_rows_and_sequences_of_the_whole() -> None:
    whole = make([10, 11, 12], sequence=2**31 - 1)
    first, second = whole.halves()
    assert (first.rows, second.rows) == ([10], [11, 12])
    assert BatchView(first.data).base_sequence == 2**31 - 1
    assert BatchView(second.data).base_sequence == 0
    values = [r.value for each in (first, second) for r in iter_records(BatchView(each.data))]
    assert values == [b"10", b"11", b"12"]
    assert first.state is BatchState.WAITING


def test_the_oldest_batch_expires_first() -> None:
    queue = ProduceQueue(TP, 5)
    queue.add(make([0], 0, deadline_ms=100))
    queue.add(make([1], 1, deadline_ms=200))
    assert queue.expired(99) is None
    assert queue.expired(100) is queue.batches[0]
