"""Rule F11: a leader that cannot serve reads hands its leadership to another member of the ISR."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.broker.fakes import CONNECTION, FakeBroker, a_cluster, settle
from tests.support.broker.fakes import state as commanded
from tests.support.controller.values import (
    TP,
    answer_of,
    broker,
    brokers,
    epoch,
    loaded,
    one_partition,
    settings,
    state,
    state_writes,
    step,
    topic_id,
)
from tests.support.replication import LAG_MS, a_leader

from tidelog.broker.apis import fetch
from tidelog.broker.replicas.directories.relinquishing import Relinquishing
from tidelog.broker.server.requests import Request
from tidelog.controller.controller import Controller
from tidelog.controller.elections.preferred import RebalanceDue
from tidelog.controller.elections.relinquishing import RelinquishAsked
from tidelog.controller.registrations import BrokersRead
from tidelog.core.completion import Completion
from tidelog.core.errors import ConnectionLost, ErrorCode
from tidelog.core.types import PartitionState
from tidelog.wire.codec import RequestHeader
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.messages.relinquish_leadership import (
    RelinquishedPartition,
    RelinquishedPartitionResult,
    RelinquishedTopic,
    RelinquishedTopicResult,
    RelinquishLeadershipRequest,
    RelinquishLeadershipResponse,
)
from tidelog.wire.registry import FETCH, RELINQUISH_LEADERSHIP

# The leader


@pytest.mark.rule("F11")
def test_a_leader_whose_oldest_read_takes_longer_than_the_lag_limit_steps_back() -> None:
    leader = a_leader()
    slow, quick = leader.reads_under_way.begin(0), leader.reads_under_way.begin(100)
    assert not leader.must_relinquish(LAG_MS)
    assert leader.must_relinquish(LAG_MS + 1)
    leader.reads_under_way.end(slow)
    assert not leader.must_relinquish(LAG_MS + 1), "the second read is younger"
    assert leader.must_relinquish(LAG_MS + 101)
    leader.reads_under_way.end(quick)
    assert not leader.must_relinquish(10 * LAG_MS)


@pytest.mark.rule("F11")
@pytest.mark.parametrize(
    ("isr", "alive", "steps_back"),
    [((1, 2), (2, 3), True), ((1,), (2, 3), False), ((1, 2), (3,), False)],
)
def test_a_leader_without_another_live_member_stays(
    isr: tuple[int, ...], alive: tuple[int, ...], steps_back: bool
) -> None:
    leader = a_leader(isr=isr, alive=lambda broker_id: broker_id in alive)
    leader.reads_under_way.begin(0)
    assert leader.must_relinquish(LAG_MS + 1) is steps_back


class Hanging:
    """A fake broker that leads t-0; a consumer's read of it hangs."""

    def __init__(self, enabled: bool) -> None:
        self.broker: FakeBroker = a_cluster(
            leader_relinquish_on_slow_reads_enable=str(enabled).lower()
        )[1]
        self.read: Completion[Any] = Completion()
        self.relinquishing = Relinquishing(self.broker.services, lambda partition: None)
        #: Requests to the controller, and how to answer each.
        self.asked: list[tuple[RelinquishLeadershipRequest, Callable[[Any, Any], None]]] = []
        self.broker.peers.intercepted[RELINQUISH_LEADERSHIP] = lambda message, answer: (
            self.asked.append((message, answer))
        )

    async def begin(self) -> None:
        """Lead; the fetch arrives."""
        broker = self.broker
        broker.see(1, 2, 3, controller_id=9)
        await broker.command(commanded(isr=(1, 2, 3), is_new=True, leader_epoch=4))
        broker.partition().role.append(b"rr", -1, 0)
        broker.partition().flush_appends()
        core = broker.partition().leadership
        assert core is not None
        core.high_watermark = 2
        broker.log().read = lambda *_, **__: self.read  # type: ignore[method-assign]  # a disk that hangs
        request = FetchRequest(
            session_epoch=-1, max_wait_ms=0, min_bytes=1, max_bytes=100,
            topics=[FetchTopic("t", b"T" * 16, [FetchPartition(partition_max_bytes=100)])],
        )  # fmt: skip
        fetch.handle(
            broker,  # type: ignore[arg-type]  # a fake broker
            Request(RequestHeader(FETCH, 17, 0, "c"), request, CONNECTION, broker.clock.now_ms),
        )

    async def look(self) -> None:
        """The leader examines its followers."""
        self.relinquishing.look(self.broker.replicas.all())
        await settle()


