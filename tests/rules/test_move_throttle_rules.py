"""Throttles that come with a reassignment and go with it (R4)."""

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
    run_writes,
)
from tests.support.controller.values import (
    TP,
    alter,
    answer_of,
    list_moves,
    loaded,
    reassign,
    run,
    state,
    state_writes,
    step,
    stopped,
)

from tidelog.controller.controller import Controller
from tidelog.controller.decision import Effects
from tidelog.controller.reassignments.progress import SweepDue, WriteAssignments
from tidelog.controller.reassignments.requests import ReassignmentsAsked
from tidelog.controller.reassignments.stored_nodes import (
    KeepQueue,
    ReassignmentsRead,
    RoutesRead,
)
from tidelog.controller.records import RequestedReassignments
from tidelog.controller.state_writes import WritePartitionState
from tidelog.controller.topics.changes import TopicFound
from tidelog.core.errors import ErrorCode
from tidelog.core.types import ReassignmentEntry
from tidelog.metadata import layout
from tidelog.metadata.layout import LayoutError, TopicAssignment


def throttled(*target: int, rate: int, queued: bool = False) -> ReassignmentsAsked:
    """A client asks for t-0 to be moved there at a rate."""
    asked = reassign(TP, target)
    return replace(asked, request=replace(asked.request, throttle=rate, queued=queued))


def rates(effects: Effects) -> dict[int, int]:
    """The throttle in each broker's role."""
    return {
        broker_id: commands.roles[TP].state.throttle
        for broker_id, commands in effects.commands.items()
        if TP in commands.roles
    }


def moving(rate: int = 1_000) -> Controller:
    controller = cluster()
    assert outcome(step(controller, throttled(4, 2, 3, rate=rate))[1]).error_code == ErrorCode.NONE
    return controller


@pytest.mark.rule("R4")
def test_every_replica_learns_of_the_throttle_with_the_move_and_of_its_end() -> None:
    controller = cluster()
    _, effects = step(controller, throttled(4, 2, 3, rate=1_000))
    assert rates(effects) == {1: 1_000, 2: 1_000, 3: 1_000, 4: 1_000}
    [found] = answer_of(step(controller, list_moves())[1]).topics
    assert [each.throttle for each in found.partitions] == [1_000]
    caught_up(controller, 1, 2, 3, 4)
    _, effects = step(controller)
    assert rates(effects) == {2: 0, 3: 0, 4: 0}, "and broker 1 is commanded to delete its replica"


@pytest.mark.rule("R4")
def test_the_throttle_goes_with_a_cancelled_move() -> None:
    controller = moving()
    run(controller, reassign(TP, None))
    move = controller.image.move(TP)
    assert move is not None
    assert move.throttle == 0
    found = run(controller, stopped(4))
    assert not controller.image.moving
    assert all(not any(rates(effects).values()) for effects in found)


@pytest.mark.rule("R4")
def test_a_cancel_that_waits_is_not_throttled() -> None:
    """Its originals catch up, as fast as they can."""
    controller = moving()
    caught_up(controller, 1, 4)
    controller.settings = replace(controller.settings, min_insync_replicas=2)
    _, effects = step(controller, reassign(TP, None))
    assert rates(effects) == {1: 0, 2: 0, 3: 0, 4: 0}


@pytest.mark.rule("R4")
def test_the_throttle_of_a_move_under_way_is_changed_and_removed() -> None:
    controller = moving()
    writes, effects = step(controller, throttled(4, 2, 3, rate=50))
    assert kinds(writes) == [WriteAssignments, WritePartitionState]
    assert set(rates(effects).values()) == {50}
    writes, _ = step(controller, throttled(4, 2, 3, rate=50))
    assert writes == [], "nothing to change"
    _, effects = step(controller, throttled(4, 2, 3, rate=0))
    assert set(rates(effects).values()) == {0}


@pytest.mark.rule("R4", "V52")
def test_a_move_past_its_end_gets_no_throttle() -> None:
    """Its replicas to remove would count again, and a cancel would drop good copies."""
    controller, _ = completing(4, 5, 1)
    writes, effects = step(controller, throttled(4, 5, 1, rate=10))
    assert writes == []
    assert outcome(effects).error_code == ErrorCode.NONE
    assert controller.image.is_completing(TP)


@pytest.mark.rule("R4", "R10")
def test_another_target_keeps_the_throttle_unless_one_is_given() -> None:
    controller = moving()
    _, effects = step(controller, reassign(TP, [5, 2, 3]))
    assert set(rates(effects).values()) == {1_000}
    _, effects = step(controller, throttled(4, 3, 2, rate=70))
    assert set(rates(effects).values()) == {70}
    # A move without a throttle has none afterwards either.
    other = cluster()
    begin(other, 4, 2, 3)
    move = other.image.move(TP)
    assert move is not None
    assert move.throttle == 0


