"""Moves that one command plans: R17 (replication factor, brokers of a topic, emptying, balance)."""

from __future__ import annotations

from collections import Counter

import pytest

from tidelog.client.planning.cluster_state import ClusterState, PlacedPartition, PlanError
from tidelog.client.planning.emptying import decommissioned, drained
from tidelog.client.planning.moves import MovePlan, reassignment_document
from tidelog.client.planning.rebalancing import rebalanced
from tidelog.client.planning.replication_factor import with_replication_factor
from tidelog.client.planning.topic_placement import on_brokers
from tidelog.core.types import TopicPartition

MIB = 1024 * 1024
#: Two racks with two brokers each.
RACKS = {1: "a", 2: "a", 3: "b", 4: "b"}


def cluster(*replicas: tuple[int, ...], isr: tuple[int, ...] | None = None) -> ClusterState:
    """t-0, t-1 and so on of these replicas, each of 1 MiB and led by the first."""
    return ClusterState(
        RACKS,
        tuple(
            PlacedPartition(TopicPartition("t", number), each, each[0], isr or each, MIB)
            for number, each in enumerate(replicas)
        ),
    )


def placed(state: ClusterState, plan: MovePlan) -> list[tuple[int, ...]]:
    """The replicas of t-0, t-1 and so on when the plan is carried out."""
    return [plan.targets.get(each.tp, each.replicas) for each in state.partitions]


@pytest.mark.rule("R17")
def test_another_replication_factor() -> None:
    state = cluster((1, 3), (2, 4))
    more = with_replication_factor(state, "t", 4)
    assert [sorted(each) for each in placed(state, more)] == [[1, 2, 3, 4]] * 2
    assert more.moved_bytes == 4 * MIB
    assert placed(state, with_replication_factor(state, "t", 1)) == [(1,), (2,)]


@pytest.mark.rule("R17")
def test_fewer_replicas_keep_the_leader_and_then_those_in_sync() -> None:
    state = cluster((1, 3, 4), isr=(1, 4))
    assert placed(state, with_replication_factor(state, "t", 2)) == [(1, 4)]


@pytest.mark.rule("R17")
def test_new_replicas_spread_over_racks() -> None:
    state = cluster((1,), (3,))
    racks = [
        {RACKS[broker] for broker in each}
        for each in placed(state, with_replication_factor(state, "t", 2))
    ]
    assert racks == [{"a", "b"}] * 2


@pytest.mark.rule("R17")
def test_a_topic_on_given_brokers() -> None:
    state = cluster((1, 3), (2, 4))
    assert placed(state, on_brokers(state, "t", (1, 3, 4))) == [(1, 3), (4, 1)]


@pytest.mark.rule("R17")
def test_a_decommissioned_broker_has_nothing_left_and_no_copy_is_missing() -> None:
    state = cluster((1, 3), (2, 4), (4, 1))
    after = placed(state, decommissioned(state, {4}))
    assert not any(4 in each for each in after)
    assert [len(dict.fromkeys(each)) for each in after] == [2, 2, 2]


@pytest.mark.rule("R17")
def test_too_few_brokers_for_the_replicas_are_refused_with_the_topic() -> None:
    with pytest.raises(PlanError, match=r"too few for t \(3 replicas\)"):
        decommissioned(cluster((1, 2, 3)), {3, 4})


@pytest.mark.rule("R17")
def test_a_drained_broker_leads_nothing_and_keeps_what_has_no_other_place() -> None:
    state = cluster((1, 2, 3, 4), (1, 3))
    plan = drained(state, {1})
    assert placed(state, plan)[0] == (2, 3, 4, 1)
    assert 1 not in placed(state, plan)[1]
    assert plan.staying == (TopicPartition("t", 0),)


@pytest.mark.rule("R17")
def test_a_balance_moves_no_more_than_it_must() -> None:
    state = cluster((1, 3), (1, 3), (1, 3), (1, 3))
    plan = rebalanced(state)
    after = placed(state, plan)
    assert Counter(broker for each in after for broker in each) == {1: 2, 2: 2, 3: 2, 4: 2}
    assert Counter(each[0] for each in after) == {1: 1, 2: 1, 3: 1, 4: 1}
    assert plan.moved_bytes == 4 * MIB
    assert all(move.reason for move in plan.moves)
    balanced = cluster(*after)
    assert rebalanced(balanced).moves == ()


@pytest.mark.rule("R17")
def test_the_document_of_a_plan_executes_it_and_expects_what_it_was_made_for() -> None:
    state = cluster((1, 3))
    plan = on_brokers(state, "t", (3, 4))
    assert reassignment_document(plan.targets, plan.expected) == {
        "version": 1,
        "partitions": [
            {
                "topic": "t",
                "partition": 0,
                "replicas": [3, 4],
                "expected_replicas": [1, 3],
                "log_dirs": ["any", "any"],
            }
        ],
    }
