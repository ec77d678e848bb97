"""DeleteRecords, question by question."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from tests.support.broker.fakes import FakeBroker, a_cluster, replicate, settle

from tidelog.broker.apis import delete_records
from tidelog.broker.server.requests import Request
from tidelog.core.errors import ErrorCode
from tidelog.log.config import LogConfig
from tidelog.wire.codec import RequestHeader
from tidelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


def ask(broker: FakeBroker, *wanted: tuple[str, int, int], timeout_ms: int = 1_000) -> list[Any]:
    """(topic, partition, offset) each; the answer appears in the list."""
    topics = [
        DeleteRecordsTopic(name, [DeleteRecordsPartition(number, offset)])
        for name, number, offset in wanted
    ]
    message = DeleteRecordsRequest(topics, timeout_ms)
    request = Request(RequestHeader(21, 2, 0, None), message, None, 0)  # type: ignore[arg-type]  # a fake stands in
    answers: list[Any] = []
    delete_records.handle(broker, request).deliver_to(answers.append)  # type: ignore[arg-type]  # a fake stands in
    return answers


def outcomes(answer: Any) -> list[tuple[ErrorCode, int]]:
    return [
        (ErrorCode(one.error_code), one.low_watermark)
        for topic in answer.topics
        for one in topic.partitions
    ]


async def with_records(count: int = 4) -> dict[int, FakeBroker]:
    cluster = a_cluster()
    await replicate(cluster)
    for broker in cluster.values():
        broker.log().config = LogConfig()
    cluster[1].produce(count)
    await settle()
    return cluster


def test_the_answer_comes_when_all_replicas_have_followed() -> None:
    async def story() -> None:
        cluster = await with_records()
        answers = ask(cluster[1], ("t", 0, 3))
        await settle()
        for _ in range(20):
            await cluster[1].clock.advance(100)
        [answer] = answers
        assert outcomes(answer) == [(ErrorCode.NONE, 3)]
        assert cluster[1].log().log_start_offset == 3

    run(story())


def test_minus_one_stands_for_all_that_is_committed() -> None:
    async def story() -> None:
        cluster = await with_records()
        answers = ask(cluster[1], ("t", 0, -1))
        for _ in range(20):
            await cluster[1].clock.advance(100)
        assert outcomes(answers[0]) == [(ErrorCode.NONE, 4)]

    run(story())


def test_replicas_that_do_not_follow_in_time_are_not_waited_for() -> None:
    async def story() -> None:
        cluster = await with_records()
        cluster[3].fetchers.close()
        answers = ask(cluster[1], ("t", 0, 3), timeout_ms=500)
        await cluster[1].clock.advance(400)
        assert answers == []
        await cluster[1].clock.advance(200)
        assert outcomes(answers[0]) == [(ErrorCode.REQUEST_TIMED_OUT, -1)]
        assert not cluster[1].partition().watchers.deletions_wait
        assert cluster[1].log().log_start_offset == 3

    run(story())


def test_a_client_that_is_gone_is_not_waited_for() -> None:
    async def story() -> None:
        cluster = await with_records()
        cluster[3].fetchers.close()
        message = DeleteRecordsRequest(
            [DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 3)])], 2**31 - 1
        )
        request = Request(RequestHeader(21, 2, 0, None), message, None, 0)  # type: ignore[arg-type]  # a fake stands in
        pending = delete_records.handle(cluster[1], request)  # type: ignore[arg-type]  # a fake stands in
        assert cluster[1].partition().watchers.deletions_wait
        pending.cancel()
        assert not cluster[1].partition().watchers.deletions_wait

    run(story())


def test_leadership_that_ends_is_told() -> None:
    async def story() -> None:
        cluster = await with_records()
        cluster[3].fetchers.close()
        answers = ask(cluster[1], ("t", 0, 3))
        cluster[1].partition().rest()
        assert outcomes(answers[0]) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]

    run(story())


def test_each_partition_has_its_own_refusal() -> None:
    async def story() -> None:
        cluster = await with_records()
        [answer] = ask(
            cluster[1], ("t", 0, 99), ("t", 7, 0), ("nobody", 0, 0), ("__consumer_offsets", 0, 0)
        )
        assert [error for error, _ in outcomes(answer)] == [
            ErrorCode.OFFSET_OUT_OF_RANGE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ]
        [answer] = ask(cluster[2], ("t", 0, 1))
        assert outcomes(answer) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]

    run(story())
