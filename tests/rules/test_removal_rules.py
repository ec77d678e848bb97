"""Rules of partitions removed and added again, by request, by node and by edit: V7, V25, V71."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest
from tests.support.controller.harness import (
    Candidate,
    ControllerHarness,
    controller_harness,
    no_removal,
)

from tidelog.core.errors import ErrorCode
from tidelog.core.types import NO_LEADER, PartitionState, TopicPartition
from tidelog.metadata import layout
from tidelog.metadata.store import ANY_VERSION, Create, SetData
from tidelog.wire.messages.leader_and_isr import LeaderAndIsrRequest
from tidelog.wire.messages.remove_partitions import RemovePartitionsRequest, RemovePartitionsTopic
from tidelog.wire.messages.stop_replica import StopReplicaRequest
from tidelog.wire.messages.update_metadata import UpdateMetadataRequest

ALL = (1, 2, 3)
LAST = TopicPartition("t", 2)


@pytest.fixture
def three() -> Iterator[ControllerHarness]:
    with controller_harness(3) as made:
        yield made


@pytest.fixture
def four() -> Iterator[ControllerHarness]:
    with controller_harness(4) as made:
        yield made


def with_topic(around: ControllerHarness, partitions: int = 3) -> Candidate:
    """The controller, once it has made topic t on all brokers."""
    controller = around.controller()
    around.create(controller, "t", *[ALL] * partitions)
    around.pass_time(100)
    for one in around.brokers.values():
        one.script.received.clear()
    return controller


def request_path(partition: int, *, is_removal: bool = True) -> str:
    return layout.partition_request_path(TopicPartition("t", partition), is_removal=is_removal)


def ask_by_node(around: ControllerHarness, *partitions: int, drain: bool = False) -> None:
    """Leave requests to remove partitions."""
    parent = layout.partition_requests_path("t", is_removal=True)
    if around.read(parent) is None:
        around.write(Create(parent, b""))
    data = layout.encode_partition_removal(drain) if drain else b""
    for partition in partitions:
        around.write(Create(request_path(partition), data))


def await_count(around: ControllerHarness, count: int) -> None:
    around.until(lambda: len(around.assignments("t")) == count)


def stops_of(one: Candidate) -> dict[TopicPartition, tuple[int, bool]]:
    """Return (leader epoch, delete) of the partitions that a broker was commanded to stop."""
    return {
        TopicPartition(topic.topic_name, state.partition_index): (
            state.leader_epoch,
            state.delete_partition,
        )
        for request in one.script.of(StopReplicaRequest)
        for topic in request.topic_states
        for state in topic.partition_states
    }


# V71: what goes, and how


@pytest.mark.rule("V71")
def test_the_highest_partitions_go_and_the_others_stay(three: ControllerHarness) -> None:
    controller = with_topic(three)
    before = three.state(TopicPartition("t", 0))
    assert three.shrink(controller, "t", 1).error_code == ErrorCode.NONE
    await_count(three, 1)
    assert three.assignments("t") == {0: ALL}
    assert three.state(TopicPartition("t", 0)) == before
    assert three.read(layout.partition_requests_path("t", is_removal=True)) is None


@pytest.mark.rule("V71")
def test_the_state_node_stays_as_a_tombstone(three: ControllerHarness) -> None:
    controller = with_topic(three)
    before = three.state(LAST)
    three.shrink(controller, "t", 2)
    await_count(three, 2)
    after = three.state(LAST)
    assert (after.leader, after.isr, after.removed) == (NO_LEADER, (), True)
    assert after.leader_epoch == before.leader_epoch + 1
    assert after.partition_epoch == before.partition_epoch + 1


@pytest.mark.rule("V71", "V2")
def test_no_broker_deletes_before_the_tombstone_is_durable(three: ControllerHarness) -> None:
    controller = with_topic(three)
    three.cut_off.append(f"b{controller.broker_id}")
    request = RemovePartitionsRequest([RemovePartitionsTopic("t", 2)])
    answers = three.ask(controller, lambda shell: shell.ask(request, no_removal))
    three.pass_time(200)
    assert answers == []
    assert all(stops_of(one) == {} for one in three.brokers.values())
    three.cut_off.clear()
    await_count(three, 2)
    for one in three.brokers.values():
        assert stops_of(one) == {LAST: (1, True)}


@pytest.mark.rule("V71", "V30")
def test_replicas_are_deleted_under_the_epoch_that_ends_them(three: ControllerHarness) -> None:
    controller = with_topic(three)
    three.shrink(controller, "t", 2)
    await_count(three, 2)
    for one in three.brokers.values():
        assert stops_of(one) == {LAST: (three.state(LAST).leader_epoch, True)}


@pytest.mark.rule("V71", "V17")
def test_every_broker_hears_that_the_partition_is_gone(three: ControllerHarness) -> None:
    controller = with_topic(three)
    three.shrink(controller, "t", 2)
    await_count(three, 2)
    for one in three.brokers.values():
        shown = [
            (state.partition_index, state.leader)
            for request in one.script.of(UpdateMetadataRequest)
            for topic in request.topic_states
            for state in topic.partition_states
        ]
        assert shown == [(2, -2)]


@pytest.mark.rule("V71", "V22")
def test_the_node_names_the_partition_until_all_live_brokers_have_deleted(
    three: ControllerHarness,
) -> None:
    controller = with_topic(three)
    slow = next(one for one in three.brokers.values() if one is not controller)
    slow.script.silent = True
    three.shrink(controller, "t", 2)
    three.pass_time(300)
    assert len(three.assignments("t")) == 3
    assert three.read(request_path(2)) is not None
    slow.script.silent = False
    await_count(three, 2)


@pytest.mark.rule("V71", "V22")
def test_a_dead_broker_does_not_hold_a_removal_up(three: ControllerHarness) -> None:
    controller = with_topic(three)
    dead = next(one for one in three.brokers.values() if one is not controller)
    dead.crash()
    three.until(lambda: three.state(LAST).isr != ALL)
    three.shrink(controller, "t", 2)
    await_count(three, 2)
    dead.start()
    three.until(lambda: bool(dead.script.of(LeaderAndIsrRequest)))
    [full] = dead.script.of(LeaderAndIsrRequest)
    assert full.type == 2
    assert LAST not in dead.script.roles()


# V71: added again


@pytest.mark.rule("V71", "V70", "V14")
def test_a_partition_added_again_has_higher_epochs_than_any_before(
    three: ControllerHarness,
) -> None:
    controller = with_topic(three)
    for life in range(1, 4):
        three.shrink(controller, "t", 2)
        await_count(three, 2)
        tombstone = three.state(LAST)
        assert three.grow(controller, "t", 3).error_code == ErrorCode.NONE
        again = three.state(LAST)
        assert not again.removed
        assert again.leader_epoch == tombstone.leader_epoch + 1 == 2 * life
        assert again.partition_epoch == tombstone.partition_epoch + 1 == 2 * life
        assert again.first_epochs == (again.leader_epoch, again.partition_epoch)
        for one in three.brokers.values():
            role = one.script.roles()[LAST]
            assert (role.is_new, role.leader_epoch) == (True, again.leader_epoch)
            assert role.first_leader_epoch == again.leader_epoch


@pytest.mark.rule("V71", "V41")
def test_a_later_controller_knows_the_tombstones(four: ControllerHarness) -> None:
    controller = with_topic(four)
    four.shrink(controller, "t", 1)
    await_count(four, 1)
    controller.crash()
    four.until(lambda: any(one.is_controller for one in four.brokers.values()))
    assert four.grow(four.controller(), "t", 2).error_code == ErrorCode.NONE
    assert four.state(TopicPartition("t", 1)).leader_epoch == 2


@pytest.mark.rule("V71", "D3")
def test_a_creation_cut_short_is_known_in_a_later_life_too(three: ControllerHarness) -> None:
    controller = with_topic(three)
    three.shrink(controller, "t", 2)
    await_count(three, 2)
    for one in three.brokers.values():
        one.script.role_errors[LAST] = ErrorCode.REPLICA_NOT_AVAILABLE
        one.script.received.clear()
    three.grow(controller, "t", 3)
    three.pass_time(200)
    asked = [
        state.is_new
        for request in controller.script.of(LeaderAndIsrRequest)
        for topic in request.topic_states
        for state in topic.partition_states
    ]
    assert len(asked) > 1
    assert all(asked)


# V71: order and refusals


@pytest.mark.rule("V71", "V7")
def test_a_request_waits_until_all_higher_numbers_are_requested(three: ControllerHarness) -> None:
    with_topic(three)
    ask_by_node(three, 1)
    three.pass_time(300)
    assert len(three.assignments("t")) == 3
    assert not three.state(TopicPartition("t", 1)).removed
    ask_by_node(three, 2)
    await_count(three, 1)
    assert three.children(layout.PARTITIONS_REMOVE) == []


@pytest.mark.rule("V71", "V7")
def test_a_request_that_is_taken_back_in_time_is_not_carried_out(three: ControllerHarness) -> None:
    with_topic(three)
    ask_by_node(three, 1)
    three.pass_time(100)
    three.remove(request_path(1))
    three.pass_time(100)
    ask_by_node(three, 2)
    await_count(three, 2)


@pytest.mark.rule("V71", "V7")
def test_requests_that_cannot_be_done_are_dropped_with_the_reason(three: ControllerHarness) -> None:
    controller = with_topic(three)
    ask_by_node(three, 0, 7)
    three.write(Create(f"{layout.PARTITIONS_REMOVE}/none", b""))
    three.write(Create(f"{layout.PARTITIONS_REMOVE}/none/0", b""))
    three.write(Create(f"{layout.PARTITIONS_REMOVE}/__consumer_offsets", b""))
    three.write(Create(f"{layout.PARTITIONS_REMOVE}/__consumer_offsets/49", b""))
    for path in (
        request_path(0),
        request_path(7),
        f"{layout.PARTITIONS_REMOVE}/none/0",
        f"{layout.PARTITIONS_REMOVE}/__consumer_offsets/49",
    ):
        three.until(partial(lambda path: three.read(path) is None, path))
    assert len(three.assignments("t")) == 3
    assert controller.is_controller


@pytest.mark.rule("V71")
@pytest.mark.parametrize(
    ("name", "count", "error", "reason"),
    [
        (
            "t",
            0,
            ErrorCode.INVALID_PARTITIONS,
            "at most 2 can be removed; to remove all",
        ),
        ("t", -1, ErrorCode.INVALID_PARTITIONS, "keeps at least one"),
        ("t", 3, ErrorCode.INVALID_PARTITIONS, "has 3 partitions: fewer than that"),
        ("t", 4, ErrorCode.INVALID_PARTITIONS, "has 3 partitions: fewer than that"),
        ("none", 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no topic 'none'"),
        ("__consumer_offsets", 1, ErrorCode.INVALID_TOPIC_EXCEPTION, "internal topic"),
    ],
)
def test_what_cannot_be_removed_is_refused(
    three: ControllerHarness, name: str, count: int, error: ErrorCode, reason: str
) -> None:
    controller = with_topic(three)
    refused = three.shrink(controller, name, count)
    assert refused.error_code == error
    assert reason in refused.error_message


@pytest.mark.rule("V71", "V70")
def test_nothing_is_added_while_partitions_are_on_their_way_out(three: ControllerHarness) -> None:
    controller = with_topic(three)
    ask_by_node(three, 1, 2, drain=True)
    three.pass_time(100)
    refused = three.grow(controller, "t", 4)
    assert refused.error_code == ErrorCode.INVALID_PARTITIONS
    assert "partitions 1 to 2 of topic 't' are being removed" in refused.error_message


# V71: writes end at once


@pytest.mark.rule("V71")
def test_leaders_of_partitions_that_drain_are_commanded_to_take_no_more(
    three: ControllerHarness,
) -> None:
    controller = with_topic(three)
    assert three.shrink(controller, "t", 2, drain=True).error_code == ErrorCode.NONE
    three.until(lambda: LAST in controller.script.roles())
    for one in three.brokers.values():
        assert one.script.roles()[LAST].is_closing
        assert list(one.script.roles()) == [LAST]
    assert len(three.assignments("t")) == 3
    assert three.state(LAST).leader == 1


@pytest.mark.rule("V71")
def test_a_partition_that_drains_goes_when_every_group_has_read_it(
    three: ControllerHarness,
) -> None:
    controller = with_topic(three)
    three.shrink(controller, "t", 1, drain=True)
    three.pass_time(2_000)
    assert len(three.assignments("t")) == 3
    # The lower one waits for the higher one.
    controller.drains.read = [TopicPartition("t", 1)]
    three.pass_time(2_000)
    assert len(three.assignments("t")) == 3
    controller.drains.read = [LAST]
    await_count(three, 1)


@pytest.mark.rule("V71")
def test_a_drain_that_is_asked_for_again_without_goes_on_at_once(three: ControllerHarness) -> None:
    controller = with_topic(three)
    three.shrink(controller, "t", 2, drain=True)
    three.pass_time(1_000)
    assert three.shrink(controller, "t", 2).error_code == ErrorCode.NONE
    await_count(three, 2)


@pytest.mark.rule("V71")
def test_leaders_take_records_again_when_the_request_is_taken_back(
    three: ControllerHarness,
) -> None:
    controller = with_topic(three)
    three.shrink(controller, "t", 2, drain=True)
    three.until(lambda: LAST in controller.script.roles())
    three.remove(request_path(2))
    three.until(lambda: not controller.script.roles()[LAST].is_closing)


@pytest.mark.rule("V71", "V41")
def test_the_next_controller_goes_on_with_a_drain(three: ControllerHarness) -> None:
    controller = with_topic(three)
    three.shrink(controller, "t", 2, drain=True)
    three.until(lambda: LAST in controller.script.roles())
    others = [one for one in three.brokers.values() if one is not controller]
    for one in others:
        one.script.received.clear()
    controller.crash()
    for one in others:
        three.until(partial(lambda one: LAST in one.script.roles(), one))
        assert one.script.roles()[LAST].is_closing


# V41: crashes in between


@pytest.mark.rule("V71", "V41")
def test_the_next_controller_finishes_a_removal(three: ControllerHarness) -> None:
    controller = with_topic(three)
    for one in three.brokers.values():
        one.script.silent = True
    three.shrink(controller, "t", 2)
    three.until(lambda: three.state(LAST).removed)
    controller.crash()
    for one in three.brokers.values():
        one.script.silent = False
    await_count(three, 2)
    assert three.read(request_path(2)) is None


# V7 and V25: added by node, changed by edit


@pytest.mark.rule("V7", "V70")
def test_partitions_are_added_by_node(three: ControllerHarness) -> None:
    with_topic(three)
    three.write(Create(layout.partition_requests_path("t", is_removal=False), b""))
    path = request_path(4, is_removal=False)
    three.write(Create(path, layout.encode_partition_addition((2, 3, 1))))
    three.pass_time(200)
    assert len(three.assignments("t")) == 3
    path = request_path(3, is_removal=False)
    three.write(Create(path, layout.encode_partition_addition((3, 1, 2))))
    await_count(three, 5)
    assert three.assignments("t")[3] == (3, 1, 2)
    assert three.assignments("t")[4] == (2, 3, 1)
    assert three.state(TopicPartition("t", 4)).leader == 2
    three.until(lambda: not three.children(layout.partition_requests_path("t", is_removal=False)))


@pytest.mark.rule("V7")
@pytest.mark.parametrize("data", [b"[1,1,2]", b"[9,1,2]", b"[1]", b"{}", b"nonsense"])
def test_a_request_to_add_what_cannot_be_is_dropped(three: ControllerHarness, data: bytes) -> None:
    with_topic(three)
    three.write(Create(layout.partition_requests_path("t", is_removal=False), b""))
    path = request_path(3, is_removal=False)
    three.write(Create(path, data))
    three.until(lambda: three.read(path) is None)
    assert len(three.assignments("t")) == 3


@pytest.mark.rule("V25", "V70")
def test_partitions_that_are_written_into_the_node_by_hand_are_adopted(
    three: ControllerHarness,
) -> None:
    with_topic(three)
    three.edit("t", {0: ALL, 1: ALL, 2: ALL, 3: (2, 1, 3)})
    new = TopicPartition("t", 3)
    three.until(lambda: three.read(layout.partition_state_path(new)) is not None)
    assert three.state(new).leader == 2
    three.until(lambda: all(new in one.script.roles() for one in three.brokers.values()))


@pytest.mark.rule("V25", "V71")
def test_partitions_that_are_taken_from_the_node_by_hand_are_removed(
    three: ControllerHarness,
) -> None:
    controller = with_topic(three)
    three.edit("t", {0: ALL, 1: ALL})
    three.until(lambda: all(stops_of(one) for one in three.brokers.values()))
    assert three.state(LAST).removed
    three.pass_time(200)
    assert three.assignments("t") == {0: ALL, 1: ALL}
    assert three.grow(controller, "t", 3).error_code == ErrorCode.NONE
    assert three.state(LAST).leader_epoch == 2


@pytest.mark.rule("V25", "V71")
def test_partitions_written_back_into_the_node_begin_another_life(three: ControllerHarness) -> None:
    controller = with_topic(three)
    three.shrink(controller, "t", 2)
    await_count(three, 2)
    three.edit("t", {0: ALL, 1: ALL, 2: ALL})
    three.until(lambda: three.state(LAST).leader != NO_LEADER)
    assert three.state(LAST).leader_epoch == 2


@pytest.mark.rule("V25", "V71")
def test_they_do_so_whatever_is_left_of_the_life_before(three: ControllerHarness) -> None:
    """The controller died before it had said that the partition is removed."""
    controller = with_topic(three)
    three.shrink(controller, "t", 2)
    await_count(three, 2)
    tombstone = three.state(LAST)
    lives = tuple(three.brokers[one].broker_epoch for one in ALL)
    alive = replace(tombstone, leader=1, leader_epoch=6, isr=ALL, isr_epochs=lives, removed=False)
    three.publish(LAST, alive)
    controller.crash()
    three.until(lambda: three.controllers not in ([], [controller.broker_id]))
    controller.start()
    three.pass_time(300)
    three.edit("t", {0: ALL, 1: ALL, 2: ALL})
    three.until(lambda: three.state(LAST).leader_epoch >= 7)
    again = three.state(LAST)
    assert again.first_epochs == (7, three.state(LAST).partition_epoch)
    three.until(lambda: all(LAST in one.script.roles() for one in three.brokers.values()))
    assert all(one.script.roles()[LAST].is_new for one in three.brokers.values())


@pytest.mark.rule("V25")
@pytest.mark.parametrize(
    "assignments",
    [
        {0: ALL, 1: (3, 2, 1), 2: ALL},
        {0: ALL, 2: ALL},
        {1: ALL, 2: ALL},
        {0: ALL, 1: ALL, 2: ALL, 5: ALL},
        {0: ALL, 1: ALL, 2: ALL, 3: (1, 2)},
        {0: ALL, 1: ALL, 2: ALL, 3: (1, 2, 9)},
        {},
    ],
)
def test_an_edit_that_cannot_be_carried_out_is_left_alone(
    three: ControllerHarness, assignments: dict[int, tuple[int, ...]]
) -> None:
    controller = with_topic(three)
    before = {number: three.state(TopicPartition("t", number)) for number in range(3)}
    three.edit("t", assignments)
    three.pass_time(300)
    after = {number: three.state(TopicPartition("t", number)) for number in range(3)}
    assert after == before
    assert all(stops_of(one) == {} for one in three.brokers.values())
    assert three.assignments("t") == assignments
    # The next change that is asked for goes by what is known.
    assert three.grow(controller, "t", 4).error_code == ErrorCode.NONE
    assert sorted(three.assignments("t")) == [0, 1, 2, 3]
    assert three.assignments("t")[1] == ALL


@pytest.mark.rule("V25", "V35")
@pytest.mark.parametrize(
    ("assignments", "reason"),
    [
        ({0: ALL, 2: ALL}, "numbers 0 to n-1 expected"),
        ({}, "numbers 0 to n-1 expected"),
        ({0: ALL, 1: (9, 1), 2: ALL}, "are not among them"),
    ],
)
def test_a_new_controller_does_not_go_by_an_edit_that_contradicts_the_states(
    three: ControllerHarness, assignments: dict[int, tuple[int, ...]], reason: str
) -> None:
    """The controller leaves the topic alone until its node is repaired. Brokers keep replicas."""
    controller = with_topic(three)
    before = {number: three.state(TopicPartition("t", number)) for number in range(3)}
    three.edit("t", assignments)
    three.pass_time(300)
    logs = {
        one.broker_id: one.watch_log() for one in three.brokers.values() if one is not controller
    }
    controller.crash()
    three.until(lambda: any(one.is_controller for one in three.brokers.values()))
    three.pass_time(500)
    successor = three.controller()
    for one in three.brokers.values():
        if one.is_up:
            full = [each for each in one.script.of(LeaderAndIsrRequest) if each.type == 2][-1]
            assert [told.topic_name for told in full.topic_states] == ["t"]
            assert full.topic_states[0].partition_states == [], "it is to be kept"
    named = [line for line in logs[successor.broker_id].lines if reason in line]
    assert len(named) == 1
    assert {n: three.state(TopicPartition("t", n)) for n in range(3)} == before
    three.edit("t", {0: ALL, 1: ALL, 2: ALL})
    three.until(lambda: controller.broker_id not in three.state(LAST).isr)
    assert three.state(LAST).leader in three.state(LAST).isr


@pytest.mark.rule("V71")
def test_a_tombstone_that_lost_its_word_is_one_still(four: ControllerHarness) -> None:
    """A controller that knows nothing of removals drops keys of ours when it writes."""
    controller = with_topic(four)
    four.shrink(controller, "t", 2)
    await_count(four, 2)
    data = b'{"controller_epoch":1,"leader":-1,"version":1,"leader_epoch":5,"isr":[]}'
    four.write(SetData(layout.partition_state_path(LAST), data, ANY_VERSION))
    controller.crash()
    four.until(lambda: any(one.is_controller for one in four.brokers.values()))
    assert four.grow(four.controller(), "t", 3).error_code == ErrorCode.NONE
    again: PartitionState = four.state(LAST)
    assert (again.leader_epoch, again.first_epochs[0]) == (6, 6)
