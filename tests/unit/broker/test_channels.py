"""One ordered queue to each registered broker: order, repetition, merging."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial

import pytest
from tests.support.controller.harness import Candidate, ControllerHarness, controller_harness

from tidelog.broker.controller.metrics import COMMANDS_REPEATED
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.metadata import layout
from tidelog.sim.node import NodeTracer
from tidelog.wire.messages.leader_and_isr import LeaderAndIsrRequest
from tidelog.wire.messages.update_metadata import UpdateMetadataRequest

TP = TopicPartition("t", 0)


@pytest.fixture
def three() -> Iterator[ControllerHarness]:
    with controller_harness(3) as made:
        yield made


def other_than(around: ControllerHarness, controller: Candidate) -> Candidate:
    return next(one for one in around.brokers.values() if one is not controller)


def created(around: ControllerHarness, controller: Candidate, name: str = "t") -> None:
    assert around.create(controller, name, (1, 2, 3)).error_code == ErrorCode.NONE


def has_repeated(controller: Candidate, to: Candidate, times: int) -> bool:
    return controller.metrics.value(COMMANDS_REPEATED, to.broker_id) > times


def has_role(one: Candidate, topic: str) -> bool:
    return TopicPartition(topic, 0) in one.script.roles()


@pytest.mark.rule("V17")
def test_live_brokers_are_told_before_roles_and_partitions_after(three: ControllerHarness) -> None:
    three.controller()
    three.pass_time(100)
    for one in three.brokers.values():
        kinds = one.script.kinds()
        assert kinds[: kinds.index("F") + 2] == ["U", "F", "U"]


def test_partitions_are_shown_when_the_roles_are_answered(three: ControllerHarness) -> None:
    controller = three.controller()
    other = other_than(three, controller)
    other.script.silent = True
    created(three, controller)
    three.pass_time(300)
    shown = [one for one in other.script.of(UpdateMetadataRequest) if one.topic_states]
    assert shown == []
    other.script.silent = False
    three.until(lambda: any(one.topic_states for one in other.script.of(UpdateMetadataRequest)))


def test_a_silent_broker_delays_nobody_but_itself(three: ControllerHarness) -> None:
    controller = three.controller()
    other = other_than(three, controller)
    other.script.silent = True
    created(three, controller)
    rest = [one for one in three.brokers.values() if one is not other]
    three.until(lambda: all(TP in one.script.roles() for one in rest), limit_ms=20)


def test_a_command_without_an_answer_is_repeated(three: ControllerHarness) -> None:
    controller = three.controller()
    other = other_than(three, controller)
    other.script.silent = True
    created(three, controller)
    three.pass_time(2500)
    other.script.silent = False
    three.until(lambda: TP in other.script.roles())
    assert other.script.roles()[TP].is_new


def test_why_commands_are_repeated_is_told_once_until_they_are_taken(
    three: ControllerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def log(_: NodeTracer, __: str, level: int, message: str) -> None:
        if level == logging.WARNING and "will be repeated" in message:
            told.append(message)

    monkeypatch.setattr(NodeTracer, "log", log)
    controller = three.controller()
    other = other_than(three, controller)
    for topic in ("t1", "t2"):
        other.script.silent = True
        created(three, controller, topic)
        before = controller.metrics.value(COMMANDS_REPEATED, other.broker_id)
        three.until(partial(has_repeated, controller, other, before + 2), limit_ms=10_000)
        assert told and len(told) == len(dict.fromkeys(told))
        told.clear()
        other.script.silent = False
        three.until(partial(has_role, other, topic))
        three.pass_time(500)


def test_a_refused_connection_is_tried_again(three: ControllerHarness) -> None:
    controller = three.controller()
    other = other_than(three, controller)
    other.script.unreachable = True
    created(three, controller)
    three.pass_time(700)
    assert TP not in other.script.roles()
    other.script.unreachable = False
    three.until(lambda: TP in other.script.roles())


@pytest.mark.parametrize("error", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_a_broker_that_does_not_take_a_command_yet_gets_it_again(
    three: ControllerHarness, error: ErrorCode
) -> None:
    controller = three.controller()
    other = other_than(three, controller)
    other.script.errors[LeaderAndIsrRequest] = [error, error]
    created(three, controller)
    three.until(lambda: len(other.script.of(LeaderAndIsrRequest)) == 4)
    three.pass_time(500)
    assert len(other.script.of(LeaderAndIsrRequest)) == 4


def test_what_was_answered_is_not_repeated_with_the_rest(three: ControllerHarness) -> None:
    controller = three.controller()
    other = other_than(three, controller)
    three.pass_time(100)
    other.script.errors[UpdateMetadataRequest] = [ErrorCode.UNKNOWN_SERVER_ERROR]
    before = other.script.kinds()
    created(three, controller)
    three.pass_time(500)
    assert other.script.kinds()[len(before) :] == ["L", "U", "U"]


def test_commands_that_wait_are_merged_into_the_last_state(three: ControllerHarness) -> None:
    controller = three.controller()
    other = other_than(three, controller)
    three.pass_time(100)
    other.script.unreachable = True
    before = len(other.script.received)
    for name in ("a", "b", "c"):
        three.begin_create(controller, name, (1, 2, 3))
    third = next(
        one for one in three.brokers.values() if one is not other and one is not controller
    )
    three.until(lambda: three.children(layout.TOPICS) == ["a", "b", "c"])
    third.crash()
    three.until(lambda: third.broker_id not in three.state(TopicPartition("a", 0)).isr)
    other.script.unreachable = False
    three.until(lambda: len(other.script.received) >= before + 3)
    three.pass_time(300)
    assert other.script.kinds()[before:] == ["U", "L", "U"]
    roles = other.script.roles()
    assert [roles[TopicPartition(name, 0)].is_new for name in ("a", "b", "c")] == [True] * 3
    assert all(third.broker_id not in one.isr for one in roles.values())


def test_a_channel_ends_with_the_registration(three: ControllerHarness) -> None:
    controller = three.controller()
    other = other_than(three, controller)
    other.script.silent = True
    created(three, controller)
    other.crash()
    three.until(
        lambda: (
            three.state(TP).isr
            == tuple(one.broker_id for one in three.brokers.values() if one is not other)
        )
    )
    other.script.silent = False
    other.start()
    three.until(lambda: "F" in other.script.kinds())
    epochs = [one.broker_epoch for one in other.script.received]
    assert set(epochs) == {other.broker_epoch}
    assert "L" not in other.script.kinds()


@pytest.mark.rule("V17")
def test_propagation_may_be_held_back_to_merge(three: ControllerHarness) -> None:
    with controller_harness(3, controller_propagation_linger_ms="200") as lingering:
        controller = lingering.controller()
        lingering.pass_time(1000)
        other = other_than(lingering, controller)
        before = len(other.script.received)
        for name in ("a", "b"):
            lingering.begin_create(controller, name, (1, 2, 3))
        lingering.pass_time(100)
        assert len(other.script.received) == before
        lingering.pass_time(400)
        assert other.script.kinds()[before:] == ["L", "U"]


def test_a_broker_that_knows_a_newer_controller_makes_this_one_look(
    three: ControllerHarness,
) -> None:
    controller = three.controller()
    other = other_than(three, controller)
    three.pass_time(100)
    other.script.errors[LeaderAndIsrRequest] = [ErrorCode.STALE_CONTROLLER_EPOCH]
    created(three, controller)
    three.until(lambda: TP in other.script.roles())
    three.pass_time(200)
    assert three.controllers == [controller.broker_id]
