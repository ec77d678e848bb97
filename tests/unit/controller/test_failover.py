"""Times of failovers: phases, the sample, what becomes of partitions that nobody answers for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support.controller.values import state, topic_id

from tidelog.controller.cluster_events import ClusterEvent, StateChange
from tidelog.controller.failover import SAMPLED, Failovers, LostLeaders, TurnTimes
from tidelog.core.types import NO_LEADER, TopicPartition

TURN = TurnTimes(noticed_ms=1_000, read_ms=1_004, decided_ms=1_010, written_ms=1_030)


def partitions(count: int) -> list[TopicPartition]:
    return [TopicPartition("t", number) for number in range(count)]


def moved(topic_partition: TopicPartition, leader: int = 2, epoch: int = 6) -> StateChange:
    before = state((1, 2, 3))
    after = replace(before, leader=leader, isr=(2, 3), leader_epoch=epoch)
    return StateChange(topic_partition, topic_id("t"), before, after)


def fields(events: list[ClusterEvent]) -> dict[str, Any]:
    [event] = events
    assert event.kind == "failover"
    return dict(event.fields)


def test_a_failover_is_over_when_every_new_leader_has_answered() -> None:
    failovers = Failovers(7)
    a, b = partitions(2)
    assert failovers.commanded(TURN, 1_031, LostLeaders([1]), [moved(a), moved(b, 3)]) == []
    assert failovers.unled == 2
    assert failovers.answered(2, [a, b], 1_040) == [], "of b another one is the leader"
    told = fields(failovers.answered(3, [b], 1_050))
    assert told["phases_ms"] == {"read": 4, "decide": 6, "write": 20, "command": 1, "lead": 19}
    assert [(one["partition"], one["led_ms"]) for one in told["sample"]] == [(0, 40), (1, 50)]
    assert (told["brokers"], told["partitions"], told["unanswered"]) == ([1], 2, 0)
    assert failovers.unled == 0


def test_above_a_thousand_partitions_are_sampled_evenly_and_all_are_counted() -> None:
    failovers = Failovers(7)
    names = partitions(2_500)
    failovers.commanded(TURN, 1_031, LostLeaders([1]), [moved(one) for one in names])
    assert failovers.unled == 2_500
    told = fields(failovers.answered(2, names, 1_040))
    assert told["partitions"] == 2_500
    chosen = [one["partition"] for one in told["sample"]]
    assert len(chosen) <= SAMPLED and chosen == list(range(0, 2_500, 3))
    assert failovers.unled == 0


def test_a_partition_that_moves_on_does_not_keep_a_failover_open() -> None:
    failovers = Failovers(7)
    a, b = partitions(2)
    failovers.commanded(TURN, 1_031, LostLeaders([1]), [moved(a), moved(b)])
    failovers.answered(2, [a], 1_040)
    told = fields(failovers.commanded(TURN, 1_060, None, [moved(b, 3, epoch=7)]))
    assert (told["superseded"], told["unanswered"], failovers.unled) == (1, 0, 1)


def test_a_topic_that_goes_does_not_keep_a_failover_open() -> None:
    failovers = Failovers(7)
    failovers.commanded(TURN, 1_031, LostLeaders([1]), [moved(one) for one in partitions(3)])
    assert failovers.removed("other", 1_040) == []
    assert fields(failovers.removed("t", 1_040))["superseded"] == 3
    assert failovers.unled == 0


def test_brokers_that_led_nothing_and_partitions_without_a_leader_take_no_time() -> None:
    failovers = Failovers(7)
    assert fields(failovers.commanded(TURN, 1_031, LostLeaders([1]), []))["partitions"] == 0
    [a] = partitions(1)
    gone = fields(failovers.commanded(TURN, 1_031, LostLeaders([2]), [moved(a, NO_LEADER)]))
    assert (gone["partitions"], failovers.unled) == (1, 0)


def test_what_is_not_over_when_the_term_ends_is_told_as_it_stands() -> None:
    failovers = Failovers(7)
    failovers.commanded(TURN, 1_031, LostLeaders([1]), [moved(one) for one in partitions(2)])
    assert fields(failovers.resigned(1_100))["unanswered"] == 2
    assert failovers.unled == 0 and failovers.resigned(1_200) == []


def test_a_failover_says_whether_brokers_died_and_since_when_they_were_silent() -> None:
    failovers = Failovers(7)
    silent = fields(failovers.commanded(TURN, 1_031, LostLeaders([1], silent_since_ms=988), []))
    assert (silent["cause"], silent["detection_ms"]) == ("death", 12)
    unseen = fields(failovers.commanded(TURN, 1_031, LostLeaders([1]), []))
    assert unseen["detection_ms"] == -1
    late = fields(failovers.commanded(TURN, 1_031, LostLeaders([1], silent_since_ms=1_003), []))
    assert late["detection_ms"] == 0, "the store knew before"
    leaving = fields(failovers.commanded(TURN, 1_031, LostLeaders([1], is_shutdown=True), []))
    assert leaving["cause"] == "shutdown"
