"""Records on their way into batches: partitions, sequences, sizes, and what is sent again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.client.fake_cluster import CLOSE, FakeCluster

from tidelog.client.partitioning import murmur2, partition_of
from tidelog.client.sending import BATCH_BYTES, RecordSender, SendOptions, TooLargeError
from tidelog.core.errors import ErrorCode, KafkaError, TidelogError
from tidelog.core.limits import MAX_REQUEST_BYTES
from tidelog.records import compression
from tidelog.records.batch import BatchView, check
from tidelog.records.builder import NewRecord
from tidelog.records.reader import iter_records
from tidelog.runtime.blocking import BlockingClient
from tidelog.wire.messages.init_producer_id import InitProducerIdResponse
from tidelog.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tidelog.wire.registry import INIT_PRODUCER_ID, PRODUCE

TOO_LARGE = 10


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_keys_hash_as_in_kafkas_own_producer(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF
    assert partition_of(key, 7) == (expected & 0x7FFFFFFF) % 7


class Topic:
    """A topic of two partitions that takes batches up to a size, and keeps them."""

    def __init__(self) -> None:
        self.cluster = FakeCluster(1)
        self.cluster.topics["t"] = [1, 1]
        self.max_bytes = 1 << 30
        self.batches: dict[int, list[bytes]] = {0: [], 1: []}
        self.refused = 0
        #: Answers that get lost though the batch is stored.
        self.lost_answers = 0
        self.cluster[1].on(PRODUCE, self._take)
        self.producer_ids = iter(range(77, 100))
        self.cluster[1].on(
            INIT_PRODUCER_ID, lambda _: InitProducerIdResponse(0, 0, next(self.producer_ids), 3)
        )

    def _take(self, request: ProduceRequest) -> object:
        part = request.topic_data[0].partition_data[0]
        assert isinstance(part.records, bytes | bytearray | memoryview)
        data = bytes(part.records)
        error, offset = 0, -1
        view = BatchView(data)
        if len(data) > self.max_bytes:
            error = TOO_LARGE
            self.refused += 1
        elif view.producer_id >= 0 and view.base_sequence < self.known(part.index, view):
            offset = view.base_sequence  # it is there already
        else:
            offset = self.count(part.index)
            self.batches[part.index].append(data)
        if not error and self.lost_answers:
            self.lost_answers -= 1
            return CLOSE
        answer = PartitionProduceResponse(part.index, error_code=error, base_offset=offset)
        return ProduceResponse(responses=[TopicProduceResponse("t", [answer])])

    def views(self, partition: int) -> list[BatchView]:
        return [BatchView(batch) for batch in self.batches[partition]]

    def count(self, partition: int) -> int:
        return sum(view.record_count for view in self.views(partition))

    def known(self, partition: int, batch: BatchView) -> int:
        """The next sequence of a batch's producer."""
        views = self.views(partition)
        return sum(each.record_count for each in views if each.producer_id == batch.producer_id)

    def values(self, partition: int) -> list[bytes | None]:
        found = []
        for view in self.views(partition):
            check(view)
            found += [None if it.value is None else bytes(it.value) for it in iter_records(view)]
        return found


@pytest.fixture
def topic() -> Iterator[Topic]:
    made = Topic()
    yield made
    made.cluster.close()


@pytest.fixture
def client(topic: Topic) -> Iterator[BlockingClient]:
    with BlockingClient(topic.cluster.bootstrap, timeout_ms=5_000) as blocking:
        yield blocking


def send(
    client: BlockingClient,
    records: list[NewRecord],
    options: SendOptions | None = None,
    partition: int | None = None,
) -> RecordSender:
    sender = client.sender("t", [0, 1], options or SendOptions())
    for record in records:
        client.run(sender.add(record, partition))
    client.run(sender.flush())
    return sender


def test_records_with_keys_go_where_their_keys_belong(topic: Topic, client: BlockingClient) -> None:
    keys = [b"%d" % number for number in range(20)]
    sender = send(client, [NewRecord(key, b"v" + key) for key in keys])
    for number in (0, 1):
        assert topic.values(number) == [
            b"v" + key for key in keys if partition_of(key, 2) == number
        ]
    assert sender.records_sent == 20
    assert sender.sent[0].first_offset == 0
    assert sender.sent[0].last_offset == topic.count(0) - 1


