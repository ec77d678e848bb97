"""Rule A9: a leader learns of an ISR change that it did not ask for, or of which it never heard."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.replication import a_leader, fetch, send

from tidelog.broker.replicas.isr.foreign_isr_changes import GRACE_MS, ForeignIsrChanges
from tidelog.core.types import TopicPartition
from tidelog.replication.leader import LeaderReplica
from tidelog.wire.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

FLIGHTS = TopicPartition("flights", 0)


class Leading:
    """Broker 1, which leads one partition; its timers and what it asks the controller."""

    def __init__(self, core: LeaderReplica | None) -> None:
        self.asked: list[str] = []
        self.timers: list[tuple[int, Callable[[], None]]] = []
        self.core = core
        services: Any = SimpleNamespace(
            broker_id=1,
            timers=SimpleNamespace(after=lambda ms, due: self.timers.append((ms, due))),
            tracer=SimpleNamespace(mark=lambda name: None),
        )
        role = SimpleNamespace(core=core)
        replicas: Any = SimpleNamespace(
            get=lambda name: SimpleNamespace(role=role) if name == FLIGHTS else None
        )
        requests: Any = SimpleNamespace(ask=self.asked.append)
        self.changes = ForeignIsrChanges(services, replicas, requests)

    def published(self, partition_epoch: int, *, leader: int = 1, leader_epoch: int = 5) -> None:
        """The controller's metadata of the partition."""
        partition = UpdateMetadataPartitionState(
            0, 7, leader, leader_epoch, (1,), partition_epoch, (1, 2, 3), ()
        )
        topic = UpdateMetadataTopicState("flights", bytes(16), [partition])
        self.changes.published(UpdateMetadataRequest(topic_states=[topic]))

    def a_second_passes(self) -> None:
        due, self.timers = self.timers, []
        for ms, call in due:
            assert ms == GRACE_MS
            call()


def leading() -> tuple[Leading, LeaderReplica]:
    core = a_leader(isr=(1, 2), log_end_offset=10)
    return Leading(core), core


@pytest.mark.rule("A9")
def test_a_leader_that_stays_behind_the_published_isr_asks_for_its_role() -> None:
    broker, core = leading()
    broker.published(core.isr.partition_epoch + 1, leader_epoch=core.leader_epoch)
    assert broker.asked == []
    broker.a_second_passes()
    [why] = broker.asked
    assert "leads flights-0 by an older ISR" in why
    broker.a_second_passes()
    assert len(broker.asked) == 1


@pytest.mark.rule("A9")
def test_a_leader_that_has_the_published_isr_asks_nothing() -> None:
    broker, core = leading()
    broker.published(core.isr.partition_epoch, leader_epoch=core.leader_epoch)
    broker.a_second_passes()
    assert broker.asked == []


@pytest.mark.rule("A9")
def test_a_leader_that_learns_by_its_response_or_a_command_meanwhile_asks_nothing() -> None:
    broker, core = leading()
    broker.published(core.isr.partition_epoch + 1, leader_epoch=core.leader_epoch)
    core.isr = core.isr.__class__(core.isr.committed, core.isr.partition_epoch + 1)
    broker.a_second_passes()
    assert broker.asked == []


@pytest.mark.rule("A9")
def test_a_leader_with_a_change_under_way_learns_by_its_outcome() -> None:
    broker, core = leading()
    fetch(core, 2, 10)
    send(core, fetch(core, 3, 10))
    broker.published(core.isr.partition_epoch + 1, leader_epoch=core.leader_epoch)
    broker.a_second_passes()
    assert broker.asked == []


@pytest.mark.rule("A9")
def test_a_leader_whose_outcome_is_older_than_the_published_isr_asks_for_its_role() -> None:
    """Another peer's change was published while the response to the leader's own was on its way."""
    broker, core = leading()
    fetch(core, 2, 10)
    send(core, fetch(core, 3, 10))
    before = core.isr.partition_epoch
    broker.published(before + 2, leader_epoch=core.leader_epoch)
    broker.a_second_passes()
    assert broker.asked == []
    core.isr = core.isr.__class__((1, 2, 3), before + 1)
    broker.a_second_passes()
    assert len(broker.asked) == 1
    broker.a_second_passes()
    assert broker.timers == [] and len(broker.asked) == 1


@pytest.mark.rule("A9")
@pytest.mark.parametrize("later", [{"leader": 2}, {"leader_epoch": 99}])
def test_another_leader_or_leader_epoch_comes_by_a_command(later: dict[str, int]) -> None:
    broker, core = leading()
    broker.published(core.isr.partition_epoch + 1, **{"leader_epoch": core.leader_epoch, **later})
    broker.a_second_passes()
    assert broker.asked == []


@pytest.mark.rule("A9")
def test_a_broker_that_does_not_lead_any_more_asks_nothing() -> None:
    broker = Leading(None)
    broker.published(9)
    broker.a_second_passes()
    assert broker.asked == []
