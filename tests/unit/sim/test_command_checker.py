"""What the checker of commands says of brokers made by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from tests.support.sim import checked
from tests.unit.sim.test_sim_checkers import NAME, TOPIC_ID, Setup

from tidelog.core.types import TopicId, TopicPartition, topic_id_to_text
from tidelog.metadata.store import ANY_VERSION, Create, Delete, SetData
from tidelog.sim.checkers.command_checker import CommandChecker


class Holder:
    """A broker that holds what it is made to hold."""

    def __init__(self, broker_epoch: int) -> None:
        self.broker_epoch = broker_epoch
        self.is_up = True
        self.incarnation = 1
        self.held: list[tuple[TopicPartition, TopicId]] = [(NAME, TOPIC_ID)]

    def hosted(self) -> Iterable[tuple[TopicPartition, TopicId]]:
        return iter(self.held)


class CheckerHarness:
    """Three brokers that hold the partition, and were told of each other."""

    def __init__(self) -> None:
        self.setup = Setup()
        self.violations = self.setup.violations
        self.brokers: dict[int, Any] = {one: Holder(10 + one) for one in (1, 2, 3)}
        run = checked(self.violations, published=self.setup.published, brokers=self.brokers)
        self.checker = CommandChecker(run)
        # As the store numbers registrations: before the transactions that follow.
        for one, epoch in self.setup.published.brokers.items():
            self.brokers[one].broker_epoch = epoch
            self.checker.metadata_applied(one, (1, 2, 3))

    def delete_topic(self) -> None:
        self.setup.commit(Delete("/brokers/topics/t", ANY_VERSION))

    def ask_for_deletion(self) -> None:
        self.setup.commit(Create("/admin/delete_topics/t", b""))


@pytest.fixture
def harness() -> CheckerHarness:
    return CheckerHarness()


@pytest.mark.rule("V17")
def test_a_leader_is_told_of_before_somebody_follows_it(harness: CheckerHarness) -> None:
    harness.checker.role_taken(2, "t-0", 1)
    harness.checker.role_taken(2, "t-0", -1)
    assert harness.violations == []
    harness.checker.role_taken(2, "t-0", 4)
    assert harness.violations == [
        "t-0: node 2 takes a role under leader 4, and never got that broker in UpdateMetadata (V17)"
    ]


@pytest.mark.rule("V17")
def test_a_new_life_has_been_told_nothing(harness: CheckerHarness) -> None:
    harness.brokers[2].incarnation = 2
    harness.checker.role_taken(2, "t-0", 1)
    assert len(harness.violations) == 1
    harness.checker.metadata_applied(2, (1,))
    harness.checker.role_taken(2, "t-0", 1)
    assert len(harness.violations) == 1


@pytest.mark.rule("V22")
def test_a_topics_nodes_go_when_everybody_alive_has_given_it_up(harness: CheckerHarness) -> None:
    harness.ask_for_deletion()
    for one in (1, 2):
        harness.brokers[one].held.clear()
    harness.delete_topic()
    assert harness.violations == [
        "t-0: the topic's nodes were removed before broker 3 had deleted its replica (V22)"
    ]


@pytest.mark.rule("V22")
def test_nobody_waits_for_who_is_down_or_came_later(harness: CheckerHarness) -> None:
    harness.ask_for_deletion()
    harness.brokers[1].held.clear()
    harness.brokers[2].is_up = False
    harness.setup.commit(Delete("/brokers/ids/3", ANY_VERSION))
    harness.setup.commit(Create("/brokers/ids/3", b"{}", ephemeral=True))
    harness.brokers[3].broker_epoch = harness.setup.published.brokers[3]
    harness.delete_topic()
    assert harness.violations == []


@pytest.mark.rule("V22")
def test_nobody_waits_for_who_was_not_told_anything_yet(harness: CheckerHarness) -> None:
    harness.setup.commit(Delete("/brokers/ids/3", ANY_VERSION))
    harness.setup.commit(Create("/brokers/ids/3", b"{}", ephemeral=True))
    harness.brokers[3].broker_epoch = harness.setup.published.brokers[3]
    harness.ask_for_deletion()
    harness.checker.metadata_applied(3, (1, 2, 3))
    for one in (1, 2):
        harness.brokers[one].held.clear()
    harness.delete_topic()
    assert harness.violations == []


@pytest.mark.rule("V45")
def test_what_is_held_and_not_assigned_is_named(harness: CheckerHarness) -> None:
    assert harness.checker.unassigned() == ""
    topic = {"version": 3, "topic_id": topic_id_to_text(TOPIC_ID), "partitions": {"0": [1, 2]}}
    moving = topic | {"partitions": {"0": [1, 2, 3]}, "removing_replicas": {"0": [3]}}
    harness.brokers[3].held.clear()
    for written in (moving, topic):
        data = json.dumps(written).encode()
        harness.setup.commit(SetData("/brokers/topics/t", data, ANY_VERSION))
    harness.brokers[3].held.append((NAME, TOPIC_ID))
    assert harness.checker.unassigned() == "broker 3 holds t-0, which is not assigned to it"
    harness.brokers[3].held[:] = [(NAME, bytes(16))]
    assert harness.checker.unassigned() == "broker 3 holds t-0, which is not assigned to it"
