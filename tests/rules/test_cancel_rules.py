"""Reassignments that are cancelled: R2 (all of them), R3 (at once), R5, R6 (which are not), R19."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.controller.reassigning import (
    FOUR,
    begin,
    caught_up,
    cluster,
    completing,
    kinds,
    outcome,
    stops,
)
from tests.support.controller.values import (
    TP,
    broker,
    brokers,
    epoch,
    loaded,
    reassign,
    refused_moves,
    run,
    state,
    state_writes,
    step,
    stopped,
    topic,
)

from tidelog.controller.controller import Controller
from tidelog.controller.elections.leaders import MinimumRead
from tidelog.controller.incarnations import Brokers
from tidelog.controller.reassignments import transitions
from tidelog.controller.reassignments.cancelling import (
    CancelEnded,
    CancelRead,
    CancelSkipped,
    ForgetCancel,
)
from tidelog.controller.reassignments.progress import SweepDue, WriteAssignments
from tidelog.controller.reassignments.stored_nodes import KeepReassignments, ReassignmentsRead
from tidelog.controller.records import Move, RequestedReassignments
from tidelog.controller.registrations import BrokersRead
from tidelog.controller.state_writes import WritePartitionState
from tidelog.controller.topics.changes import TopicFound
from tidelog.controller.writes import Conflict
from tidelog.core.errors import ErrorCode
from tidelog.core.types import PartitionState, ReassignmentEntry


def moving(*isr: int, minimum: int = 2) -> Controller:
    """t-0 of brokers 1 to 3 on its way to 4, 5 and 1, with this ISR; the first of it leads."""
    return moving_in(state(isr), minimum)


def moving_in(published: PartitionState, minimum: int = 2, live: Brokers = FOUR) -> Controller:
    found = topic(assignments={0: (4, 5, 1, 2, 3)}, moves={0: Move((4, 5), (2, 3), (1, 2, 3))})
    found = replace(found, min_insync_replicas=minimum)
    return cluster(TopicFound(found, {0: published}), live=dict(live))


@pytest.mark.rule("R3")
def test_a_cancel_is_answered_when_the_next_controller_would_go_back_too() -> None:
    controller = moving(1, 2, 3, 4)
    writes, effects = step(controller, reassign(TP, None))
    assert kinds(writes) == [WriteAssignments]
    [node] = writes
    assert isinstance(node, WriteAssignments)
    assert node.topic.assignments[0] == (1, 2, 3, 4, 5)
    assert node.topic.moves[0] == Move((), (4, 5), (1, 2, 3))
    assert outcome(effects).error_code == ErrorCode.NONE
    # Whoever is the controller now, from what is published alone.
    heir = loaded(
        TopicFound(controller.image.topics["t"], {0: state((1, 2, 3, 4))}),
        live=brokers(1, 2, 3, 4, 5),
    )
    assert heir.image.states[TP].isr == (1, 2, 3)


@pytest.mark.rule("R3", "V52")
def test_the_state_then_the_roles_then_the_deletions_then_the_node() -> None:
    controller = moving(1, 2, 3, 4)
    step(controller, reassign(TP, None))
    writes, effects = step(controller)
    assert kinds(writes) == [WritePartitionState]
    now = state_writes(writes)[TP]
    assert (now.leader, now.isr, now.reassigned_to) == (1, (1, 2, 3), (1, 2, 3))
    assert tuple(effects.commands[1].roles[TP].state.replicas) == (1, 2, 3)
    assert stops(effects.commands) == {4: True, 5: True}
    assert TP in controller.image.moving
    run(controller, stopped(4))
    assert TP in controller.image.moving
    writes, _ = step(controller, stopped(5))
    assert kinds(writes) == [WriteAssignments]
    assert controller.image.topics["t"].assignments[0] == (1, 2, 3)
    assert not controller.image.moving


@pytest.mark.rule("R3")
def test_a_leader_that_the_move_added_hands_over_to_an_original() -> None:
    controller = moving(4, 2, 3)
    run(controller, reassign(TP, None))
    now = controller.image.states[TP]
    assert (now.leader, now.isr) == (2, (2, 3))


@pytest.mark.rule("R3")
def test_one_that_shuts_down_does_not_take_over_while_another_can() -> None:
    controller = moving(4, 2, 3)
    leaving = {**brokers(1, 3, 4, 5), 2: replace(broker(2), is_leaving=True)}
    controller.offer(BrokersRead(leaving))
    run(controller, reassign(TP, None))
    assert controller.image.states[TP].leader == 3


@pytest.mark.rule("R3")
def test_no_cancel_takes_a_partition_below_its_minimum() -> None:
    """The originals are behind: one of those that the move added stays until another is not."""
    controller = moving(1, 4)
    _, effects = step(controller, reassign(TP, None))
    assert outcome(effects).error_code == ErrorCode.NONE
    run(controller, SweepDue())
    assert controller.image.states[TP].isr == (1, 4)
    caught_up(controller, 1, 2, 4)
    run(controller)
    assert controller.image.states[TP].isr == (1, 2)


@pytest.mark.rule("R3")
def test_replicas_out_of_sync_do_not_copy_while_a_cancel_waits() -> None:
    """Broker 4 is in sync, and counts; broker 5 copies records that no replica needs any more."""
    controller = moving(1, 4)
    step(controller, reassign(TP, None))
    _, effects = step(controller)
    roles = {each: effects.commands[each].roles for each in effects.commands}
    assert [[*roles[each][TP].state.idle] for each in (4, 5)] == [[5], [5]]
    assert controller.image.states[TP].isr == (1, 4)


@pytest.mark.rule("R3")
def test_a_lower_minimum_ends_the_wait() -> None:
    controller = moving(1, 4)
    run(controller, reassign(TP, None))
    run(controller, MinimumRead({"t": 1}), SweepDue())
    assert controller.image.states[TP].isr == (1,)


@pytest.mark.rule("R3")
def test_a_dead_member_does_not_count_for_the_minimum() -> None:
    """Broker 2 is in the ISR still and dead: without 4 the partition would take no more records."""
    around = (state((1, 2, 4)), (1, 2, 3), brokers(1, 3, 4))
    assert transitions.rolled_back(*around, (), 2, 9) is None
    done = transitions.rolled_back(*around, (), 1, 9)
    assert done is not None and done.isr == (1, 2)


@pytest.mark.rule("R3", "E6")
def test_no_cancel_drops_a_copy_that_a_recovery_counts_on() -> None:
    """The ISR is below the minimum already, and an eligible replica is one that the move added."""
    controller = moving_in(state((1,), elr={4: epoch(4)}))
    run(controller, reassign(TP, None), SweepDue())
    assert controller.image.states[TP].elr == (4,)
    caught_up(controller, 1, 3)
    run(controller)
    assert controller.image.states[TP].isr == (1, 3)


@pytest.mark.rule("R3")
def test_originals_that_are_down_are_no_reason_to_wait() -> None:
    controller = moving_in(state((1, 2)), live=brokers(1, 2, 4, 5))
    run(controller, reassign(TP, None))
    assert controller.image.states[TP].isr == (1, 2)


@pytest.mark.rule("R3", "R10")
def test_naming_the_original_replicas_is_a_cancel() -> None:
    controller = moving(1, 2, 3)
    writes, _ = step(controller, reassign(TP, [1, 2, 3]))
    assert kinds(writes) == [WriteAssignments]
    run(controller)
    assert controller.image.states[TP].reassigned_to == (1, 2, 3)


@pytest.mark.rule("R3", "R10")
def test_the_same_replicas_in_another_order_are_a_target_like_any() -> None:
    controller = moving(1, 2, 3)
    writes, _ = step(controller, reassign(TP, [3, 2, 1]))
    assert kinds(writes) == [WriteAssignments, WritePartitionState]


@pytest.mark.rule("R3")
def test_a_move_that_goes_back_can_be_sent_forward_again() -> None:
    controller = moving(1, 4)
    run(controller, reassign(TP, None))
    begin(controller, 4, 5, 1)
    assert controller.image.topics["t"].moves[0].adding == (4, 5)
    assert controller.image.topics["t"].moves[0].original == (1, 2, 3)


@pytest.mark.rule("R6")
def test_a_move_whose_originals_are_not_recorded_is_not_cancelled() -> None:
    found = topic(assignments={0: (4, 2, 1, 3)}, moves={0: Move((4,), (3,), ())})
    controller = cluster(TopicFound(found, {0: state()}))
    writes, effects = step(controller, reassign(TP, None))
    assert writes == []
    assert "former replicas of t-0 are not recorded" in outcome(effects).error_message


@pytest.mark.rule("R6")
def test_no_cancel_takes_a_partition_offline() -> None:
    controller = moving(4, 5)
    writes, effects = step(controller, reassign(TP, None))
    assert writes == []
    assert outcome(effects).error_code == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert outcome(effects).error_message == (
        "t-0 would go offline: of its original replicas [1, 2, 3] none is in sync, and [4, 5] are;"
        " name the originals as target to move it back when they are in sync"
    )
    begin(controller, 1, 2, 3)
    run(controller, SweepDue())
    assert controller.image.states[TP].isr == (4, 5)


@pytest.mark.rule("R6")
def test_where_all_are_offline_it_goes_back_and_loses_no_record() -> None:
    """The replicas that the move added alone have all records: they stay until an original has."""
    controller = moving_in(state((4, 5), leader=-1), live=brokers(6))
    _, effects = step(controller, reassign(TP, None))
    assert outcome(effects).error_code == ErrorCode.NONE
    assert controller.image.topics["t"].moves[0].removing == (4, 5)
    run(controller, SweepDue())
    assert set(controller.image.states[TP].isr) <= {4, 5}


def _three_moving() -> Controller:
    """t-0 goes forward, t-1 has nothing recorded, t-2 would go offline."""
    found = topic(
        assignments={0: (4, 5, 1, 2, 3), 1: (4, 2, 1, 3), 2: (4, 5, 1, 2, 3)},
        moves={
            0: Move((4, 5), (2, 3), (1, 2, 3)),
            1: Move((4,), (3,), ()),
            2: Move((4, 5), (2, 3), (1, 2, 3)),
        },
    )
    states = {0: state((1, 2, 3)), 1: state(), 2: state((4, 5))}
    return cluster(TopicFound(found, states))


@pytest.mark.rule("R2", "R6")
def test_a_cancel_of_all_rolls_back_what_it_can_and_reports_the_rest() -> None:
    controller = _three_moving()
    writes, _ = step(controller, CancelRead(is_requested=True))
    assert kinds(writes) == [WriteAssignments], "the topics' nodes come first"
    writes, effects = step(controller)
    assert kinds(writes) == [WritePartitionState, ForgetCancel]
    skipped = {each.topic_partition.partition for each in effects.notices.of(CancelSkipped)}
    assert skipped == {1, 2}
    assert effects.notices.of(CancelEnded) == [CancelEnded(1)]
    assert not controller.image.cancels_all
    assert controller.image.states[TP].reassigned_to == (1, 2, 3)


@pytest.mark.rule("R2")
def test_none_begins_while_all_are_cancelled() -> None:
    controller = cluster()
    controller.offer(CancelRead(is_requested=True))
    entry = ReassignmentEntry(TP, (4, 5, 1))
    controller.offer(ReassignmentsRead(RequestedReassignments(0, {TP: entry})))
    writes, effects = step(controller, reassign(TP, [4, 5, 1]))
    assert outcome(effects).error_code == ErrorCode.REASSIGNMENT_IN_PROGRESS
    assert "is gone" in outcome(effects).error_message
    assert kinds(writes) == [KeepReassignments, ForgetCancel]
    assert [partition for partition, _ in refused_moves(effects)] == [TP]
    begin(controller, 4, 5, 1)


@pytest.mark.rule("R2", "R14")
def test_the_next_controller_goes_on_with_a_cancel_of_all() -> None:
    """The entries of the administrator's node go in the same step: no later step reads them."""
    controller = cluster()
    entry = ReassignmentEntry(TP, (4, 5, 1))
    run(controller, ReassignmentsRead(RequestedReassignments(0, {TP: entry})))
    assert TP in controller.image.moving
    writes, effects = step(controller, CancelRead(is_requested=True))
    assert kinds(writes) == [KeepReassignments, WriteAssignments]
    assert refused_moves(effects) == [], "a move that was cancelled is not one that was refused"
    writes, effects = step(controller)
    assert ForgetCancel in kinds(writes)
    assert refused_moves(effects) == []


