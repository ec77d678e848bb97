"""E1 and V60 while brokers have different values of `min.insync.replicas`.

The leader commits records by its own minimum, the controller computes the eligible replicas. A
rolling change of `server.properties` makes both differ for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest
from tests.support.broker.fakes import TOPIC, TOPIC_ID, FakeBroker, a_cluster, settle
from tests.support.broker.fakes import state as commanded
from tests.support.controller.values import (
    TP,
    alter,
    isr_answer,
    loaded,
    one_partition,
    settings,
    state,
    state_writes,
    step,
)
from tests.support.replication import LAG_MS

from tidelog.broker.apis import produce
from tidelog.broker.cluster_view import PartitionView, TopicView
from tidelog.broker.replicas.isr.frozen_watermarks import FrozenWatermarks
from tidelog.controller.controller import Controller
from tidelog.controller.partitions.alter_partition import AlterPartitionAsked
from tidelog.core.errors import ErrorCode
from tidelog.core.types import PartitionState
from tidelog.replication.leader import LeaderReplica
from tidelog.wire.messages.alter_partition import AlterPartitionRequest
from tidelog.wire.messages.produce import PartitionProduceResponse
from tidelog.wire.registry import ALTER_PARTITION

INT32_MAX = (1 << 31) - 1
WAITS = "t-0 commits nothing before the eligible replicas [3] are back in the ISR [1, 2]"


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def controller_with(minimum: int, published: PartitionState | None = None) -> Controller:
    of = replace(settings(), min_insync_replicas=minimum)
    return loaded(one_partition(published or state()), of=of)


def asked(*members: int, minimum: int, partition_epoch: int = 10) -> AlterPartitionAsked:
    """A leader with this effective minimum asks for an ISR."""
    event = alter(*members, partition_epoch=partition_epoch)
    event.request.topics[0].partitions[0].minimum = minimum
    return event


def written(controller: Controller, event: AlterPartitionAsked) -> PartitionState:
    writes, _ = step(controller, event)
    return state_writes(writes)[TP]


# The controller


@pytest.mark.rule("E1", "V60")
@pytest.mark.parametrize(("controller", "leader"), [(1, 2), (2, 1), (2, 2)])
def test_the_greater_minimum_of_leader_and_controller_decides_who_is_eligible(
    controller: int, leader: int
) -> None:
    """The leader committed on two brokers at least: without 2 and 3, one log might be the only."""
    after = written(controller_with(controller), asked(1, minimum=leader))
    assert (after.isr, after.elr) == ((1,), (2, 3))


@pytest.mark.rule("E1", "V60")
def test_a_change_clears_the_eligible_replicas_at_the_greater_minimum_only() -> None:
    controller = controller_with(1)
    written(controller, asked(1, minimum=3))
    small = written(controller, asked(1, 2, minimum=3, partition_epoch=11))
    assert (small.isr, small.elr) == ((1, 2), (3,))
    enough = written(controller, asked(1, 2, 3, minimum=3, partition_epoch=12))
    assert (enough.isr, enough.elr) == ((1, 2, 3), ())


@pytest.mark.rule("E1", "V60")
def test_a_leader_with_a_smaller_minimum_learns_that_others_stay_eligible() -> None:
    _, effects = step(controller_with(3), asked(1, 2, minimum=2))
    answer = isr_answer(effects)
    assert (answer.isr, answer.has_eligible) == ((1, 2), True)


@pytest.mark.rule("E1")
@pytest.mark.parametrize(("minimum", "elr"), [(INT32_MAX, (2, 3)), (0, ()), (-1, ()), (-5, ())])
def test_a_minimum_that_no_leader_can_have_counts_as_far_as_it_can(
    minimum: int, elr: tuple[int, ...]
) -> None:
    assert written(controller_with(1), asked(1, minimum=minimum)).elr == elr
    whole = written(controller_with(1, state((1, 2))), asked(1, 2, 3, minimum=minimum))
    assert (whole.isr, whole.elr) == ((1, 2, 3), ()), "there are no more than three replicas"


@pytest.mark.rule("E1")
def test_a_leader_that_sends_no_minimum_has_the_least() -> None:
    """Kafka's leaders send none; so did earlier versions of tidelog."""
    after = written(controller_with(2), alter(1))
    assert after.elr == (2, 3)
    assert written(controller_with(1), alter(1)).elr == ()


# The leader


