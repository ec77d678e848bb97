"""What a new controller loads, decides and commands, in that order: V35, V41.

Real shells on the simulated store; brokers are scripted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.controller.harness import (
    ControllerHarness,
    controller_harness,
    others,
)
from tests.support.controller.values import (
    TP,
    state,
    step,
    topic,
    topic_id,
    unloaded,
    vanished,
)

from tidelog.broker.controller.store_reader import StoreReader
from tidelog.controller.commands import Commands, Outgoing, Part, Sender
from tidelog.controller.topics.changes import TopicFound, TopicUnreadable
from tidelog.controller.topics.readings import TopicsRead
from tidelog.core.types import TopicPartition
from tidelog.metadata import layout
from tidelog.metadata.layout import TopicAssignment
from tidelog.metadata.store import (
    ANY_VERSION,
    Create,
    Delete,
    SetData,
)
from tidelog.wire.messages.leader_and_isr import LeaderAndIsrRequest
from tidelog.wire.messages.update_metadata import UpdateMetadataRequest

FULL = 2


@pytest.fixture
def three() -> Iterator[ControllerHarness]:
    with controller_harness(3) as made:
        yield made


def kept_in(commands: Commands) -> dict[str, list[str]]:
    """The topics that requests name without a partition: of these a broker keeps what it has."""
    kept: dict[str, list[str]] = {}
    for outgoing in commands.requests(Sender(1, 1, "PLAINTEXT"), 5):
        if isinstance(outgoing.message, LeaderAndIsrRequest | UpdateMetadataRequest):
            names = [t.topic_name for t in outgoing.message.topic_states if not t.partition_states]
            kept[type(outgoing.message).__name__.removesuffix("Request")] = names
    return kept


@pytest.mark.rule("V35", "V41")
def test_a_full_command_lists_everything_names_what_to_keep_and_leaves_out_deletions() -> None:
    hosted = {0: (1, 2), 1: (2, 3), 2: (3, 1)}
    controller = unloaded(
        TopicFound(topic("t", hosted), {n: state(one) for n, one in hosted.items()}),
        TopicFound(topic("leaving", {0: (1, 2)}), {0: state((1, 2))}),
        TopicUnreadable("broken", "not JSON"),
        deletions=["leaving"],
    )
    _, effects = step(controller)
    for broker_id, expected in {1: [0, 2], 2: [0, 1], 3: [1, 2]}.items():
        commands = effects.commands[broker_id]
        assert commands.full
        assert list(commands.roles) == [TopicPartition("t", number) for number in expected]
        assert commands.keep == ("broken",)
        assert kept_in(commands) == {"LeaderAndIsr": ["broken"], "UpdateMetadata": ["broken"]}
        commands.answered(Outgoing(Part.ROLES, 0, 0, None))
        assert kept_in(commands) == {"UpdateMetadata": ["broken"]}


@pytest.mark.rule("V35")
def test_every_broker_is_sent_full_commands_when_a_topic_can_be_read_again() -> None:
    controller = unloaded(TopicUnreadable("t", "not JSON"))
    step(controller)
    found = TopicFound(topic("t", {0: (1, 2)}), {0: state((1, 2))})
    _, effects = step(controller, TopicsRead(["t"], [found]))
    assert [one for one, commands in effects.commands.items() if commands.full] == [1, 2, 3]
    assert list(effects.commands[1].roles) == [TP]
    assert effects.commands[1].keep == ()


@pytest.mark.rule("V25", "V35")
def test_a_topic_whose_node_is_removed_by_hand_is_served_no_more_at_once() -> None:
    found = TopicFound(topic("t", {0: (1, 2)}), {0: state((1, 2))})
    other = TopicFound(topic("u", {0: (2, 3)}), {0: state((2, 3))})
    controller = unloaded(found, other, TopicUnreadable("broken", "not JSON"))
    step(controller)
    _, effects = step(controller, TopicsRead(["u"], []))
    assert vanished(effects) == ["t", "broken"]
    assert [one for one, commands in effects.commands.items() if commands.full] == [1, 2, 3]
    for commands in effects.commands.values():
        assert {one.topic for one in commands.roles} <= {"u"} and commands.shows_all
        assert {key[1].topic for key in commands.shown} == {"u"} and commands.keep == ()
    _, effects = step(controller, TopicsRead(["u"], []))
    assert vanished(effects) == [] and not effects.commands


@pytest.mark.rule("V25")
def test_a_topic_whose_nodes_are_restored_by_hand_is_sent_to_every_broker() -> None:
    found = TopicFound(topic("t", {0: (1, 2)}), {0: state((1, 2))})
    controller = unloaded(found)
    step(controller)
    step(controller, TopicsRead([], []))
    writes, effects = step(controller, TopicsRead(["t"], [found]))
    assert writes == []
    assert [one for one, commands in effects.commands.items() if commands.full] == [1, 2, 3]
    assert list(effects.commands[2].roles) == [TP]


@pytest.mark.rule("V23", "V25")
def test_a_topic_that_is_replaced_by_hand_before_the_controller_reads_it_is_noticed(
    three: ControllerHarness,
) -> None:
    controller = three.controller()
    three.create(controller, "t", (1, 2, 3))
    path = layout.topic_path("t")
    before = three.read(path)
    other = topic_id("another t")
    below = [layout.partition_state_path(TP), layout.partition_path(TP), f"{path}/partitions"]
    # One transaction: both nodes are at version 0 whenever the controller reads.
    three.write(
        *(Delete(each, ANY_VERSION) for each in (*below, path)),
        Create(path, layout.encode_topic(TopicAssignment(other, {0: (1, 2, 3)}))),
    )
    after = three.read(path)
    assert before is not None
    assert after is not None
    assert before.stat.version == after.stat.version == 0
    three.until(lambda: three.read(layout.partition_state_path(TP)) is not None)
    three.pass_time(100)
    for broker_id, broker in three.brokers.items():
        roles = broker.script.of(LeaderAndIsrRequest)[-1].topic_states
        assert [(one.topic_name, one.topic_id) for one in roles] == [("t", other)], broker_id


@pytest.mark.rule("V25")
def test_the_end_of_a_deletion_that_is_under_way_is_no_edit() -> None:
    found = TopicFound(topic("t", {0: (1, 2)}), {0: state((1, 2))})
    controller = unloaded(found, deletions=["t"])
    step(controller)
    _, effects = step(controller, TopicsRead([], []))
    assert vanished(effects) == []


@pytest.mark.rule("V35")
def test_a_topic_whose_nodes_cannot_be_read_is_kept_and_left_alone(
    three: ControllerHarness,
) -> None:
    first = three.controller()
    three.create(first, "t", (1, 2, 3))
    path = layout.topic_path("t")
    three.write(SetData(path, b"not JSON", ANY_VERSION))
    first.crash()
    three.until(lambda: three.controllers != [] and three.controllers != [first.broker_id])
    second = three.controller()
    three.pass_time(300)
    full = [
        one
        for one in second.script.of(LeaderAndIsrRequest)
        if one.type == FULL and one.controller_epoch == 2
    ]
    [kept] = full[-1].topic_states
    assert (kept.topic_name, kept.partition_states) == ("t", [])
    node = three.read(path)
    assert node is not None
    assert node.data == b"not JSON"


@pytest.mark.rule("V25", "V35")
def test_a_partition_whose_state_cannot_be_read_is_kept_and_the_others_go_on(
    three: ControllerHarness,
) -> None:
    first = three.controller()
    three.create(first, "t", (1, 2, 3), (1, 2, 3))
    path, beside = layout.partition_state_path(TP), TopicPartition("t", 1)
    three.write(SetData(path, b"not JSON", ANY_VERSION))
    first.crash()
    three.until(lambda: three.controllers != [] and three.controllers != [first.broker_id])
    second = three.controller()
    three.pass_time(300)
    assert first.broker_id not in three.state(beside).isr
    [kept] = [
        one
        for one in second.script.of(LeaderAndIsrRequest)
        if one.type == FULL and one.controller_epoch == 2
    ][-1].topic_states
    told = {one.partition_index: one.leader_epoch for one in kept.partition_states}
    assert told == {0: -1, 1: 1}
    node = three.read(path)
    assert node is not None
    assert node.data == b"not JSON"


@pytest.mark.rule("V35")
@pytest.mark.parametrize("what", ["topic", "state"])
def test_state_that_can_be_read_again_is_sent_as_after_an_election(
    three: ControllerHarness, what: str
) -> None:
    first = three.controller()
    three.create(first, "t", (1, 2, 3))
    path = layout.topic_path("t") if what == "topic" else layout.partition_state_path(TP)
    node = three.read(path)
    assert node is not None
    three.write(SetData(path, b"not JSON", ANY_VERSION))
    first.crash()
    three.until(lambda: three.controllers != [] and three.controllers != [first.broker_id])
    second = three.controller()

    def leaders_told() -> list[int]:
        return [
            one.leader
            for request in second.script.of(LeaderAndIsrRequest)
            if request.controller_epoch == 2
            for told in request.topic_states
            for one in told.partition_states
            if one.leader_epoch >= 0
        ]

    three.pass_time(1_000)
    assert leaders_told() == []
    three.write(SetData(path, node.data, ANY_VERSION))
    three.until(lambda: leaders_told() != [], limit_ms=6_000)
    assert leaders_told() == [min({1, 2, 3} - {first.broker_id})]


@pytest.mark.rule("V41")
def test_a_new_controller_decides_first_then_sends_full_commands(three: ControllerHarness) -> None:
    first = three.controller()
    second, third = others(three, first)
    three.create(first, "t", (first.broker_id, second.broker_id, third.broker_id))
    three.pass_time(200)
    for one in (second, third):
        one.script.received.clear()
    first.crash()
    three.until(lambda: "F" in second.script.kinds() and "F" in third.script.kinds())
    three.pass_time(200)
    for one in (second, third):
        assert one.script.kinds() == ["U", "F", "U"]
        update, full, shown = one.script.received
        assert [info.id for info in update.live_brokers] == [second.broker_id, third.broker_id]
        [told] = full.topic_states
        [role] = told.partition_states
        assert (role.leader, role.leader_epoch) == (second.broker_id, 1)
        assert shown.topic_states[0].partition_states[0].leader == second.broker_id
    assert three.state(TP).leader == second.broker_id


@pytest.mark.rule("V41")
def test_what_changes_while_a_controller_loads_is_not_missed(
    three: ControllerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = three.controller()
    three.pass_time(100)
    loads: list[int] = []
    load = StoreReader.load

    async def changed_meanwhile(self: StoreReader, *lists: Any) -> Any:
        read = await load(self, *lists)
        loads.append(1)
        await self._store.transact([Create(layout.delete_topic_path("nobody"), b"")])
        return read

    monkeypatch.setattr(StoreReader, "load", changed_meanwhile)
    first.crash()
    three.until(lambda: bool(loads))
    three.until(lambda: three.children(layout.DELETE_TOPICS) == [])


@pytest.mark.rule("V41", "V25")
def test_a_topic_that_is_edited_while_a_controller_loads_is_read_again_and_watched(
    three: ControllerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its node was read, and the image does not hold it yet (edited_nodes, seed 740036004)."""
    first = three.controller()
    left = tuple(one.broker_id for one in others(three, first))
    three.create(first, "t", left)
    three.pass_time(100)
    path = layout.topic_path("t")
    node = three.read(path)
    assert node is not None
    same_id = layout.decode_topic(path, node.data).topic_id
    load, edited = StoreReader.load, False

    async def edited_meanwhile(self: StoreReader, *lists: Any) -> Any:
        nonlocal edited
        read = await load(self, *lists)
        if not edited:
            edited = True
            await self._store.transact([SetData(path, grown(2), ANY_VERSION)])
        return read

    def grown(count: int) -> bytes:
        return layout.encode_topic(TopicAssignment(same_id, dict.fromkeys(range(count), left)))

    def is_adopted(number: int) -> bool:
        state = layout.partition_state_path(TopicPartition("t", number))
        return three.server.tree.get(state) is not None

    monkeypatch.setattr(StoreReader, "load", edited_meanwhile)
    first.crash()
    three.until(lambda: is_adopted(1))
    three.write(SetData(path, grown(3), ANY_VERSION))
    three.until(lambda: is_adopted(2))


