"""ISR changes that leaders wrote themselves, as notifications tell them, decision by decision."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.controller.values import (
    TP,
    epoch,
    loaded,
    reports,
    roles_answered,
    settings,
    state,
    state_writes,
    step,
    topic,
    write_all,
)

from tidelog.controller.orders import SendRoleAgain
from tidelog.controller.partitions.isr_changes import IsrChangesRead
from tidelog.controller.topics.changes import TopicFound
from tidelog.controller.writes import Conflict
from tidelog.core.types import PartitionState, TopicPartition


@pytest.mark.rule("A12")
@pytest.mark.parametrize("name", [TopicPartition("gone", 0), TopicPartition("t", 9)])
@pytest.mark.parametrize("found", [state((1, 2), partition_epoch=99), "not JSON"])
def test_a_notification_of_a_partition_that_is_gone_or_new_says_nothing(
    name: TopicPartition, found: PartitionState | str
) -> None:
    controller = loaded()
    before = controller.image.key()
    writes, effects = step(controller, IsrChangesRead({name: found}))
    assert writes == [] and not effects.commands and reports(effects) == []
    assert controller.image.key() == before


@pytest.mark.rule("A12")
def test_what_stands_beside_a_partition_that_is_gone_still_counts() -> None:
    controller = loaded()
    left = state((1, 2), partition_epoch=11)
    step(controller, IsrChangesRead({TopicPartition("gone", 0): left, TP: left}))
    assert controller.image.states == {TP: left}


@pytest.mark.rule("A12", "D3")
def test_a_member_without_its_replica_gets_no_role_while_its_leader_keeps_it() -> None:
    controller = loaded()
    controller.offer(roles_answered(3))
    decision = controller.decide()
    controller.applied(decision, [Conflict(state=state(partition_epoch=11))])
    assert controller.image.absent(TP) == (3,)
    controller.offer(IsrChangesRead({TP: state((1, 3), partition_epoch=12)}))
    decision = controller.decide()
    assert not [order for order in decision.orders if isinstance(order, SendRoleAgain)]
    # The controller takes it out itself, and the role it gets is of that state.
    assert state_writes(decision.writes)[TP].isr == (1,)
    effects = controller.applied(decision, write_all(decision.writes))
    role = effects.commands[3].roles[TP].state
    assert (tuple(role.isr), role.partition_epoch) == ((1,), 13)


@pytest.mark.rule("A12", "V35")
def test_a_state_that_cannot_be_read_is_told_once_however_often_it_is_notified() -> None:
    controller = loaded()
    _, effects = step(controller, IsrChangesRead({TP: "not JSON"}))
    assert len(reports(effects)) == 1
    before = controller.image.key()
    writes, effects = step(controller, IsrChangesRead({TP: "not JSON either"}))
    assert writes == [] and not effects.commands and reports(effects) == []
    assert controller.image.key() == before


@pytest.mark.rule("A12", "V35")
def test_a_notification_repairs_no_partition_that_could_not_be_read() -> None:
    controller = loaded(TopicFound(topic(), {}, {0: "not JSON"}))
    step(controller, IsrChangesRead({TP: state((1, 2), partition_epoch=99)}))
    assert controller.image.states == {}
    assert controller.image.unreadable_states == {TP: "not JSON"}


@pytest.mark.rule("E1", "A12")
def test_eligible_replicas_that_are_not_assigned_are_reported_and_ignored() -> None:
    controller = loaded(of=replace(settings(), min_insync_replicas=2))
    found = state((1,), partition_epoch=11, elr={2: epoch(2), 9: epoch(9)})
    _, effects = step(controller, IsrChangesRead({TP: found}))
    taken = controller.image.states[TP]
    assert (taken.elr, taken.elr_epochs) == ((2,), (epoch(2),))
    (report,) = reports(effects)
    assert "[9]" in report and "[1, 2, 3]" in report
