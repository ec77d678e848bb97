"""Rules of partitions added and leaders elected on request or for balance: V8, V13, V46, V70.

Real shells on the simulated store; brokers are scripted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.support.controller.harness import (
    Candidate,
    ControllerHarness,
    controller_harness,
    no_partitions,
    others,
)
from tests.support.controller.values import (
    TP,
    answer_of,
    grow,
    loaded,
    more,
    outdated,
    state,
    state_writes,
    step,
    topic,
)

from tidelog.controller.elections.preferred import PreferredElectionRead, RebalanceDue
from tidelog.controller.partitions.addition import AddPartitions
from tidelog.controller.topics.changes import TopicFound
from tidelog.controller.writes import Conflict
from tidelog.core.errors import ErrorCode
from tidelog.core.types import NO_LEADER, TopicPartition
from tidelog.metadata import layout
from tidelog.metadata.layout import TopicAssignment
from tidelog.metadata.store import ANY_VERSION, Create, SetData
from tidelog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)
from tidelog.wire.messages.create_partitions import CreatePartitionsRequest

NEW = TopicPartition("t", 1)


@pytest.fixture
def three() -> Iterator[ControllerHarness]:
    with controller_harness(3) as made:
        yield made


def led_elsewhere(around: ControllerHarness) -> tuple[Candidate, int]:
    """The controller, and the preferred replica of t-0: alive, in sync, and not its leader."""
    controller = around.controller()
    preferred, other = (one.broker_id for one in others(around, controller))
    around.create(controller, "t", (preferred, other, controller.broker_id))
    published = around.state(TP)
    around.publish(
        TP,
        replace(
            published,
            leader=other,
            leader_epoch=published.leader_epoch + 1,
        ),
    )
    controller.crash()
    around.until(lambda: around.controllers not in ([], [controller.broker_id]))
    after = around.controller()
    around.until(lambda: around.state(TP).isr == (preferred, other))
    assert around.state(TP).leader == other
    return after, preferred


# V70


@pytest.mark.rule("V70")
def test_new_partitions_are_as_those_of_a_new_topic_and_the_old_ones_untouched() -> None:
    controller = loaded()
    writes, effects = step(controller, grow(more("t", 2, (3, 1, 2))))
    assert state_writes(writes) == {}
    assert controller.image.states[TP] == state()
    made = controller.image.states[NEW]
    assert (made.leader, made.isr, made.leader_epoch, made.partition_epoch) == (3, (3, 1, 2), 0, 0)
    told = [tp for commands in effects.commands.values() for tp in commands.roles]
    assert told == [NEW, NEW, NEW]


@pytest.mark.rule("V70", "V5")
def test_the_topic_node_keeps_its_id_and_what_it_had(three: ControllerHarness) -> None:
    controller = three.controller()
    three.create(controller, "t", (1, 2, 3))
    path = layout.topic_path("t")
    before = three.read(path)
    assert before is not None
    old = layout.decode_topic(path, before.data)
    assert three.grow(controller, "t", 3).error_code == ErrorCode.NONE
    after = three.read(path)
    assert after is not None
    new = layout.decode_topic(path, after.data)
    assert new.topic_id == old.topic_id
    assert new.partitions[0] == (1, 2, 3)
    assert list(new.partitions) == [0, 1, 2]
    assert all(sorted(replicas) == [1, 2, 3] for replicas in new.partitions.values())


@pytest.mark.rule("V70", "V2")
def test_the_response_comes_when_the_new_partitions_are_durable_and_sent(
    three: ControllerHarness,
) -> None:
    controller = three.controller()
    three.create(controller, "t", (1, 2, 3))
    three.grow(controller, "t", 2)
    assert three.state(NEW).leader in (1, 2, 3)
    for one in three.brokers.values():
        assert one.script.roles()[NEW].is_new


@pytest.mark.rule("V70", "V3")
def test_a_deposed_controller_adds_nothing(three: ControllerHarness) -> None:
    controller = three.controller()
    three.create(controller, "t", (1, 2, 3))
    three.write(SetData(layout.CONTROLLER_EPOCH, b"9", ANY_VERSION))
    assert three.grow(controller, "t", 2).error_code == ErrorCode.NOT_CONTROLLER
    assert three.read(layout.partition_path(NEW)) is None


@pytest.mark.rule("V70", "V15")
def test_a_topic_that_another_writer_changed_meanwhile_is_read_again() -> None:
    controller = loaded()
    [write] = step(controller, grow(more("t", 2)))[0]
    assert isinstance(write, AddPartitions)
    controller = loaded()
    _, effects = step(controller, grow(more("t", 2)), outcomes={0: Conflict()})
    assert answer_of(effects).results[0].error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert outdated(effects) == ["t"]
    assert NEW not in controller.image.states


@pytest.mark.rule("V70", "V15")
def test_a_node_that_another_writer_changed_meanwhile_is_not_overwritten(
    three: ControllerHarness,
) -> None:
    controller = three.controller()
    three.create(controller, "t", (1, 2, 3))
    three.pass_time(100)
    three.cut_off.append(f"b{controller.broker_id}")
    request = CreatePartitionsRequest([more("t", 2)])
    answers = three.ask(controller, lambda shell: shell.create_partitions(request, no_partitions))
    three.pass_time(50)
    three.edit("t", {0: (1, 2, 3), 1: (2, 3, 1)})
    three.cut_off.clear()
    three.until(lambda: bool(answers))
    assert answers[0].results[0].error_code == ErrorCode.INVALID_UPDATE_VERSION
    three.until(lambda: three.read(layout.partition_state_path(NEW)) is not None)
    assert three.assignments("t") == {0: (1, 2, 3), 1: (2, 3, 1)}


@pytest.mark.rule("V70", "V15", "V25")
def test_a_topic_that_another_writer_changed_is_read_and_grows_from_there(
    three: ControllerHarness,
) -> None:
    controller = three.controller()
    three.create(controller, "t", (1, 2, 3))
    three.edit("t", {0: (1, 2, 3), 1: (2, 3, 1)})
    three.until(lambda: NEW in controller.controller._term.controller.image.states)  # type: ignore[union-attr]  # the term has begun
    assert three.state(NEW).isr == (2, 3, 1)
    assert three.grow(controller, "t", 2).error_code == ErrorCode.INVALID_PARTITIONS
    assert three.grow(controller, "t", 3).error_code == ErrorCode.NONE


@pytest.mark.rule("V70", "V16")
def test_more_than_one_transaction_holds_are_added_all(three: ControllerHarness) -> None:
    controller = three.controller()
    three.create(controller, "t", (1, 2, 3))
    assert three.grow(controller, "t", 700).error_code == ErrorCode.NONE
    assert three.state(TopicPartition("t", 699)).leader in (1, 2, 3)


@pytest.mark.rule("V70", "V41")
def test_partitions_that_a_controller_left_without_a_state_get_one_from_the_next(
    three: ControllerHarness,
) -> None:
    """It died between the topic's node and a partition's: the topic's node says what is to be."""
    controller = three.controller()
    three.create(controller, "t", (1, 2, 3))
    path = layout.topic_path("t")
    node = three.read(path)
    assert node is not None
    was = layout.decode_topic(path, node.data)
    grown = TopicAssignment(was.topic_id, {**was.partitions, 1: (2, 3, 1)})
    controller.crash()
    three.write(SetData(path, layout.encode_topic(grown), ANY_VERSION))
    three.until(lambda: three.read(layout.partition_state_path(NEW)) is not None)
    assert controller.broker_id not in three.state(NEW).isr


