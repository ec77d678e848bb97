"""Idempotent producers (KIP-98): what is new, what is a duplicate, what is out of order."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.draws import FACTOR, examples

from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.limits import REFUSED_BATCH_AWAITED_MS
from tidelog.log.producer_state import (
    BatchMetadata,
    DamagedSnapshot,
    ProducerState,
    Undo,
    read_snapshot,
)
from tidelog.records.batch import MAX_SEQUENCE, BatchView
from tidelog.records.builder import NewRecord, Producer, build_batch
from tidelog.records.control import ABORT, build_end_marker

NOW_MS = 1_000


def batch(
    offset: int,
    sequence: int,
    count: int = 1,
    producer_id: int = 1,
    epoch: int = 0,
    transactional: bool = False,
) -> BatchView:
    return BatchView(
        build_batch(
            [NewRecord(None, b"v", 1000 + offset)] * count,
            producer=Producer(producer_id, epoch, sequence),
            base_offset=offset,
            transactional=transactional,
        )
    )


def marker(offset: int, epoch: int = 0, coordinator_epoch: int = 5) -> BatchView:
    data = build_end_marker(ABORT, 1, epoch, coordinator_epoch, 9000)
    data[0:8] = struct.pack(">q", offset)
    return BatchView(data)


def refused(state: ProducerState, view: BatchView) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        state.check(view, NOW_MS)
    return caught.value.code


def test_a_new_leader_awaits_the_first_batches_of_a_new_epoch() -> None:
    state = ProducerState()
    state.append(batch(0, 0), NOW_MS)
    state.refused.await_skipped(NOW_MS + 1)
    assert refused(state, batch(1, 2, epoch=1)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert state.check(batch(1, 0, epoch=1), NOW_MS) is None
    state.refused.await_skipped(NOW_MS)
    assert refused(state, batch(1, 2, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_new_producer_may_start_anywhere() -> None:
    assert ProducerState().check(batch(0, 77), NOW_MS) is None


def test_the_next_sequence_is_accepted_and_no_other() -> None:
    state = ProducerState()
    state.append(batch(0, 0, 3), 0)
    assert state.check(batch(3, 3), NOW_MS) is None
    assert refused(state, batch(3, 4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(state, batch(3, 1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_last_five_batches_are_duplicates_and_earlier_ones_out_of_order() -> None:
    state = ProducerState()
    for number in range(7):
        state.append(batch(10 * number, 2 * number, 2), 0)
    for number in range(2, 7):
        found = state.check(batch(999, 2 * number, 2), NOW_MS)
        assert found is not None and found.first_offset == 10 * number
        assert found.last_offset == 10 * number + 1
    assert refused(state, batch(999, 2, 2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    # Another range of known sequences is not what was sent.
    assert refused(state, batch(999, 12, 1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_older_epoch_is_fenced_and_a_newer_one_starts_at_zero() -> None:
    state = ProducerState()
    state.append(batch(0, 0, epoch=3), 0)
    assert refused(state, batch(1, 1, epoch=2)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(state, batch(1, 1, epoch=4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert state.check(batch(1, 0, epoch=4), NOW_MS) is None
    state.append(batch(1, 0, epoch=4), 0)
    entry = state.entry(1)
    assert entry is not None and len(entry.batches) == 1


def test_sequences_wrap_at_two_to_the_31() -> None:
    state = ProducerState()
    state.append(batch(0, MAX_SEQUENCE - 1, 2), 0)
    assert refused(state, batch(2, 1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert state.check(batch(2, 0), NOW_MS) is None
    state.append(batch(2, 0, 2), 0)
    duplicate = state.check(batch(9, MAX_SEQUENCE - 1, 2), NOW_MS)
    assert duplicate is not None and duplicate.first_offset == 0


def test_a_batch_across_the_wrap_is_one_range() -> None:
    state = ProducerState()
    state.append(batch(0, MAX_SEQUENCE, 3), 0)
    entry = state.entry(1)
    assert entry is not None and entry.last_sequence == 1
    assert entry.batches[0].first_sequence == MAX_SEQUENCE
    assert state.check(batch(5, MAX_SEQUENCE, 3), NOW_MS) is not None
    assert state.check(batch(3, 2), NOW_MS) is None


def test_an_append_can_be_taken_back() -> None:
    state = ProducerState()
    first = state.append(batch(0, 0), 0)
    before = state.entries()
    second = state.append(batch(1, 1), 0)
    state.undo(second)
    assert state.entries() == before
    state.undo(first)
    assert len(state) == 0


def test_what_could_not_be_written_must_come_before_what_was_sent_behind_it() -> None:
    state = ProducerState()
    first, second, third = batch(0, 7, 4), batch(4, 11), batch(5, 12)
    undos = [state.append(each, 0) for each in (first, second)]
    for undo in reversed(undos):
        state.take_back(undo, ErrorCode.KAFKA_STORAGE_ERROR, NOW_MS)
    assert len(state) == 0
    assert refused(state, second) == ErrorCode.KAFKA_STORAGE_ERROR
    assert refused(state, third) == ErrorCode.KAFKA_STORAGE_ERROR
    assert state.check(batch(0, 0, epoch=1), NOW_MS) is None, "the producer has given it up"
    assert state.check(batch(0, 7, 1, producer_id=2), NOW_MS) is None
    assert state.check(first, NOW_MS) is None
    state.append(first, 0)
    assert state.check(second, NOW_MS) is None
    assert refused(state, third) == ErrorCode.KAFKA_STORAGE_ERROR, "the second one comes again, too"
    assert state.expire(NOW_MS, 10) == 1
    assert state.check(third, NOW_MS + REFUSED_BATCH_AWAITED_MS) is None, "a producer as any other"


@pytest.mark.rule("V38")
def test_a_known_producers_batches_behind_a_refused_one_get_the_same_error() -> None:
    state = ProducerState()
    state.append(batch(0, 0, 3), 0)
    later = [batch(4, 4), batch(5, 5, 2), batch(7, 7)]
    taken = batch(3, 3)
    state.take_back(state.append(taken, 0), ErrorCode.KAFKA_STORAGE_ERROR, NOW_MS)
    for each in later:
        assert refused(state, each) == ErrorCode.KAFKA_STORAGE_ERROR
    for each in (taken, *later):
        assert state.check(each, NOW_MS) is None
        state.append(each, 0)
    assert len(state.refused) == 0
    assert refused(state, batch(9, 9)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert state.check(later[1], NOW_MS) is not None, "a batch that is repeated stays a duplicate"


@pytest.mark.rule("V38")
def test_a_new_epochs_batches_behind_its_refused_first_one_get_the_same_error() -> None:
    state = ProducerState()
    state.append(batch(0, 0, 3), 0)
    state.refused.add(1, 1, (0, 4), ErrorCode.NOT_ENOUGH_REPLICAS, NOW_MS)
    assert refused(state, batch(3, 5, epoch=1)) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert refused(state, batch(3, 5, epoch=2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(state, batch(3, 4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    state.append(batch(3, 0, 5, epoch=1), 0)
    assert state.check(batch(8, 5, epoch=1), NOW_MS) is None


def test_a_marker_that_is_taken_back_is_not_awaited() -> None:
    state = ProducerState()
    state.append(batch(0, 0, transactional=True), 0)
    for epoch in (0, 1):
        state.take_back(state.append(marker(1, epoch), 0), ErrorCode.KAFKA_STORAGE_ERROR, NOW_MS)
    assert len(state.refused) == 0
    state.clear()
    state.take_back(state.append(marker(1), 0), ErrorCode.KAFKA_STORAGE_ERROR, NOW_MS)
    assert len(state.refused) == 0


def test_a_silent_producer_is_forgotten_by_our_clock_not_by_its_timestamps() -> None:
    state = ProducerState()
    state.append(batch(0, 0), now_ms=10_000)
    assert state.expire(10_999, 1000) == 0
    assert state.expire(11_000, 1000) == 1
    assert state.entry(1) is None


def test_the_number_of_producers_is_bounded_and_the_silent_go_first() -> None:
    state = ProducerState(limit=3)
    for producer_id in (1, 2, 3):
        state.append(batch(producer_id, 0, producer_id=producer_id), 0)
    state.append(batch(4, 1, producer_id=1), 0)
    state.append(batch(5, 0, producer_id=4), 0)
    assert list(state.entries()) == [3, 1, 4]


def test_a_marker_ends_the_transaction_and_a_new_epoch_forgets_batches() -> None:
    state = ProducerState()
    state.append(batch(0, 0, transactional=True), 0)
    entry = state.entry(1)
    assert entry is not None and entry.transaction_start == 0
    assert state.expire(10**9, 1) == 0, "an open transaction is kept"
    state.append(marker(1), 0)
    entry = state.entry(1)
    assert entry is not None
    assert (entry.transaction_start, entry.coordinator_epoch) == (-1, 5)
    assert len(entry.batches) == 1
    state.append(marker(2, epoch=1), 0)
    entry = state.entry(1)
    assert entry is not None and entry.batches == () and entry.last_sequence == -1
    assert state.check(batch(3, 0, epoch=1), NOW_MS) is None


# truncation


@pytest.mark.rule("V38")
def test_truncation_goes_back_to_remembered_batches() -> None:
    state = ProducerState()
    for number in range(4):
        state.append(batch(number, number), 0)
    assert state.truncate_to(2)
    entry = state.entry(1)
    assert entry is not None and entry.last_sequence == 1
    assert state.check(batch(2, 2), NOW_MS) is None


def test_truncation_forgets_who_was_first_seen_beyond() -> None:
    state = ProducerState()
    state.append(batch(5, 0), 0)
    assert state.truncate_to(5)
    assert state.entry(1) is None


def test_truncation_beyond_what_is_remembered_changes_nothing_and_says_so() -> None:
    state = ProducerState()
    for number in range(8):
        state.append(batch(number, number), 0)
    before = state.entries()
    assert not state.truncate_to(2)
    assert state.entries() == before
    transactional = ProducerState()
    transactional.append(batch(0, 0, transactional=True), 0)
    transactional.append(marker(1), 0)
    assert not transactional.truncate_to(1)
    assert transactional.truncate_to(0)
    assert len(transactional) == 0


# snapshots


def test_a_snapshot_brings_every_remembered_batch_back() -> None:
    state = ProducerState()
    for number in range(7):
        state.append(batch(number, number), 0)
    state.append(batch(7, 0, producer_id=2, epoch=4), 0)
    state.append(marker(8, epoch=1), 0)
    again = ProducerState.from_snapshot(state.to_snapshot(), now_ms=0)
    for producer_id, entry in state.entries().items():
        found = again.entry(producer_id)
        assert found is not None
        assert found._replace(first_offset=0, last_timestamp_ms=0) == entry._replace(
            first_offset=0, last_timestamp_ms=0
        )


def test_kafka_reads_the_last_batch_of_each_producer() -> None:
    """Kafka's reader puts one entry after the other into a map: the last one must be it."""
    state = ProducerState()
    for number in range(3):
        state.append(batch(number, number), 0)
    rows = {row.producer_id: row for row in read_snapshot(state.to_snapshot())}
    assert rows[1].last_sequence == 2 and rows[1].last_offset == 2


