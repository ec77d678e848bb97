"""A fetcher with its requests and answers one by one."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Coroutine
from typing import Any

from tests.support.broker.fakes import (
    TOPIC_ID,
    FakeBroker,
    a_cluster,
    settle,
    state,
)

from tidelog.core.completion import Completion
from tidelog.core.errors import ConnectionLost, ErrorCode, KafkaError, StorageError
from tidelog.core.types import TopicPartition
from tidelog.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.wire.registry import FETCH, LIST_OFFSETS

SESSION = 77


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


class Leader:
    """Holds the fetches of broker 2 until it is told what to answer."""

    def __init__(self, broker: FakeBroker) -> None:
        self.waiting: list[tuple[FetchRequest, Any]] = []
        self.requests: list[FetchRequest] = []
        broker.peers.intercepted[FETCH] = self._asked

    def _asked(self, message: FetchRequest, on_answer: Any) -> None:
        self.requests.append(message)
        self.waiting.append((message, on_answer))

    def answer(self, *data: PartitionData, error: int = 0, session_id: int = SESSION) -> None:
        _, on_answer = self.waiting.pop(0)
        topics = [FetchableTopicResponse(topic_id=TOPIC_ID, partitions=list(data))] if data else []
        on_answer(FetchResponse(error_code=error, session_id=session_id, responses=topics), None)

    def fail(self) -> None:
        self.waiting.pop(0)[1](None, ConnectionLost("gone"))


def records(number: int, *epochs: int, high_watermark: int = 0) -> PartitionData:
    return PartitionData(
        partition_index=number,
        high_watermark=high_watermark,
        log_start_offset=0,
        records=memoryview(bytes(epochs)),
    )


def failed(number: int, error: int) -> PartitionData:
    return PartitionData(partition_index=number, error_code=error, high_watermark=-1)


async def a_follower_of(*partitions: int, **config: str) -> tuple[FakeBroker, Leader]:
    """Broker 2, fetching partitions from broker 1 in an established session."""
    broker = a_cluster(2, **config)[2]
    leader = Leader(broker)
    await broker.command(
        *(
            state(1, partition=number, isr=(1, 2), replicas=(1, 2), is_new=True)
            for number in partitions
        )
    )
    await settle()
    return broker, leader


def asked(request: FetchRequest) -> list[tuple[int, int]]:
    """(partition, offset) of what a request names."""
    return [
        (one.partition, one.fetch_offset) for topic in request.topics for one in topic.partitions
    ]


def forgotten(request: FetchRequest) -> list[int]:
    return [number for topic in request.forgotten_topics_data for number in topic.partitions]


def test_the_first_fetch_is_full_and_not_held() -> None:
    async def story() -> None:
        broker, leader = await a_follower_of(0, 1)
        (first,) = leader.requests
        assert (first.session_id, first.session_epoch, first.max_wait_ms) == (0, 0, 0)
        assert asked(first) == [(0, 0), (1, 0)]
        leader.answer(records(0), records(1))
        second = leader.requests[1]
        assert (second.session_id, second.session_epoch) == (SESSION, 1)
        assert second.max_wait_ms == broker.config.replica_fetch_wait_max_ms
        assert asked(second) == []

    run(story())


def test_epochs_of_a_session_rise_and_only_new_positions_are_named() -> None:
    async def story() -> None:
        _, leader = await a_follower_of(0, 1)
        leader.answer(records(0, 0, 0), records(1))
        leader.answer(records(1, 0))
        assert [request.session_epoch for request in leader.requests] == [0, 1, 2]
        assert [asked(request) for request in leader.requests[1:]] == [[(0, 2)], [(1, 1)]]

    run(story())


def test_without_a_session_every_fetch_names_everything_and_is_held() -> None:
    async def story() -> None:
        broker, leader = await a_follower_of(0, 1)
        leader.answer(records(0, 0), records(1), session_id=0)
        second = leader.requests[1]
        assert broker.log().log_end_offset == 1
        assert (second.session_id, second.session_epoch) == (0, 0)
        assert sorted(asked(second)) == [(0, 1), (1, 0)]
        assert second.max_wait_ms == broker.config.replica_fetch_wait_max_ms

    run(story())


def test_an_answer_of_an_earlier_position_is_dropped_though_it_comes_later() -> None:
    async def story() -> None:
        broker, leader = await a_follower_of(0)
        leader.answer(records(0))
        # The first fetch is held; a new partition's fetch follows it.
        await broker.command(state(1, partition=1, isr=(1, 2), replicas=(1, 2), is_new=True))
        assert len(leader.waiting) == 2
        leader.answer(records(0, 0, 0))
        assert asked(leader.requests[-1]) == [(0, 2)]
        # The second was answered before the leader knew of it: the same records again.
        leader.answer(records(0, 0, 0))
        assert broker.log().log_end_offset == 2

    run(story())


def test_at_most_two_fetches_are_in_flight() -> None:
    async def story() -> None:
        broker, leader = await a_follower_of(0)
        leader.answer(records(0))
        for number in (1, 2, 3):
            await broker.command(
                state(1, partition=number, isr=(1, 2), replicas=(1, 2), is_new=True)
            )
        assert len(leader.waiting) == 2
        leader.answer()
        assert sorted(asked(leader.requests[-1])) == [(2, 0), (3, 0)]

    run(story())


def test_a_removed_partition_leaves_the_session() -> None:
    async def story() -> None:
        broker, leader = await a_follower_of(0, 1)
        leader.answer(records(0), records(1))
        await broker.stop(TopicPartition("t", 1))
        leader.answer()
        assert forgotten(leader.requests[-1]) == [1]

    run(story())


def test_a_fetcher_without_partitions_ends_and_drops_what_is_in_flight() -> None:
    async def story() -> None:
        broker, leader = await a_follower_of(0)
        leader.answer(records(0))
        await broker.stop()
        leader.answer(records(0, 0))
        assert leader.waiting == []

    run(story())


def test_a_partition_that_backs_off_leaves_the_session_and_comes_back() -> None:
    async def story() -> None:
        broker, leader = await a_follower_of(0, 1)
        leader.answer(failed(0, ErrorCode.UNKNOWN_LEADER_EPOCH), records(1, 0))
        assert asked(leader.requests[-1]) == [(1, 1)]
        assert forgotten(leader.requests[-1]) == [0]
        await broker.clock.advance(30)
        assert asked(leader.requests[-1]) == [(0, 0)]

    run(story())


def test_while_every_partition_backs_off_nothing_is_asked() -> None:
    async def story() -> None:
        broker, leader = await a_follower_of(0)
        leader.answer(failed(0, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        assert leader.waiting == []
        await broker.clock.advance(30)
        assert asked(leader.requests[-1]) == [(0, 0)]

    run(story())


def test_a_refused_session_is_begun_anew_naming_the_old_one() -> None:
    async def story() -> None:
        broker, leader = await a_follower_of(0, 1)
        leader.answer(records(0, 0), records(1))
        leader.answer(error=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=0)
        assert leader.waiting == []
        await broker.clock.advance(40)
        anew = leader.requests[-1]
        assert (anew.session_id, anew.session_epoch) == (SESSION, 0)
        assert sorted(asked(anew)) == [(0, 1), (1, 0)]

    run(story())


def test_an_answer_of_another_session_is_not_ours() -> None:
    async def story() -> None:
        broker, leader = await a_follower_of(0)
        leader.answer(records(0))
        leader.answer(records(0, 0), session_id=SESSION + 1)
        assert broker.log().log_end_offset == 0
        await broker.clock.advance(40)
        assert leader.requests[-1].session_epoch == 0

    run(story())


def test_a_lost_connection_begins_without_a_session_after_growing_pauses() -> None:
    async def story() -> None:
        broker, leader = await a_follower_of(0)
        leader.answer(records(0, 0))
        for pause_ms in (20, 40, 80):
            leader.fail()
            await broker.clock.advance(pause_ms - 1)
            assert leader.waiting == []
            await broker.clock.advance(12)
            anew = leader.requests[-1]
            assert (anew.session_id, anew.session_epoch, asked(anew)) == (0, 0, [(0, 1)])

    run(story())


def test_answers_of_a_connection_that_was_given_up_are_dropped() -> None:
    async def story() -> None:
        broker, leader = await a_follower_of(0)
        leader.answer(records(0))
        await broker.command(state(1, partition=1, isr=(1, 2), replicas=(1, 2), is_new=True))
        leader.answer(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, session_id=0)
        leader.answer(records(0, 0))
        assert broker.log().log_end_offset == 0

    run(story())


def test_bytes_are_kept_while_a_slow_disk_writes_them() -> None:
    async def story() -> None:
        broker, leader = await a_follower_of(0)
        connection = broker.peers.connection(1, "fetcher-0")
        leader.answer(records(0, 0))
        assert connection.kept == 0
        broker.log().is_slow = True
        leader.answer(records(0, 0))
        assert connection.kept == 1
        broker.log().finish()
        assert asked(leader.requests[-1]) == [(0, 2)]

    run(story())


def test_the_next_fetch_waits_a_moment_for_a_slow_append_and_then_goes_without() -> None:
    async def story() -> None:
        broker, leader = await a_follower_of(0, 1)
        leader.answer(records(0), records(1))
        broker.log().is_slow = True
        leader.answer(records(0, 0))
        assert leader.waiting == []
        await broker.clock.advance(40)
        assert forgotten(leader.requests[-1]) == [0]
        broker.log().finish()
        assert asked(leader.requests[-1]) == [(0, 1)]

    run(story())


def test_a_leader_that_does_not_say_where_its_log_starts_is_asked_again() -> None:
    async def story() -> None:
        broker, leader = await a_follower_of(0)
        answers = [
            ListOffsetsPartitionResponse(0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
            ListOffsetsPartitionResponse(0, offset=30, leader_epoch=0),
        ]
        broker.peers.intercepted[LIST_OFFSETS] = lambda message, on_answer: on_answer(
            ListOffsetsResponse(topics=[ListOffsetsTopicResponse("t", [answers.pop(0)])]), None
        )
        leader.answer(failed(0, ErrorCode.OFFSET_OUT_OF_RANGE))
        await broker.clock.advance(30)
        leader.answer(failed(0, ErrorCode.OFFSET_OUT_OF_RANGE), session_id=SESSION)
        assert broker.log().log_start_offset == 30
        assert asked(leader.requests[-1]) == [(0, 30)]

    run(story())


def backoffs_of(broker: FakeBroker) -> list[int]:
    return [event["error"] for event in broker.tracer.named("fetch_backoff")]


def test_what_the_log_refuses_is_asked_for_again_later() -> None:
    async def story() -> None:
        broker, leader = await a_follower_of(0)
        log = broker.log()
        plan = log.plan_follower_append

        def refuse(data: Any) -> Any:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "a gap")

        log.plan_follower_append = refuse  # type: ignore[method-assign,assignment]  # replaced
        leader.answer(records(0, 0))
        assert backoffs_of(broker) == [ErrorCode.OFFSET_OUT_OF_RANGE]
        log.plan_follower_append = plan  # type: ignore[method-assign]  # replaced by the test
        await broker.clock.advance(30)
        leader.answer(records(0, 0))
        assert log.log_end_offset == 1

    run(story())


def test_a_full_disk_is_a_storage_error_also_when_it_comes_late() -> None:
    async def story() -> None:
        broker, leader = await a_follower_of(0)
        broker.log().append_error = StorageError("/d", "pwrite", "/d/f", errno.ENOSPC, 0)
        broker.log().is_slow = True
        leader.answer(records(0, 0))
        broker.log().finish()
        assert backoffs_of(broker) == [ErrorCode.KAFKA_STORAGE_ERROR]
        await broker.clock.advance(30)
        assert asked(leader.requests[-1]) == [(0, 0)]

    run(story())


def diverging(number: int, epoch: int, end_offset: int) -> PartitionData:
    return PartitionData(
        partition_index=number,
        log_start_offset=0,
        diverging_epoch=EpochEndOffset(epoch, end_offset),
    )


def test_nothing_is_asked_while_a_slow_disk_cuts() -> None:
    async def story() -> None:
        broker, leader = await a_follower_of(0)
        broker.log().fill(0, 0, 0)
        await broker.command(
            state(1, leader_epoch=1, partition_epoch=1, isr=(1, 2), replicas=(1, 2))
        )
        leader.answer(records(0))  # asked for the first leader epoch: not looked at
        broker.log().is_slow = True
        leader.answer(diverging(0, 0, 1))
        assert leader.waiting == []
        broker.log().finish()
        assert asked(leader.requests[-1]) == [(0, 1)]

    run(story())


def test_a_cut_that_fails_is_tried_again() -> None:
    async def story() -> None:
        broker, leader = await a_follower_of(0)
        log = broker.log()
        log.fill(0, 0, 0)
        await broker.command(
            state(1, leader_epoch=1, partition_epoch=1, isr=(1, 2), replicas=(1, 2))
        )
        leader.answer(records(0))
        cut = log.truncate_to
        error = StorageError("/d", "ftruncate", "/d/f", errno.ENOSPC, 0)
        log.truncate_to = lambda offset: Completion.failed(error)  # type: ignore[method-assign]  # replaced by the test
        leader.answer(diverging(0, 0, 1))
        assert backoffs_of(broker) == [ErrorCode.KAFKA_STORAGE_ERROR]
        log.truncate_to = cut  # type: ignore[method-assign]  # replaced by the test
        await broker.clock.advance(30)
        leader.answer(diverging(0, 0, 1))
        assert asked(leader.requests[-1]) == [(0, 1)]

    run(story())


def test_what_ends_while_its_disk_is_slow_asks_for_nothing_more() -> None:
    async def story() -> None:
        broker, leader = await a_follower_of(0, 1)
        leader.answer(records(0), records(1))
        log = broker.log()
        log.is_slow = True
        leader.answer(records(0, 0))
        stopping = asyncio.ensure_future(broker.stop())
        await settle()
        log.finish()
        assert await stopping == 0
        named = [asked(request) for request in leader.requests[2:]]
        assert [one for request in named for one in request if one[0] == 0] == []

    run(story())


def test_a_cut_that_ends_after_its_role_changes_no_role() -> None:
    async def story() -> None:
        broker, leader = await a_follower_of(0)
        broker.log().fill(0, 0, 0)
        following = state(1, leader_epoch=1, partition_epoch=1, isr=(1, 2), replicas=(1, 2))
        await broker.command(following)
        leader.answer(records(0))
        broker.log().is_slow = True
        leader.answer(diverging(0, 0, 1))
        leading = state(2, leader_epoch=2, partition_epoch=2, isr=(1, 2), replicas=(1, 2))
        command = asyncio.ensure_future(broker.command(leading))
        await settle()
        assert not broker.partition().has_role
        broker.log().is_slow = False
        broker.log().finish()
        await command
        role = broker.partition().leadership
        assert role is not None
        assert role.log_end_offset == 1

    run(story())


def test_the_question_for_the_log_start_may_find_nobody() -> None:
    async def story() -> None:
        broker, leader = await a_follower_of(0)
        broker.peers.cut = [1]
        leader.answer(failed(0, ErrorCode.OFFSET_OUT_OF_RANGE))
        assert backoffs_of(broker) == [ErrorCode.UNKNOWN_SERVER_ERROR]
        connection = broker.peers.connection

        def unknown(broker_id: int, purpose: str) -> Any:
            if purpose == "fetcher-offsets":
                raise ConnectionLost("no address")
            return connection(broker_id, purpose)

        broker.peers.connection = unknown  # type: ignore[method-assign]  # replaced by the test
        await broker.clock.advance(30)
        leader.answer(failed(0, ErrorCode.OFFSET_OUT_OF_RANGE))
        assert backoffs_of(broker)[1:] == [ErrorCode.NETWORK_EXCEPTION]

    run(story())


def test_the_answer_on_the_log_start_is_too_late_for_a_role_that_ended() -> None:
    async def story() -> None:
        broker, leader = await a_follower_of(0)
        held: list[Any] = []
        broker.peers.intercepted[LIST_OFFSETS] = lambda message, on_answer: held.append(on_answer)
        leader.answer(failed(0, ErrorCode.OFFSET_OUT_OF_RANGE))
        await broker.stop(leader_epoch=0, delete=False)
        held[0](None, ConnectionLost("gone"))
        assert broker.log().calls == []

    run(story())


def test_a_leader_without_an_address_is_tried_again() -> None:
    async def story() -> None:
        broker = a_cluster(2)[2]
        leader = Leader(broker)
        connection = broker.peers.connection

        def unknown(broker_id: int, purpose: str) -> Any:
            raise ConnectionLost("no address")

        broker.peers.connection = unknown  # type: ignore[method-assign]  # replaced by the test
        await broker.command(state(1, isr=(1, 2), replicas=(1, 2), is_new=True))
        assert leader.requests == []
        broker.peers.connection = connection  # type: ignore[method-assign]  # replaced by the test
        await broker.clock.advance(40)
        assert asked(leader.requests[-1]) == [(0, 0)]

    run(story())


def test_after_the_end_nothing_is_asked() -> None:
    async def story() -> None:
        broker, leader = await a_follower_of(0)
        leader.answer(failed(0, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        broker.fetchers.close()
        await broker.clock.advance(1_000)
        assert leader.waiting == []

    run(story())


def test_a_follower_without_a_leader_waits_for_a_command() -> None:
    async def story() -> None:
        broker = a_cluster(2)[2]
        leader = Leader(broker)
        await broker.command(state(-1, isr=(1,), replicas=(1, 2), is_new=True))
        assert leader.requests == []
        assert broker.partition().check_leader_epoch(0) == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(story())


def test_a_new_leader_epoch_goes_on_in_the_session_and_ends_the_held_fetch() -> None:
    async def story() -> None:
        broker, leader = await a_follower_of(0, 1)
        leader.answer(records(0), records(1))
        assert len(leader.waiting) == 1, "the leader holds the second fetch"
        await broker.command(
            *(
                state(1, partition=number, isr=(1, 2), replicas=(1, 2), leader_epoch=1)
                for number in (0, 1)
            )
        )
        third = leader.requests[2]
        assert (third.session_id, third.session_epoch) == (SESSION, 2)
        assert asked(third) == [(0, 0), (1, 0)]

    run(story())


def test_a_fetcher_with_nothing_to_fetch_is_kept_for_a_moment() -> None:
    async def story() -> None:
        broker, leader = await a_follower_of(0)
        leader.answer(records(0))
        await broker.stop()
        leader.answer()
        await broker.clock.advance(900)
        await broker.command(
            state(1, isr=(1, 2), replicas=(1, 2), leader_epoch=1, is_new=True, partition=1)
        )
        assert leader.requests[-1].session_id == SESSION
        assert (asked(leader.requests[-1]), forgotten(leader.requests[-1])) == ([(1, 0)], [0])
        await broker.clock.advance(200)
        assert leader.waiting, "it had something to fetch again"
        await broker.stop(TopicPartition("t", 1))
        await broker.clock.advance(1_100)
        leader.waiting.clear()
        await broker.command(
            state(1, isr=(1, 2), replicas=(1, 2), leader_epoch=1, is_new=True, partition=2)
        )
        assert (leader.requests[-1].session_id, leader.requests[-1].session_epoch) == (0, 0)

    run(story())
