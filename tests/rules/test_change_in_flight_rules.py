"""Reassignments that get another target while they are under way (R10, KIP-455)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.controller.reassigning import begin, caught_up, cluster, outcome
from tests.support.controller.values import (
    TP,
    alter,
    isr_answer,
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
from tidelog.controller.reassignments.stored_nodes import ReassignmentsRead
from tidelog.controller.records import RequestedReassignments
from tidelog.controller.topics.changes import TopicFound
from tidelog.core.errors import ErrorCode
from tidelog.core.shrink_causes import ShrinkCause
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


def caught_up_on(*isr: int, leader: int, target: tuple[int, ...], **fields: Any) -> Controller:
    """A controller that moves t-0 to `target`, with this ISR and leader meanwhile."""
    controller = cluster()
    begin(controller, *target)
    found = replace(controller.image.topics["t"], **fields)
    return cluster(TopicFound(found, {0: state(isr, leader=leader, leader_epoch=7)}))


@pytest.mark.rule("R10")
def test_an_in_sync_replica_that_no_target_wants_is_dropped_at_once() -> None:
    """acks=all must not wait for it: it leaves the ISR with the write that begins the target."""
    controller = caught_up_on(1, 2, 4, leader=1, target=(4, 5, 3))
    before = controller.image.states[TP]
    assert before.isr == (1, 2, 4)
    effects = begin(controller, 5, 2, 3)
    published = controller.image.states[TP]
    assert (published.isr, published.leader) == ((1, 2), 1)
    assert published.leader_epoch == before.leader_epoch + 1, "no request of before counts"
    roles = {each: effects.commands[each].roles[TP].state for each in (1, 2, 3, 4, 5)}
    assert all((role.isr, role.idle) == ((1, 2), (4,)) for role in roles.values())
    assert controller.image.shrinks[TP] == {4: ShrinkCause.MOVED}
    assert controller.image.assigned(TP) == (5, 2, 3, 4, 1), "its copy goes when the move ends"
    caught_up(controller, 1, 2, 3, 5)
    run(controller)
    run(controller, stopped(4), stopped(1))
    assert controller.image.assigned(TP) == (5, 2, 3)


@pytest.mark.rule("R10")
def test_an_in_sync_replica_that_the_new_target_wants_stays() -> None:
    controller = caught_up_on(1, 2, 4, leader=1, target=(4, 5, 3))
    begin(controller, 4, 2, 3)
    assert controller.image.states[TP].isr == (1, 2, 4)
    assert controller.image.move(TP).removing == (5, 1)  # type: ignore[union-attr]  # it moves


@pytest.mark.rule("R10")
def test_a_dropped_replica_does_not_rejoin_whatever_its_leader_asks() -> None:
    controller = caught_up_on(1, 2, 4, leader=1, target=(4, 5, 3))
    begin(controller, 5, 2, 3)
    now = controller.image.states[TP]
    asked = alter(1, 2, 4, leader_epoch=now.leader_epoch, partition_epoch=now.partition_epoch)
    _, effects = step(controller, asked)
    assert isr_answer(effects).error_code == ErrorCode.INELIGIBLE_REPLICA
    # The next target wants it again.
    begin(controller, 4, 2, 3)
    caught_up(controller, 1, 2, 4)
    assert controller.image.states[TP].isr == (1, 2, 4)


@pytest.mark.rule("R10")
def test_the_leader_is_never_dropped() -> None:
    controller = caught_up_on(4, 2, leader=4, target=(4, 5, 3))
    effects = begin(controller, 5, 2, 3)
    assert idle(effects)[4] == []
    assert controller.image.states[TP].isr == (4, 2)
    assert controller.image.states[TP].leader == 4


@pytest.mark.rule("R10")
def test_a_replica_that_no_target_wants_stays_while_the_minimum_needs_it() -> None:
    controller = caught_up_on(1, 4, leader=1, target=(4, 5, 3), min_insync_replicas=2)
    effects = begin(controller, 5, 2, 3)
    assert idle(effects)[4] == []
    assert controller.image.states[TP].isr == (1, 4)
    # Another replica is in sync: from then on acks=all does not wait for it.
    caught_up(controller, 1, 2, 4)
    run(controller)
    assert controller.image.states[TP].isr == (1, 2)


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