async def a_leader(minimum: int, *, eligible: tuple[int, ...] = ()) -> FakeBroker:
    """Broker 1 leads t-0 with ISR (1, 2)."""
    broker = a_cluster(min_insync_replicas=str(minimum), replica_lag_time_max_ms=str(LAG_MS))[1]
    broker.see(1, 2, 3, controller_id=9)
    command = commanded(isr=(1, 2), is_new=True)
    command.eligible = eligible
    await broker.command(command)
    view = PartitionView(1, 0, (1, 2, 3), (1, 2), (), 0, eligible=eligible)
    broker.view.topics[TOPIC] = TopicView(TOPIC, TOPIC_ID, {0: view})
    broker.tracer.lines.clear()
    return broker


def leadership(broker: FakeBroker) -> LeaderReplica:
    found = broker.partition().leadership
    assert found is not None
    return found


@pytest.mark.rule("E1", "V60")
@pytest.mark.parametrize(("minimum", "effective"), [(1, 1), (2, 2), (7, 3)])
def test_a_leader_sends_the_effective_minimum_that_it_has_when_it_asks(
    minimum: int, effective: int
) -> None:
    async def story() -> None:
        broker = await a_leader(1)
        requests: list[AlterPartitionRequest] = []
        broker.peers.intercepted[ALTER_PARTITION] = lambda message, _: requests.append(message)
        broker.produce(1)
        broker.partition().role.follower_fetched(3, 103, 1, 0, 0)
        broker.partition().role.minimum_changed(minimum)
        await settle()
        (request,) = requests
        (partition,) = request.topics[0].partitions
        assert [member.broker_id for member in partition.new_isr_with_epochs] == [1, 2, 3]
        assert partition.minimum == effective

    run(story())


class Waiting:
    """A produce with acks=all."""

    error = ""

    def acknowledged(self) -> None:
        raise AssertionError("nothing is committed")

    def refused(self, error: ErrorCode, message: str) -> None:
        self.error = message


@pytest.mark.rule("E1", "V60")
def test_a_leader_logs_once_a_minute_for_which_replicas_acks_all_waits() -> None:
    async def story() -> None:
        broker = await a_leader(2, eligible=(3,))
        frozen, clock = FrozenWatermarks(broker.services), broker.clock
        partition = broker.partition()
        assert leadership(broker).awaits_eligible
        frozen.look([partition])
        assert not broker.tracer.lines, "no request waits"
        broker.produce(1)
        partition.watchers.wait_for_acks(1, Waiting())
        frozen.look([partition])
        (line,) = broker.tracer.lines
        assert line.startswith("acks=all waits on 1 partitions: " + WAITS)
        await clock.advance(59_999)
        frozen.look([partition])
        assert len(broker.tracer.lines) == 1
        await clock.advance(1)
        frozen.look([partition])
        assert len(broker.tracer.lines) == 2

    run(story())


@pytest.mark.rule("E1", "V60")
def test_it_is_looked_for_whenever_followers_are_examined() -> None:
    async def story() -> None:
        broker = await a_leader(2, eligible=(3,))
        broker.produce(1)
        broker.partition().watchers.wait_for_acks(1, Waiting())
        upkeep = broker.replicas.upkeep
        upkeep.start()
        await settle()
        await broker.clock.advance(LAG_MS // 2)
        assert [line for line in broker.tracer.lines if WAITS in line]
        upkeep.close()
        await broker.tasks.close()

    run(story())


@pytest.mark.rule("E1", "V60")
@pytest.mark.parametrize(("minimum", "eligible"), [(3, (3,)), (2, ())])
def test_a_leader_that_refuses_or_commits_logs_nothing(
    minimum: int, eligible: tuple[int, ...]
) -> None:
    async def story() -> None:
        broker = await a_leader(minimum, eligible=eligible)
        partition = broker.partition()
        partition.watchers.wait_for_acks(1, Waiting())
        FrozenWatermarks(broker.services).look([partition])
        assert not leadership(broker).awaits_eligible
        assert not broker.tracer.lines

    run(story())


@pytest.mark.rule("E1", "V60")
@pytest.mark.parametrize("eligible", [(3,), ()])
def test_a_producer_whose_time_is_over_learns_who_was_waited_for(eligible: tuple[int, ...]) -> None:
    async def story() -> None:
        broker = await a_leader(2, eligible=eligible)
        request = produce._Produce(broker, -1)  # type: ignore[arg-type]  # a fake stands in
        answer = PartitionProduceResponse()
        append = produce._PartitionAppend(request, broker.partition(), answer)
        append.appended(broker.produce(1))
        request.timed_out()
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert answer.error_message is not None
        assert (WAITS in answer.error_message) is bool(eligible)

    run(story())