@pytest.mark.rule("F11")
def test_the_leader_asks_the_controller_once_at_a_time_while_its_read_hangs() -> None:
    async def story() -> None:
        hanging = Hanging(enabled=True)
        await hanging.begin()
        limit_ms = hanging.broker.config.replica_lag_time_max_ms
        await hanging.broker.clock.advance(limit_ms)
        await hanging.look()
        assert hanging.asked == []
        await hanging.broker.clock.advance(1)
        await hanging.look()
        await hanging.look()
        ((request, answer),) = hanging.asked
        assert request == RelinquishLeadershipRequest(
            1, 101, [RelinquishedTopic(b"T" * 16, [RelinquishedPartition(0, 4)])]
        )
        (line,) = [text for text in hanging.broker.tracer.lines if "asking the controller" in text]
        assert "reads of t-0 have waited 30001 ms for the disk (limit 30000 ms)" in line
        answer(None, ConnectionLost("the controller is gone"))
        await settle()
        await hanging.look()
        assert len(hanging.asked) == 2, "the next look asks again"
        refusal = RelinquishedPartitionResult(
            0, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no other member can lead"
        )
        hanging.asked[1][1](
            RelinquishLeadershipResponse(topics=[RelinquishedTopicResult(b"T" * 16, [refusal])]),
            None,
        )
        await settle()
        assert any("no other member can lead" in text for text in hanging.broker.tracer.lines)
        hanging.read.resolve(SimpleNamespace(data=memoryview(b"rr")))
        await hanging.look()
        assert len(hanging.asked) == 2, "the read is done"

    asyncio.run(story())


@pytest.mark.rule("F11")
def test_the_option_is_off_by_default() -> None:
    async def story() -> None:
        assert not a_cluster()[1].config.leader_relinquish_on_slow_reads_enable
        hanging = Hanging(enabled=False)
        await hanging.begin()
        await hanging.broker.clock.advance(10 * hanging.broker.config.replica_lag_time_max_ms)
        await hanging.look()
        assert hanging.asked == []

    asyncio.run(story())


# The controller


def relinquishes(
    broker_id: int = 1, *, leader_epoch: int = 5, life: int = 1, partition: int = 0
) -> RelinquishAsked:
    """Broker N's request to be replaced as the leader of t-0."""
    topics = [RelinquishedTopic(topic_id("t"), [RelinquishedPartition(partition, leader_epoch)])]
    request = RelinquishLeadershipRequest(broker_id, epoch(broker_id, life), topics)
    return RelinquishAsked(1, request)


def outcome(
    controller: Controller, asked: RelinquishAsked
) -> tuple[PartitionState | None, ErrorCode]:
    """The state that the request leads to, and its error."""
    writes, effects = step(controller, asked)
    response: RelinquishLeadershipResponse = answer_of(effects)
    errors = [part.error_code for one in response.topics for part in one.partitions]
    return state_writes(writes).get(TP), ErrorCode(errors[0] if errors else response.error_code)


@pytest.mark.rule("F11")
def test_the_next_member_of_the_isr_leads_and_the_former_leader_stays_in_it() -> None:
    after, error = outcome(loaded(), relinquishes())
    assert error is ErrorCode.NONE and after is not None
    assert (after.leader, after.leader_epoch, after.isr) == (2, 6, (1, 2, 3))


@pytest.mark.rule("F11")
def test_a_replica_outside_the_isr_does_not_take_over() -> None:
    after, _ = outcome(loaded(one_partition(state((1, 3)))), relinquishes())
    assert after is not None and (after.leader, after.isr) == (3, (1, 3))
    after, error = outcome(loaded(one_partition(state((1,)))), relinquishes())
    assert after is None and error is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


@pytest.mark.rule("F11")
@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (relinquishes(leader_epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
        (relinquishes(2), ErrorCode.FENCED_LEADER_EPOCH),
        (relinquishes(life=2), ErrorCode.STALE_BROKER_EPOCH),
        (relinquishes(9), ErrorCode.STALE_BROKER_EPOCH),
        (relinquishes(partition=7), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_a_request_of_another_than_the_present_leader_changes_nothing(
    asked: RelinquishAsked, error: ErrorCode
) -> None:
    assert outcome(loaded(), asked) == (None, error)


@pytest.mark.rule("F11")
def test_leadership_does_not_move_back_and_forth_between_slow_brokers() -> None:
    controller = loaded()
    after, _ = outcome(controller, relinquishes(1))
    assert after is not None and after.leader == 2
    after, _ = outcome(controller, relinquishes(2, leader_epoch=6))
    assert after is not None and after.leader == 3
    after, error = outcome(controller, relinquishes(3, leader_epoch=7))
    assert after is None and error is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


@pytest.mark.rule("F11")
def test_a_slow_broker_gets_its_leadership_back_at_the_second_look() -> None:
    controller = loaded()
    outcome(controller, relinquishes(1))
    assert controller.balance.counts_looks, "looks are due even where nothing returns by itself"
    step(controller, RebalanceDue(0))
    assert controller.image.states[TP].leader == 2
    step(controller, RebalanceDue(0))
    assert controller.image.states[TP].leader == 1
    assert not controller.balance.counts_looks


@pytest.mark.rule("F11")
def test_a_broker_that_restarted_is_not_slow_any_more() -> None:
    controller = loaded(of=settings())
    outcome(controller, relinquishes(1))
    step(controller, BrokersRead(brokers(broker(1, life=2), 2, 3)))
    assert not controller.balance.is_slow(1, controller.image)
