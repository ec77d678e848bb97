"""The queue of ISR changes, request by request."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from tests.support.broker.fakes import FakeBroker, a_cluster, settle, state

from tidelog.core.errors import ConnectionLost, ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)
from tidelog.wire.registry import ALTER_PARTITION


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


class Controller:
    """Holds requests until it is told what to answer."""

    def __init__(self, broker: FakeBroker) -> None:
        self.waiting: list[tuple[AlterPartitionRequest, Any]] = []
        self.asked = 0
        broker.peers.intercepted[ALTER_PARTITION] = self._asked
        broker.see(1, 2, 3, controller_id=9)

    def _asked(self, message: AlterPartitionRequest, on_answer: Any) -> None:
        self.asked += 1
        self.waiting.append((message, on_answer))

    def partitions(self) -> list[int]:
        """Of the request that waits longest."""
        return [one.partition_index for one in self.waiting[0][0].topics[0].partitions]

    def answer(self, errors: dict[int, int]) -> None:
        """Make changes (0) or refuse them; partitions that are not named get no outcome."""
        message, on_answer = self.waiting.pop(0)
        (topic,) = message.topics
        outcomes = [
            ResponsePartitionData(
                partition_index=asked.partition_index,
                error_code=errors[asked.partition_index],
                leader_id=1,
                leader_epoch=asked.leader_epoch,
                isr=[member.broker_id for member in asked.new_isr_with_epochs],
                partition_epoch=asked.partition_epoch + 1,
            )
            for asked in topic.partitions
            if asked.partition_index in errors
        ]
        outcomes.append(ResponsePartitionData(partition_index=77))
        on_answer(
            AlterPartitionResponse(topics=[ResponseTopicData(topic.topic_id, partitions=outcomes)]),
            None,
        )


async def a_leader_of(*partitions: int) -> tuple[FakeBroker, Controller]:
    """Broker 1 leads with ISR (1, 3) and is about to let broker 2 join."""
    broker = a_cluster()[1]
    controller = Controller(broker)
    await broker.command(*(state(partition=one, isr=(1, 3), is_new=True) for one in partitions))
    for one in partitions:
        broker.partition(TopicPartition("t", one)).role.follower_fetched(2, 102, 0, 0, 0)
    await settle()
    return broker, controller


def isr_of(broker: FakeBroker, partition: int) -> tuple[int, ...]:
    role = broker.partition(TopicPartition("t", partition)).leadership
    assert role is not None
    return role.isr.committed


def test_changes_of_one_event_go_as_one_request() -> None:
    async def story() -> None:
        broker, controller = await a_leader_of(0, 1, 2)
        assert controller.partitions() == [0, 1, 2]
        controller.answer({0: 0, 1: 0, 2: 0})
        assert [isr_of(broker, one) for one in (0, 1, 2)] == [(1, 2, 3)] * 3

    run(story())


def test_each_partition_has_its_own_outcome() -> None:
    async def story() -> None:
        broker, controller = await a_leader_of(0, 1, 2)
        controller.answer(
            {0: 0, 1: ErrorCode.INELIGIBLE_REPLICA, 2: ErrorCode.INVALID_UPDATE_VERSION}
        )
        assert [isr_of(broker, one) for one in (0, 1, 2)] == [(1, 2, 3), (1, 3), (1, 3)]
        await broker.clock.advance(200)
        assert controller.waiting == []

    run(story())


def test_a_partition_without_an_outcome_and_an_unknown_error_are_repeated() -> None:
    async def story() -> None:
        broker, controller = await a_leader_of(0, 1, 2)
        controller.answer({0: 0, 1: 32_000})
        assert controller.waiting == []
        await broker.clock.advance(70)
        assert sorted(controller.partitions()) == [1, 2]

    run(story())


def test_what_the_leader_does_not_want_any_more_is_not_repeated() -> None:
    async def story() -> None:
        broker, controller = await a_leader_of(0)
        controller.waiting.pop(0)[1](None, ConnectionLost("cut"))
        await broker.command(state(partition_epoch=5, isr=(1, 2, 3)))
        await broker.clock.advance(200)
        assert controller.waiting == []

    run(story())


def test_pauses_grow_while_nobody_answers() -> None:
    async def story() -> None:
        broker, controller = await a_leader_of(0)
        for pause_ms in (50, 100, 200, 400, 800, 800):
            controller.waiting.pop(0)[1](None, ConnectionLost("cut"))
            await broker.clock.advance(pause_ms - 1)
            assert controller.waiting == []
            await broker.clock.advance(12)
            assert len(controller.waiting) == 1

    run(story())


def test_without_a_controller_changes_wait() -> None:
    async def story() -> None:
        broker, controller = await a_leader_of(0)
        controller.waiting.pop(0)[1](None, ConnectionLost("cut"))
        broker.see(1, 2, 3, controller_id=-1)
        await broker.clock.advance(500)
        assert controller.waiting == []
        broker.see(1, 2, 3, controller_id=9)
        await broker.clock.advance(900)
        assert controller.partitions() == [0]

    run(story())


def test_a_leader_that_rests_withdraws_what_was_not_sent() -> None:
    async def story() -> None:
        broker, controller = await a_leader_of(0)
        await broker.command(state(partition=1, isr=(1, 3), is_new=True))
        broker.partition(TopicPartition("t", 1)).role.follower_fetched(2, 102, 0, 0, 0)
        assert len(broker.alter_partition_manager) == 1
        await broker.stop(TopicPartition("t", 1))
        assert len(broker.alter_partition_manager) == 0
        controller.answer({0: 0})
        await settle()
        assert controller.waiting == []

    run(story())


def test_after_the_end_nothing_is_sent_and_answers_mean_nothing() -> None:
    async def story() -> None:
        broker, controller = await a_leader_of(0)
        broker.alter_partition_manager.close()
        controller.answer({0: 0})
        assert isr_of(broker, 0) == (1, 3)
        broker.alter_partition_manager._send()  # type: ignore[attr-defined]  # of this queue
        assert controller.asked == 1

    run(story())
