"""Reassignments that get another target while they are under way (R10, KIP-455)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.controller.reassigning import begin, caught_up, cluster, outcome
from tests.support.controller.values import (
    TP,
    reassign,
    refused_moves,
    run,
    state,
    step,
    stopped,
    topic,
)

from tidelog.controller.decision import Effects
from tidelog.controller.reassignments.stored_nodes import ReassignmentsRead
from tidelog.controller.records import RequestedReassignments
from tidelog.controller.topics.changes import TopicFound
from tidelog.core.errors import ErrorCode
from tidelog.core.types import ReassignmentEntry


def idle(effects: Effects) -> dict[int, list[int]]:
    """Who does not copy, by the role of each broker."""
    return {
        broker_id: [*commands.roles[TP].state.idle]
        for broker_id, commands in effects.commands.items()
        if TP in commands.roles
    }


@pytest.mark.rule("R10")
def test_added_replicas_that_are_not_needed_any_more_stop_copying_at_once() -> None:
    controller = cluster()
    begin(controller, 4, 2, 3)
    effects = begin(controller, 5, 2, 3)
    assert idle(effects) == {each: [4] for each in (1, 2, 3, 4, 5)}
    # Needed again, it goes on from where it was.
    assert idle(begin(controller, 4, 5, 3))[4] == []


@pytest.mark.rule("R10")
def test_one_in_sync_stays_until_the_end_and_the_leader_is_never_dropped() -> None:
    controller = cluster()
    begin(controller, 4, 2, 3)
    controller = cluster(
        TopicFound(controller.image.topics["t"], {0: state((4, 2), leader=4, leader_epoch=7)})
    )
    effects = begin(controller, 5, 2, 3)
    assert idle(effects)[4] == []
    assert controller.image.assigned(TP) == (5, 2, 3, 4, 1)
    assert controller.image.states[TP].leader == 4


@pytest.mark.rule("R10")
def test_what_both_targets_share_is_kept_and_the_originals_stay_recorded() -> None:
    controller = cluster()
    begin(controller, 4, 5, 1)
    begin(controller, 4, 3, 1)
    move = controller.image.move(TP)
    assert move is not None
    assert (move.original, move.removing) == ((1, 2, 3), (5, 2))
    caught_up(controller, 1, 2, 3, 4)
    run(controller)
    run(controller, stopped(2), stopped(5))
    assert controller.image.assigned(TP) == (4, 3, 1)
    assert not controller.image.moving


@pytest.mark.rule("R10")
def test_another_target_is_refused_while_the_originals_are_below_the_minimum() -> None:
    one = replace(topic(assignments={0: (1,)}), min_insync_replicas=2)
    controller = cluster(TopicFound(one, {0: state((1,))}))
    begin(controller, 1, 4, 5)
    _, effects = step(controller, reassign(TP, [1, 2, 3]))
    assert outcome(effects).error_code == ErrorCode.INVALID_REQUEST
    assert "cancel that move first" in outcome(effects).error_message
    # The same target, and the way back, are no other target.
    assert outcome(step(controller, reassign(TP, [1, 4, 5]))[1]).error_code == ErrorCode.NONE
    entry = ReassignmentEntry(TP, (1, 2, 3))
    found = run(controller, ReassignmentsRead(RequestedReassignments(0, {TP: entry})))
    assert [each for each, _ in refused_moves(found[0])] == [TP]
    assert outcome(step(controller, reassign(TP, [1]))[1]).error_code == ErrorCode.NONE
