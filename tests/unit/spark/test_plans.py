"""Plans of clusters that need no broker: goals, moves with reasons, batches, bad input."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidelog.cli.reassignment_files import targets_of
from tidelog.client.planning.cluster_state import rack_cap
from tidelog.client.planning.moves import reassignment_document
from tidelog.core.types import TopicPartition
from tidelog.spark.pipelines.plan.cluster_model import (
    ClusterModel,
    GoalError,
    Goals,
    LiveBroker,
    PartitionLoad,
    broker_loads,
    check,
)
from tidelog.spark.pipelines.plan.moves import batches_of, plan_files
from tidelog.spark.pipelines.plan.placement import fair_shares, ordered
from tidelog.spark.pipelines.plan.planner import (
    PlanOptions,
    ReassignmentPlan,
    check_target,
    plan_for,
    write_plan,
)

MIB = 1 << 20
OPTIONS = PlanOptions("nowhere:1", time_limit_s=60.0)


def cluster(
    brokers: int,
    partitions: int,
    *,
    live: int | None = None,
    factor: int = 3,
    racks: int = 0,
    seed: int = 1,
) -> ClusterModel:
    """Partitions on the first `live` brokers, with sizes and rates of all kinds."""
    rng = random.Random(seed)
    places = range(1, (live or brokers) + 1)
    loads = []
    for number in range(partitions):
        replicas = tuple(rng.sample(places, factor))
        size = int(MIB * rng.lognormvariate(2, 1))
        tp = TopicPartition("t", number)
        loads.append(PartitionLoad(tp, replicas, replicas[0], size, size / 1000, 1))
    named = [
        LiveBroker(each, f"r{each % racks}" if racks else None) for each in range(1, brokers + 1)
    ]
    return ClusterModel(tuple(named), tuple(loads))


def after(made: ReassignmentPlan) -> dict[TopicPartition, tuple[int, ...]]:
    return dict(made.planned.placement)


def assert_valid(made: ReassignmentPlan) -> None:
    """Every partition keeps its number of replicas, on different brokers that may hold them."""
    targets = set(made.cluster.targets(made.goals))
    for load in made.cluster.partitions:
        replicas = after(made)[load.tp]
        wanted = made.goals.replication_factors.get(load.tp.topic, len(load.replicas))
        assert len(replicas) == len(set(replicas)) == wanted
        assert set(replicas) <= targets
    assert {move.tp for move in made.moves} == {
        load.tp for load in made.cluster.partitions if after(made)[load.tp] != load.replicas
    }
    assert made.planned.moved_bytes == sum(move.size_bytes for move in made.moves)
    assert sorted(m.tp for b in made.batches for m in b.moves) == sorted(m.tp for m in made.moves)


def test_a_drained_broker_is_empty_and_the_others_are_even() -> None:
    model = cluster(6, 30)
    made = plan_for(model, Goals(0.15, drain=frozenset({2})), OPTIONS)
    assert_valid(made)
    loads = broker_loads(model, made.planned.placement)
    assert loads[2].replicas == 0
    mean = sum(each.disk_bytes for each in loads.values()) / 5
    for broker in (1, 3, 4, 5, 6):
        assert loads[broker].disk_bytes == pytest.approx(mean, rel=0.25)
    reasons = Counter(copy.reason for move in made.moves for copy in move.copies)
    left = sum(2 in load.replicas for load in model.partitions)
    assert reasons["broker 2 is drained"] == left
    # Hardly more is copied than what was there.
    there = sum(load.size_bytes for load in model.partitions if 2 in load.replicas)
    assert there <= made.planned.moved_bytes <= 1.6 * there


def test_a_new_broker_is_filled() -> None:
    made = plan_for(cluster(5, 30, live=4), Goals(0.25), OPTIONS)
    assert_valid(made)
    loads = broker_loads(made.cluster, made.planned.placement)
    mean = sum(each.disk_bytes for each in loads.values()) / 5
    assert loads[5].disk_bytes >= 0.75 * mean
    assert any("of its share" in copy.reason for m in made.moves for copy in m.copies)


def test_racks_hold_one_replica_each() -> None:
    made = plan_for(cluster(6, 24, racks=3), Goals(0.4), OPTIONS)
    assert_valid(made)
    racks = made.cluster.racks(made.goals)
    assert racks is not None
    for replicas in after(made).values():
        assert len({racks[broker] for broker in replicas}) == 3
    assert any("replicas" in m.reason and "rack r" in m.reason for m in made.moves)


def test_leaders_are_even_without_a_copy() -> None:
    loads = [
        PartitionLoad(TopicPartition("t", number), (1, 2, 3), 1, MIB, 100.0) for number in range(12)
    ]
    model = ClusterModel(tuple(LiveBroker(each) for each in (1, 2, 3)), tuple(loads))
    made = plan_for(model, Goals(), OPTIONS)
    assert_valid(made)
    assert made.planned.moved_bytes == 0
    assert Counter(replicas[0] for replicas in after(made).values()) == {1: 4, 2: 4, 3: 4}
    assert len(made.moves) == 8  # no leader changes without need
    assert {move.reason for move in made.moves} == {"leaders of broker 1: 300% of its share"}


def test_a_balanced_cluster_stays_as_it_is() -> None:
    made = plan_for(cluster(4, 24), Goals(0.2), OPTIONS)
    settled = ClusterModel(
        made.cluster.brokers,
        tuple(
            replace(load, replicas=after(made)[load.tp], leader=after(made)[load.tp][0])
            for load in made.cluster.partitions
        ),
    )
    again = plan_for(settled, Goals(0.25), OPTIONS)
    assert again.planned.moved_bytes == 0
    assert again.report.holds


def test_more_and_fewer_replicas() -> None:
    model = cluster(5, 20, factor=2)
    more = plan_for(model, Goals(0.3, replication_factors={"t": 3}), OPTIONS)
    assert_valid(more)
    assert all(len(move.copies) >= 1 for move in more.moves)
    assert "3 replicas are wanted instead of 2" in more.moves[0].reason
    fewer = plan_for(model, Goals(0.5, replication_factors={"t": 1}), OPTIONS)
    assert_valid(fewer)
    assert all(len(move.removed) >= 1 for move in fewer.moves)


def test_a_full_disk_gets_nothing() -> None:
    model = cluster(4, 30, live=3)
    full = LiveBroker(4, None, None, 2 * MIB)
    small = ClusterModel((*model.brokers[:3], full), model.partitions)
    made = plan_for(small, Goals(0.2), OPTIONS)
    assert_valid(made)
    assert broker_loads(small, made.planned.placement)[4].disk_bytes <= 3 * MIB


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"drain": frozenset({3})},
            "partition t-0 is to have 3 replicas, but without broker 3 there are 2 (1, 2): add a"
            " broker, or plan fewer replicas with --replication-factor t=2",
        ),
        (
            {"drain": frozenset({9})},
            "broker 9 is to be drained, but the cluster has no such broker: it has 1, 2, 3",
        ),
        ({"drain": frozenset({1, 2, 3})}, "every broker is to be drained: leave at least one"),
        ({"replication_factors": {"t": 4}}, "is to have 4 replicas, but there are 3 (1, 2, 3)"),
        ({"replication_factors": {"t": 0}}, "'t' is to have 0 replicas: at least 1 expected"),
        ({"replication_factors": {"u": 2}}, "there is no such topic"),
    ],
)
def test_impossible_goals_say_what_would_be_right(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(GoalError) as info:
        check(cluster(3, 4), replace(Goals(), **change))
    assert sentence in str(info.value)


def test_impossible_clusters_say_what_would_be_right() -> None:
    model = cluster(4, 30)
    gone = ClusterModel(model.brokers[:3], model.partitions)
    with pytest.raises(GoalError, match=r"broker 4 is not alive and holds \d+ replicas: start it"):
        check(gone, Goals())
    check(gone, Goals(drain=frozenset({4})))
    half = ClusterModel((*model.brokers[:3], LiveBroker(4, "r1")), model.partitions)
    with pytest.raises(GoalError, match="brokers 1, 2, 3 have no rack, but others have one"):
        check(half, Goals())
    check(half, Goals(with_racks=False))
    with pytest.raises(GoalError, match="no partition to plan for"):
        check(ClusterModel(model.brokers, ()), Goals())


@pytest.mark.parametrize(
    ("replicas", "racks", "cap"),
    [
        (3, "abc", 1),
        (3, "aabb", 2),
        (2, "aab", 1),
        (4, "abbbbb", 3),
        (3, "aaa", 3),
    ],
)
def test_a_rack_takes_no_more_than_it_must(replicas: int, racks: str, cap: int) -> None:
    assert rack_cap(replicas, dict(enumerate(racks)), range(len(racks))) == cap


def test_shares_fill_up_to_the_room_of_a_group() -> None:
    groups = np.array([0, 1, 1, 1, 1])
    shares = fair_shares([1.0] * 5, groups, np.array([9.0, 30.0]), 30.0)
    assert shares.tolist() == [6.0] * 5
    # Group 1 can hold 20 only, so broker 0 takes more than its even part.
    shares = fair_shares([1.0] * 5, groups, np.array([30.0, 20.0]), 30.0)
    assert shares.tolist() == [10.0, 5.0, 5.0, 5.0, 5.0]


def test_the_order_of_replicas_changes_as_little_as_possible() -> None:
    assert ordered((1, 2, 3), (1, 2, 3), 2) == (2, 1, 3)
    assert ordered((1, 2, 3), (4, 3, 1), 1) == (1, 3, 4)
    assert ordered((1, 2, 3), (4, 5, 6), 5) == (5, 4, 6)


def test_batches_are_of_similar_length() -> None:
    made = plan_for(cluster(6, 60), Goals(0.3, drain=frozenset({1})), OPTIONS)
    bandwidth = 10.0 * MIB
    whole = batches_of(made.moves, bandwidth, 1e9)
    assert sum(bool(each.busiest) for each in whole) == 1
    one_s = whole[0].seconds(bandwidth)
    batches = [each for each in batches_of(made.moves, bandwidth, one_s / 5) if each.busiest]
    lengths = [each.seconds(bandwidth) for each in batches]
    longest = max(move.size_bytes for move in made.moves) / bandwidth
    limit = max(one_s / 5, longest) * 1.1
    assert all(each <= limit for each in lengths)
    assert min(lengths) >= 0.5 * max(lengths)
    # Changes of leaders copy nothing and come last.
    every = batches_of(made.moves, bandwidth, one_s / 5)
    assert [bool(each.busiest) for each in every] == sorted(
        (bool(each.busiest) for each in every), reverse=True
    )


def test_files_are_of_kafkas_form_and_lead_back() -> None:
    made = plan_for(cluster(4, 20, live=3), Goals(0.4), OPTIONS)
    files = plan_files(made.batches)
    moved: dict[TopicPartition, tuple[int, ...]] = {}
    for name, document in files.items():
        targets = targets_of(json.loads(json.dumps(document)), name)
        if name.startswith("batch-"):
            assert not set(moved) & set(targets)
            moved |= targets
    assert moved == {move.tp: move.after for move in made.moves}
    back = targets_of(files["rollback.json"], "rollback.json")
    assert back == {move.tp: move.before for move in made.moves}
    tp = TopicPartition("t", 0)
    assert reassignment_document({tp: (1, 2)}, {tp: (3, 2)})["partitions"] == [
        {
            "topic": "t",
            "partition": 0,
            "replicas": [1, 2],
            "expected_replicas": [3, 2],
            "log_dirs": ["any", "any"],
        }
    ]


def test_a_plan_is_written_to_a_new_directory_only(tmp_path: Path) -> None:
    made = plan_for(cluster(4, 20, live=3), Goals(0.4), OPTIONS)
    paths = write_plan(made, str(tmp_path / "out"))
    listed = json.loads((tmp_path / "out" / "moves.json").read_text())["moves"]
    assert len(listed) == len(made.moves)
    assert all(each["reason"] for each in listed)
    assert {each.name for each in paths} == {each.name for each in (tmp_path / "out").iterdir()}
    with pytest.raises(GoalError, match="is not empty: an older plan's batches"):
        write_plan(made, str(tmp_path / "out"))
    (tmp_path / "file").write_text("")
    with pytest.raises(GoalError, match="cannot be written to"):
        write_plan(made, str(tmp_path / "file"))


def test_a_target_is_checked_before_there_is_a_plan_and_nothing_is_written(tmp_path: Path) -> None:
    check_target(str(tmp_path / "new" / "moves"))
    check_target(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(GoalError, match="is not empty"):
        check_target(str(tmp_path))
    for path in (tmp_path / "file", tmp_path / "file" / "moves"):
        with pytest.raises(GoalError, match=f"the plan cannot be written to {path}: "):
            check_target(str(path))
