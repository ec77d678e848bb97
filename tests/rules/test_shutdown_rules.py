"""Rules of controlled shutdown: V43, and what A3, V12, V14 and V63 say of brokers that leave.

The controller's side is a real controller over the simulated store, the broker's a real one whose
connections are scripted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.support.broker.fakes import FakeBroker, a_cluster, settle
from tests.support.broker.fakes import state as told
from tests.support.controller.harness import Candidate, ControllerHarness, controller_harness
from tests.support.controller.values import (
    alter,
    isr_answer,
    loaded,
    run,
    shut_down,
    state,
    step,
    topic,
)

from tidelog.controller.controller import Controller
from tidelog.controller.topics.changes import TopicFound
from tidelog.core.errors import ErrorCode
from tidelog.core.types import PartitionState, TopicPartition
from tidelog.metadata.store import Op, SetData
from tidelog.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from tidelog.wire.messages.stop_replica import StopReplicaRequest
from tidelog.wire.registry import CONTROLLED_SHUTDOWN

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


@pytest.fixture
def three() -> Iterator[ControllerHarness]:
    with controller_harness(3) as made:
        yield made


def a_topic(three: ControllerHarness) -> tuple[Candidate, int]:
    """The controller, and another broker that leads t-0 and follows t-1."""
    controller = three.controller()
    first, second = (one for one in three.brokers if one != controller.broker_id)
    other = controller.broker_id
    made = three.create(controller, "t", (first, other, second), (second, first, other))
    assert made.error_code == 0
    return controller, first


@pytest.mark.rule("V43", "V14")
def test_leaderships_move_and_the_broker_leaves_every_isr(three: ControllerHarness) -> None:
    controller, leaving = a_topic(three)
    before = {one: three.state(one) for one in (T0, T1)}
    answer = three.shut_down(controller, leaving)
    assert (answer.error_code, answer.remaining_partitions) == (0, [])
    for topic_partition, was in before.items():
        now = three.state(topic_partition)
        assert now.leader in now.isr
        assert leaving not in now.isr
        assert now.leader_epoch == was.leader_epoch + 1


@pytest.mark.rule("V43")
def test_leaderships_are_durable_and_sent_before_any_place_in_an_isr_goes(
    three: ControllerHarness,
) -> None:
    controller, leaving = a_topic(three)
    commits: list[list[Op]] = []
    three.server.on_commit(lambda zxid, session, ops, results: commits.append(list(ops)))
    three.shut_down(controller, leaving)
    states = [
        op.path
        for ops in commits
        for op in ops
        if isinstance(op, SetData) and op.path.endswith("/state")
    ]
    assert [path.split("/")[-2] for path in states] == ["0", "1"]


@pytest.mark.rule("V43", "A14")
def test_nothing_is_read_again_to_move_leaderships(
    three: ControllerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller, leaving = a_topic(three)
    read: list[Any] = []
    for name in ("get", "get_many", "children"):
        original = getattr(controller.store, name)

        def counted(*arguments: Any, original: Callable[..., Any] = original, **more: Any) -> Any:
            read.append(arguments)
            return original(*arguments, **more)

        monkeypatch.setattr(controller.store, name, counted)
    assert three.shut_down(controller, leaving).error_code == 0
    assert read == []


@pytest.mark.rule("V43")
def test_the_broker_is_commanded_to_stop_following_and_keeps_its_log(
    three: ControllerHarness,
) -> None:
    controller, leaving = a_topic(three)
    three.brokers[leaving].script.received.clear()
    three.shut_down(controller, leaving)
    told_to_stop = {
        TopicPartition(topic.topic_name, one.partition_index): one.delete_partition
        for message in three.brokers[leaving].script.of(StopReplicaRequest)
        for topic in message.topic_states
        for one in topic.partition_states
    }
    assert told_to_stop == {T1: False}


@pytest.mark.rule("V43")
def test_another_life_of_the_broker_cannot_be_shut_down(three: ControllerHarness) -> None:
    controller, leaving = a_topic(three)
    epoch = three.brokers[leaving].broker_epoch
    refused = three.shut_down(controller, leaving, epoch - 1)
    assert refused.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert three.state(T0).leader == leaving
    other = next(one for one in three.brokers.values() if one is not controller)
    assert three.shut_down(other, leaving).error_code == ErrorCode.NOT_CONTROLLER


def of_one(published: PartitionState) -> Controller:
    """A controller of one partition on brokers 1, 2, 3."""
    return loaded(TopicFound(topic(), {0: published}))


@pytest.mark.rule("V43", "V12")
def test_leadership_goes_to_no_replica_that_is_not_in_sync() -> None:
    controller = of_one(state((1,)))
    [effects] = run(controller, shut_down(1))
    [(_, answer)] = effects.answers
    assert answer.remaining_partitions == [RemainingPartition("t", 0)]
    assert controller.image.states[T0] == state((1,))


@pytest.mark.rule("V43", "A3", "V63")
def test_a_leaving_broker_is_added_to_no_isr() -> None:
    controller = of_one(state((1, 2, 3)))
    run(controller, shut_down(2))
    now = controller.image.states[T0]
    assert now.isr == (1, 3)
    asked = alter(1, 3, 2, leader_epoch=now.leader_epoch, partition_epoch=now.partition_epoch)
    refused = isr_answer(step(controller, asked)[1])
    assert refused.error_code == ErrorCode.INELIGIBLE_REPLICA


@pytest.mark.rule("V43")
def test_a_leaving_leader_may_add_those_who_can_take_over() -> None:
    controller = of_one(state((1,)))
    run(controller, shut_down(1))
    accepted = isr_answer(step(controller, alter(1, 3, partition_epoch=10))[1])
    assert accepted.error_code == ErrorCode.NONE
    run(controller, shut_down(1))
    assert controller.image.states[T0].leader == 3


async def _stopping(**config: str) -> tuple[FakeBroker, list[Any], asyncio.Task[None]]:
    """Return a leader that begins a controlled shutdown, and the callbacks of its requests."""
    broker = a_cluster(3, **config)[1]
    broker.see(1, 2, 3, controller_id=2)
    asked: list[Any] = []
    broker.peers.intercepted[CONTROLLED_SHUTDOWN] = lambda message, on_answer: asked.append(
        (message, on_answer)
    )
    await broker.command(told(is_new=True))
    task = asyncio.ensure_future(broker.controlled_shutdown.run())
    await settle()
    return broker, asked, task


@pytest.mark.rule("V43")
def test_the_broker_waits_for_what_remains_and_goes_in_the_end() -> None:
    async def story() -> None:
        broker, asked, task = await _stopping(
            controlled_shutdown_max_retries="2", controlled_shutdown_retry_backoff_ms="400"
        )
        left = ControlledShutdownResponse(remaining_partitions=[RemainingPartition("t", 0)])
        assert asked[0][0] == ControlledShutdownRequest(1, 101)
        asked[0][1](left, None)
        await settle()
        await broker.clock.advance(300)
        assert len(asked) == 1
        await broker.clock.advance(200)
        assert len(asked) == 2
        assert not task.done()
        asked[1][1](left, None)
        await settle()
        assert task.done()
        assert "stopping although this broker leads 1 partitions: t-0" in broker.tracer.lines[-1]

    asyncio.run(story())


@pytest.mark.rule("V43", "A14")
def test_the_broker_goes_as_soon_as_nothing_remains_and_reports_how_long_it_took() -> None:
    async def story() -> None:
        broker, asked, task = await _stopping()
        await broker.clock.advance(70)
        assert not task.done()
        asked[0][1](ControlledShutdownResponse(), None)
        await settle()
        assert task.done()
        assert broker.tracer.lines[-1].endswith("leaderships transferred in 70 ms")

    asyncio.run(story())
