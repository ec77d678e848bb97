"""Record batches, whole and slightly wrong: for all readers, and through a broker and back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fuzz.broker_harness import TOPIC
from tests.fuzz.broker_targets import Broker, frame_of
from tests.fuzz.record_targets import Batches, Compression, Producers
from tests.fuzz.strategies import batches, damaged, wrong_batches
from tests.fuzz.test_frames import bounded
from tests.support.draws import examples
from tests.support.requests.by_version import produce_of, versions_of

from tidelog.records import compression
from tidelog.records.batch import BatchView, check
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.registry import FETCH, PRODUCE

BATCHES, COMPRESSION, PRODUCERS = Batches(), Compression(), Producers()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    made = Broker()
    yield made
    made.close()


@examples(300)
@given(whole=st.lists(batches(), min_size=1, max_size=3))
def test_whole_batches_are_read_by_all_readers(whole: list[bytes]) -> None:
    bounded(BATCHES, b"".join(whole))


@examples(1_000)
@given(wrong=wrong_batches())
def test_wrong_batches_are_refused_or_read_by_all_readers(wrong: bytes) -> None:
    bounded(BATCHES, wrong)


@examples(300)
@given(
    codec=st.integers(0, 6),
    bound=st.integers(0, 5000),
    plain=st.one_of(st.binary(max_size=50), st.integers(0, 70_000).map(bytes)),
    data=st.data(),
)
def test_damaged_compressed_bytes_are_refused_and_bombs_bounded(
    codec: int, bound: int, plain: bytes, data: st.DataObject
) -> None:
    whole = compression.compress(codec if codec in compression.NAMES else 0, plain)
    body = data.draw(st.one_of(st.just(whole), damaged(st.just(whole[:3000]))))
    bounded(COMPRESSION, bytes([codec]) + bound.to_bytes(2, "big") + body)


@examples(200)
@given(wrong=st.lists(wrong_batches(), min_size=1, max_size=3))
def test_what_producers_did_is_remembered_alike(wrong: list[bytes]) -> None:
    bounded(PRODUCERS, b"\0" + b"".join(wrong))


@examples(250)
@given(
    version=st.sampled_from(versions_of(PRODUCE)),
    batch=st.one_of(batches(), wrong_batches()),
    acks=st.sampled_from([-1, 0, 1, 7]),
)
def test_what_a_broker_takes_it_gives_back_whole(
    broker: Broker, version: int, batch: bytes, acks: int
) -> None:
    harness = broker.harness()
    request = produce_of(batch, TOPIC, 1)
    request.acks = acks
    answers = harness.exchange([frame_of(PRODUCE, version, request)])
    taken = [
        each.base_offset
        for answer in answers
        for topic in answer.responses
        for each in topic.partition_responses
        if each.error_code == 0 and each.base_offset >= 0
    ]
    for offset in taken:
        asked = FetchPartition(1, fetch_offset=offset, partition_max_bytes=1 << 20)
        wanted = FetchTopic(TOPIC, topic_id=bytes(16), partitions=[asked])
        fetch = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[wanted])
        (found,) = harness.ask(FETCH, 12, fetch).responses[0].partitions
        assert found.error_code == 0
        first = BatchView(found.records)
        check(first)
        assert first.base_offset <= offset <= first.last_offset
