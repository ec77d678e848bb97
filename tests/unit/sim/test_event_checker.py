"""What the checker of `__cluster_events` sees in events that are wrong."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.controller.values import (
    TP,
    broker,
    brokers,
    state,
    topic_id,
)
from tests.support.sim import checked

from tidelog.controller import cluster_events
from tidelog.controller.cluster_events import ClusterEvent, StateChange
from tidelog.core.leader_wait import LeaderWait, MemberStatus
from tidelog.core.shrink_causes import ShrinkCause
from tidelog.sim.checkers import event_checker as checkers
from tidelog.sim.checkers.event_checker import EventChecker
from tidelog.sim.loop import NS_PER_S
from tidelog.sim.observed.moves import PublishedMove
from tidelog.sim.observed.published_state import PublishedPartition, PublishedTopic
from tidelog.sim.observed.replica_logs import LogKey

KEY = LogKey(topic_id("t"), 0)
BEFORE = state((1, 2, 3))
AFTER = state((2, 3), leader=2, leader_epoch=6, partition_epoch=11)


def published(one: Any) -> PublishedPartition:
    return PublishedPartition(
        KEY, one.leader, one.leader_epoch, one.partition_epoch, one.isr, one.isr_epochs
    )


class Run:
    """A run in which one leader changed, and broker 1 was registered."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.violations: list[str] = []
        self.now_ns = 0
        self.truth = cast(
            Any,
            SimpleNamespace(on_state=[], on_broker=[], on_moves=[], controller_epoch=7, topics={}),
        )
        run = checked(self.violations, lambda: self.now_ns, published=self.truth)
        self.checker = EventChecker(run)
        self.truth.on_state[0](None, published(BEFORE))
        self.truth.on_state[0](published(BEFORE), published(AFTER))
        self.truth.on_broker[0](1, 101)
        self.now_ns = 60 * NS_PER_S

    def judge(self, *told: ClusterEvent, is_complete: bool = False) -> list[str]:
        records = [(one.key, one.value(1, 5)) for one in told]
        self._monkeypatch.setattr(checkers, "_records", lambda _: records)
        disk: Any = None  # `_records` is replaced
        self.checker.check([disk], is_complete=is_complete)
        return self.violations


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(monkeypatch)


def change(before: Any, after: Any) -> ClusterEvent:
    event = cluster_events.of_state(
        StateChange(TP, topic_id("t"), before, after), brokers(2, 3), 1, 7
    )
    assert event is not None
    return event


FIRST, SECOND = change(None, BEFORE), change(BEFORE, AFTER)


def takeover(leader: int = 2, *, connected: int = 3, fetched: int = 5) -> ClusterEvent:
    times = {"connected_ms": connected, "diverged_ms": -1, "fetched_ms": fetched}
    fields = {
        "leader": leader,
        "phases_ms": {"connect": connected, "truncate": -1},
        "followers": [{"follower": 3, **times}],
    }
    return cluster_events.takeover(TP, topic_id("t"), 6, fields)


TAKEOVER = takeover()


def test_what_happened_may_be_told(run: Run) -> None:
    lost = cluster_events.ended(brokers(1)[1], 7)
    elected = cluster_events.controller_elected(2, 7)
    fetched = cluster_events.first_fetch(TP, topic_id("t"), 6, {"leader": 2})
    assert run.judge(FIRST, SECOND, lost, elected, fetched, TAKEOVER, is_complete=True) == []
    assert run.checker.counts["takeover/connect"] == 1
    assert "takeover/truncate" not in run.checker.counts
    assert run.checker.counts["leader_change"] == 2


def test_an_event_that_is_there_twice_is_seen(run: Run) -> None:
    [violation] = run.judge(FIRST, SECOND, SECOND)
    assert "in the topic twice" in violation


@pytest.mark.parametrize(
    "event",
    [
        change(BEFORE, state((2, 3), leader=3, leader_epoch=6, partition_epoch=11)),
        change(BEFORE, state((3,), leader=3, leader_epoch=9, partition_epoch=19)),
        change(state((1, 2)), AFTER),
        cluster_events.ended(brokers(broker(1, life=2))[1], 7),
        cluster_events.registered(brokers(3)[3], 7),
        cluster_events.controller_elected(2, 8),
        cluster_events.first_fetch(TP, topic_id("t"), 6, {"leader": 1}),
        takeover(1),
        takeover(connected=6),
        takeover(connected=-1),
        cluster_events.unclean_election(TP, topic_id("t"), 6, {"leader": 1}),
    ],
)
def test_what_did_not_happen_is_seen(run: Run, event: ClusterEvent) -> None:
    [violation] = run.judge(event)
    assert "is invented" in violation