def test_records_without_keys_change_partition_with_every_batch(
    topic: Topic, client: BlockingClient
) -> None:
    value = b"x" * (BATCH_BYTES // 4)
    send(client, [NewRecord(None, value)] * 8)
    assert [topic.count(0), topic.count(1)] == [5, 3]
    assert [len(topic.views(0)), len(topic.views(1))] == [2, 1]


def test_sequences_go_on_from_batch_to_batch(topic: Topic, client: BlockingClient) -> None:
    value = b"x" * (BATCH_BYTES // 2)
    send(client, [NewRecord(None, value)] * 3, partition=1)
    assert [(view.producer_id, view.producer_epoch) for view in topic.views(1)] == [(77, 3)] * 3
    assert [view.base_sequence for view in topic.views(1)] == [0, 1, 2]


def test_a_batch_whose_answer_was_lost_is_stored_once(topic: Topic, client: BlockingClient) -> None:
    topic.lost_answers = 1
    sender = send(client, [NewRecord(None, b"a"), NewRecord(None, b"b")], partition=0)
    assert topic.values(0) == [b"a", b"b"]
    assert (sender.sent[0].first_offset, sender.sent[0].last_offset) == (0, 1)
    assert len(topic.cluster[1].asked(PRODUCE)) == 2


def test_what_follows_a_batch_whose_outcome_is_not_known_is_no_repetition_of_it(
    topic: Topic,
) -> None:
    topic.lost_answers = 1_000_000
    with BlockingClient(topic.cluster.bootstrap, timeout_ms=200) as client:
        sender = client.sender("t", [0, 1], SendOptions())
        client.run(sender.add(NewRecord(None, b"a"), 0))
        with pytest.raises(TidelogError):
            client.run(sender.flush())
        topic.lost_answers = 0
        client.run(sender.add(NewRecord(None, b"b"), 0))
        client.run(sender.flush())
    assert topic.values(0) == [b"a", b"b"]
    assert [view.producer_id for view in topic.views(0)] == [77, 78]


def test_without_idempotence_no_producer_id_is_asked_for(
    topic: Topic, client: BlockingClient
) -> None:
    options = SendOptions(acks=1, idempotent=False, codec=compression.ZSTD)
    send(client, [NewRecord(None, b"a")], options, 0)
    (view,) = topic.views(0)
    assert (view.producer_id, view.compression) == (-1, compression.ZSTD)
    assert topic.cluster[1].asked(INIT_PRODUCER_ID) == []


def test_a_batch_that_is_too_large_is_halved_until_it_fits(
    topic: Topic, client: BlockingClient
) -> None:
    topic.max_bytes = 1_500
    values = [b"%d" % number * 500 for number in range(5)]
    sender = send(client, [NewRecord(None, value) for value in values], partition=0)
    assert topic.values(0) == values
    assert topic.refused > 0
    assert [view.base_sequence for view in topic.views(0)] == [0, 2, 3]
    assert sender.records_sent == 5


def test_a_record_that_is_too_large_by_itself_says_so(topic: Topic, client: BlockingClient) -> None:
    topic.max_bytes = 200
    sender = client.sender("t", [0, 1], SendOptions())
    for value in (b"small", b"x" * 300, b"behind"):
        client.run(sender.add(NewRecord(None, value), 0))
    with pytest.raises(TooLargeError, match="more than topic 't' takes \\(max.message.bytes\\)"):
        client.run(sender.flush())
    assert topic.values(0) == [b"small"]
    assert sender.records_sent == 1


def test_what_no_request_can_hold_is_not_sent(topic: Topic, client: BlockingClient) -> None:
    sender = client.sender("t", [0, 1], SendOptions())
    with pytest.raises(TooLargeError, match=f"larger than {MAX_REQUEST_BYTES}"):
        client.run(sender.add(NewRecord(None, bytes(MAX_REQUEST_BYTES)), 0))
    assert topic.cluster[1].asked(PRODUCE) == []


def test_another_refusal_is_raised_as_it_is(topic: Topic, client: BlockingClient) -> None:
    answer = PartitionProduceResponse(0, error_code=87, base_offset=-1)
    topic.cluster[1].on(
        PRODUCE, lambda _: ProduceResponse(responses=[TopicProduceResponse("t", [answer])])
    )
    with pytest.raises(KafkaError) as caught:
        send(client, [NewRecord(None, b"a")], partition=0)
    assert caught.value.code is ErrorCode.INVALID_RECORD
