"""ListOffsets and OffsetForLeaderEpoch, question by question."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.support.broker.fakes import CONNECTION, FakeBroker, a_cluster, settle, state

from tidelog.broker.apis import list_offsets, offset_for_leader_epoch
from tidelog.broker.server.requests import Pending, Request
from tidelog.core.completion import Completion
from tidelog.core.errors import ErrorCode, KafkaError, StorageError
from tidelog.core.types import TopicPartition
from tidelog.wire.codec import RequestHeader, encode_response
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


async def a_leader() -> FakeBroker:
    """Broker 1 leads epoch 4 with records of epochs 1, 1, 1, 4, 4, all committed."""
    broker = a_cluster()[1]
    await broker.command(state(leader_epoch=4, isr=(1,), replicas=(1,), is_new=True))
    log = broker.log()
    log.epochs.clear()
    log.fill(1, 1, 1, 4, 4)
    broker.produce(1)
    return broker


async def list_offset(
    broker: FakeBroker,
    timestamp: int,
    *,
    topic: str = "t",
    epoch: int = -1,
    version: int = 9,
    until: Completion[Any] | None = None,
) -> Any:
    message = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(topic, [ListOffsetsPartition(0, epoch, timestamp)])]
    )
    request: Any = Request(RequestHeader(2, version, 0, None), message, None, 0)  # type: ignore[arg-type]  # a fake stands in
    answer: Any = list_offsets.handle(broker, request)  # type: ignore[arg-type]  # a fake stands in
    if isinstance(answer, Pending):
        got: list[Any] = []
        answer.deliver_to(got.append)
        if until is not None:
            await until
        await settle()
        (answer,) = got
    return answer.topics[0].partitions[0]


def end_of_epoch(broker: FakeBroker, epoch: int, *, current: int = -1, topic: str = "t") -> Any:
    message = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic, [OffsetForLeaderPartition(0, current, epoch)])]
    )
    request: Any = Request(RequestHeader(23, 4, 0, None), message, None, 0)  # type: ignore[arg-type]  # a fake stands in
    return offset_for_leader_epoch.handle(broker, request).topics[0].partitions[0]  # type: ignore[arg-type]  # a fake stands in


def test_earliest_and_latest_come_with_their_leader_epochs() -> None:
    async def story() -> None:
        broker = await a_leader()
        latest = await list_offset(broker, -1)
        assert (latest.offset, latest.leader_epoch, latest.timestamp) == (6, 4, -1)
        earliest = await list_offset(broker, -2)
        assert (earliest.offset, earliest.leader_epoch) == (0, 1)

    run(story())


@pytest.mark.parametrize("timestamp", [2, -3])
@pytest.mark.parametrize("leads_anew", [False, True])
def test_who_lost_the_leadership_during_a_search_answers_nothing(
    timestamp: int, leads_anew: bool
) -> None:
    async def story() -> None:
        broker = await a_leader()
        log, found = broker.log(), Completion[Any]()
        log.offset_for_timestamp = lambda *asked: found  # type: ignore[method-assign]  # replaced by the test
        asking = asyncio.ensure_future(list_offset(broker, timestamp, until=found))
        await settle()
        await broker.command(state(2, leader_epoch=5, isr=(1, 2), replicas=(1, 2)))
        if leads_anew:
            await broker.command(state(1, leader_epoch=6, isr=(1, 2), replicas=(1, 2)))
        found.resolve((2, 2, 1))
        answer = await asking
        assert (answer.error_code, answer.offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)

    run(story())


def test_a_timestamp_finds_the_first_record_that_is_not_older() -> None:
    async def story() -> None:
        broker = await a_leader()
        found = await list_offset(broker, 3)
        assert (found.timestamp, found.offset, found.leader_epoch) == (3, 3, 4)
        none = await list_offset(broker, 100)
        assert (none.error_code, none.offset, none.timestamp) == (0, -1, -1)

    run(story())


def test_the_largest_timestamp_is_that_of_a_record_that_may_be_seen() -> None:
    async def story() -> None:
        broker = await a_leader()
        assert (await list_offset(broker, -3)).offset == 5
        broker.log().max_timestamp = lambda: Completion.of((9, 6, 4))  # type: ignore[method-assign]  # replaced by the test
        assert (await list_offset(broker, -3)).offset == -1

    run(story())


def test_questions_that_cannot_be_answered_have_errors_of_their_own() -> None:
    async def story() -> None:
        broker = await a_leader()
        missing = await list_offset(broker, -1, topic="u")
        assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        fenced = await list_offset(broker, 3, epoch=3)
        assert fenced.error_code == ErrorCode.FENCED_LEADER_EPOCH
        log = broker.log()
        error = StorageError("/d", "pread", "/d/f", 5, 0)
        log.offset_for_timestamp = lambda *asked: Completion.failed(error)  # type: ignore[method-assign]  # replaced by the test
        assert (await list_offset(broker, 3)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        damage = KafkaError(ErrorCode.CORRUPT_MESSAGE)
        log.offset_for_timestamp = lambda *asked: Completion.failed(damage)  # type: ignore[method-assign]  # replaced by the test
        assert (await list_offset(broker, 3)).error_code == ErrorCode.CORRUPT_MESSAGE

    run(story())


@pytest.mark.parametrize(
    ("found", "replica", "offsets"),
    [([5, 0], -1, [3, 0]), ([5, 0], 2, [5, 0]), ([2, 0], -1, [2, 0]), ([], -1, [])],
)
def test_version_0_lists_the_begin_of_segments_up_to_the_high_watermark(
    found: list[int], replica: int, offsets: list[int]
) -> None:
    async def story() -> None:
        broker = await a_leader()
        partition = broker.partition(TopicPartition("t", 0))
        assert partition.leadership is not None
        partition.leadership.high_watermark = 3
        asked: list[Any] = []
        log: Any = broker.log()

        def offsets_before(*words: Any) -> list[int]:
            asked.append(words)
            return list(found)

        log.offsets_before = offsets_before
        wanted = ListOffsetsPartition(0, timestamp=-1, max_num_offsets=7)
        message = ListOffsetsRequest(replica_id=replica, topics=[ListOffsetsTopic("t", [wanted])])
        request: Any = Request(RequestHeader(2, 0, 0, None), message, CONNECTION, 0)
        answer: Any = list_offsets.handle(broker, request)  # type: ignore[arg-type]  # a fake stands in
        assert answer.topics[0].partitions[0].old_style_offsets == offsets
        assert asked == [(-1, 7, broker.clock.wall_ms())]
        encode_response(2, 0, 1, answer)
        refused = await list_offset(broker, -3, version=0)
        assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION

    run(story())


async def listed(broker: FakeBroker, *asked: tuple[str, int]) -> list[tuple[int, int]]:
    """(error, offset) for each of these topics' partition 0 and timestamps, in one request."""
    topics = [
        ListOffsetsTopic(topic, [ListOffsetsPartition(0, -1, timestamp)])
        for topic, timestamp in asked
    ]
    message = ListOffsetsRequest(replica_id=-1, topics=topics)
    request: Any = Request(RequestHeader(2, 9, 0, None), message, None, 0)  # type: ignore[arg-type]  # a fake stands in
    answer: Any = list_offsets.handle(broker, request)  # type: ignore[arg-type]  # a fake stands in
    if isinstance(answer, Pending):
        got: list[Any] = []
        answer.deliver_to(got.append)
        await settle()
        (answer,) = got
    found = [topic.partitions[0] for topic in answer.topics]
    return [(each.error_code, each.offset) for each in found]


