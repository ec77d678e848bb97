"""Events are recorded with their times, and delay no request: V80.

Real controllers on the simulated store; a writer of events with a scripted leader of its topic.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from tests.support.broker.fakes import FakeBroker, FakeClock, a_cluster, settle
from tests.support.controller.harness import (
    ControllerHarness,
    controller_harness,
    others,
)
from tests.support.controller.values import (
    TP,
    alter,
    brokers,
    loaded,
    step,
)

from tidelog.broker.apis.produce import _topic_refusal
from tidelog.broker.controller.metrics import FAILOVER_MS, PARTITIONS_UNLED
from tidelog.broker.events.cluster_events import ClusterEvents
from tidelog.broker.events.metrics import EVENTS_DROPPED
from tidelog.controller.cluster_events import ClusterEvent, StateChange
from tidelog.controller.writes import Conflict
from tidelog.core.errors import ConnectionLost, ErrorCode
from tidelog.core.names import CLUSTER_EVENTS
from tidelog.metadata import layout
from tidelog.sim.batches import read_batches, read_records
from tidelog.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from tidelog.wire.registry import PRODUCE


@pytest.fixture
def three() -> Iterator[ControllerHarness]:
    with controller_harness(3, cluster_events_enable="true") as made:
        yield made


def recorded(around: ControllerHarness) -> list[ClusterEvent]:
    """What brokers record from now on, in order."""
    told: list[ClusterEvent] = []

    def now(_: int, events: Iterator[ClusterEvent | None]) -> None:
        told.extend(event for event in events if event is not None)

    for one in around.brokers.values():
        one.cluster_events.record = told.extend  # type: ignore[method-assign,assignment]  # recorded
        one.cluster_events.record_later = now  # type: ignore[method-assign,assignment]  # recorded
    return told


@pytest.mark.rule("V80")
def test_a_failover_is_recorded_phase_by_phase_and_partition_by_partition(
    three: ControllerHarness,
) -> None:
    controller = three.controller()
    victim, survivor = others(three, controller)
    order = (victim.broker_id, survivor.broker_id, controller.broker_id)
    three.create(controller, "t", order, order)
    three.pass_time(100)
    told = recorded(three)
    victim.crash()
    three.until(lambda: any(one.kind == "failover" for one in told))
    [event] = [one for one in told if one.kind == "failover"]
    assert list(event.fields["phases_ms"]) == ["read", "decide", "write", "command", "lead"]
    assert all(ms >= 0 for ms in event.fields["phases_ms"].values())
    assert event.fields["brokers"] == [victim.broker_id] and event.fields["partitions"] == 2
    led = [(one["partition"], one["leader"]) for one in event.fields["sample"]]
    assert sorted(led) == [(0, survivor.broker_id), (1, survivor.broker_id)]
    assert (event.fields["cause"], event.fields["detection_ms"]) == ("death", -1)
    kinds = [one.kind for one in told]
    assert kinds.count("leader_change") == 2 and kinds.count("session_loss") == 1
    counted = {phase for each in controller.metrics.samples(FAILOVER_MS) for phase in each.labels}
    assert counted == set(event.fields["phases_ms"]), "and none for what was not seen"


@pytest.mark.rule("V80")
def test_how_long_a_death_went_unnoticed_is_reported_where_it_was_seen(
    three: ControllerHarness,
) -> None:
    controller = three.controller()
    victim, survivor = others(three, controller)
    three.create(controller, "t", (victim.broker_id, survivor.broker_id, controller.broker_id))
    three.pass_time(100)
    told = recorded(three)
    silent_ms = controller.clock.monotonic_ms()
    controller.peers.silent_ms[victim.broker_id] = silent_ms
    victim.crash()
    three.until(lambda: any(one.kind == "failover" for one in told))
    [event] = [one for one in told if one.kind == "failover"]
    whole_ms = event.fields["detection_ms"] + sum(event.fields["phases_ms"].values())
    assert event.fields["detection_ms"] > 0, "a session ends after its timeout"
    assert whole_ms <= controller.clock.monotonic_ms() - silent_ms
    assert controller.metrics.sample(FAILOVER_MS, "detect").count == 1
    assert controller.metrics.value(FAILOVER_MS, "detect") == event.fields["detection_ms"]


@pytest.mark.rule("V80", "V43")
def test_what_a_broker_hands_over_is_a_failover_without_a_death(three: ControllerHarness) -> None:
    controller = three.controller()
    leaving, survivor = others(three, controller)
    three.create(controller, "t", (leaving.broker_id, survivor.broker_id, controller.broker_id))
    three.pass_time(100)
    told = recorded(three)
    three.shut_down(controller, leaving.broker_id, leaving.broker_epoch)
    three.until(lambda: any(one.kind == "failover" for one in told))
    [event] = [one for one in told if one.kind == "failover"]
    assert (event.fields["cause"], event.fields["brokers"]) == ("shutdown", [leaving.broker_id])
    assert [one["leader"] for one in event.fields["sample"]] == [survivor.broker_id]
    [change] = [one for one in told if one.kind == "leader_change"]
    assert change.fields["cause"] == "leader_leaving"
    leaving.crash()
    three.until(lambda: any(one.kind == "shutdown" for one in told))
    assert "session_loss" not in [one.kind for one in told]


@pytest.mark.rule("V80")
def test_the_failover_of_the_controller_itself_is_recorded_by_the_next(
    three: ControllerHarness,
) -> None:
    controller = three.controller()
    rest = [one.broker_id for one in others(three, controller)]
    three.create(controller, "t", (controller.broker_id, *rest))
    three.pass_time(100)
    told = recorded(three)
    controller.crash()
    three.until(lambda: any(one.kind == "failover" for one in told))
    [event] = [one for one in told if one.kind == "failover"]
    assert event.fields["brokers"] == [controller.broker_id]
    [election] = [one for one in told if one.kind == "controller_election"]
    assert election.fields["controller"] in rest


@pytest.mark.rule("V80")
def test_partitions_that_are_published_and_not_led_are_counted(three: ControllerHarness) -> None:
    controller = three.controller()
    victim, survivor = others(three, controller)
    order = (victim.broker_id, survivor.broker_id, controller.broker_id)
    three.create(controller, "t", *[order] * 5)
    three.pass_time(100)
    assert controller.metrics.value(PARTITIONS_UNLED) == 0
    survivor.script.silent = True
    victim.crash()
    three.until(lambda: three.state(TP).leader == survivor.broker_id)
    three.pass_time(20)
    assert controller.metrics.value(PARTITIONS_UNLED) == 5
    survivor.script.silent = False
    three.until(lambda: controller.metrics.value(PARTITIONS_UNLED) == 0)


@pytest.mark.rule("V80", "V2")
def test_no_event_is_reported_that_was_not_written() -> None:
    controller = loaded(live=brokers(1, 2, 3))
    _, effects = step(controller, alter(1, 2), outcomes={0: Conflict(reason="test")})
    assert effects.notices.of(StateChange) == []
    controller = loaded(live=brokers(1, 2, 3))
    _, effects = step(controller, alter(1, 2))
    [change] = effects.notices.of(StateChange)
    assert change.before is not None
    assert (change.before.isr, change.after.isr) == ((1, 2, 3), (1, 2))


@pytest.mark.rule("V80")
def test_where_events_are_off_nothing_is_recorded_and_no_topic_is_asked_for() -> None:
    with controller_harness(3) as quiet:
        controller = quiet.controller()
        quiet.create(controller, "t", (1, 2, 3))
        others(quiet, controller)[0].crash()
        quiet.until(lambda: len(quiet.state(TP).isr) == 2)
        quiet.pass_time(500)
        assert all(one.cluster_events.is_idle for one in quiet.brokers.values())
        running = [name for one in quiet.brokers.values() for name in one.tasks._running.values()]
        assert "cluster events" not in running
        assert quiet.children(layout.TOPICS) == ["t"]


# The writer


class Leader:
    """Takes what is produced, or responds as the test sets it."""

    def __init__(self, broker: FakeBroker) -> None:
        self.batches: list[tuple[int, int, list[Any]]] = []
        #: Answers to come: an error code, or an exception for a lost connection.
        self.outcomes: list[ErrorCode | Exception] = []
        broker.peers.intercepted[PRODUCE] = self.take

    def take(self, message: Any, on_answer: Any) -> None:
        [topic] = message.topic_data
        assert topic.name == CLUSTER_EVENTS and message.acks == -1
        data = bytes(topic.partition_data[0].records)
        [batch] = read_batches(data)
        values = [json.loads(value) for _, value in read_records(data)]
        self.batches.append((batch.producer_id, batch.base_sequence, values))
        outcome = self.outcomes.pop(0) if self.outcomes else ErrorCode.NONE
        if isinstance(outcome, Exception):
            on_answer(None, outcome)
            return
        answered = PartitionProduceResponse(index=0, error_code=outcome)
        on_answer(ProduceResponse([TopicProduceResponse(CLUSTER_EVENTS, [answered])]), None)


def event(number: int) -> ClusterEvent:
    return ClusterEvent("registration", str(number), {"number": number})


def numbers(values: list[Any]) -> list[int]:
    return [one["number"] for one in values if one["kind"] == "registration"]


class Ids:
    """Producer ids 100, 101, …"""

    def __init__(self) -> None:
        self.taken = 99

    async def wait(self) -> int:
        self.taken += 1
        return self.taken


class _Topic:
    leader = 1


class _Creation:
    def __init__(self) -> None:
        self.asked: list[str] = []

    def create(self, names: Iterable[str]) -> None:
        self.asked += names


def a_writer() -> tuple[FakeBroker, FakeClock, Leader, _Creation]:
    broker = a_cluster(1, cluster_events_enable="true")[1]
    creation = _Creation()
    made: Any = broker
    made.cluster_events = ClusterEvents(broker.services, Ids().wait, creation.create)
    made.view.partition = lambda _: _Topic()
    return broker, broker.clock, Leader(broker), creation


async def until_idle(broker: FakeBroker, clock: FakeClock) -> None:
    for _ in range(200):
        await settle()
        if broker.cluster_events.is_idle:
            return
        await clock.advance(250)
    raise AssertionError("events are not written")


@pytest.mark.rule("V80")
def test_what_has_no_known_outcome_is_sent_again_as_the_same_and_never_as_another() -> None:
    async def story() -> None:
        broker, clock, leader, _ = a_writer()
        leader.outcomes = [ConnectionLost("cut"), ErrorCode.NOT_LEADER_OR_FOLLOWER]
        broker.cluster_events.record(map(event, range(3)))
        await until_idle(broker, clock)
        broker.cluster_events.record(map(event, range(3, 5)))
        await until_idle(broker, clock)
        assert [(one, first, numbers(values)) for one, first, values in leader.batches] == [
            *[(100, 0, [0, 1, 2])] * 3,
            (100, 3, [3, 4]),
        ]

    asyncio.run(story())


@pytest.mark.rule("V80")
def test_a_batch_that_will_never_do_is_dropped_and_the_topic_says_so() -> None:
    async def story() -> None:
        broker, clock, leader, _ = a_writer()
        leader.outcomes = [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
        broker.cluster_events.record(map(event, range(3)))
        await until_idle(broker, clock)
        broker.cluster_events.record([event(3)])
        await until_idle(broker, clock)
        producer_id, first, [dropped, kept] = leader.batches[-1]
        assert (producer_id, first) == (101, 0)
        assert (dropped["kind"], dropped["count"], kept["number"]) == ("events_dropped", 3, 3)
        assert broker.metrics.value(EVENTS_DROPPED) == 3

    asyncio.run(story())


@pytest.mark.rule("V80")
def test_no_request_waits_for_events_and_events_without_room_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidelog.broker.events.cluster_events.MAX_CLUSTER_EVENTS_QUEUED", 10)

    async def story() -> None:
        broker, clock, leader, creation = a_writer()
        view: Any = broker.view
        there, view.partition = view.partition, lambda _: None
        broker.see(1, 2, 3)
        broker.cluster_events.record(map(event, range(25)))
        for _ in range(20):
            await settle()
            await clock.advance(250)
        assert leader.batches == [] and creation.asked[0] == CLUSTER_EVENTS
        assert broker.metrics.value(EVENTS_DROPPED) == 15
        view.partition = there
        await until_idle(broker, clock)
        [(_, _, values)] = leader.batches
        assert values[0]["count"] == 15 and numbers(values) == list(range(10))
        assert broker.failures == []

    asyncio.run(story())


@pytest.mark.rule("V80")
def test_events_are_made_when_they_are_sent_and_not_when_they_are_recorded() -> None:
    async def story() -> None:
        broker, clock, leader, _ = a_writer()
        made: list[int] = []

        def events() -> Iterator[ClusterEvent | None]:
            for number in range(450):
                made.append(number)
                yield event(number) if number % 3 else None

        broker.cluster_events.record_later(450, events())
        assert made == [], "commands are not held back"
        await until_idle(broker, clock)
        sent = [number for _, _, values in leader.batches for number in numbers(values)]
        assert sent == [number for number in range(450) if number % 3]
        assert len(leader.batches) == 3

    asyncio.run(story())


@pytest.mark.rule("V80")
def test_the_topic_is_not_made_with_too_few_replicas_as_brokers_start() -> None:
    async def story() -> None:
        broker, clock, _, creation = a_writer()
        view: Any = broker.view
        view.partition = lambda _: None
        broker.cluster_events.record([event(0)])
        for _ in range(20):
            await settle()
            await clock.advance(250)
        assert len(view.brokers) == 1 and creation.asked == []
        for _ in range(60):
            await settle()
            await clock.advance(250)
        assert CLUSTER_EVENTS in creation.asked, "nobody else has come: better one than none"
        creation.asked.clear()
        broker.see(1, 2, 3)
        other, clock, _, creation = a_writer()
        other.see(1, 2, 3)
        there: Any = other.view
        there.partition = lambda _: None
        other.cluster_events.record([event(0)])
        await settle()
        assert creation.asked == [CLUSTER_EVENTS]

    asyncio.run(story())


@pytest.mark.rule("V80")
def test_brokers_alone_write_events() -> None:
    assert _topic_refusal(CLUSTER_EVENTS, "broker-3-cluster-events") is None
    for client_id in (None, "", "me", "broker-3-cluster-events-too", "broker-x-cluster-events"):
        refusal = _topic_refusal(CLUSTER_EVENTS, client_id)
        assert refusal is not None and refusal.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert _topic_refusal("__consumer_offsets", "broker-3-cluster-events") is not None