@pytest.mark.rule("R4", "R14")
def test_a_new_controller_knows_the_throttle_by_the_topics_node() -> None:
    controller = moving()
    found = controller.image.topics["t"]
    heir = loaded(TopicFound(found, {0: state()}), live=dict(FOUR))
    caught_up(heir, 1, 2, 3)
    _, effects = step(heir, throttled(4, 2, 3, rate=60))
    assert set(rates(effects).values()) == {60}
    written = TopicAssignment(
        found.topic_id,
        found.assignments,
        {0: (4,)},
        {0: (1,)},
        {0: (1, 2, 3)},
        {0: found.moves[0].throttle},
    )
    path = layout.topic_path("t")
    assert layout.decode_topic(path, layout.encode_topic(written)).throttles == {0: 1_000}


@pytest.mark.rule("R4", "R8")
def test_the_node_and_the_queue_carry_throttles() -> None:
    controller = cluster()
    entry = ReassignmentEntry(TP, (4, 2, 3), throttle=900)
    data = layout.encode_reassignments([entry])
    assert layout.decode_reassignments("p", data) == [entry]
    run(controller, ReassignmentsRead(RequestedReassignments(0, {TP: entry})))
    move = controller.image.move(TP)
    assert move is not None
    assert move.throttle == 900
    other = cluster()
    run(other, RoutesRead(False, RequestedReassignments(0, {TP: entry}), (), {}))
    move = other.image.move(TP)
    assert move is not None
    assert move.throttle == 900
    third = cluster()
    run(third, throttled(4, 2, 3, rate=800, queued=True))
    move = third.image.move(TP)
    assert move is not None
    assert move.throttle == 800


def entered(rate: int, version: int = 0) -> RequestedReassignments:
    """A node has an entry for the target of the move under way, with a throttle."""
    return RequestedReassignments(version, {TP: ReassignmentEntry(TP, (4, 2, 3), throttle=rate)})


def rate_of(controller: Controller) -> int:
    move = controller.image.move(TP)
    assert move is not None
    return move.throttle


@pytest.mark.rule("R4")
def test_an_entry_for_the_target_of_a_move_changes_its_throttle() -> None:
    controller = moving()
    run(controller, ReassignmentsRead(entered(70)))
    assert rate_of(controller) == 70
    # Without a throttle it leaves the move's alone; the way by a client's request is newer.
    run(controller, ReassignmentsRead(entered(0, version=2)))
    assert rate_of(controller) == 70
    run(controller, ReassignmentsRead(entered(60, version=3)))
    run(controller, throttled(4, 2, 3, rate=50), SweepDue())
    assert rate_of(controller) == 50
    run(controller, throttled(4, 2, 3, rate=0), SweepDue())
    assert rate_of(controller) == 0


@pytest.mark.rule("R4", "R8")
def test_a_queued_entry_for_the_target_of_a_move_changes_its_throttle_and_leaves() -> None:
    controller = moving()
    run(controller, ReassignmentsRead(entered(90)))
    run(controller, RoutesRead(False, entered(80), (), {}), SweepDue())
    assert rate_of(controller) == 80
    assert controller.image.queue is None
    # The same rate again, or none, changes nothing; one that goes back has none.
    for rate in (80, 0):
        assert kinds(run_writes(controller, RoutesRead(False, entered(rate), (), {}))) == [
            KeepQueue
        ]
    done, _ = completing(4, 2, 3)
    run(done, RoutesRead(False, entered(80), (), {}))
    assert rate_of(done) == 0
    assert done.image.queue is None


@pytest.mark.rule("R4", "R8")
def test_a_queued_throttle_waits_for_what_changes_the_partition() -> None:
    controller = moving()
    now = controller.image.states[TP]
    heard = alter(1, 2, leader_epoch=now.leader_epoch, partition_epoch=now.partition_epoch)
    writes, _ = step(controller, heard, RoutesRead(False, entered(80), (), {}))
    assert WriteAssignments not in kinds(writes)
    run(controller, SweepDue())
    assert rate_of(controller) == 80


@pytest.mark.rule("R4", "R11")
def test_a_throttle_may_be_changed_while_reassignments_are_frozen() -> None:
    """Nothing begins by that, and it is what slows down a move that hurts."""
    controller = moving()
    run(controller, RoutesRead(True, None, (), {}))
    _, effects = step(controller, throttled(4, 2, 3, rate=50))
    assert outcome(effects).error_code == ErrorCode.NONE
    run(controller, ReassignmentsRead(entered(40)))
    assert rate_of(controller) == 40
    _, effects = step(controller, throttled(5, 2, 3, rate=50))
    assert outcome(effects).error_code == ErrorCode.POLICY_VIOLATION


@pytest.mark.rule("R4")
@pytest.mark.parametrize("throttles", ['{"x":5}', '{"0":0}', '{"0":"5"}', "[]"])
def test_a_throttle_that_makes_no_sense_makes_the_topics_node_unreadable(throttles: str) -> None:
    data = f'{{"version":2,"partitions":{{"0":[1]}},"reassignment_throttles":{throttles}}}'
    with pytest.raises(LayoutError, match="reassignment_throttles"):
        layout.decode_topic("/brokers/topics/t", data.encode())


@pytest.mark.rule("R4")
def test_a_state_without_a_move_has_no_throttle() -> None:
    controller = cluster()
    writes, _ = step(controller, throttled(3, 2, 1, rate=5))
    assert state_writes(writes) == {}, "another order copies nothing (R21)"
    assert controller.image.move(TP) is None
