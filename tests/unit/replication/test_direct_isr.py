"""What a leader decides that writes an ISR change into the state node itself (A12)."""

from __future__ import annotations

import pytest
from tests.support.controller.values import brokers, epoch, state

from tidelog.core.errors import ErrorCode
from tidelog.core.types import PartitionState
from tidelog.replication.direct_isr import Verdict, judge
from tidelog.replication.isr import IsrChange


def wants(*isr: int, partition_epoch: int = 10) -> IsrChange:
    """Broker 1 wants this ISR, all members in their first lives."""
    return IsrChange(isr, tuple(epoch(member) for member in isr), 5, partition_epoch)


def verdict(
    change: IsrChange, found: PartitionState | None, replicas: tuple[int, ...] = (1, 2, 3)
) -> Verdict:
    """The decision of broker 1 on a partition whose brokers are all alive."""
    registered = {one.broker_id: one.broker_epoch for one in brokers(1, 2, 3, 4).values()}
    return judge(change, found, 1, replicas, 1, registered)


@pytest.mark.rule("A12")
def test_a_change_that_builds_on_the_nodes_state_is_to_be_written() -> None:
    made = verdict(wants(1, 2, 3), state((1, 2)))
    assert made.is_new and made.state is not None
    assert (made.state.isr, made.state.partition_epoch) == ((1, 2, 3), 11)
    assert made.state.isr_epochs == (epoch(1), epoch(2), epoch(3))


@pytest.mark.rule("A12")
def test_without_a_node_there_is_no_partition_to_change() -> None:
    assert verdict(wants(1, 2), None) == Verdict(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@pytest.mark.rule("A12", "V23")
def test_a_node_older_than_what_the_leader_knows_is_of_another_topic() -> None:
    older = state((1, 2), partition_epoch=9)
    assert verdict(wants(1, 2, 3), older) == Verdict(ErrorCode.UNKNOWN_TOPIC_ID)
    assert verdict(wants(1, 2), older) == Verdict(ErrorCode.UNKNOWN_TOPIC_ID), "even where it holds"


@pytest.mark.rule("A12", "A8")
def test_a_newer_node_settles_the_change_as_it_is() -> None:
    newer = state((1, 2), partition_epoch=11)
    assert verdict(wants(1, 2, 3), newer) == Verdict(state=newer)


@pytest.mark.rule("A12")
def test_a_member_that_is_not_assigned_is_refused_although_its_broker_lives() -> None:
    assert verdict(wants(1, 2, 4), state((1, 2))) == Verdict(ErrorCode.INVALID_REQUEST)
    assert verdict(wants(1, 2, 4), state((1, 2)), replicas=(1, 2, 4)).is_new


@pytest.mark.rule("A12")
@pytest.mark.parametrize("found", [state((1, 2), leader=2), state((1, 2), leader_epoch=6)])
def test_in_another_leadership_the_change_is_left_to_the_controllers_command(
    found: PartitionState,
) -> None:
    assert verdict(wants(1, 2, 3), found) == Verdict(ErrorCode.FENCED_LEADER_EPOCH)