def test_what_the_last_term_left_out_is_seen_unless_it_may_be_on_its_way(run: Run) -> None:
    [violation] = run.judge(FIRST, is_complete=True)
    assert "has no event" in violation
    run.violations.clear()
    run.now_ns = 0
    assert run.judge(FIRST, is_complete=True) == []
    run.now_ns, run.truth.controller_epoch = 60 * NS_PER_S, 8
    assert run.judge(FIRST, is_complete=True) == [], "an earlier controller may have died with it"


def awaited(leader_epoch: int) -> ClusterEvent:
    wait = LeaderWait(((1, MemberStatus.NOT_REGISTERED),), 1)
    return cluster_events.leader_awaited(
        TP, topic_id("t"), leader_epoch, 1, wait, controller_epoch=7, number=1
    )


def test_a_leader_is_awaited_only_where_there_is_none(run: Run) -> None:
    leaderless = state((2, 3), leader=-1, leader_epoch=7, partition_epoch=12)
    run.truth.on_state[0](published(AFTER), published(leaderless))
    assert run.judge(awaited(7)) == []
    assert len(run.judge(awaited(6))) == 1
    assert "2 led in that epoch" in run.violations[0]


@pytest.mark.parametrize(("left", "is_true"), [(1, True), (2, False), (9, False)])
def test_only_a_former_member_can_have_left(run: Run, left: int, is_true: bool) -> None:
    causes = ((left, ShrinkCause.SESSION),)
    event = cluster_events.of_state(
        StateChange(TP, topic_id("t"), BEFORE, AFTER, shrinks=causes), brokers(2, 3), 1, 7
    )
    assert event is not None
    assert (run.judge(event) == []) is is_true


MOVE = PublishedMove((4,), (2,), (1, 2, 3))
#: The events of t-0 that moves by the transaction 91 of its node, and has arrived by 95.
BEGUN = cluster_events.reassignment_begun(
    TP, topic_id("t"), (4, 1, 3), *MOVE, zxid=91, controller_epoch=7
)
ENDED = cluster_events.reassignment_ended(TP, topic_id("t"), (4, 1, 3), zxid=95, controller_epoch=7)


@pytest.fixture
def moved(run: Run) -> Run:
    """The node of the topic says in one transaction that t-0 moves, and in a later one where."""
    topic = PublishedTopic("t", topic_id("t"), 0, {0: (4, 1, 3, 2)}, {0: MOVE})
    run.truth.on_moves[0](topic, 91, {})
    # Another write of the node changes nothing of the move.
    run.truth.on_moves[0](topic, 93, {0: MOVE})
    topic.assignment, topic.moving = {0: (4, 1, 3)}, {}
    run.truth.on_moves[0](topic, 95, {0: MOVE})
    return run


def test_reassignments_that_happened_may_be_told(moved: Run) -> None:
    assert moved.judge(BEGUN, ENDED) == []
    assert moved.checker.counts == {"reassignment_begun": 1, "reassignment_ended": 1}


@pytest.mark.parametrize(
    "event",
    [
        cluster_events.reassignment_begun(
            TP, topic_id("t"), (4, 1, 3), *MOVE, zxid=93, controller_epoch=7
        ),
        cluster_events.reassignment_begun(
            TP, topic_id("t"), (4, 3), (4,), (1, 2), (1, 2, 3), zxid=91, controller_epoch=7
        ),
        cluster_events.reassignment_ended(
            TP, topic_id("t"), (4, 1, 3), zxid=91, controller_epoch=7
        ),
        cluster_events.reassignment_ended(TP, topic_id("t"), (1, 3), zxid=95, controller_epoch=7),
    ],
)
def test_a_reassignment_that_never_was_is_seen(moved: Run, event: ClusterEvent) -> None:
    [violation] = moved.judge(event)
    assert "is invented" in violation
