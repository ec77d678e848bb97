"""Reading on and on: positions, limits, what is left out, what is gone; against fake logs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.client.fake_logs import FakeLogs, batch

from tidelog.client.consuming import Skip, read_records
from tidelog.client.fetching import AbortedRange
from tidelog.core.errors import ProtocolError
from tidelog.core.types import TopicPartition
from tidelog.records.control import ABORT, COMMIT, build_end_marker
from tidelog.runtime.blocking import BlockingClient
from tidelog.runtime.blocking_consumer import BlockingConsumer
from tidelog.wire.registry import FETCH

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def marker(offset: int, producer: int, kind: int) -> bytes:
    built = build_end_marker(kind, producer, 0, 0, 1_000)
    built[:8] = offset.to_bytes(8, "big")
    return bytes(built)


@pytest.fixture
def logs() -> Iterator[FakeLogs]:
    made = FakeLogs()
    made.create("t", 2)
    yield made
    made.close()


@pytest.fixture
def consumer(logs: FakeLogs) -> Iterator[BlockingConsumer]:
    with BlockingClient(logs.bootstrap, timeout_ms=5_000) as client:
        yield client.consumer()


def values(consumer: BlockingConsumer, **limits: int) -> list[bytes]:
    return [bytes(each.record.value or b"") for each in consumer.poll(max_wait_ms=0, **limits)]


class TestReadRecords:
    def test_begins_in_the_middle_of_a_batch(self) -> None:
        records, end = read_records(memoryview(batch(10, b"a", b"b", b"c") + batch(13, b"d")), 11)
        assert [(it.offset, bytes(it.value or b"")) for it in records] == [
            (11, b"b"),
            (12, b"c"),
            (13, b"d"),
        ]
        assert end == 14

    def test_half_a_batch_at_the_end_is_left_for_the_next_fetch(self) -> None:
        records, end = read_records(memoryview(batch(0, b"a") + batch(1, b"b")[:-3]), 0)
        assert ([it.offset for it in records], end) == ([0], 1)

    def test_aborted_transactions_are_left_out_and_committed_ones_are_not(self) -> None:
        log = (
            batch(0, b"open", producer=5)
            + batch(1, b"plain")
            + batch(2, b"other", producer=6)
            + marker(3, 5, ABORT)
            + batch(4, b"next", producer=5)
            + marker(5, 6, COMMIT)
            + marker(6, 5, COMMIT)
        )
        records, end = read_records(memoryview(log), 0, [AbortedRange(5, 0)])
        assert [bytes(it.value or b"") for it in records] == [b"plain", b"other", b"next"]
        assert end == 7
        everything, _ = read_records(memoryview(log), 0)
        assert len(everything) == 4

    def test_a_damaged_batch_is_refused(self) -> None:
        damaged = bytearray(batch(0, b"a"))
        damaged[-1] ^= 1
        with pytest.raises(ProtocolError, match="CRC"):
            read_records(memoryview(damaged), 0)


class TestPartitions:
    def test_records_come_in_order_and_positions_follow_what_was_handed_out(
        self, logs: FakeLogs, consumer: BlockingConsumer
    ) -> None:
        logs.append(T0, batch(0, b"a", b"b"), batch(2, b"c"))
        consumer.seek(T0, 0)
        assert values(consumer, max_records=2) == [b"a", b"b"]
        assert consumer.positions == {T0: 2}
        assert not consumer.is_at_end
        assert values(consumer, max_records=2) == [b"c"]
        assert consumer.is_at_end
        assert len(logs[1].asked(FETCH)) == 1

    def test_an_empty_partition_is_at_its_end_once_it_was_looked_at(
        self, consumer: BlockingConsumer
    ) -> None:
        consumer.seek(T0, 0)
        assert not consumer.is_at_end
        assert values(consumer) == []
        assert consumer.is_at_end

    def test_what_is_left_out_at_the_end_counts_as_read(
        self, logs: FakeLogs, consumer: BlockingConsumer
    ) -> None:
        logs.append(T0, batch(0, b"a", producer=5), marker(1, 5, COMMIT))
        consumer.seek(T0, 0)
        assert values(consumer) == [b"a"]
        assert consumer.positions == {T0: 2}
        assert consumer.is_at_end

    def test_deleted_records_are_skipped_and_told(
        self, logs: FakeLogs, consumer: BlockingConsumer
    ) -> None:
        logs.append(T0, batch(0, b"a"), batch(1, b"b"), batch(2, b"c"))
        logs.log_starts[T0] = 2
        consumer.seek(T0, 0)
        assert values(consumer) == []
        assert values(consumer) == [b"c"]
        assert consumer.take_skips() == [Skip(T0, 0, 2)]
        assert consumer.take_skips() == []

    def test_behind_the_end_it_goes_on_at_the_end(
        self, logs: FakeLogs, consumer: BlockingConsumer
    ) -> None:
        logs.append(T0, batch(0, b"a"))
        consumer.seek(T0, 9)
        assert values(consumer) == []
        assert consumer.take_skips() == [Skip(T0, 9, 1)]
        logs.append(T0, batch(1, b"b"))
        assert values(consumer) == [b"b"]

    def test_a_batch_that_is_damaged_names_its_partition(
        self, logs: FakeLogs, consumer: BlockingConsumer
    ) -> None:
        damaged = bytearray(batch(4, b"a"))
        damaged[-1] ^= 1
        logs.append(T1, bytes(damaged))
        consumer.seek(T1, 0)
        with pytest.raises(ProtocolError, match="t-1, at or after offset 0: .*CRC"):
            consumer.poll(max_wait_ms=0)

    def test_an_idle_consumer_waits_at_the_broker_and_a_busy_one_does_not(
        self, logs: FakeLogs, consumer: BlockingConsumer
    ) -> None:
        consumer.seek(T0, 0)
        consumer.poll(max_wait_ms=300)
        consumer.poll(max_wait_ms=300)
        logs.append(T0, batch(0, b"a"))
        consumer.poll(max_wait_ms=300)
        consumer.poll(max_wait_ms=300)
        assert [each.max_wait_ms for each in logs[1].asked(FETCH)] == [0, 300, 300, 0]
