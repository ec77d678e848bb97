"""Expansions that the controller holds back to merge them (A11), and versions 0 to 3 (A1, A3)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.controller.values import (
    TP,
    alter,
    answer_of,
    brokers,
    epoch,
    isr_answer,
    loaded,
    reassign,
    shut_down,
    state,
    state_writes,
    step,
    topic,
    topic_id,
)

from tidelog.controller.controller import Controller
from tidelog.controller.partitions.expansions import ExpansionsDue, ExpansionsHeld
from tidelog.controller.registrations import BrokersRead
from tidelog.controller.topics.changes import TopicFound
from tidelog.core.errors import ErrorCode
from tidelog.core.types import RECOVERED, RECOVERING, PartitionState, TopicPartition
from tidelog.wire.messages.alter_partition import RequestTopicData

LINGER_MS = 200
P1 = TopicPartition("t", 1)


def lingering(
    *states: PartitionState, minimum: int = 1, linger_ms: int = LINGER_MS, **how: Any
) -> Controller:
    """A controller that holds expansions back; the topic has as many partitions as states."""
    of_topic = topic(assignments=dict.fromkeys(range(len(states)), (1, 2, 3)))
    found = TopicFound(of_topic, dict(enumerate(states)))
    controller = loaded(found, live=how.pop("live", brokers(1, 2, 3, 4)))
    controller.settings = replace(
        controller.settings, isr_expand_linger_ms=linger_ms, min_insync_replicas=minimum
    )
    return controller


def both(first: Any, second: Any) -> Any:
    """One request for partitions 0 and 1."""
    first.request.topics[0].partitions += second.request.topics[0].partitions
    return first


@pytest.mark.rule("A11")
def test_an_expansion_is_held_and_written_when_its_time_is_over() -> None:
    controller = lingering(state((1, 2)))
    writes, effects = step(controller, alter(1, 2, 3))
    answer = answer_of(effects)
    assert (writes, answer.topics, answer.held_ms) == ([], [], LINGER_MS)
    assert effects.notices.of(ExpansionsHeld) == [ExpansionsHeld(TP, LINGER_MS)]
    writes, effects = step(controller, ExpansionsDue())
    assert state_writes(writes)[TP].isr == (1, 2, 3)
    role = effects.commands[1].roles[TP].state
    assert (role.isr, role.partition_epoch, role.leader_epoch) == ((1, 2, 3), 11, 5)
    assert TP not in effects.commands[2].roles
    assert effects.commands[2].shown


@pytest.mark.rule("A11")
def test_expansions_of_several_requests_are_one_decision_and_timed_once() -> None:
    controller = lingering(state((1, 2)), state((1, 3)))
    _, first = step(controller, alter(1, 2, 3))
    _, second = step(controller, alter(1, 2, 3, partition=1, ticket=2))
    assert len(first.notices.of(ExpansionsHeld)) == 1
    assert second.notices.of(ExpansionsHeld) == []
    writes, _ = step(controller, ExpansionsDue())
    assert {tp: held.isr for tp, held in state_writes(writes).items()} == {
        TP: (1, 2, 3),
        P1: (1, 2, 3),
    }


@pytest.mark.rule("A11", "A8")
def test_the_newest_expansion_of_a_partition_is_the_one_that_is_made() -> None:
    controller = lingering(state((1,)))
    step(controller, alter(1, 2))
    step(controller, alter(1, 2, 3))
    writes, _ = step(controller, ExpansionsDue())
    assert state_writes(writes)[TP].isr == (1, 2, 3)
    assert step(controller, ExpansionsDue())[0] == []


@pytest.mark.rule("A11")
def test_a_shrink_is_never_held_and_voids_what_was() -> None:
    controller = lingering(state((1, 2)))
    step(controller, alter(1, 2, 3))
    writes, effects = step(controller, alter(1))
    assert state_writes(writes)[TP].isr == (1,)
    assert isr_answer(effects).error_code == ErrorCode.NONE
    assert step(controller, ExpansionsDue())[0] == []


@pytest.mark.rule("A11")
def test_a_change_that_takes_one_out_and_another_in_is_not_held() -> None:
    writes, _ = step(lingering(state((1, 2))), alter(1, 3))
    assert state_writes(writes)[TP].isr == (1, 3)


@pytest.mark.rule("A11")
@pytest.mark.parametrize(("minimum", "is_held"), [(1, True), (2, False), (3, False)])
def test_what_reaches_the_effective_minimum_is_not_held(minimum: int, is_held: bool) -> None:
    writes, effects = step(lingering(state((1,)), minimum=minimum), alter(1, 2))
    assert (writes == []) is is_held
    assert bool(answer_of(effects).held_ms) is is_held


@pytest.mark.rule("A11")
def test_what_completes_a_reassignment_is_not_held() -> None:
    controller = lingering(state((1, 2)))
    step(controller, reassign(TP, (1, 2, 4)))
    held = controller.image.states[TP]
    writes, effects = step(
        controller,
        alter(1, 2, 4, leader_epoch=held.leader_epoch, partition_epoch=held.partition_epoch),
    )
    assert 4 in state_writes(writes)[TP].isr
    assert answer_of(effects).held_ms == 0


@pytest.mark.rule("A11")
def test_what_a_leader_that_shuts_down_needs_is_not_held() -> None:
    controller = lingering(state((1,)))
    step(controller, shut_down(1, ticket=9))
    held = controller.image.states[TP]
    writes, _ = step(
        controller,
        alter(1, 2, leader_epoch=held.leader_epoch, partition_epoch=held.partition_epoch),
    )
    assert writes


@pytest.mark.rule("A11")
def test_the_report_of_a_recovery_is_not_held() -> None:
    recovering = state((1,), leader_recovery_state=RECOVERING)
    writes, _ = step(lingering(recovering), alter(1, 2, recovery=RECOVERED))
    assert state_writes(writes)[TP].leader_recovery_state == RECOVERED


@pytest.mark.rule("A11")
def test_the_answer_for_another_partition_comes_at_once() -> None:
    controller = lingering(state((1, 2)), state((1, 2, 3)))
    writes, effects = step(controller, both(alter(1, 2, 3), alter(1, 2, partition=1)))
    assert {tp: held.isr for tp, held in state_writes(writes).items()} == {P1: (1, 2)}
    answer = answer_of(effects)
    assert [one.partition_index for one in answer.topics[0].partitions] == [1]
    assert answer.held_ms == LINGER_MS


@pytest.mark.rule("A11")
@pytest.mark.parametrize("how", [{"linger_ms": 0}, {}])
def test_nothing_is_held_by_default_or_for_a_leader_that_does_not_know_it(
    how: dict[str, int],
) -> None:
    writes, effects = step(lingering(state((1, 2)), **how), alter(1, 2, 3, may_hold=bool(how)))
    assert state_writes(writes)[TP].isr == (1, 2, 3)
    assert answer_of(effects).held_ms == 0


@pytest.mark.rule("A11")
def test_what_is_due_is_judged_again() -> None:
    controller = lingering(state((1, 2)))
    step(controller, alter(1, 2, 3))
    step(controller, BrokersRead(brokers(1, 2, 4)))
    writes, effects = step(controller, ExpansionsDue())
    # Broker 3 is gone: the refusal is made final, and the leader is sent what holds.
    assert [held.isr for held in state_writes(writes).values()] == [(1, 2)]
    assert effects.commands[1].roles[TP].state.partition_epoch == 11


@pytest.mark.rule("A11", "A2")
def test_what_a_broker_asked_for_in_an_earlier_life_is_dropped() -> None:
    controller = lingering(state((1, 2)))
    step(controller, alter(1, 2, 3))
    step(controller, BrokersRead(brokers(2, 3, 4)))
    writes, _ = step(controller, ExpansionsDue())
    assert writes == []


# Versions 0 to 3


@pytest.mark.rule("A1")
@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_every_version_is_answered_as_it_names_the_topic(version: int) -> None:
    writes, effects = step(loaded(), alter(1, 2, version=version))
    assert state_writes(writes)[TP].isr == (1, 2)
    (answered,) = answer_of(effects).topics
    assert answered.topic_name == ("t" if version < 2 else "")
    assert answered.topic_id == (bytes(16) if version < 2 else topic_id("t"))


@pytest.mark.rule("A3")
@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_an_unknown_topic_has_the_error_of_how_it_was_named(version: int) -> None:
    asked = alter(1, 2, version=version)
    named = asked.request.topics[0]
    asked.request.topics[0] = RequestTopicData(b"?" * 16, "unknown", named.partitions)
    writes, effects = step(loaded(), asked)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if version < 2 else ErrorCode.UNKNOWN_TOPIC_ID
    assert isr_answer(effects).error_code == unknown
    assert writes == []


@pytest.mark.rule("A3")
@pytest.mark.parametrize("version", [0, 1, 2])
def test_members_without_broker_epochs_pass_only_as_they_were(version: int) -> None:
    found = TopicFound(topic(), {0: state((1, 2), isr_epochs=(epoch(1), epoch(2)))})
    writes, effects = step(loaded(found, live=brokers(1, 2)), alter(1, 2, 3, version=version))
    refused = ErrorCode.OPERATION_NOT_ATTEMPTED if version < 2 else ErrorCode.INELIGIBLE_REPLICA
    assert isr_answer(effects).error_code == refused
    assert writes == []