# V46


@pytest.mark.rule("V46", "V14")
def test_the_preferred_replica_leads_again_on_request_under_a_new_epoch(
    three: ControllerHarness,
) -> None:
    controller, preferred = led_elsewhere(three)
    before = three.state(TP)
    assert three.elect(controller, TP) == [ErrorCode.NONE]
    after = three.state(TP)
    assert (after.leader, after.leader_epoch) == (preferred, before.leader_epoch + 1)
    assert after.isr == before.isr
    assert after.partition_epoch == before.partition_epoch + 1
    assert three.brokers[preferred].script.roles()[TP].leader == preferred
    assert three.elect(controller, TP) == [ErrorCode.ELECTION_NOT_NEEDED]


@pytest.mark.rule("V46")
def test_a_replica_that_is_not_in_sync_is_never_given_leadership_back() -> None:
    controller = loaded(TopicFound(topic(), {0: state((2, 3))}))
    for event in (RebalanceDue(0), PreferredElectionRead([TP])):
        writes, _ = step(controller, event)
        assert state_writes(writes) == {}


@pytest.mark.rule("V46")
def test_leaders_go_back_without_request_when_a_broker_leads_too_few(
    three: ControllerHarness,
) -> None:
    _, preferred = led_elsewhere(three)
    three.until(lambda: three.state(TP).leader == preferred, limit_ms=10_000)


@pytest.mark.rule("V46")
def test_they_stay_where_they_are_when_the_balance_is_not_looked_after() -> None:
    with controller_harness(3, auto_leader_rebalance_enable="false") as made:
        _, preferred = led_elsewhere(made)
        made.pass_time(20_000)
        assert made.state(TP).leader != preferred


