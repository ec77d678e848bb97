"""How followers fetch, and where their logs begin: V66.

Real fetchers and APIs over fake logs.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.support.broker.fakes import (
    T0,
    TOPIC_ID,
    FakeBroker,
    a_cluster,
    replicate,
    settle,
    state,
)

from tidelog.core.completion import Completion
from tidelog.core.errors import ErrorCode, KafkaError, StorageError
from tidelog.core.types import TopicPartition
from tidelog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tidelog.wire.registry import FETCH


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


def fetches(broker: FakeBroker) -> list[FetchRequest]:
    return broker.peers.requests(FETCH)


@pytest.mark.rule("V66")
def test_one_request_carries_all_partitions_of_a_source_and_later_ones_only_news() -> None:
    async def story() -> None:
        cluster = a_cluster(2)
        states = [
            state(partition=number, isr=(1, 2), replicas=(1, 2), is_new=True) for number in range(3)
        ]
        for broker in cluster.values():
            await broker.command(*states)
        await settle()
        first, second = fetches(cluster[2])
        assert len(first.topics[0].partitions) == 3
        assert (first.session_epoch, second.session_epoch) == (0, 1)
        assert second.topics == []
        partition = cluster[1].partition(TopicPartition("t", 2))
        partition.role.append(b"rr", -1, 0)
        partition.flush_appends()
        await settle()
        news = fetches(cluster[2])[-1].topics
        assert [one.partition for one in news[0].partitions] == [2]
        assert news[0].partitions[0].fetch_offset == 2

    run(story())


@pytest.mark.rule("V66")
def test_partitions_of_a_source_are_spread_over_its_fetchers() -> None:
    async def story() -> None:
        cluster = a_cluster(2, num_replica_fetchers="2")
        states = [
            state(partition=number, isr=(1, 2), replicas=(1, 2), is_new=True) for number in range(4)
        ]
        for broker in cluster.values():
            await broker.command(*states)
        full = [request for request in fetches(cluster[2]) if request.session_epoch == 0]
        assert [len(request.topics[0].partitions) for request in full] == [2, 2]

    run(story())


@pytest.mark.rule("V66")
def test_a_slow_partition_does_not_hold_the_others_back() -> None:
    async def story() -> None:
        cluster = a_cluster(2)
        slow, quick = T0, TopicPartition("t", 1)
        states = [
            state(partition=number, isr=(1, 2), replicas=(1, 2), is_new=True) for number in range(2)
        ]
        for broker in cluster.values():
            await broker.command(*states)
        await settle()
        cluster[2].log(slow).is_slow = True
        cluster[1].produce(5)
        await cluster[2].clock.advance(40)
        partition = cluster[1].partition(quick)
        partition.role.append(b"rrr", -1, 0)
        partition.flush_appends()
        await settle()
        assert cluster[2].log(quick).log_end_offset == 3
        assert partition.high_watermark == 3
        cluster[2].log(slow).is_slow = False
        cluster[2].log(slow).finish()
        await settle()
        assert cluster[1].partition(slow).high_watermark == 5

    run(story())


@pytest.mark.rule("V66")
def test_errors_back_off_a_partition_alone_and_longer_each_time() -> None:
    async def story() -> None:
        cluster = a_cluster(2)
        bad, good = T0, TopicPartition("t", 1)
        states = [
            state(partition=number, isr=(1, 2), replicas=(1, 2), is_new=True) for number in range(2)
        ]
        for broker in cluster.values():
            await broker.command(*states)
        await settle()
        cluster[2].log(bad).append_error = KafkaError(ErrorCode.CORRUPT_MESSAGE, "bad")
        cluster[1].produce(5)
        partition = cluster[1].partition(good)
        partition.role.append(b"rrr", -1, 0)
        partition.flush_appends()
        await settle()
        assert cluster[2].log(good).log_end_offset == 3
        await cluster[2].clock.advance(400)
        pauses = [event["delay_ms"] for event in cluster[2].tracer.named("fetch_backoff")]
        assert pauses[:4] == [10, 20, 40, 80]
        cluster[2].log(bad).append_error = None
        await cluster[2].clock.advance(1_100)
        assert cluster[2].log(bad).log_end_offset == 5

    run(story())


@pytest.mark.rule("F7", "V66")
@pytest.mark.parametrize(("answered_after_ms", "pause_ms"), [(0, 10), (4, 6), (25_000, 0)])
def test_a_follower_that_knew_of_the_epoch_first_asks_again_as_soon_as_it_is_answered(
    answered_after_ms: int, pause_ms: int
) -> None:
    """The response waited behind a slow read: the pause has passed, and the leader waits."""

    async def story() -> None:
        cluster = a_cluster(2)
        await replicate(cluster, isr=(1, 2))
        sent: list[Any] = []

        def held(message: Any, on_answer: Any) -> None:
            sent.append((message, on_answer))

        cluster[2].peers.intercepted[FETCH] = held
        await cluster[2].command(state(isr=(1, 2), replicas=(1, 2), leader_epoch=1))
        await settle()
        request, on_answer = sent[-1]
        assert request.topics[0].partitions[0].current_leader_epoch == 1
        await cluster[2].clock.advance(answered_after_ms)
        sent.clear()
        part = PartitionData(partition_index=0, error_code=ErrorCode.UNKNOWN_LEADER_EPOCH)
        response = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[part])
        on_answer(FetchResponse(session_id=request.session_id, responses=[response]), None)
        await settle()
        asks_now = any(each.topics for each, _ in sent)
        assert asks_now is (pause_ms == 0)
        await cluster[2].clock.advance(pause_ms + 20)
        assert any(each.topics for each, _ in sent)
        (event,) = cluster[2].tracer.named("fetch_backoff")
        assert event["delay_ms"] == pause_ms

    run(story())


@pytest.mark.rule("V66")
def test_a_follower_goes_on_behind_records_whose_flush_a_full_disk_refused() -> None:
    """The log has them, so it would refuse them each time that the leader sends them again."""

    async def story() -> None:
        cluster = a_cluster(2)
        for broker in cluster.values():
            await broker.command(state(isr=(1, 2), replicas=(1, 2), is_new=True))
        await settle()
        log = cluster[2].log(T0)
        full = StorageError("/d", "pwrite", "/d/0.index.tmp", errno.ENOSPC, 0)
        plan, flush = log.plan_follower_append, log.flush
        written: list[int] = []

        def written_but_not_flushed(records: Any) -> Completion[Any]:
            written.append(log.log_end_offset)
            plan(records)
            log.submit_planned()
            return Completion.failed(full)

        log.plan_follower_append = written_but_not_flushed  # type: ignore[method-assign]  # replaced
        log.flush = lambda: Completion.failed(full)  # type: ignore[method-assign]  # replaced
        cluster[1].produce(5)
        await settle()
        assert log.log_end_offset == 5
        role = cluster[1].partition().leadership
        assert role is not None
        await cluster[2].clock.advance(400)
        assert written == [0], "the log has them: they are not fetched again"
        assert role.followers[2].log_end_offset == 0, "they are not flushed"
        pauses = [event["delay_ms"] for event in cluster[2].tracer.named("fetch_backoff")]
        assert pauses[:4] == [10, 20, 40, 80]
        log.plan_follower_append, log.flush = plan, flush  # type: ignore[method-assign]  # as it was
        await cluster[2].clock.advance(1_100)
        assert role.followers[2].log_end_offset == log.log_end_offset == 5
        cluster[1].produce(2)
        await settle()
        assert log.log_end_offset == 7

    run(story())


@pytest.mark.rule("V66")
def test_a_lost_session_is_replaced_by_one_with_all_partitions() -> None:
    async def story() -> None:
        cluster = a_cluster(2)
        await replicate(cluster, isr=(1, 2))
        cluster[1].fetch_sessions.close()
        cluster[1].produce(4)
        await cluster[1].clock.advance(600)
        assert cluster[2].log().log_end_offset == 4
        assert [one.session_epoch for one in fetches(cluster[2])].count(0) == 2

    run(story())


@pytest.mark.rule("V66")
def test_a_leader_that_cannot_be_reached_is_tried_again() -> None:
    async def story() -> None:
        cluster = a_cluster(2)
        cluster[2].peers.cut = [1]
        await replicate(cluster, isr=(1, 2))
        cluster[1].produce(4)
        await cluster[2].clock.advance(500)
        assert cluster[2].log().log_end_offset == 0
        cluster[2].peers.cut = []
        await cluster[2].clock.advance(300)
        assert cluster[2].log().log_end_offset == 4

    run(story())


@pytest.mark.rule("V66")
def test_a_partition_that_comes_later_does_not_wait_for_the_held_fetch() -> None:
    async def story() -> None:
        cluster = a_cluster(2)
        await replicate(cluster, isr=(1, 2))
        now_ms = cluster[1].clock.monotonic_ms()
        late = state(partition=1, isr=(1, 2), replicas=(1, 2), is_new=True)
        for broker in cluster.values():
            await broker.command(late)
        partition = cluster[1].partition(TopicPartition("t", 1))
        partition.role.append(b"rrr", -1, 0)
        partition.flush_appends()
        await settle()
        assert partition.high_watermark == 3
        assert cluster[1].clock.monotonic_ms() == now_ms

    run(story())


@pytest.mark.rule("V66")
def test_the_topic_id_is_part_of_what_is_asked_for() -> None:
    async def story() -> None:
        cluster = a_cluster(2)
        await replicate(cluster, isr=(1, 2))
        assert fetches(cluster[2])[0].topics[0].topic_id == TOPIC_ID
        replica = fetches(cluster[2])[0].replica_state
        assert (replica.replica_id, replica.replica_epoch) == (2, 102)

    run(story())
