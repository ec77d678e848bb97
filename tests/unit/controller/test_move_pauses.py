"""Reassignments that pause while too few replicas are in sync, and go on later."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.controller.reassigning import FOUR, begin, caught_up, cluster, completing
from tests.support.controller.values import (
    TP,
    answer_of,
    broker,
    brokers,
    epoch,
    list_moves,
    loaded,
    reassign,
    run,
    state,
    step,
    topic,
)

from tidelog.controller.controller import Controller
from tidelog.controller.decision import Effects
from tidelog.controller.elections.leaders import MinimumRead
from tidelog.controller.reassignments.pausing import MovePaused
from tidelog.controller.reassignments.progress import SweepDue
from tidelog.controller.registrations import BrokersRead
from tidelog.controller.topics.changes import TopicFound
from tidelog.controller.topics.readings import TopicsRead
from tidelog.core.types import PartitionState


def of_minimum(minimum: int, published: PartitionState | None = None) -> Controller:
    """t-0 on brokers 1 to 3 of five, with this min.insync.replicas."""
    found = replace(topic(), min_insync_replicas=minimum)
    return cluster(TopicFound(found, {0: published or state()}))


def pauses(effects: list[Effects]) -> list[str]:
    return [paused.reason for each in effects for paused in each.notices.of(MovePaused)]


def idle(effects: list[Effects]) -> dict[int, list[int]]:
    """Who does not copy, by the last role of each broker."""
    return {
        broker_id: [*commands.roles[TP].state.idle]
        for each in effects
        for broker_id, commands in each.commands.items()
        if TP in commands.roles
    }


def shrunk(controller: Controller) -> list[Effects]:
    """Replicas 2 and 3 fall behind."""
    return [caught_up(controller, 1), *run(controller)]


def test_a_move_pauses_while_too_few_are_in_sync_and_goes_on_later() -> None:
    controller = of_minimum(2)
    begin(controller, 4, 5, 1)
    effects = shrunk(controller)
    reason = "its ISR [1] is below min.insync.replicas, which is 2"
    assert pauses(effects) == [reason]
    told = idle(effects)
    assert (told[4], told[5]) == ([4, 5], [4, 5])
    [found] = answer_of(step(controller, list_moves())[1]).topics
    assert [each.paused for each in found.partitions] == [reason]
    assert pauses(run(controller, SweepDue())) == [], "it is said once"
    effects = [caught_up(controller, 1, 2), *run(controller)]
    assert pauses(effects) == [""]
    assert idle(effects)[4] == []
    assert not controller.image.paused


def test_one_that_began_with_too_few_in_sync_does_not_pause() -> None:
    controller = of_minimum(2, state((1,)))
    begin(controller, 4, 5, 1)
    assert pauses(run(controller, SweepDue())) == []
    # Another target does not make it one that began well.
    caught_up(controller, 1, 2, 3)
    begin(controller, 5, 4, 1)
    assert pauses(shrunk(controller)) == []


@pytest.mark.parametrize("dead", [1, 3])
def test_one_goes_on_while_an_original_replica_is_offline(dead: int) -> None:
    controller = of_minimum(3)
    begin(controller, 4, 5, 2)
    live = brokers(*(each for each in (1, 2, 3, 4, 5) if each != dead))
    assert pauses(run(controller, BrokersRead(live))) == []
    assert len(controller.image.states[TP].isr) == 2
    # It is back, and not in sync yet: its copy comes first.
    assert len(pauses(run(controller, BrokersRead({**live, dead: broker(dead, life=2)})))) == 1


def test_a_cancel_and_an_end_are_never_paused() -> None:
    controller = of_minimum(2)
    begin(controller, 4, 5, 1)
    shrunk(controller)
    assert controller.image.paused
    run(controller, reassign(TP, None))
    assert not controller.image.paused
    done, _ = completing(4, 5, 1)
    run(done, MinimumRead({"t": 9}), SweepDue())
    assert not done.image.paused


def test_it_can_be_switched_off() -> None:
    controller = of_minimum(2)
    controller.settings = replace(controller.settings, pauses_reassignments=False)
    begin(controller, 4, 5, 1)
    assert pauses(shrunk(controller)) == []
    # What pauses goes on, too.
    other = of_minimum(2)
    begin(other, 4, 5, 1)
    shrunk(other)
    other.settings = replace(other.settings, pauses_reassignments=False)
    assert pauses(run(other, SweepDue())) == [""]


def test_a_topic_that_is_read_again_pauses_until_enough_are_in_sync() -> None:
    controller = of_minimum(2)
    begin(controller, 4, 5, 1)
    shrunk(controller)
    found, published = controller.image.topics["t"], controller.image.states[TP]
    again = replace(published, isr=(1, 2), isr_epochs=(epoch(1), epoch(2)))
    read = TopicsRead(["t"], [TopicFound(found, {0: again})])
    assert pauses(run(controller, read, SweepDue())) == [""]


def test_a_new_controller_pauses_what_began_well() -> None:
    controller = of_minimum(2)
    begin(controller, 4, 5, 1)
    shrunk(controller)
    found, published = controller.image.topics["t"], controller.image.states[TP]
    heir = loaded(TopicFound(found, {0: published}), live=dict(FOUR))
    run(heir, SweepDue())
    assert TP in heir.image.paused


def test_the_minimum_is_that_of_the_original_replicas() -> None:
    """One replica becomes three: the two that are added are no reason to wait for them."""
    one = replace(topic(assignments={0: (1,)}), min_insync_replicas=2)
    controller = cluster(TopicFound(one, {0: state((1,))}))
    begin(controller, 1, 4, 5)
    assert pauses(run(controller, SweepDue())) == []


def test_an_added_replica_that_leaves_the_isr_during_a_pause_copies_no_more() -> None:
    controller = of_minimum(2)
    begin(controller, 4, 5, 1)
    caught_up(controller, 1, 2, 3, 4)
    effects = [caught_up(controller, 1, 4), *run(controller)]
    controller.settings = replace(controller.settings, min_insync_replicas=3)
    run(controller, MinimumRead({"t": 3}), SweepDue())
    assert TP in controller.image.paused
    assert 4 not in idle(effects).get(4, []), "a member of the ISR goes on"
    told = idle([caught_up(controller, 1)])
    assert told == {1: [4, 5], 4: [4, 5]}, "the leader proposes it no more"
    # It comes back to the ISR with what it has, and copies like any member.
    assert idle([caught_up(controller, 1, 4)])[4] == [5]


def test_a_change_of_the_isr_is_no_news_to_those_whose_copying_stays() -> None:
    controller = of_minimum(2)
    begin(controller, 4, 5, 1)
    shrunk(controller)
    assert idle([caught_up(controller, 1, 3)]) == {}
    assert idle(run(controller)) == {1: [], 4: [], 5: []}, "the pause ends"
    assert idle([caught_up(controller, 1, 2, 3)]) == {}
