"""What waits for a broker that does not answer is merged, bounded, and said: V81."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from tests.support.controller.harness import (
    ControllerHarness,
    controller_harness,
    others,
)
from tests.support.controller.values import state, topic

from tidelog.broker.controller.metrics import COMMANDS_DROPPED, COMMANDS_OVERDUE, COMMANDS_REPEATED
from tidelog.controller.command_builder import CommandBuilder
from tidelog.controller.commands import Commands, Sender
from tidelog.controller.image import Image
from tidelog.controller.registrations import BrokersChanged
from tidelog.controller.topics.changes import TopicFound
from tidelog.controller.topics.deletion import deletion_order
from tidelog.core import limits
from tidelog.core.errors import ErrorCode
from tidelog.core.types import BrokerInfo, Endpoint, TopicPartition
from tidelog.metadata import layout
from tidelog.wire.messages.leader_and_isr import LeaderAndIsrRequest
from tidelog.wire.messages.stop_replica import StopReplicaRequest
from tidelog.wire.messages.update_metadata import UpdateMetadataRequest

TP = TopicPartition("t", 0)
INCREMENTAL, FULL = 1, 2


@pytest.fixture
def three() -> Iterator[ControllerHarness]:
    with controller_harness(3) as made:
        yield made


def overdue(around: ControllerHarness) -> list[tuple[int, str]]:
    """Who counts whom as overdue."""
    return [
        (one.broker_id, each.labels[0])
        for one in around.brokers.values()
        for each in one.metrics.samples(COMMANDS_OVERDUE)
        if each.value
    ]


@pytest.mark.rule("V81")
def test_a_broker_that_is_behind_for_its_time_is_counted_until_it_answers(
    three: ControllerHarness,
) -> None:
    controller = three.controller()
    stuck, _ = others(three, controller)
    three.pass_time(100)
    stuck.script.silent = True
    three.begin_create(controller, "t", (1, 2, 3))
    three.pass_time(450)
    assert overdue(three) == [], "within controller.socket.timeout.ms"
    three.pass_time(1_500)
    assert overdue(three) == [(controller.broker_id, str(stuck.broker_id))]
    assert controller.metrics.value(COMMANDS_REPEATED, stuck.broker_id) >= 2
    stuck.script.silent = False
    three.until(lambda: TP in stuck.script.roles())
    three.until(lambda: overdue(three) == [])


@pytest.mark.rule("V81")
def test_no_broker_is_counted_as_overdue_by_a_controller_that_resigned(
    three: ControllerHarness,
) -> None:
    controller = three.controller()
    stuck, _ = others(three, controller)
    stuck.script.silent = True
    three.begin_create(controller, "t", (1, 2, 3))
    three.until(lambda: overdue(three) != [])
    controller.controller.resign("test")
    assert overdue(three) == []


@pytest.mark.rule("V81")
def test_a_repeated_command_is_numbered_on_from_the_connection_before(
    three: ControllerHarness,
) -> None:
    controller = three.controller()
    other, _ = others(three, controller)
    three.pass_time(100)
    told = len(other.script.correlation_ids)
    other.script.silent = True
    three.begin_create(controller, "t", (1, 2, 3))
    three.until(lambda: len(other.script.correlation_ids) >= told + 3)
    ids = other.script.correlation_ids
    assert told > 0
    assert all(one < following for one, following in pairwise(ids))


def image(*names: str) -> Image:
    made = Image()
    brokers = {
        one: BrokerInfo(one, 100 + one, (Endpoint("PLAINTEXT", f"b{one}", 9092),))
        for one in (1, 2, 3)
    }
    made.apply(BrokersChanged(brokers))
    for name in names:
        made.apply(TopicFound(topic(name, {0: (1, 2)}), {0: state((1, 2))}))
    return made


def told(
    around: Image, *, role: str = "", is_new: bool = False, delete: str = "", full: bool = False
) -> Commands:
    """Return the commands to broker 1 after one change."""
    builder = CommandBuilder(around)
    if role:
        builder.send_role(TopicPartition(role, 0), is_new)
        builder.send_metadata(TopicPartition(role, 0))
    if delete:
        deletion_order(delete, around).give(builder)
    if full:
        builder.send_everything(1)
    return builder.build()[1]


def sent(commands: Commands) -> list[tuple[str, int]]:
    """Kinds of the requests in order, and their types (-1: has none)."""
    return [
        (type(one.message).__name__.removesuffix("Request"), getattr(one.message, "type", -1))
        for one in commands.requests(Sender(9, 1, "PLAINTEXT"), 101)
    ]


@pytest.mark.rule("V81", "V17")
def test_merged_changes_are_incremental_and_one_of_each_in_order() -> None:
    around = image("a", "b", "c")
    waiting = told(around, role="a")
    for name in ("b", "c", "a"):
        waiting.merge(told(around, role=name))
    assert sent(waiting) == [("LeaderAndIsr", INCREMENTAL), ("UpdateMetadata", INCREMENTAL)]
    assert list(waiting.roles) == [TopicPartition(name, 0) for name in "abc"]


@pytest.mark.rule("V81", "V35")
def test_a_full_command_replaces_the_backlog_and_takes_in_later_commands() -> None:
    around = image("a", "b")
    waiting = told(around, role="a")
    waiting.merge(told(around, full=True))
    around.apply(TopicFound(topic("c", {0: (1, 2)}), {0: state((1, 2))}))
    waiting.merge(told(around, role="c", is_new=True))
    assert sent(waiting) == [
        ("UpdateMetadata", INCREMENTAL),
        ("LeaderAndIsr", FULL),
        ("UpdateMetadata", FULL),
    ]
    assert sorted(waiting.roles) == [TopicPartition(name, 0) for name in "abc"]
    assert waiting.roles[TopicPartition("c", 0)].state.is_new


@pytest.mark.rule("V81", "D3")
def test_a_replica_that_waits_to_be_created_stays_new_in_a_full_command() -> None:
    around = image("a", "b")
    waiting = told(around, role="a", is_new=True)
    waiting.merge(told(around, full=True))
    news = {name.topic: role.state.is_new for name, role in waiting.roles.items()}
    assert news == {"a": True, "b": False}


@pytest.mark.rule("V81", "V23")
def test_a_deletion_before_a_role_of_the_same_name_keeps_both_in_order() -> None:
    around = image("a")
    waiting = told(around, role="a")
    waiting.merge(told(around, delete="a"))
    assert waiting.roles == {}, "a role before the deletion would make the replica again"
    waiting.merge(told(image("a"), role="a", is_new=True))
    requests = [one.message for one in waiting.requests(Sender(9, 1, "PLAINTEXT"), 101)]
    assert [type(one) for one in requests] == [
        StopReplicaRequest,
        LeaderAndIsrRequest,
        UpdateMetadataRequest,
    ]


@pytest.mark.rule("V81")
def test_what_waits_has_outgrown_when_traces_are_more_than_all_that_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "MAX_SUPERSEDED_STATES", 10)
    around = image("a")
    waiting = told(around, role="a")
    sizes = []
    for number in range(1, 30):
        gone = image("a", f"t{number}")
        waiting.merge(told(gone, delete=f"t{number}"))
        sizes.append(waiting.has_outgrown)
    assert sizes.index(True) in range(4, 12) and not waiting.shows_all
    waiting.drop_shown()
    waiting.merge(told(around, full=True))
    assert waiting.shows_all and len(waiting.shown) == 1


@pytest.mark.rule("V81")
def test_topics_that_come_and_go_take_no_more_memory_for_a_stuck_broker_than_there_is_room_for(
    three: ControllerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_SUPERSEDED_STATES", 5)
    controller = three.controller()
    stuck, other = others(three, controller)
    three.create(controller, "stays", (1, 2, 3))
    three.pass_time(100)
    stuck.script.silent = True
    elsewhere = (controller.broker_id, other.broker_id)
    for number in range(12):
        three.create(controller, f"t{number}", elsewhere)
        three.pass_time(50)
        three.delete(controller, f"t{number}")
        three.until(
            partial(lambda name: name not in (three.children(layout.TOPICS) or []), f"t{number}")
        )
    assert controller.metrics.value(COMMANDS_DROPPED, stuck.broker_id) >= 1
    [channel] = [
        one
        for broker_id, one in controller.controller._term.channels._channels.items()  # type: ignore[union-attr]  # the term has begun
        if broker_id == stuck.broker_id
    ]
    assert len(channel._on_idle) <= 1, "clients that were answered are not kept"
    stuck.script.silent = False
    three.until(lambda: stuck.script.kinds().count("F") == 2)
    three.pass_time(200)
    [*_, last] = [one for one in stuck.script.of(UpdateMetadataRequest) if one.type == FULL]
    live = [
        told.topic_name
        for told in last.topic_states
        if any(one.leader >= 0 for one in told.partition_states)
    ]
    assert live == ["stays"]


@pytest.mark.rule("V81")
def test_a_client_waits_once_for_a_broker_that_is_silent(three: ControllerHarness) -> None:
    controller = three.controller()
    stuck, _ = others(three, controller)
    three.create(controller, "before", (1, 2, 3))
    stuck.script.silent = True
    assert answered_after_ms(three, "first") >= 900
    assert answered_after_ms(three, "second") < 300
    stuck.script.silent = False
    three.until(lambda: len(stuck.script.roles()) == 3)
    three.pass_time(500)
    # It takes its commands again, and is waited for again.
    stuck.script.silent = True
    assert answered_after_ms(three, "third") >= 900


@pytest.mark.rule("V81")
def test_clients_that_waited_in_vain_for_a_silent_broker_are_not_kept(
    three: ControllerHarness,
) -> None:
    """They all came before it was known as silent; it may never respond."""
    controller = three.controller()
    stuck, _ = others(three, controller)
    term = controller.controller._term
    assert term is not None
    channel = term.channels._channels[stuck.broker_id]
    stuck.script.silent = True
    waiting = [three.begin_create(controller, f"t{number}", (1, 2, 3)) for number in range(5)]
    three.pass_time(500)
    assert waiting == [[]] * 5
    assert len(channel._on_idle) == 5
    three.pass_time(1_000)
    assert all(waiting)
    assert not channel._on_idle


def answered_after_ms(around: ControllerHarness, name: str) -> float:
    """How long a client waits until it has its response that a topic was created."""
    began_ms = around._admin_ports.clock.monotonic_ms()
    around.create(around.controller(), name, (1, 2, 3))
    return around._admin_ports.clock.monotonic_ms() - began_ms


def times_told(broker: Any, topic_partition: TopicPartition) -> int:
    return sum(
        TopicPartition(told.topic_name, one.partition_index) == topic_partition
        for request in broker.script.of(LeaderAndIsrRequest)
        for told in request.topic_states
        for one in told.partition_states
    )


@pytest.mark.rule("V81")
def test_a_role_that_a_full_disk_refused_is_sent_again_until_there_is_room(
    three: ControllerHarness,
) -> None:
    controller = three.controller()
    full, other = others(three, controller)
    full.script.role_errors[TP] = ErrorCode.KAFKA_STORAGE_ERROR
    three.create(controller, "t", (1, 2, 3))
    three.until(lambda: full.broker_id not in three.state(TP).isr)
    told = times_told(full, TP)
    three.pass_time(3_500)
    assert times_told(full, TP) == told + 2, "after one second, and after two more"
    full.script.role_errors.clear()
    three.pass_time(4_000)
    assert times_told(full, TP) == told + 3, "once more, and it could"
    three.pass_time(40_000)
    assert times_told(full, TP) == told + 3
    assert times_told(other, TP) == 2, "the new role, and that of the smaller ISR"


@pytest.mark.rule("V81")
def test_a_refused_role_is_not_sent_again_when_another_has_taken_its_place(
    three: ControllerHarness,
) -> None:
    controller = three.controller()
    full, victim = others(three, controller)
    full.script.role_errors[TP] = ErrorCode.KAFKA_STORAGE_ERROR
    three.create(controller, "t", (1, 2, 3))
    three.pass_time(100)
    full.script.role_errors.clear()
    victim.crash()
    three.until(lambda: victim.broker_id not in three.state(TP).isr)
    three.pass_time(300)
    told = times_told(full, TP)
    assert full.script.roles()[TP].isr == three.state(TP).isr
    three.pass_time(3_000)
    assert times_told(full, TP) == told