def test_a_damaged_snapshot_is_found() -> None:
    state = ProducerState()
    state.append(batch(0, 0), 0)
    good = state.to_snapshot()
    for position in range(len(good)):
        broken = bytearray(good)
        broken[position] ^= 1
        with pytest.raises(DamagedSnapshot):
            read_snapshot(bytes(broken))
    for size in range(len(good)):
        with pytest.raises(DamagedSnapshot):
            read_snapshot(good[:size])


# against a simple model


@dataclass
class Model:
    """Every batch ever accepted, in order; decides by looking at all of them."""

    batches: list[tuple[int, int, int, int, int]] = field(default_factory=list)

    def decide(self, producer_id: int, epoch: int, first: int, count: int) -> str:
        own = [b for b in self.batches if b[0] == producer_id]
        if not own:
            return "new"
        latest = max(b[1] for b in own)
        if epoch < latest:
            return "fenced"
        if epoch > latest:
            return "new" if first == 0 else "out of order"
        same = [b for b in own if b[1] == epoch]
        last = (first + count - 1) & MAX_SEQUENCE
        if any(b[2] == first and b[3] == last for b in same[-5:]):
            return "duplicate"
        return "new" if first == (same[-1][3] + 1) & MAX_SEQUENCE else "out of order"


@examples(80 if FACTOR == 1 else 150)
@given(data=st.data())
def test_decisions_are_those_of_a_simple_model(data: st.DataObject) -> None:
    state, model = ProducerState(), Model()
    undos: list[Undo] = []
    base = data.draw(st.sampled_from([0, MAX_SEQUENCE - 6]))
    offset = 0
    for _ in range(data.draw(st.integers(1, 40))):
        producer_id = data.draw(st.integers(1, 2))
        if undos and data.draw(st.integers(0, 9)) == 0:
            state.undo(undos.pop())
            offset = model.batches.pop()[4]
            continue
        epoch = data.draw(st.integers(0, 2))
        own = [b for b in model.batches if b[0] == producer_id and b[1] == epoch]
        start = (own[-1][3] + 1) & MAX_SEQUENCE if own else base
        first = (start + data.draw(st.sampled_from([0, 0, 0, 0, -1, -2, -3, 1]))) & MAX_SEQUENCE
        if data.draw(st.integers(0, 5)) == 0:
            first = 0
        count = data.draw(st.integers(1, 3))
        view = batch(offset, first, count, producer_id, epoch)
        expected = model.decide(producer_id, epoch, first, count)
        try:
            found = state.check(view, NOW_MS)
        except KafkaError as error:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
            assert expected == ("fenced" if error.code == code else "out of order")
            continue
        assert expected == ("new" if found is None else "duplicate")
        if found is not None:
            assert isinstance(found, BatchMetadata) and found.first_sequence == first
            continue
        undos.append(state.append(view, 0))
        last = (first + count - 1) & MAX_SEQUENCE
        model.batches.append((producer_id, epoch, first, last, offset))
        offset += count