@pytest.mark.rule("R2")
def test_an_entry_read_while_its_move_goes_back_is_dropped_and_not_refused() -> None:
    """The next controller reads the node that the one before did not come to write."""
    found = topic(assignments={0: (1, 2, 3, 4, 5)}, moves={0: Move((), (4, 5), (1, 2, 3))})
    found = replace(found, min_insync_replicas=2)
    controller = cluster(TopicFound(found, {0: state((4, 5, 1))}))
    controller.offer(CancelRead(is_requested=True))
    entry = ReassignmentEntry(TP, (4, 5, 1))
    writes, effects = step(controller, ReassignmentsRead(RequestedReassignments(0, {TP: entry})))
    assert KeepReassignments in kinds(writes)
    assert refused_moves(effects) == []


@pytest.mark.rule("R2", "R5")
def test_a_move_that_completes_is_left_to_end() -> None:
    controller, _ = completing(4, 5, 1)
    writes, effects = step(controller, CancelRead(is_requested=True))
    assert kinds(writes) == [ForgetCancel]
    assert effects.notices.of(CancelEnded) == [CancelEnded(0)]
    assert effects.notices.of(CancelSkipped) == []
    run(controller, stopped(2), stopped(3))
    assert controller.image.replicas(TP) == (4, 5, 1)


