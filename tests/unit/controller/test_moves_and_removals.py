"""Partitions of a topic that are to be moved and to be removed: one after the other (V52, V71)."""

from __future__ import annotations

from dataclasses import replace

from tests.support.controller.values import (
    answer_of,
    broker,
    brokers,
    epoch,
    loaded,
    reassign,
    state,
    state_writes,
    step,
    topic,
)
from tests.unit.controller.test_removals import LAST, MIDDLE, remove, wanted

from tidelog.controller.controller import Controller
from tidelog.controller.partitions.removal import QueueRemovals
from tidelog.controller.reassignments.progress import AssignmentsWritten
from tidelog.controller.registrations import BrokersChanged
from tidelog.controller.replica_answers import CommandsDropped
from tidelog.controller.topics.changes import TopicFound
from tidelog.core.errors import ErrorCode

ALL = (1, 2, 3)


def four(partitions: int = 3) -> Controller:
    """Topic t on three of four live brokers."""
    assignments = dict.fromkeys(range(partitions), ALL)
    found = TopicFound(topic("t", assignments), dict.fromkeys(assignments, state()))
    controller = loaded(found)
    controller.image.apply(BrokersChanged(brokers(1, 2, 3, 4)))
    return controller


def test_a_removal_by_request_is_refused_while_partitions_of_the_topic_move() -> None:
    controller = four()
    step(controller, reassign(LAST, (1, 2, 4)))
    assert controller.image.topics["t"].is_reassigning
    writes, effects = step(controller, remove(("t", 1)))
    [result] = answer_of(effects).results
    assert result.error_code == ErrorCode.REASSIGNMENT_IN_PROGRESS
    assert "wait until that ends" in str(result.error_message)
    assert not [one for one in writes if isinstance(one, QueueRemovals)]


def test_a_removal_that_was_left_in_the_store_waits_until_nothing_of_the_topic_moves() -> None:
    controller = four()
    step(controller, reassign(MIDDLE, (1, 2, 4)))
    for _ in range(3):
        writes, effects = step(controller, wanted(2))
        assert not any(one.removed for one in state_writes(writes).values())
        assert not any(one.stops for one in effects.commands.values())
    assert list(controller.image.closing("t")) == []
    still = controller.image.topics["t"]
    controller.image.apply(AssignmentsWritten(replace(still, moves={})))
    assert list(controller.image.closing("t")) == [2]
    writes, _ = step(controller, wanted(2))
    assert [one for one, told in state_writes(writes).items() if told.removed] == [LAST]


def test_no_partition_of_a_topic_moves_while_some_are_being_removed() -> None:
    controller = four()
    step(controller, remove(("t", 2)))
    writes, effects = step(controller, reassign(MIDDLE, (1, 2, 4)))
    [answered] = answer_of(effects).responses
    [one] = answered.partitions
    assert one.error_code == ErrorCode.INVALID_REQUEST
    assert "partitions of topic 't' are being removed" in str(one.error_message)
    assert not controller.image.topics["t"].is_reassigning
    assert MIDDLE not in state_writes(writes)


def test_who_was_behind_too_far_is_told_everything_in_its_present_life_only() -> None:
    controller = four()
    _, effects = step(controller, CommandsDropped(2, epoch(2)))
    assert effects.commands[2].full
    _, effects = step(controller, CommandsDropped(2, epoch(2, life=0)))
    assert effects.commands == {}
    assert broker(2).broker_epoch == epoch(2)
