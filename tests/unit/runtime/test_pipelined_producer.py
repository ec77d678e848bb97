"""The producer with several requests in flight, over real sockets and scripted leaders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.client.fake_cluster import CLOSE
from tests.support.client.fake_leaders import NOT_LEADER, FakeLeaders, answer_all

from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import TopicPartition
from tidelog.records import compression
from tidelog.records.batch import HEADER_BYTES, BatchView
from tidelog.records.builder import NewRecord, build_batch
from tidelog.runtime.pipelined_producer import DeliveryError, PipelinedProducer, ProducerOptions
from tidelog.wire.messages.produce import BatchIndexAndErrorMessage
from tidelog.wire.registry import METADATA, PRODUCE

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def leaders() -> Iterator[FakeLeaders]:
    fake = FakeLeaders(2)
    fake.create("t", [1, 2])
    yield fake
    fake.close()


def producer(leaders: FakeLeaders, **options: Any) -> PipelinedProducer:
    return PipelinedProducer(leaders.bootstrap, ProducerOptions(**options))


def add(to: PipelinedProducer, tp: TopicPartition, first: int, count: int = 3) -> None:
    rows = range(first, first + count)
    records = [NewRecord(b"k", b"%d" % row, 5) for row in rows]
    to.add(tp, build_batch(records)[HEADER_BYTES:], rows, (5, 5))


def expected(first: int, end: int) -> list[bytes]:
    return [b"%d" % row for row in range(first, end)]


def test_batches_arrive_once_in_order_at_their_leaders(leaders: FakeLeaders) -> None:
    sender = producer(leaders)
    assert sender.partition_count("t") == 2
    for first in range(0, 60, 3):
        add(sender, T0, first)
        add(sender, T1, first)
    sender.flush()
    assert leaders.values("t", 0) == leaders.values("t", 1) == expected(0, 60)
    assert sender.acknowledged == {T0: 60, T1: 60}
    assert sender.acknowledged_records == 120
    sender.close()


@pytest.mark.parametrize("codec", [compression.GZIP, compression.LZ4, compression.ZSTD])
def test_batches_are_compressed(leaders: FakeLeaders, codec: int) -> None:
    sender = producer(leaders, codec=codec)
    sender.partition_count("t")
    add(sender, T0, 0, 500)
    sender.flush()
    sender.close()
    (batch,) = leaders.batches[T0]
    assert BatchView(batch).compression == codec
    assert leaders.values("t", 0) == expected(0, 500)


def test_a_lost_connection_resends_what_was_in_flight(leaders: FakeLeaders) -> None:
    lost: list[int] = []

    def after(node: int, request: Any, response: Any) -> Any:
        lost.append(node)
        return CLOSE if len(lost) in (2, 3, 7) else response

    leaders.after = after
    sender = producer(leaders)
    sender.partition_count("t")
    for first in range(0, 90, 3):
        add(sender, T0, first)
    sender.flush()
    sender.close()
    assert leaders.values("t", 0) == expected(0, 90)


def test_a_new_leader_gets_the_rest(leaders: FakeLeaders) -> None:
    def before(node: int, request: Any) -> Any:
        if len(leaders.batches[T0]) < 4 or leaders.topics["t"][0] == 2:
            return None
        leaders.create("t", [2, 2])
        return CLOSE

    leaders.before = before
    sender = producer(leaders)
    sender.partition_count("t")
    for first in range(0, 60, 3):
        add(sender, T0, first)
    sender.flush()
    sender.close()
    assert leaders.values("t", 0) == expected(0, 60)
    assert leaders[2].asked(PRODUCE)


def test_a_batch_that_the_topic_finds_too_large_is_split(leaders: FakeLeaders) -> None:
    leaders.max_message_bytes = 400
    sender = producer(leaders)
    sender.partition_count("t")
    add(sender, T0, 0, 100)
    add(sender, T0, 100, 10)
    sender.flush()
    sender.close()
    assert leaders.values("t", 0) == expected(0, 110)
    assert max(map(len, leaders.batches[T0])) <= 400


def test_a_record_that_is_too_large_is_named(leaders: FakeLeaders) -> None:
    leaders.max_message_bytes = 80
    sender = producer(leaders)
    sender.partition_count("t")
    row = 41
    record = NewRecord(None, bytes(100))
    with pytest.raises(
        DeliveryError, match="t-0: row 41 was not written: .*max.message.bytes"
    ) as e:
        sender.add(T0, build_batch([record])[HEADER_BYTES:], [row], (0, 0))
        sender.flush()
    assert (e.value.tp, list(e.value.rows)) == (T0, [row])
    sender.close()


def test_records_that_the_topic_rejects_are_named_with_their_reasons(leaders: FakeLeaders) -> None:
    bad = [BatchIndexAndErrorMessage(0, "no key"), BatchIndexAndErrorMessage(2, "no key either")]
    leaders.before = lambda node, request: answer_all(
        request, ErrorCode.INVALID_RECORD, record_errors=bad, error_message="bad records"
    )
    sender = producer(leaders)
    sender.partition_count("t")
    with pytest.raises(DeliveryError) as e:
        add(sender, T0, 20)
        sender.flush()
    assert list(e.value.rows) == [20, 22]
    assert "row 20: no key; row 22: no key either" in str(e.value)
    sender.close()


def test_an_unknown_topic_is_an_error_after_some_patience(
    leaders: FakeLeaders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.runtime.pipelined_producer.UNKNOWN_TOPIC_PATIENCE_MS", 100)
    sender = producer(leaders)
    with pytest.raises(KafkaError, match="there is no topic 'nope'"):
        sender.partition_count("nope")
    assert len(leaders[1].asked(METADATA)) > 1
    sender.close()


def test_the_delivery_timeout_names_rows_and_the_last_error(leaders: FakeLeaders) -> None:
    leaders.before = lambda node, request: answer_all(request, NOT_LEADER)
    sender = producer(leaders, delivery_timeout_ms=300, request_timeout_ms=200)
    sender.partition_count("t")
    with pytest.raises(DeliveryError, match="3 were not written: 300 ms .*NOT_LEADER") as e:
        add(sender, T1, 1)
        sender.flush()
    assert list(e.value.rows) == [1, 2, 3]
    sender.close()


def test_a_leader_that_does_not_respond_is_asked_again_elsewhere(leaders: FakeLeaders) -> None:
    silent: list[int] = []

    def after(node: int, request: Any, response: Any) -> Any:
        silent.append(node)
        return response if len(silent) > 1 else None

    leaders.after = after
    sender = producer(leaders, request_timeout_ms=200, delivery_timeout_ms=20_000)
    sender.partition_count("t")
    add(sender, T0, 0)
    sender.flush()
    sender.close()
    assert leaders.values("t", 0) == expected(0, 3)
    assert len(silent) == 2


def test_acks_0_expects_no_response(leaders: FakeLeaders) -> None:
    sender = producer(leaders, acks=0, idempotent=False)
    sender.partition_count("t")
    for first in range(0, 300, 3):
        add(sender, T0, first)
    sender.flush()
    assert sender.acknowledged_records == 300
    sender.close()


def test_held_bytes_are_bounded(leaders: FakeLeaders) -> None:
    sender = producer(leaders, buffer_bytes=1_000)
    sender.partition_count("t")
    for first in range(0, 600, 60):
        add(sender, T0, first, 60)
        assert sender._held_bytes <= 2_000
    sender.flush()
    assert sender._held_bytes == 0
    sender.close()
    assert leaders.values("t", 0) == expected(0, 600)