@pytest.mark.rule("R2")
def test_a_topic_changed_meanwhile_is_cancelled_when_it_was_read() -> None:
    controller = moving(1, 2, 3)
    step(controller, CancelRead(is_requested=True), outcomes={0: Conflict()})
    writes, _ = step(controller)
    assert kinds(writes) == [WriteAssignments]


@pytest.mark.rule("R2")
def test_a_cancel_waits_for_an_election_of_the_same_moment() -> None:
    controller = moving(1, 2, 3)
    controller.offer(BrokersRead(brokers(2, 3, 4, 5)))
    writes, _ = step(controller, CancelRead(is_requested=True))
    assert kinds(writes) == [WritePartitionState]
    writes, _ = step(controller)
    assert kinds(writes) == [WriteAssignments]
    assert controller.image.cancels_all


@pytest.mark.rule("R19", "R5")
def test_a_thousand_go_back_with_one_write_of_their_topic() -> None:
    count = 1_000
    found = topic(
        assignments=dict.fromkeys(range(count), (4, 5, 1, 2, 3)),
        moves={number: Move((4, 5), (2, 3), (1, 2, 3)) for number in range(1, count)},
    )
    controller = cluster(TopicFound(found, {number: state() for number in range(count)}))
    writes, _ = step(controller, CancelRead(is_requested=True))
    assert kinds(writes) == [WriteAssignments]
    [node] = writes
    assert isinstance(node, WriteAssignments)
    assert {move.adding for move in node.topic.moves.values()} == {()}
    assert len(node.topic.moves) == count - 1, "a move that is done stays as it is"
    assert len(state_writes(step(controller)[0])) == count - 1


@pytest.mark.rule("R2")
def test_a_node_edited_into_a_move_to_its_originals_ends_the_cancel_all_the_same() -> None:
    found = topic(assignments={0: (1, 2, 3)}, moves={0: Move((3,), (3,), (1, 2))})
    controller = cluster(TopicFound(found, {0: state((1,))}))
    effects = run(controller, CancelRead(is_requested=True))
    assert sum(len(each.notices.of(CancelEnded)) for each in effects) == 1
    assert not controller.image.cancels_all