@pytest.mark.rule("V41")
@pytest.mark.parametrize("what", ["broker", "topic", "deletion"])
def test_what_changes_after_it_has_loaded_is_heard_of(three: ControllerHarness, what: str) -> None:
    controller = three.controller()
    three.create(controller, "t", (1, 2, 3))
    controller.crash()
    three.until(lambda: three.controllers not in ([], [controller.broker_id]))
    successor = three.controller()
    three.until(lambda: controller.broker_id not in three.state(TP).isr)
    three.pass_time(300)
    if what == "broker":
        [victim] = [one for one in others(three, successor) if one.is_up]
        victim.crash()
        three.until(lambda: victim.broker_id not in three.state(TP).isr)
    elif what == "topic":
        three.place_topic("u", {0: (successor.broker_id,)})
        path = layout.partition_state_path(TopicPartition("u", 0))
        three.until(lambda: three.server.tree.get(path) is not None)
    else:
        three.write(Create(layout.delete_topic_path("t"), b""))
        three.until(lambda: three.server.tree.get(layout.topic_path("t")) is None)


@pytest.mark.rule("V41", "V8")
def test_a_deletion_asked_for_while_there_was_no_controller_is_taken_up(
    three: ControllerHarness,
) -> None:
    controller = three.controller()
    three.create(controller, "t", (1, 2, 3))
    for one in three.brokers.values():
        one.crash()
    three.write(Create(layout.delete_topic_path("t"), b""))
    for one in three.brokers.values():
        one.start()
    three.until(lambda: three.server.tree.get(layout.topic_path("t")) is None)
    assert three.children(layout.DELETE_TOPICS) == []


@pytest.mark.rule("V41", "V20")
def test_a_creation_that_stopped_halfway_is_finished(three: ControllerHarness) -> None:
    first = three.controller()
    three.place_topic("t", {0: (1, 2, 3), 1: (3, 2, 1)})
    three.until(lambda: three.children(layout.topic_partitions_path("t")) == ["0", "1"])
    assert three.state(TopicPartition("t", 1)).leader == 3
    assert first.is_controller
