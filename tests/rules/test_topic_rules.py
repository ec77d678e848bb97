"""Rules of topics: created, placed, named, deleted (V8, V20 to V24)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from tests.support.controller.harness import (
    ControllerHarness,
    controller_harness,
    others,
)
from tests.support.controller.values import (
    TP,
    alter,
    answer_of,
    broker,
    brokers,
    create,
    delete,
    epoch,
    isr_answer,
    loaded,
    removed,
    run,
    state,
    step,
    topic,
    topic_id,
    unloaded,
)

from tidelog.controller.partitions.placement import place
from tidelog.controller.records import Topic
from tidelog.controller.registrations import BrokersRead
from tidelog.controller.replica_answers import StopReplicaAnswered
from tidelog.controller.topics.changes import TopicFound
from tidelog.controller.topics.creation import CreateTopic
from tidelog.controller.topics.deletion import QueueDeletion, RemoveTopic
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.metadata import layout
from tidelog.metadata.store import Create
from tidelog.wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic
from tidelog.wire.messages.stop_replica import StopReplicaRequest
from tidelog.wire.messages.update_metadata import UpdateMetadataRequest


@pytest.fixture
def three() -> Iterator[ControllerHarness]:
    with controller_harness(3) as made:
        yield made


def stopped(broker_id: int) -> StopReplicaAnswered:
    return StopReplicaAnswered(broker_id, epoch(broker_id), [TP])


# V20


@pytest.mark.rule("V20")
def test_the_first_live_replica_leads_and_all_live_ones_are_in_sync() -> None:
    controller = loaded()
    wanted = CreatableTopic("new", -1, -1, [CreatableReplicaAssignment(0, [9, 3, 1])])
    [write] = step(controller, create(wanted))[0]
    assert isinstance(write, CreateTopic)
    made = write.made.states[0]
    assert (made.leader, made.isr, made.leader_epoch) == (3, (3, 1), 0)
    assert made.isr_epochs == (epoch(3), epoch(1))


@pytest.mark.rule("V20")
def test_a_topic_appears_as_a_whole(three: ControllerHarness) -> None:
    controller = three.controller()
    seen: list[tuple[bool, int]] = []

    def watch(*_: object) -> None:
        tree = three.server.tree
        states = sum(
            tree.get(layout.partition_state_path(TopicPartition("t", number))) is not None
            for number in range(8)
        )
        seen.append((tree.get(layout.topic_path("t")) is not None, states))

    three.server.on_commit(watch)
    three.create(controller, "t", *[(1, 2, 3)] * 8)
    assert Counter(seen) == {(True, 8): 1}


# V21


@pytest.mark.rule("V21")
def test_placement_is_the_same_for_the_same_seed() -> None:
    live = [broker(one, rack="ab"[one % 2]) for one in range(6)]
    assert place(live, 30, 3, 17) == place(live, 30, 3, 17)
    assert place(live, 30, 3, 17) != place(live, 30, 3, 18)


@pytest.mark.rule("V21")
def test_replicas_are_spread_over_racks_and_evenly_over_brokers() -> None:
    live = [broker(one, rack="abc"[one % 3]) for one in range(6)]
    placed = place(live, 60, 3, 5)
    for replicas in placed.values():
        assert len({one % 3 for one in replicas}) == 3
    held = Counter(one for replicas in placed.values() for one in replicas)
    led = Counter(replicas[0] for replicas in placed.values())
    assert max(held.values()) - min(held.values()) <= 2
    assert set(led.values()) == {10}


@pytest.mark.rule("V21")
def test_an_explicit_assignment_is_honoured(three: ControllerHarness) -> None:
    controller = three.controller()
    three.create(controller, "t", (3, 1), (2, 3))
    node = three.read(layout.topic_path("t"))
    assert node is not None
    assert layout.decode_topic("", node.data).partitions == {0: (3, 1), 1: (2, 3)}


@pytest.mark.rule("V21")
def test_too_few_brokers_are_refused_with_both_numbers() -> None:
    _, effects = step(loaded(), create(CreatableTopic("new", 1, 4)))
    [answer] = answer_of(effects).topics
    assert answer.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "4" in answer.error_message
    assert "3" in answer.error_message


@pytest.mark.rule("V5", "V21")
def test_a_broker_has_at_most_one_replica_of_a_partition() -> None:
    wanted = CreatableTopic("new", -1, -1, [CreatableReplicaAssignment(0, [1, 1])])
    writes, effects = step(loaded(), create(wanted))
    assert writes == []
    assert answer_of(effects).topics[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


# V8, V22


@pytest.mark.rule("V22")
def test_nodes_go_only_after_every_live_replica_has_answered() -> None:
    controller = loaded()
    writes, effects = step(controller, delete("t"))
    assert writes == [QueueDeletion("t")]
    assert [list(one.stops) for one in effects.commands.values()] == [[TP]] * 3
    assert all(one.stops[TP].delete for one in effects.commands.values())
    for broker_id in (3, 1):
        writes, _ = step(controller, stopped(broker_id))
        assert writes == []
    writes, _ = step(controller, stopped(2))
    assert writes == [RemoveTopic("t", topic())]


@pytest.mark.rule("V22", "V8")
def test_a_deleted_topic_leaves_no_node_behind(three: ControllerHarness) -> None:
    controller = three.controller()
    three.create(controller, "t", (1, 2, 3), (1, 2, 3))
    slow = others(three, controller)[0]
    three.pass_time(100)
    slow.script.silent = True
    answers = three.delete(controller, "t")
    three.pass_time(300)
    assert answers == []
    assert three.children(layout.TOPICS) == ["t"]
    assert three.children(layout.DELETE_TOPICS) == ["t"]
    slow.script.silent = False
    three.until(lambda: bool(answers))
    assert answers[0].responses[0].error_code == ErrorCode.NONE
    assert three.children(layout.TOPICS) == []
    assert three.children(layout.DELETE_TOPICS) == []
    assert three.children(f"{layout.CONFIG}/topics") == []
    for one in three.brokers.values():
        [told] = one.script.of(StopReplicaRequest)[0].topic_states
        assert [(s.leader_epoch, s.delete_partition) for s in told.partition_states] == [
            (-2, True),
            (-2, True),
        ]


@pytest.mark.rule("V22")
def test_dead_brokers_do_not_block_a_deletion_and_clean_up_when_they_return(
    three: ControllerHarness,
) -> None:
    controller = three.controller()
    dead = others(three, controller)[0]
    three.create(controller, "t", (1, 2, 3))
    dead.crash()
    three.until(lambda: dead.broker_id not in three.state(TP).isr)
    answers = three.delete(controller, "t")
    three.until(lambda: bool(answers))
    assert three.children(layout.TOPICS) == []
    dead.start()
    three.until(lambda: "F" in dead.script.kinds())
    assert TP not in dead.script.roles()


@pytest.mark.rule("V22")
def test_a_broker_that_dies_during_a_deletion_does_not_block_it() -> None:
    controller = loaded()
    step(controller, delete("t"))
    run(controller, stopped(1), stopped(2))
    writes, _ = step(controller, BrokersRead(brokers(1, 2)))
    assert writes == [RemoveTopic("t", topic())]


@pytest.mark.rule("V22", "V41")
def test_a_new_controller_goes_on_with_a_deletion() -> None:
    controller = unloaded(TopicFound(topic(), {0: state()}), deletions=["t"])
    _, effects = step(controller)
    assert all(list(one.stops) == [TP] for one in effects.commands.values())
    effects = run(controller, *(stopped(one) for one in (1, 2, 3)))[-1]
    assert removed(effects) == ["t"]


@pytest.mark.rule("V8")
def test_a_node_asks_for_a_deletion_as_the_request_does(three: ControllerHarness) -> None:
    controller = three.controller()
    three.create(controller, "t", (1, 2, 3))
    three.write(Create(layout.delete_topic_path("t"), b""))
    three.until(lambda: three.children(layout.TOPICS) == [])
    assert three.children(layout.DELETE_TOPICS) == []


@pytest.mark.rule("V8")
def test_a_request_to_delete_what_does_not_exist_is_taken_away(three: ControllerHarness) -> None:
    three.controller()
    three.write(Create(layout.delete_topic_path("nobody"), b""))
    three.until(lambda: three.children(layout.DELETE_TOPICS) == [])


@pytest.mark.rule("V22")
def test_clients_hear_that_the_topic_goes(three: ControllerHarness) -> None:
    controller = three.controller()
    three.create(controller, "t", (1, 2, 3))
    three.pass_time(100)
    answers = three.delete(controller, "t")
    three.until(lambda: bool(answers))
    three.pass_time(100)
    for one in three.brokers.values():
        [told] = one.script.of(UpdateMetadataRequest)[-1].topic_states
        assert [shown.leader for shown in told.partition_states] == [-2]


@pytest.mark.rule("V22")
def test_a_client_is_not_kept_waiting_longer_than_it_asked_for(three: ControllerHarness) -> None:
    controller = three.controller()
    three.create(controller, "t", (1, 2, 3))
    three.pass_time(100)
    others(three, controller)[0].script.silent = True
    answers = three.delete(controller, "t", timeout_ms=200)
    three.pass_time(150)
    assert answers == []
    three.pass_time(100)
    assert answers[0].responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert three.children(layout.DELETE_TOPICS) == ["t"]


# V23


@pytest.mark.rule("V23")
def test_a_topic_that_is_made_again_has_another_id(three: ControllerHarness) -> None:
    controller = three.controller()
    first = three.create(controller, "t", (1, 2, 3)).topic_id
    answers = three.delete(controller, "t")
    three.until(lambda: bool(answers))
    second = three.create(controller, "t", (1, 2, 3)).topic_id
    assert first != second
    assert bytes(16) not in (first, second)


@pytest.mark.rule("V23")
def test_a_leader_of_the_old_topic_changes_nothing_in_the_new_one() -> None:
    again = Topic("t", topic_id("t", 2), {0: (1, 2, 3)})
    controller = loaded(TopicFound(again, {0: state()}))
    writes, effects = step(controller, alter(1, 2, of_topic=topic_id("t")))
    assert writes == []
    assert isr_answer(effects).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    _, effects = step(controller, alter(1, 2, of_topic=topic_id("t", 2)))
    assert isr_answer(effects).error_code == ErrorCode.NONE


@pytest.mark.rule("V23")
def test_commands_carry_the_topic_id(three: ControllerHarness) -> None:
    controller = three.controller()
    result = three.create(controller, "t", (1, 2, 3))
    three.pass_time(100)
    for one in three.brokers.values():
        *_, roles, shown = one.script.received
        assert [told.topic_id for told in roles.topic_states] == [result.topic_id]
        assert [told.topic_id for told in shown.topic_states] == [result.topic_id]


# V24


@pytest.mark.rule("V24")
@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a/b", "a b", "ä", "a\n"])
def test_names_that_could_be_no_directory_are_refused(name: str) -> None:
    writes, effects = step(loaded(), create(CreatableTopic(name, 1, 1)))
    assert writes == []
    assert answer_of(effects).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.rule("V24")
@pytest.mark.parametrize("name", ["x", "x" * 249, "A-z_0.9", "..."])
def test_all_other_names_are_allowed(name: str) -> None:
    _, effects = step(loaded(), create(CreatableTopic(name, 1, 1)))
    assert answer_of(effects).topics[0].error_code == ErrorCode.NONE


@pytest.mark.rule("V24")
def test_a_node_with_a_name_that_no_topic_may_have_is_left_alone(three: ControllerHarness) -> None:
    three.controller()
    three.place_topic("not a name", {0: (1, 2, 3)})
    three.place_topic("t", {0: (1, 2, 3)})
    three.until(lambda: three.children(layout.topic_partitions_path("t")) == ["0"])
    assert three.children(layout.topic_path("not a name")) == []