@pytest.mark.rule("V46")
def test_the_balance_is_looked_at_again_and_again() -> None:
    """A broker dies after the first look, comes back, and is in sync again."""
    with controller_harness(3, leader_imbalance_check_interval_seconds="20") as made:
        controller = made.controller()
        preferred, other = others(made, controller)
        replicas = (preferred.broker_id, other.broker_id, controller.broker_id)
        made.create(controller, "t", replicas)
        made.pass_time(6_000)
        preferred.crash()
        made.until(lambda: made.state(TP).leader == other.broker_id)
        preferred.start()
        made.until(lambda: preferred.broker_epoch != -1 and "F" in preferred.script.kinds())
        published = made.state(TP)
        members = [BrokerState(one, made.brokers[one].broker_epoch) for one in replicas]
        wanted = RequestPartitionData(
            partition_index=0,
            leader_epoch=published.leader_epoch,
            partition_epoch=published.partition_epoch,
            new_isr_with_epochs=members,
        )
        node = made.read(layout.topic_path("t"))
        assert node is not None
        of_topic = layout.decode_topic(layout.topic_path("t"), node.data).topic_id
        request = AlterPartitionRequest(
            broker_id=other.broker_id,
            broker_epoch=other.broker_epoch,
            topics=[RequestTopicData(of_topic, partitions=[wanted])],
        )
        made.alter(controller, request)
        made.until(lambda: sorted(made.state(TP).isr) == [1, 2, 3])
        assert made.state(TP).leader == other.broker_id
        made.until(lambda: made.state(TP).leader == preferred.broker_id, limit_ms=30_000)
        assert made.controllers == [controller.broker_id]


# V8


@pytest.mark.rule("V8", "V46")
def test_a_preferred_election_is_requested_by_a_node_that_goes_when_it_is_done(
    three: ControllerHarness,
) -> None:
    _, preferred = led_elsewhere(three)
    path = layout.PREFERRED_REPLICA_ELECTION
    three.write(Create(path, layout.encode_partition_list([TP, TopicPartition("nobody", 3)])))
    three.until(lambda: three.read(path) is None)
    assert three.state(TP).leader == preferred


@pytest.mark.rule("V8", "V41")
def test_a_request_that_was_left_while_there_was_no_controller_is_done_by_the_next(
    three: ControllerHarness,
) -> None:
    controller = three.controller()
    path = layout.PREFERRED_REPLICA_ELECTION
    controller.crash()
    three.write(Create(path, layout.encode_partition_list([TP])))
    three.until(lambda: three.read(path) is None)


@pytest.mark.rule("V8")
def test_a_request_that_cannot_be_read_is_taken_away(three: ControllerHarness) -> None:
    three.controller()
    path = layout.PREFERRED_REPLICA_ELECTION
    three.write(Create(path, b"not JSON"))
    three.until(lambda: three.read(path) is None)


# V13


def leaderless(around: ControllerHarness) -> tuple[Candidate, list[int]]:
    """The controller, and the live replicas of t-0, whose only in-sync one is dead."""
    controller = around.controller()
    dead, alive = (one.broker_id for one in others(around, controller))
    around.create(controller, "t", (dead, alive, controller.broker_id))
    published = around.state(TP)
    assert published.isr_epochs is not None
    around.publish(
        TP,
        replace(
            published,
            leader=dead,
            isr=(dead,),
            isr_epochs=published.isr_epochs[:1],
        ),
    )
    around.brokers[dead].crash()
    around.until(lambda: around.state(TP).leader == NO_LEADER)
    return controller, [alive, controller.broker_id]


@pytest.mark.rule("V13")
def test_a_topic_that_allows_it_later_gets_an_unclean_leader_then(three: ControllerHarness) -> None:
    controller, live = leaderless(three)
    settings = layout.encode_config({"unclean.leader.election.enable": "true"})
    three.write(SetData(layout.config_path("topics", "t"), settings, ANY_VERSION))
    controller.controller.configs_changed(["t"])
    three.until(lambda: three.state(TP).leader == live[0])
    assert three.state(TP).isr == (live[0],)


@pytest.mark.rule("V13")
def test_a_broker_that_heard_nothing_of_its_topics_for_a_while_reads_them_all(
    three: ControllerHarness,
) -> None:
    controller, live = leaderless(three)
    settings = layout.encode_config({"unclean.leader.election.enable": "true"})
    three.write(SetData(layout.config_path("topics", "t"), settings, ANY_VERSION))
    controller.controller.every_config_changed()
    three.until(lambda: three.state(TP).leader == live[0])


@pytest.mark.rule("V13")
def test_a_cluster_that_allows_it_later_gets_unclean_leaders_then(three: ControllerHarness) -> None:
    controller, live = leaderless(three)
    controller.services.settings.in_force = controller.config.with_dynamic(
        {"unclean.leader.election.enable": "true"}
    )
    controller.controller.defaults_changed()
    three.until(lambda: three.state(TP).leader == live[0])


@pytest.mark.rule("V13")
def test_an_operator_may_ask_for_an_unclean_leader(three: ControllerHarness) -> None:
    controller, live = leaderless(three)
    assert three.elect(controller, TP) == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    assert three.elect(controller, TP, unclean=True) == [ErrorCode.NONE]
    assert three.state(TP).leader == live[0]
    assert three.state(TP).leader_recovery_state == 1
