"""Plans of reassignments: properties that hold for every cluster, and cases worked out by hand."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.planning.cluster_state import (
    ClusterState,
    PlacedPartition,
    PlanError,
    rack_cap,
    without_racks,
)
from tidelog.client.planning.emptying import decommissioned, drained
from tidelog.client.planning.moves import MovePlan, reassignment_document
from tidelog.client.planning.rebalancing import rebalanced
from tidelog.client.planning.replication_factor import with_replication_factor
from tidelog.client.planning.size_index import SizeIndex
from tidelog.client.planning.topic_placement import on_brokers
from tidelog.core.types import TopicPartition

MIB = 1024 * 1024
GIB = 1024 * MIB


def partition(
    name: str, *replicas: int, size: int = MIB, leader: int | None = None, **more: object
) -> PlacedPartition:
    """`t-0` of these replicas, all in sync and led by the first, unless named otherwise."""
    topic, _, number = name.rpartition("-")
    isr = more.pop("isr", replicas)
    is_moving = bool(more.pop("is_moving", False))
    losing = more.pop("losing", ())
    assert isinstance(isr, tuple) and isinstance(losing, tuple) and not more
    return PlacedPartition(
        TopicPartition(topic, int(number)),
        replicas,
        replicas[0] if leader is None else leader,
        isr,
        size,
        is_moving,
        losing,
    )


def cluster(*partitions: PlacedPartition, racks: str = "", brokers: int = 4) -> ClusterState:
    """Brokers from 1 on; a letter of `racks` for each of them."""
    ids = range(1, (len(racks) or brokers) + 1)
    return ClusterState({each: racks[each - 1] if racks else None for each in ids}, partitions)


def after(state: ClusterState, plan: MovePlan) -> ClusterState:
    """The cluster when the plan is carried out and preferred replicas lead."""
    targets = plan.targets
    moved = tuple(
        PlacedPartition(
            each.tp, replicas := targets.get(each.tp, each.replicas), replicas[0], replicas,
            each.size_bytes,
        )
        for each in state.partitions
    )  # fmt: skip
    return ClusterState(state.racks, moved, state.free_bytes)


def crowding(state: ClusterState, replicas: tuple[int, ...]) -> int:
    """How many replicas the fullest rack has, more than it must."""
    names = state.rack_names()
    fullest = max(Counter(names[each] for each in replicas).values())
    return max(0, fullest - rack_cap(len(replicas), names, names))


def spread(values: Counter[int], state: ClusterState) -> int:
    found = [values[each] for each in state.live]
    return max(found) - min(found)


def led(state: ClusterState) -> Counter[int]:
    return Counter(each.replicas[0] for each in state.partitions)


def held(state: ClusterState) -> Counter[int]:
    return Counter(broker for each in state.partitions for broker in each.replicas)


def check_sound(state: ClusterState, plan: MovePlan) -> None:
    """What holds for every plan: it changes what it names, to live brokers, each named once."""
    known = {each.tp: each for each in state.partitions}
    for move in plan.moves:
        assert move.before == known[move.tp].replicas != move.after
        assert len(dict.fromkeys(move.after)) == len(move.after)
        assert all(broker in state.racks for broker in move.after)
        assert not known[move.tp].is_moving
        assert move.reason
        assert move.moved_bytes == move.size_bytes * len(set(move.after) - set(move.before))
    assert [move.tp for move in plan.moves] == sorted(plan.targets)


@st.composite
def clusters(draw: st.DrawFn, least_brokers: int = 1) -> ClusterState:
    count = draw(st.integers(least_brokers, 7))
    letters = draw(st.one_of(st.none(), st.text("abc", min_size=count, max_size=count)))
    ids = list(range(1, count + 1))
    racks = {each: None if letters is None else letters[each - 1] for each in ids}
    made = []
    for topic in "tu":
        factor = draw(st.integers(1, min(3, count)))
        for number in range(draw(st.integers(1, 7))):
            replicas = tuple(draw(st.permutations(ids))[:factor])
            in_sync = draw(st.integers(1, factor))
            isr = tuple(draw(st.permutations(replicas))[:in_sync])
            size = draw(st.sampled_from([0, 5, MIB, 7 * MIB, 64 * MIB, GIB]))
            made.append(PlacedPartition(TopicPartition(topic, number), replicas, isr[0], isr, size))
    return ClusterState(racks, tuple(made))


class TestReplicationFactor:
    @given(clusters(), st.data())
    def test_every_partition_gets_that_many(self, state: ClusterState, data: st.DataObject) -> None:
        factor = data.draw(st.integers(1, len(state.racks)))
        plan = with_replication_factor(state, "t", factor)
        check_sound(state, plan)
        for each in state.of_topic("t"):
            replicas = plan.targets.get(each.tp, each.replicas)
            assert len(replicas) == factor
            if factor <= len(each.replicas):
                assert set(replicas) <= set(each.replicas)
                assert each.leader in replicas
            else:
                assert replicas[: len(each.replicas)] == each.replicas
        assert all(tp.topic == "t" for tp in plan.targets)
        assert with_replication_factor(after(state, plan), "t", factor).moves == ()

    @given(clusters(), st.data())
    def test_new_replicas_crowd_no_rack(self, state: ClusterState, data: st.DataObject) -> None:
        factor = data.draw(st.integers(1, len(state.racks)))
        for move in with_replication_factor(state, "t", factor).moves:
            if move.added and not crowding(state, move.before):
                assert crowding(state, move.after) == 0

    def test_new_replicas_go_to_the_emptiest_broker_of_another_rack(self) -> None:
        state = cluster(partition("t-0", 1), partition("u-0", 3), partition("u-1", 3), racks="aabb")
        plan = with_replication_factor(state, "t", 2)
        assert plan.targets == {TopicPartition("t", 0): (1, 4)}
        assert plan.moves[0].reason == "2 replicas are wanted instead of 1"
        assert plan.moved_bytes == MIB

    def test_the_leader_and_replicas_in_sync_stay_first(self) -> None:
        lagging = partition("t-0", 1, 2, 3, leader=2, isr=(2, 3))
        assert with_replication_factor(cluster(lagging), "t", 2).targets == {lagging.tp: (2, 3)}
        assert with_replication_factor(cluster(lagging), "t", 1).targets == {lagging.tp: (2,)}

    def test_the_replica_of_the_fuller_rack_goes(self) -> None:
        state = cluster(partition("t-0", 1, 2, 3), racks="aab")
        assert with_replication_factor(state, "t", 2).targets == {TopicPartition("t", 0): (1, 3)}

    def test_replicas_on_dead_brokers_go_first_and_may_not_stay(self) -> None:
        state = cluster(partition("t-0", 1, 9, 2))
        assert with_replication_factor(state, "t", 2).targets == {TopicPartition("t", 0): (1, 2)}
        with pytest.raises(PlanError, match="broker 9 is not alive and holds a replica of t-0"):
            with_replication_factor(state, "t", 4)

    def test_factors_that_cannot_be(self) -> None:
        state = cluster(partition("t-0", 1))
        with pytest.raises(PlanError, match="0 replicas: at least 1"):
            with_replication_factor(state, "t", 0)
        with pytest.raises(PlanError, match=r"5 replicas, and 4 brokers are alive \(1, 2, 3, 4\)"):
            with_replication_factor(state, "t", 5)
        with pytest.raises(PlanError, match="there is no topic 'x'"):
            with_replication_factor(state, "x", 2)


class TestTopicOnBrokers:
    @given(clusters(), st.data())
    def test_replicas_are_on_the_named_brokers_only(
        self, state: ClusterState, data: st.DataObject
    ) -> None:
        most = max(len(each.replicas) for each in state.of_topic("t"))
        named = data.draw(st.permutations(state.live))
        brokers = tuple(named[: data.draw(st.integers(most, len(named)))])
        plan = on_brokers(state, "t", brokers)
        check_sound(state, plan)
        for each in state.of_topic("t"):
            replicas = plan.targets.get(each.tp, each.replicas)
            assert len(replicas) == len(each.replicas)
            assert set(replicas) <= set(brokers)
            assert set(each.replicas) & set(brokers) <= set(replicas)
            if each.replicas[0] in brokers:
                assert replicas[0] == each.replicas[0]
        assert on_brokers(after(state, plan), "t", brokers).moves == ()

    def test_a_replica_in_sync_is_to_lead(self) -> None:
        state = cluster(partition("t-0", 1, 2, 3, isr=(1, 3)))
        plan = on_brokers(state, "t", (2, 3, 4))
        assert plan.targets == {TopicPartition("t", 0): (3, 2, 4)}
        assert plan.moves[0].reason == "broker 1 is not among those named"
        assert not plan.moves[0].needs_election

    @pytest.mark.parametrize(
        ("brokers", "reason"),
        [
            ((), "no broker: name at least one"),
            ((1, 1), "broker 1 is named twice"),
            ((1, 9), "no live broker 9; live are 1, 2, 3, 4"),
            ((1,), "2 replicas of a partition, and 1 broker is named: name at least 2"),
        ],
    )
    def test_brokers_that_cannot_be(self, brokers: tuple[int, ...], reason: str) -> None:
        with pytest.raises(PlanError, match=reason):
            on_brokers(cluster(partition("t-0", 1, 2)), "t", brokers)


class TestDecommissioned:
    @given(clusters(least_brokers=2), st.data())
    def test_nothing_is_left_and_no_copy_is_missing(
        self, state: ClusterState, data: st.DataObject
    ) -> None:
        leaving = data.draw(st.sets(st.sampled_from(state.live), min_size=1, max_size=2))
        stay = len(state.live) - len(leaving)
        try:
            plan = decommissioned(state, leaving)
        except PlanError:
            there = [each for each in state.partitions if leaving & set(each.replicas)]
            assert stay == 0 or any(len(each.replicas) > stay for each in there)
            return
        check_sound(state, plan)
        for each in state.partitions:
            replicas = plan.targets.get(each.tp, each.replicas)
            assert not leaving & set(replicas)
            assert len(replicas) == len(each.replicas)
            assert set(each.replicas) - leaving <= set(replicas)
            if each.replicas[0] not in leaving:
                assert replicas[0] == each.replicas[0]
            elif set(each.isr) & set(replicas):
                assert replicas[0] in each.isr
        assert decommissioned(after(state, plan), leaving).moves == ()

    def test_a_dead_broker_may_be_decommissioned(self) -> None:
        state = cluster(partition("t-0", 9, 1, isr=(1,), leader=1))
        assert decommissioned(state, {9}).targets == {TopicPartition("t", 0): (1, 2)}

    def test_another_dead_broker_is_named(self) -> None:
        with pytest.raises(PlanError, match="broker 9 is not alive and holds a replica of t-0"):
            decommissioned(cluster(partition("t-0", 1, 9, 2)), {1})

    def test_too_few_brokers_are_refused_with_the_topics(self) -> None:
        state = cluster(partition("t-0", 1, 2, 3), partition("u-0", 3), brokers=3)
        with pytest.raises(PlanError) as refused:
            decommissioned(state, {3})
        assert str(refused.value) == (
            "without broker 3 there are only brokers 1, 2, too few for t (3 replicas): add brokers,"
            " or lower the number first (tidelog topics alter TOPIC --replication-factor 2)"
        )

    def test_brokers_that_cannot_be(self) -> None:
        state = cluster(partition("t-0", 1), brokers=2)
        with pytest.raises(PlanError, match="there is no broker 7: it is not alive, .* are 1, 2"):
            decommissioned(state, {7})
        with pytest.raises(PlanError, match="no live broker would remain"):
            decommissioned(state, {1, 2})

    def test_a_broker_without_room_gets_nothing_if_another_has_room(self) -> None:
        state = cluster(partition("t-0", 1, size=10), brokers=3)
        state = ClusterState(state.racks, state.partitions, {2: 9, 3: 10})
        assert decommissioned(state, {1}).targets == {TopicPartition("t", 0): (3,)}
        state = ClusterState(state.racks, state.partitions, {2: 9, 3: 9})
        with pytest.raises(PlanError, match="broker 2 has 9 bytes free and would receive 10"):
            decommissioned(state, {1})

    def test_a_partition_on_the_move_is_not_moved_again(self) -> None:
        state = cluster(partition("t-0", 1, 2, is_moving=True))
        assert decommissioned(state, {3}).moves == ()
        with pytest.raises(PlanError, match="t-0 is on the move to 1,2: wait for it"):
            decommissioned(state, {1})

    def test_a_dead_broker_that_loses_its_last_replica_by_a_move_is_known(self) -> None:
        state = cluster(partition("t-0", 1, 2, is_moving=True, losing=(9,)))
        assert decommissioned(state, {9}).moves == ()


class TestDrained:
    @given(clusters(least_brokers=2), st.data(), st.booleans())
    def test_leaderships_go_and_replicas_as_far_as_there_is_place(
        self, state: ClusterState, data: st.DataObject, leaders_only: bool
    ) -> None:
        leaving = data.draw(
            st.sets(st.sampled_from(state.live), min_size=1, max_size=len(state.live) - 1)
        )
        stay = set(state.live) - leaving
        plan = drained(state, leaving, leaders_only)
        check_sound(state, plan)
        for each in state.partitions:
            replicas = plan.targets.get(each.tp, each.replicas)
            assert len(replicas) == len(each.replicas)
            kept = leaving & set(replicas)
            if leaders_only:
                assert sorted(replicas) == sorted(each.replicas)
            else:
                assert len(kept) == max(0, len(replicas) - len(stay)) if kept else True
            assert (replicas[0] in leaving) == (not stay & set(replicas))
            assert bool(kept) == (each.tp in plan.staying)
        if leaders_only:
            assert plan.moved_bytes == 0

    def test_a_replica_without_place_stays_as_a_follower(self) -> None:
        plan = drained(cluster(partition("t-0", 1, 2), brokers=2), {1})
        assert plan.targets == {TopicPartition("t", 0): (2, 1)}
        assert plan.staying == (TopicPartition("t", 0),)
        assert plan.moves[0].needs_election

    def test_a_replica_in_sync_leads_where_the_preferred_one_catches_up(self) -> None:
        state = cluster(partition("t-0", 2, 1, 3, leader=1, isr=(1, 3)), brokers=3)
        plan = drained(state, {1}, leaders_only=True)
        assert plan.targets == {TopicPartition("t", 0): (3, 2, 1)}
        assert plan.moves[0].needs_election
        # None of the others is in sync: their order stays.
        state = cluster(partition("t-0", 2, 3, 1, leader=1, isr=(1,)), brokers=3)
        assert drained(state, {1}, leaders_only=True).moves == ()

    def test_a_partition_with_a_replica_on_a_dead_broker_stays_and_others_go(self) -> None:
        state = cluster(partition("t-0", 1, 9), partition("u-0", 1, 2), brokers=3)
        plan = drained(state, {1})
        assert plan.targets == {TopicPartition("u", 0): (2, 3)}
        assert plan.blocked == (TopicPartition("t", 0),)

    def test_a_dead_broker_is_not_drained(self) -> None:
        with pytest.raises(PlanError, match="there is no live broker 9 to drain"):
            drained(cluster(partition("t-0", 1, 9)), {9})


class TestRebalanced:
    @given(clusters())
    def test_the_balance_is_there_and_stays(self, state: ClusterState) -> None:
        plan = rebalanced(state)
        check_sound(state, plan)
        balanced = after(state, plan)
        for old, new in zip(state.partitions, balanced.partitions, strict=True):
            assert len(old.replicas) == len(new.replicas)
            assert crowding(balanced, new.replicas) == 0
        assert rebalanced(balanced).moves == ()
        if all(rack is None for rack in state.racks.values()):
            assert spread(held(balanced), balanced) <= 1
        if all(len(each.replicas) == len(state.racks) for each in state.partitions):
            assert spread(led(balanced), balanced) <= 1

    @given(clusters())
    def test_the_same_state_gives_the_same_plan(self, state: ClusterState) -> None:
        assert rebalanced(state) == rebalanced(state)

    def test_a_new_broker_gets_its_share_and_no_more_is_moved(self) -> None:
        placed = [partition(f"t-{n}", n % 3 + 1, (n + 1) % 3 + 1) for n in range(12)]
        state = cluster(*placed, brokers=4)
        plan = rebalanced(state)
        assert sum(len(move.added) for move in plan.moves) == 6
        assert plan.moved_bytes == 6 * MIB
        balanced = after(state, plan)
        assert [held(balanced)[each] for each in (1, 2, 3, 4)] == [6, 6, 6, 6]
        assert [led(balanced)[each] for each in (1, 2, 3, 4)] == [3, 3, 3, 3]
        assert any(
            move.reason.startswith("broker 3 has 8 replicas, broker 4 0") for move in plan.moves
        )

    def test_leaders_cost_no_bytes(self) -> None:
        state = cluster(*(partition(f"t-{n}", 1, 2, 3) for n in range(6)), brokers=3)
        plan = rebalanced(state)
        assert plan.moved_bytes == 0
        assert spread(led(after(state, plan)), state) == 0
        assert len(plan.moves) == 4
        assert plan.moves[0].reason == "broker 1 leads 6 partitions, broker 2 0"

    def test_leaderships_pass_along_a_chain(self) -> None:
        state = cluster(
            partition("t-0", 1, 2),
            partition("t-1", 1, 2),
            partition("t-2", 2, 3),
            partition("u-0", 1, 3, is_moving=True),
            brokers=3,
        )
        plan = rebalanced(state)
        assert plan.moved_bytes == 0
        assert plan.targets == {TopicPartition("t", 0): (2, 1), TopicPartition("t", 2): (3, 2)}
        assert [led(after(state, plan))[each] for each in (1, 2, 3)] == [2, 1, 1]

    def test_bytes_are_exchanged_beyond_the_tolerance_only(self) -> None:
        state = cluster(
            partition("t-0", 1, size=GIB),
            partition("t-1", 1, size=GIB),
            partition("u-0", 2, size=MIB),
            partition("u-1", 2, size=2 * MIB),
            brokers=2,
        )
        plan = rebalanced(state)
        assert sorted(plan.targets.values()) == [(1,), (2,)]
        assert plan.moved_bytes == GIB + MIB
        assert rebalanced(state, tolerance=1.0).moves == ()
        assert plan.moves[0].reason.startswith("broker 1 has 2,147,483,648 bytes, broker 2 3,")

    def test_a_crowded_rack_gives_a_replica(self) -> None:
        state = cluster(partition("t-0", 1, 2), racks="aab")
        plan = rebalanced(state)
        assert plan.targets == {TopicPartition("t", 0): (1, 3)}
        assert plan.moves[0].reason == "rack a has 2 of 2 replicas"
        assert rebalanced(without_racks(state)).moves == ()

    def test_moving_partitions_count_and_stay(self) -> None:
        moving = [partition(f"t-{n}", 1, is_moving=True) for n in range(4)]
        state = cluster(*moving, partition("u-0", 1), brokers=2)
        assert rebalanced(state).targets == {TopicPartition("u", 0): (2,)}

    def test_dead_brokers_are_named(self) -> None:
        with pytest.raises(PlanError, match="broker 9 is not alive and holds a replica of t-0"):
            rebalanced(cluster(partition("t-0", 1, 9)))

    def test_racks_of_some_brokers_only_are_refused(self) -> None:
        state = ClusterState({1: "a", 2: None}, (partition("t-0", 1),))
        with pytest.raises(PlanError, match=r"no rack is known of broker 2.*--no-racks"):
            rebalanced(state)


@given(st.lists(st.integers(0, 50), max_size=30), st.integers(0, 60))
def test_replicas_next_to_a_size_come_first(sizes: list[int], wanted: int) -> None:
    index = SizeIndex()
    for number, size in enumerate(sizes):
        index.add(1, size, TopicPartition("t", number))
    found = [sizes[tp.partition] for tp in index.nearest(1, wanted)]
    assert sorted(found) == sorted(sizes)
    assert [abs(each - wanted) for each in found] == sorted(abs(each - wanted) for each in sizes)
    for number, size in enumerate(sizes):
        index.remove(1, size, TopicPartition("t", number))
    assert list(index.nearest(1, wanted)) == []


def test_a_document_says_for_which_replicas_it_was_made_and_why() -> None:
    tp = TopicPartition("t", 0)
    assert reassignment_document({tp: (1, 2)}, {tp: (3, 2)}, {tp: "because"})["partitions"] == [
        {
            "topic": "t",
            "partition": 0,
            "replicas": [1, 2],
            "expected_replicas": [3, 2],
            "log_dirs": ["any", "any"],
            "reason": "because",
        }
    ]