def test_one_request_may_mix_lookups_and_known_offsets() -> None:
    async def story() -> None:
        unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        broker = await a_leader()
        assert await listed(broker, ("t", 3), ("none", -2)) == [(0, 3), unknown]
        assert await listed(broker, ("none", 3), ("t", -2)) == [unknown, (0, 0)]

    run(story())


@pytest.mark.parametrize("timestamp", [3, -2])
def test_a_partition_that_is_asked_of_twice_is_refused(timestamp: int) -> None:
    async def story() -> None:
        refused = (ErrorCode.INVALID_REQUEST, -1)
        unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        broker = await a_leader()
        asked = [("t", timestamp), ("none", timestamp), ("t", -1)]
        assert await listed(broker, *asked) == [refused, unknown, refused]

    run(story())


@pytest.mark.rule("V32")
def test_the_end_of_a_leader_epoch() -> None:
    async def story() -> None:
        broker = await a_leader()
        answers = {epoch: end_of_epoch(broker, epoch) for epoch in (0, 1, 2, 4, 5)}
        assert {
            epoch: (answer.leader_epoch, answer.end_offset) for epoch, answer in answers.items()
        } == {0: (0, 0), 1: (1, 3), 2: (1, 3), 4: (4, 6), 5: (-1, -1)}

    run(story())


def test_the_end_of_an_epoch_is_told_by_the_leader_only_and_fenced() -> None:
    async def story() -> None:
        broker = await a_leader()
        assert end_of_epoch(broker, 1, current=3).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert end_of_epoch(broker, 1, current=5).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        missing = end_of_epoch(broker, 1, topic="u")
        assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        broker.replicas.stop_leading("test")
        assert end_of_epoch(broker, 1).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(story())
