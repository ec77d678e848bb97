"""Reassignments that wait: the queue (R8), partitions on the move already (R9), a freeze (R11)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.controller.reassigning import (
    FOUR,
    OTHER,
    begin,
    caught_up,
    cluster,
    completing,
    kinds,
    outcome,
)
from tests.support.controller.values import (
    TP,
    answer_of,
    brokers,
    list_moves,
    reassign,
    refused_moves,
    run,
    state,
    step,
    stopped,
    topic,
)

from tidelog.controller.controller import Controller
from tidelog.controller.decision import Effects
from tidelog.controller.image import Image
from tidelog.controller.reassignments.cancelling import CancelRead
from tidelog.controller.reassignments.listing import ReassignmentsListAsked
from tidelog.controller.reassignments.progress import SweepDue, WriteAssignments
from tidelog.controller.reassignments.queueing import QueueEmptied, QueueLimitsRead
from tidelog.controller.reassignments.requests import ReassignmentsAsked
from tidelog.controller.reassignments.stored_nodes import (
    KeepQueue,
    KeepReassignments,
    ReassignmentsRead,
    RoutesRead,
    SetFreeze,
)
from tidelog.controller.records import Move, RequestedReassignments
from tidelog.controller.registrations import BrokersRead
from tidelog.controller.topics.changes import TopicFound, TopicUnreadable
from tidelog.controller.topics.readings import TopicsRead
from tidelog.controller.writes import Conflict, Write
from tidelog.core.errors import ErrorCode
from tidelog.core.types import ReassignmentEntry, TopicPartition
from tidelog.wire.messages.alter_partition_reassignments import (
    FREEZE,
    UNFREEZE,
    AlterPartitionReassignmentsRequest,
    EndedTarget,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.wire.messages.list_partition_reassignments import ListPartitionReassignmentsResponse

THIRD = TopicPartition("t", 2)
ALL = (TP, OTHER, THIRD)


def three(at_a_time: int = 50, per_broker: int = 5) -> Controller:
    """Three partitions on brokers 1 to 3 of five."""
    found = topic(assignments=dict.fromkeys(range(3), (1, 2, 3)))
    controller = cluster(TopicFound(found, dict.fromkeys(range(3), state())))
    controller.settings = replace(
        controller.settings,
        concurrent_reassignments=at_a_time,
        concurrent_reassignments_per_broker=per_broker,
    )
    return controller


def queue(*wanted: tuple[TopicPartition, tuple[int, ...]], version: int = 0) -> RoutesRead:
    """The node of the queue is there with these entries."""
    entries = {each: ReassignmentEntry(each, target) for each, target in wanted}
    return RoutesRead(False, RequestedReassignments(version, entries), (), {})


def ask(
    *targets: tuple[int, ...] | None, queued: bool = True, freeze: int = 0
) -> ReassignmentsAsked:
    """A client asks for t-0, t-1 and so on to be queued for these replicas."""
    wanted = [ReassignablePartition(number, target) for number, target in enumerate(targets)]
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic("t", wanted)] if wanted else [], queued=queued, freeze=freeze
    )
    return ReassignmentsAsked(1, request)


@pytest.mark.rule("R8")
def test_the_limits_change_while_moves_wait() -> None:
    controller = three(at_a_time=1)
    run(controller, queue(*((each, (4, 5, 1)) for each in ALL)))
    assert len(controller.image.moving) == 1
    run(controller, QueueLimitsRead(partitions=3, per_broker=2))
    assert len(controller.image.moving) == 2, "brokers 4 and 5 take two at a time"
    run(controller, QueueLimitsRead(partitions=3, per_broker=5))
    assert len(controller.image.moving) == 3
    run(controller, QueueLimitsRead(partitions=1, per_broker=1))
    assert len(controller.image.moving) == 3, "those under way go on"


def errors(effects: Effects) -> list[ErrorCode]:
    return [
        ErrorCode(each.error_code)
        for one in answer_of(effects).responses
        for each in one.partitions
    ]


def waiting(image: Image) -> list[TopicPartition]:
    return [] if image.queue is None else [*image.queue.entries]


def listed(controller: Controller, asked: ReassignmentsListAsked) -> list[tuple[int, str]]:
    response = answer_of(step(controller, asked)[1])
    assert isinstance(response, ListPartitionReassignmentsResponse)
    return [(each.partition_index, each.reason) for each in response.queued]


def move_of_first(controller: Controller) -> Move | None:
    """The move of t-0, without when and how it began."""
    move = controller.image.move(TP)
    return None if move is None else replace(move, since_zxid=0, is_guarded=False)


@pytest.mark.rule("R8")
def test_as_many_of_the_queue_are_under_way_as_may_be() -> None:
    controller = three(at_a_time=2)
    run(controller, queue(*((each, (4, 2, 3)) for each in ALL)))
    assert sorted(controller.image.moving) == [TP, OTHER]
    assert waiting(controller.image) == [THIRD]
    [(number, reason)] = listed(controller, list_moves())
    assert (number, reason) == (2, "as many partitions are being moved as may be at a time")
    # One of them goes back, which frees its slot.
    run(controller, reassign(TP, None))
    assert sorted(controller.image.moving) == [TP, OTHER]
    run(controller, stopped(4))
    assert sorted(controller.image.moving) == [OTHER, THIRD]
    assert controller.image.queue is None


@pytest.mark.rule("R8")
def test_a_broker_gives_and_takes_as_many_as_it_may() -> None:
    controller = three(per_broker=1)
    run(controller, queue((TP, (4, 2, 3)), (OTHER, (4, 3, 2)), (THIRD, (1, 5, 3))))
    assert sorted(controller.image.moving) == [TP, THIRD]
    assert listed(controller, list_moves()) == [
        (1, "brokers [1, 4] have as many moves as may be at a time")
    ]
    assert listed(controller, list_moves(TP, everything=False)) == []


@pytest.mark.rule("R8", "R14")
def test_an_entry_is_removed_once_its_move_is_active_and_not_before() -> None:
    controller = three()
    writes, _ = step(controller, queue((TP, (4, 2, 3))))
    assert WriteAssignments in kinds(writes)
    assert KeepQueue not in kinds(writes)
    writes, effects = step(controller)
    assert kinds(writes) == [KeepQueue]
    [kept] = writes
    assert isinstance(kept, KeepQueue)
    assert not kept.entries, "an empty queue's node is removed"
    assert effects.notices.of(QueueEmptied)


@pytest.mark.rule("R8", "R21")
def test_another_order_needs_no_slot() -> None:
    controller = three(at_a_time=1)
    run(controller, queue((TP, (4, 2, 3)), (OTHER, (3, 2, 1))))
    assert controller.image.assigned(OTHER) == (3, 2, 1)
    assert controller.image.queue is None


@pytest.mark.rule("R8")
def test_a_second_queue_is_refused_while_there_is_one() -> None:
    controller = three(at_a_time=1)
    writes, effects = step(controller, ask((4, 2, 3), (4, 3, 2)))
    assert kinds(writes) == [KeepQueue]
    assert errors(effects) == [ErrorCode.NONE, ErrorCode.NONE]
    run(controller)
    writes, effects = step(controller, ask(None, None, (5, 2, 3)))
    assert [each for each in kinds(writes) if each is KeepQueue] == []
    [answer] = answer_of(effects).responses
    assert [each.error_code for each in answer.partitions] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.REASSIGNMENT_IN_PROGRESS,
    ]
    assert "has 1 entries" in answer.partitions[2].error_message


@pytest.mark.rule("R8")
def test_two_queues_at_once_are_one_and_a_refusal() -> None:
    controller = three()
    first, second = ask((4, 2, 3)), replace(ask((5, 2, 3)), ticket=2)
    _, effects = step(controller, first, second)
    assert outcome(effects).error_code == ErrorCode.NONE
    assert outcome(effects, 2).error_code == ErrorCode.REASSIGNMENT_IN_PROGRESS


@pytest.mark.rule("R8")
def test_a_queue_that_another_client_made_first_is_not_overwritten() -> None:
    controller = three()
    controller.offer(ask((4, 2, 3)))
    _, effects = step(controller, outcomes={0: Conflict()})
    assert errors(effects) == [ErrorCode.INVALID_UPDATE_VERSION]
    assert controller.image.queue is None


@pytest.mark.rule("R1", "R8")
def test_what_is_queued_is_checked_when_it_is_asked_for() -> None:
    controller = three()
    _, effects = step(controller, ask((9, 2, 3), (), (4, 4)))
    assert set(errors(effects)) == {ErrorCode.INVALID_REPLICA_ASSIGNMENT}
    assert controller.image.queue is None
    assert errors(step(controller, ask((4, 2, 3), (4, 2, 3), (4, 2, 3), (4, 2, 3)))[1])[3] == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    twice = ask((4, 2, 3))
    twice.request.topics.extend(twice.request.topics)
    fresh = three()
    assert errors(step(fresh, twice)[1]) == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]


@pytest.mark.rule("R1", "R8")
def test_a_queue_too_long_for_its_node_says_how_many_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.core.limits.MAX_NODE_BYTES", 260)
    _, effects = step(three(), ask((4, 2, 3), (4, 2, 3), (4, 2, 3)))
    [answer] = answer_of(effects).responses
    assert [each.error_code for each in answer.partitions] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]
    assert "room for 2 partitions" in answer.partitions[2].error_message


@pytest.mark.rule("R8")
def test_an_entry_whose_brokers_are_dead_waits_and_others_pass_it() -> None:
    controller = three()
    run(controller, BrokersRead(brokers(1, 2, 3, 4)))
    run(controller, queue((TP, (5, 2, 3)), (OTHER, (4, 2, 3))))
    assert sorted(controller.image.moving) == [OTHER]
    assert listed(controller, list_moves()) == [(0, "brokers [5] are not alive")]
    run(controller, BrokersRead(FOUR), SweepDue())
    assert sorted(controller.image.moving) == [TP, OTHER]


@pytest.mark.rule("R8", "R13")
def test_what_cannot_be_is_dropped_from_the_queue_with_the_reason() -> None:
    controller = three()
    _, effects = step(
        controller,
        queue((TopicPartition("gone", 0), (1, 2)), (TP, (4, 4, 2)), (OTHER, (1, 2, 3))),
    )
    assert [each for each, _ in refused_moves(effects)] == [TopicPartition("gone", 0), TP]
    assert controller.image.queue is None


@pytest.mark.rule("R8", "V35")
def test_an_unreadable_topic_keeps_its_place_in_the_queue() -> None:
    controller = three()
    run(controller, TopicsRead(["t"], [TopicUnreadable("t", "nonsense")]))
    run(controller, queue((TP, (4, 2, 3))))
    assert waiting(controller.image) == [TP]


@pytest.mark.rule("R9")
def test_a_queued_partition_on_the_move_goes_back_first() -> None:
    controller = three()
    begin(controller, 4, 2, 3)
    entry = ReassignmentEntry(TP, (4, 2, 3), (1, 2, 3))
    run(controller, ReassignmentsRead(RequestedReassignments(1, {TP: entry})))
    writes, _ = step(controller, queue((TP, (5, 2, 3))))
    assert kinds(writes)[0] is KeepReassignments, "the node would return it to its first target"
    assert move_of_first(controller) == Move((), (4,), (1, 2, 3))
    assert listed(controller, list_moves()) == [(0, "another move of the partition ends first")]
    run(controller, stopped(4))
    assert move_of_first(controller) == Move((5,), (1,), (1, 2, 3))
    assert controller.image.queue is None


@pytest.mark.rule("R9")
def test_nothing_is_rolled_back_for_an_entry_that_would_then_wait_for_a_slot() -> None:
    """Broker 5 has as many moves as may be, so that a change to it has to wait."""
    controller = three(per_broker=1)
    begin(controller, 4, 2, 3)
    run(controller, reassign(OTHER, (1, 5, 3)))
    run(controller, queue((TP, (5, 2, 3))))
    assert move_of_first(controller) == Move((4,), (1,), (1, 2, 3)), "it goes on meanwhile"
    assert listed(controller, list_moves()) == [
        (0, "brokers [5] have as many moves as may be at a time")
    ]
    run(controller, reassign(OTHER, None))
    run(controller, stopped(5, OTHER))
    assert move_of_first(controller) == Move((), (4,), (1, 2, 3))
    run(controller, stopped(4))
    assert move_of_first(controller) == Move((5,), (1,), (1, 2, 3))


@pytest.mark.rule("R9")
def test_a_change_in_flight_needs_no_other_slot_than_that_of_its_move() -> None:
    """The slot is not given to an entry that was queued before it."""
    controller = three(at_a_time=1, per_broker=1)
    begin(controller, 4, 2, 3)
    run(controller, queue((OTHER, (5, 2, 3)), (TP, (5, 2, 3)), (THIRD, (5, 3, 2))))
    assert move_of_first(controller) == Move((), (4,), (1, 2, 3))
    assert waiting(controller.image) == [TP, OTHER, THIRD]
    run(controller, stopped(4))
    assert move_of_first(controller) == Move((5,), (1,), (1, 2, 3))
    assert waiting(controller.image) == [OTHER, THIRD]


@pytest.mark.rule("R9")
def test_what_goes_back_for_an_entry_keeps_the_slots_of_its_new_brokers() -> None:
    controller = three(at_a_time=2, per_broker=1)
    begin(controller, 4, 2, 3)
    step(controller, queue((TP, (5, 2, 3)), (OTHER, (2, 5, 1))))
    run(controller)
    assert sorted(controller.image.moving) == [TP]
    assert listed(controller, list_moves()) == [
        (0, "another move of the partition ends first"),
        (1, "brokers [5] have as many moves as may be at a time"),
    ]


@pytest.mark.rule("R9")
def test_nothing_is_rolled_back_beyond_limits_that_were_lowered() -> None:
    controller = three(at_a_time=1)
    begin(controller, 4, 2, 3)
    run(controller, reassign(OTHER, (4, 2, 3)))
    run(controller, queue((TP, (5, 2, 3)), (OTHER, (3, 2, 1))))
    assert move_of_first(controller) == Move((4,), (1,), (1, 2, 3))
    # The same replicas in another order copy nothing: that one needs no slot (R21).
    assert waiting(controller.image) == [OTHER, TP]


@pytest.mark.rule("R9")
def test_one_that_cannot_go_back_waits_for_its_end() -> None:
    """A controller of Kafka began it, and recorded no original replicas."""
    found = topic(assignments={0: (4, 2, 3, 1)}, moves={0: Move((4,), (1,), ())})
    controller = cluster(TopicFound(found, {0: state((1, 2, 3))}))
    run(controller, queue((TP, (5, 2, 3))))
    assert listed(controller, list_moves()) == [(0, "another move of the partition ends first")]
    caught_up(controller, 1, 2, 3, 4)
    run(controller)
    run(controller, stopped(1))
    assert move_of_first(controller) == Move((5,), (4,), (4, 2, 3))


@pytest.mark.rule("R6", "R9")
def test_one_that_would_go_offline_waits_for_its_originals() -> None:
    found = topic(assignments={0: (4, 2, 3, 1)}, moves={0: Move((4,), (1,), (1, 2, 3))})
    controller = cluster(TopicFound(found, {0: state((4,))}))
    run(controller, queue((TP, (5, 2, 3))))
    assert listed(controller, list_moves()) == [
        (0, "its original replicas are not in sync, and it would go offline")
    ]
    caught_up(controller, 2, 4)
    run(controller, SweepDue())
    assert move_of_first(controller) == Move((), (4,), (1, 2, 3))


@pytest.mark.rule("R20")
def test_a_newer_request_takes_a_partition_out_of_the_queue() -> None:
    controller = three(at_a_time=1)
    run(controller, queue((TP, (4, 2, 3)), (OTHER, (4, 2, 3)), (THIRD, (4, 2, 3))))
    assert waiting(controller.image) == [OTHER, THIRD]
    step(controller, reassign(OTHER, (5, 2, 3)))
    assert waiting(controller.image) == [THIRD]
    # A cancel of one that only waits is no error, and moves nothing.
    writes, effects = step(controller, reassign(THIRD, None))
    assert outcome(effects).error_code == ErrorCode.NONE
    assert kinds(writes) == [KeepQueue]
    assert controller.image.queue is None


@pytest.mark.rule("R8")
def test_a_queue_that_is_asked_for_again_is_no_error() -> None:
    """The answer was lost, and the client repeats its request."""
    controller = three(at_a_time=1)
    run(controller, ask((4, 2, 3), (4, 3, 2)))
    _, effects = step(controller, ask(None, (4, 3, 2), (5, 2, 3)))
    assert errors(effects)[1:] == [ErrorCode.NONE, ErrorCode.REASSIGNMENT_IN_PROGRESS]


@pytest.mark.rule("R8", "R21")
def test_another_order_takes_no_slot_from_others() -> None:
    controller = three(at_a_time=1)
    step(controller, queue((OTHER, (3, 2, 1)), (TP, (4, 2, 3))))
    assert sorted(controller.image.moving) == [TP]


@pytest.mark.rule("R20")
def test_what_waits_for_a_move_past_its_end_can_be_cancelled() -> None:
    controller, _ = completing(4, 5, 1)
    run(controller, queue((TP, (1, 2, 3))))
    _, effects = step(controller, reassign(TP, None))
    assert outcome(effects).error_code == ErrorCode.NONE
    assert controller.image.queue is None
    assert controller.image.is_completing(TP)


def ending(*targets: tuple[int, ...], partition: TopicPartition = TP) -> ReassignmentsAsked:
    """A client cancels what it was shown of one partition: moves to these targets."""
    ended = [EndedTarget(target) for target in targets]
    wanted = ReassignablePartition(partition.partition, None, ended_targets=ended)
    topics = [ReassignableTopic(partition.topic, [wanted])]
    return ReassignmentsAsked(1, AlterPartitionReassignmentsRequest(topics=topics))


@pytest.mark.rule("R8", "R20")
def test_a_cancel_of_a_listed_entry_ends_it_queued_or_begun() -> None:
    controller = three(at_a_time=1)
    run(controller, queue((TP, (4, 2, 3)), (OTHER, (4, 2, 3))))
    for partition in (TP, OTHER):
        _, effects = step(controller, ending((4, 2, 3), partition=partition))
        assert outcome(effects).error_code == ErrorCode.NONE
    assert controller.image.queue is None
    assert move_of_first(controller) == Move((), (4,), (1, 2, 3))
    # The answer was lost: asked again it is no error.
    _, effects = step(controller, ending((4, 2, 3)))
    assert outcome(effects).error_code == ErrorCode.NONE
    run(controller, stopped(4))
    _, effects = step(controller, ending((4, 2, 3)))
    assert outcome(effects).error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


@pytest.mark.rule("R8", "R20")
def test_a_cancel_of_a_listed_entry_leaves_a_newer_move_alone() -> None:
    controller = three(at_a_time=1)
    run(controller, queue((OTHER, (4, 2, 3)), (TP, (4, 2, 3))))
    # Meanwhile the partition was asked for otherwise.
    begin(controller, 5, 2, 3)
    writes, effects = step(controller, ending((4, 2, 3)))
    assert writes == []
    assert outcome(effects).error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert "to [5, 2, 3], is there now" in outcome(effects).error_message
    assert move_of_first(controller) == Move((5,), (1,), (1, 2, 3))


@pytest.mark.rule("R8", "R20")
def test_a_cancel_of_a_listed_move_leaves_a_newer_entry_in_the_queue() -> None:
    controller = three(per_broker=1)
    begin(controller, 4, 2, 3)
    run(controller, reassign(OTHER, (1, 5, 3)))
    run(controller, queue((TP, (5, 2, 3))))
    _, effects = step(controller, ending((4, 2, 3)))
    assert outcome(effects).error_code == ErrorCode.NONE
    assert move_of_first(controller) == Move((), (4,), (1, 2, 3))
    assert waiting(controller.image) == [TP]
    # And the other way round: the entry goes, and the move goes on.
    other = three(per_broker=1)
    begin(other, 4, 2, 3)
    run(other, reassign(OTHER, (1, 5, 3)))
    run(other, queue((TP, (5, 2, 3))))
    _, effects = step(other, ending((5, 2, 3)))
    assert outcome(effects).error_code == ErrorCode.NONE
    assert move_of_first(other) == Move((4,), (1,), (1, 2, 3))
    assert other.image.queue is None


@pytest.mark.rule("R8", "R20")
def test_a_cancel_of_a_listed_entry_leaves_another_entry_alone() -> None:
    controller = three(at_a_time=1)
    run(controller, queue((OTHER, (4, 2, 3)), (TP, (5, 2, 3))))
    writes, effects = step(controller, ending((4, 2, 3)))
    assert writes == []
    assert outcome(effects).error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert waiting(controller.image) == [TP]


@pytest.mark.rule("R8")
def test_the_same_target_at_another_rate_is_another_entry() -> None:
    controller = three(at_a_time=1)
    run(controller, ask((4, 2, 3), (4, 3, 2)))
    asked = ask(None, (4, 3, 2))
    _, effects = step(controller, replace(asked, request=replace(asked.request, throttle=7)))
    assert errors(effects)[1:] == [ErrorCode.REASSIGNMENT_IN_PROGRESS]


@pytest.mark.rule("R2", "R8")
def test_a_cancel_of_all_empties_the_queue() -> None:
    controller = three(at_a_time=1)
    run(controller, queue(*((each, (4, 2, 3)) for each in ALL)))
    run(controller, CancelRead(is_requested=True))
    assert controller.image.queue is None
    assert move_of_first(controller) == Move((), (4,), (1, 2, 3))


def writes_of_freeze(controller: Controller, freeze: int) -> list[Write]:
    writes, effects = step(controller, ask(freeze=freeze, queued=False))
    assert answer_of(effects).error_code == ErrorCode.NONE
    return writes


@pytest.mark.rule("R11")
def test_nothing_begins_while_reassignments_are_frozen() -> None:
    controller = three()
    assert writes_of_freeze(controller, FREEZE) == [SetFreeze(is_frozen=True)]
    _, effects = step(controller, reassign(TP, (4, 2, 3)))
    assert outcome(effects).error_code == ErrorCode.POLICY_VIOLATION
    assert "frozen" in outcome(effects).error_message
    entry = ReassignmentEntry(TP, (4, 2, 3))
    run(controller, ReassignmentsRead(RequestedReassignments(0, {TP: entry})))
    run(controller, replace(queue((OTHER, (4, 2, 3))), is_frozen=True))
    assert not controller.image.moving
    assert listed(controller, list_moves()) == [(1, "reassignments are frozen")]
    assert answer_of(step(controller, list_moves())[1]).frozen
    assert writes_of_freeze(controller, UNFREEZE) == [SetFreeze(is_frozen=False)]
    run(controller)
    assert sorted(controller.image.moving) == [TP, OTHER]
    assert not answer_of(step(controller, list_moves())[1]).frozen


@pytest.mark.rule("R11")
def test_what_is_under_way_goes_on_and_can_be_cancelled_while_frozen() -> None:
    controller = three()
    begin(controller, 4, 2, 3)
    writes_of_freeze(controller, FREEZE)
    _, effects = step(controller, reassign(TP, (5, 2, 3)))
    assert outcome(effects).error_code == ErrorCode.POLICY_VIOLATION
    # By name or not, the way back is free.
    _, effects = step(controller, reassign(TP, (1, 2, 3)))
    assert outcome(effects).error_code == ErrorCode.NONE
    assert move_of_first(controller) == Move((), (4,), (1, 2, 3))


@pytest.mark.rule("R11")
@pytest.mark.parametrize(("freeze", "targets"), [(3, ()), (FREEZE, ((4, 2, 3),))])
def test_a_freeze_that_makes_no_sense_is_refused(
    freeze: int, targets: tuple[tuple[int, ...], ...]
) -> None:
    writes, effects = step(three(), ask(*targets, freeze=freeze, queued=False))
    assert writes == []
    assert answer_of(effects).error_code == ErrorCode.INVALID_REQUEST
