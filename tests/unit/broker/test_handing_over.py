"""A broker that is told to stop asks for its leaderships to be moved, for as long as it may."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.support.broker.fakes import FakeBroker, a_cluster, settle, state

from tidelog.core.errors import ConnectionLost, ErrorCode
from tidelog.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from tidelog.wire.registry import CONTROLLED_SHUTDOWN, FETCH

LEFT = ControlledShutdownResponse(remaining_partitions=[RemainingPartition("t", 0)])


class Controller:
    """Holds requests until it is told what to answer."""

    def __init__(self, broker: FakeBroker) -> None:
        self.asked: list[ControlledShutdownRequest] = []
        self._waiting: list[Callable[[Any, Exception | None], None]] = []
        broker.peers.intercepted[CONTROLLED_SHUTDOWN] = self._take

    def _take(self, message: ControlledShutdownRequest, on_answer: Any) -> None:
        self.asked.append(message)
        self._waiting.append(on_answer)

    async def answer(
        self, answer: ControlledShutdownResponse | None, error: Exception | None = None
    ) -> None:
        """The answer to what waits longest; None and an error where there is none."""
        self._waiting.pop(0)(answer, error)
        await settle()


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


async def a_leader(**config: str) -> tuple[FakeBroker, Controller, asyncio.Task[None]]:
    """Broker 1 leads one partition and is told to stop; broker 2 controls."""
    broker = a_cluster(3, **config)[1]
    broker.see(1, 2, 3, controller_id=2)
    controller = Controller(broker)
    await broker.command(state(is_new=True))
    stopping = asyncio.ensure_future(broker.controlled_shutdown.run())
    await settle()
    return broker, controller, stopping


def said(broker: FakeBroker) -> str:
    """The last line of the log."""
    return str(broker.tracer.lines[-1])


def test_it_asks_under_its_own_epoch_and_goes_when_nothing_remains() -> None:
    async def story() -> None:
        broker, controller, stopping = await a_leader()
        assert controller.asked == [ControlledShutdownRequest(1, 101)]
        assert not stopping.done()
        await controller.answer(ControlledShutdownResponse())
        assert stopping.done()
        assert "leaderships transferred in 0 ms" in said(broker)
        await broker.controlled_shutdown.run()
        assert len(controller.asked) == 1, "once is enough"

    run(story())


def test_what_remains_is_asked_for_again_after_the_backoff() -> None:
    async def story() -> None:
        broker, controller, stopping = await a_leader(controlled_shutdown_retry_backoff_ms="700")
        await controller.answer(LEFT)
        assert (
            "attempt 1 to transfer leaderships failed: controller 2: no other in-sync replica"
            in said(broker)
        )
        await broker.clock.advance(600)
        assert len(controller.asked) == 1
        await broker.clock.advance(200)
        assert len(controller.asked) == 2
        await controller.answer(ControlledShutdownResponse())
        assert stopping.done()

    run(story())


def test_after_so_many_attempts_it_goes_and_names_what_it_leads() -> None:
    async def story() -> None:
        broker, controller, stopping = await a_leader(controlled_shutdown_max_retries="2")
        await controller.answer(LEFT)
        await broker.clock.advance(6_000)
        await controller.answer(None, ConnectionLost("the controller is gone"))
        assert stopping.done()
        assert said(broker).endswith("stopping although this broker leads 1 partitions: t-0")
        assert len(controller.asked) == 2

    run(story())


def test_another_controller_is_asked_at_once() -> None:
    async def story() -> None:
        broker, controller, stopping = await a_leader()
        refused = ControlledShutdownResponse(error_code=ErrorCode.NOT_CONTROLLER)
        await controller.answer(refused)
        assert "controller 2: error NOT_CONTROLLER" in said(broker)
        broker.see(1, 2, 3, controller_id=2)
        await settle()
        assert len(controller.asked) == 1, "it is still the same"
        broker.see(1, 3, controller_id=3)
        await settle()
        assert len(controller.asked) == 2
        await controller.answer(ControlledShutdownResponse())
        assert stopping.done()

    run(story())


def test_the_answer_of_an_earlier_controller_is_not_waited_for() -> None:
    async def story() -> None:
        broker, controller, stopping = await a_leader()
        broker.see(1, 3, controller_id=3)
        await settle()
        assert len(controller.asked) == 2
        await controller.answer(LEFT)
        assert not stopping.done(), "that was the first one's"
        await controller.answer(ControlledShutdownResponse())
        assert stopping.done()

    run(story())


def test_an_error_that_nobody_knows_is_told_by_its_number() -> None:
    async def story() -> None:
        broker, controller, _ = await a_leader(controlled_shutdown_max_retries="1")
        await controller.answer(ControlledShutdownResponse(error_code=9_999))
        assert any("error 9999" in str(line) for line in broker.tracer.lines)

    run(story())


def test_told_once_more_to_stop_it_waits_no_longer() -> None:
    async def story() -> None:
        broker, controller, stopping = await a_leader()
        broker.controlled_shutdown.give_up()
        await settle()
        assert stopping.done(), "while the answer is awaited"
        broker, controller, stopping = await a_leader()
        await controller.answer(LEFT)
        assert not stopping.done()
        broker.controlled_shutdown.give_up()
        await settle()
        assert stopping.done(), "between two attempts"
        assert len(controller.asked) == 1

    run(story())


def test_without_a_registration_it_waits_for_one() -> None:
    async def story() -> None:
        broker, controller, stopping = await a_leader(controlled_shutdown_retry_backoff_ms="100")
        broker.broker_epoch = -1
        await controller.answer(ControlledShutdownResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
        await broker.clock.advance(200)
        assert len(controller.asked) == 1
        broker.broker_epoch = 201
        await broker.clock.advance(200)
        assert controller.asked[1].broker_epoch == 201
        await controller.answer(ControlledShutdownResponse())
        assert stopping.done()

    run(story())


def test_nobody_is_asked_where_that_is_switched_off_or_of_no_use() -> None:
    async def story() -> None:
        _, controller, stopping = await a_leader(controlled_shutdown_enable="false")
        assert (stopping.done(), controller.asked) == (True, [])
        _, controller, stopping = await a_leader(controlled_shutdown_max_retries="0")
        assert (stopping.done(), controller.asked) == (True, [])
        broker, _, stopping = await a_leader()
        stopping.cancel()
        alone = a_cluster(1)[1]
        controller = Controller(alone)
        await alone.command(state(is_new=True))
        await alone.controlled_shutdown.run()
        assert controller.asked == [], "nobody else is alive"
        empty = a_cluster()[2]
        controller = Controller(empty)
        await empty.controlled_shutdown.run()
        assert controller.asked == [], "there is nothing to hand over"
        assert not empty.services.identity.is_leaving
        del broker

    run(story())


def test_it_fetches_no_longer_where_it_is_not_in_sync() -> None:
    async def story() -> None:
        broker, _, stopping = await a_leader()
        await broker.command(state(2, leader_epoch=1, partition_epoch=1, isr=(2, 3)))
        await broker.command(state(3, leader_epoch=2, partition_epoch=2, isr=(1, 3)))
        await settle()
        asked = {leader for leader, api_key, _ in broker.peers.sent if api_key == FETCH}
        assert asked == {3}, "who leads there waits for it, and broker 2 does not"
        stopping.cancel()

    run(story())
