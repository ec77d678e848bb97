"""What goes back to preferred replicas by itself: out of balance, in steps, caught up first."""

from __future__ import annotations

from collections.abc import Mapping

from tests.support.controller.values import (
    TP,
    broker,
    brokers,
    delete,
    loaded,
    run,
    state,
    state_writes,
    step,
    topic,
)

from tidelog.controller.controller import Controller
from tidelog.controller.elections import balance
from tidelog.controller.elections.preferred import RebalanceDue, RebalanceStepDue
from tidelog.controller.partitions.removal import RemovalsAdded
from tidelog.controller.records import Move
from tidelog.controller.registrations import BrokersRead
from tidelog.controller.state_writes import StatePublished
from tidelog.controller.topics.changes import TopicFound
from tidelog.controller.topics.deletion import DeletionsRead
from tidelog.core.limits import MAX_AUTOMATIC_ELECTIONS_PER_STEP
from tidelog.core.types import PartitionState, TopicPartition

ELSEWHERE = state((1, 2, 3), leader=2)
#: Led by 2, and 1 has not caught up.
BEHIND = state((2, 3))


def controller_of(
    states: Mapping[int, PartitionState], live: tuple[int, ...] = (1, 2, 3)
) -> Controller:
    """A controller of one topic, all of which broker 1 prefers to lead."""
    found = topic(assignments=dict.fromkeys(states, (1, 2, 3)))
    return loaded(TopicFound(found, dict(states)), live=brokers(*live))


def given_back(controller: Controller, event: RebalanceDue | RebalanceStepDue) -> list[int]:
    """The partitions that broker 1 leads after a look or a step."""
    writes, _ = step(controller, event)
    states = state_writes(writes)
    assert all(one.leader == 1 for one in states.values())
    return [one.partition for one in states]


def joins(controller: Controller, *partitions: int) -> None:
    """Broker 1 comes into these ISRs."""
    for number in partitions:
        controller.image.apply(StatePublished(TopicPartition("t", number), ELSEWHERE))


LOOK, NEXT = RebalanceDue(10), RebalanceStepDue()


class TestOutOfBalance:
    def test_partitions_go_back_when_too_many_are_led_elsewhere(self) -> None:
        controller = controller_of({0: ELSEWHERE})
        assert given_back(controller, LOOK) == [0]
        assert not controller.has_work and not controller.balance

    def test_a_share_that_is_not_above_the_limit_is_left_alone(self) -> None:
        states = {number: ELSEWHERE if number == 0 else state() for number in range(10)}
        controller = controller_of(states)
        assert balance.out_of_balance(controller.image, 10) == []
        assert balance.out_of_balance(controller.image, 9) == [TP]

    def test_only_live_brokers_get_partitions_back(self) -> None:
        found = topic(assignments={0: (1, 2, 3), 1: (3, 1, 2)})
        states = {0: ELSEWHERE, 1: state((1, 2))}
        controller = loaded(TopicFound(found, states), live=brokers(1, 2))
        assert balance.out_of_balance(controller.image, 0) == [TP]

    def test_topics_on_their_way_out_or_under_reassignment_are_left_alone(self) -> None:
        moving = topic("moving", moves={0: Move((), (3,), (1, 2, 3))})
        controller = loaded(
            TopicFound(topic(), {0: ELSEWHERE}),
            TopicFound(topic("stateless"), {}),
            TopicFound(moving, {0: ELSEWHERE}),
            live=brokers(),
        )
        controller.offer(DeletionsRead(["t"]))
        step(controller)
        assert balance.out_of_balance(controller.image, 0) == []


class TestSteps:
    COUNT = 2 * MAX_AUTOMATIC_ELECTIONS_PER_STEP + 1

    def test_no_step_gives_back_more_than_its_share(self) -> None:
        controller = controller_of(dict.fromkeys(range(self.COUNT), ELSEWHERE))
        share = MAX_AUTOMATIC_ELECTIONS_PER_STEP
        assert given_back(controller, LOOK) == list(range(share))
        assert controller.balance and not controller.has_work, "the next step has its time"
        other = controller.copy()
        assert other.key() == controller.key()
        assert given_back(controller, NEXT) == list(range(share, 2 * share))
        assert other.key() != controller.key()
        assert given_back(other, NEXT) == list(range(share, 2 * share)), "the copy is its own"
        assert given_back(controller, NEXT) == [self.COUNT - 1]
        assert not controller.balance
        assert given_back(controller, NEXT) == []

    def test_what_changed_between_two_steps_is_passed_over(self) -> None:
        controller = controller_of(dict.fromkeys(range(self.COUNT), ELSEWHERE))
        given_back(controller, LOOK)
        step(controller, delete("t"))
        assert given_back(controller, NEXT) == []
        assert not controller.balance

    def test_a_partition_that_went_back_by_itself_meanwhile_is_passed_over(self) -> None:
        controller = controller_of(dict.fromkeys(range(self.COUNT), ELSEWHERE))
        given_back(controller, LOOK)
        first_due = TopicPartition("t", MAX_AUTOMATIC_ELECTIONS_PER_STEP)
        controller.image.apply(StatePublished(first_due, state()))
        assert first_due.partition not in given_back(controller, NEXT)
        assert first_due.partition not in given_back(controller, NEXT)
        assert not controller.balance

    def test_a_broker_that_goes_meanwhile_gets_nothing(self) -> None:
        controller = controller_of(dict.fromkeys(range(self.COUNT), ELSEWHERE))
        given_back(controller, LOOK)
        run(controller, BrokersRead(brokers(2, 3)))
        assert given_back(controller, NEXT) == []
        assert not controller.balance

    def test_another_look_forgets_what_is_in_balance_by_now(self) -> None:
        controller = controller_of(dict.fromkeys(range(self.COUNT), ELSEWHERE))
        given_back(controller, LOOK)
        assert given_back(controller, RebalanceDue(100)) == []
        assert not controller.balance


class TestCatchingUp:
    def test_a_broker_that_is_behind_somewhere_leads_nothing_more_until_it_is_not(self) -> None:
        controller = controller_of({0: ELSEWHERE, 1: BEHIND})
        assert given_back(controller, LOOK) == []
        assert controller.balance.held_back() == (1,)
        assert given_back(controller, NEXT) == []
        joins(controller, 1)
        assert given_back(controller, NEXT) == [0, 1]
        assert controller.balance.held_back() == ()
        assert not controller.balance

    def test_who_is_not_behind_need_not_wait_for_who_is(self) -> None:
        found = topic(assignments={0: (1, 2, 3), 1: (3, 2, 1), 2: (2, 1, 3)})
        states = {0: ELSEWHERE, 1: ELSEWHERE, 2: BEHIND}
        controller = loaded(TopicFound(found, states))
        writes, _ = step(controller, LOOK)
        assert {one.partition: new.leader for one, new in state_writes(writes).items()} == {1: 3}

    def test_what_nobody_can_join_does_not_count(self) -> None:
        """Partitions without a leader, moved, deleted, about to be removed, or of others."""
        moving = topic("moving", {0: (1, 2, 3), 1: (1, 2)}, moves={0: Move((1,), (), (2, 3))})
        leaderless = topic("leaderless", {0: (4, 1)})
        shrinking = topic("shrinking", {0: (2, 1), 1: (2, 1)})
        elsewhere = topic("elsewhere", {0: (2, 3)})
        controller = loaded(
            TopicFound(topic(), {0: ELSEWHERE}),
            TopicFound(moving, {0: BEHIND, 1: state((1, 2))}),
            TopicFound(leaderless, {0: state((4,), leader=-1)}),
            TopicFound(shrinking, {0: state((2, 1)), 1: state((2,))}),
            TopicFound(elsewhere, {0: BEHIND}),
            TopicFound(topic("going"), {0: BEHIND}),
        )
        controller.image.apply(RemovalsAdded("shrinking", {1: False}))
        controller.offer(DeletionsRead(["going"]))
        assert list(balance.behind(controller.image, 1)) == [TopicPartition("going", 0)]
        writes, _ = step(controller, LOOK)
        assert list(balance.behind(controller.image, 1)) == []
        assert state_writes(writes)[TP].leader == 1

    def test_one_that_catches_up_step_by_step_is_waited_for_however_long(self) -> None:
        controller = controller_of({0: ELSEWHERE, 1: BEHIND, 2: BEHIND, 3: BEHIND})
        for number in (1, 2):
            assert given_back(controller, LOOK) == []
            joins(controller, number)
        assert given_back(controller, LOOK) == []
        joins(controller, 3)
        assert given_back(controller, LOOK) == [0, 1, 2, 3]

    def test_one_that_joined_nothing_between_two_looks_gets_what_it_can_have(self) -> None:
        controller = controller_of({0: ELSEWHERE, 1: BEHIND})
        assert given_back(controller, LOOK) == []
        assert given_back(controller, LOOK) == [0]
        assert not controller.balance, "what it is behind in waits for the next look"

    def test_after_another_start_it_is_waited_for_again(self) -> None:
        controller = controller_of({0: ELSEWHERE, 1: BEHIND})
        assert given_back(controller, LOOK) == []
        again = broker(1, 2, previous_broker_epoch=101)
        run(controller, BrokersRead({**brokers(2, 3), 1: again}))
        joins(controller, 0)
        assert given_back(controller, LOOK) == []
        assert controller.balance.held_back() == (1,)

    def test_one_that_starts_anew_between_steps_catches_up_first(self) -> None:
        count = MAX_AUTOMATIC_ELECTIONS_PER_STEP + 1
        controller = controller_of(dict.fromkeys(range(count), ELSEWHERE))
        given_back(controller, LOOK)
        run(controller, BrokersRead({**brokers(2, 3), 1: broker(1, 2)}))
        controller.image.apply(StatePublished(TP, BEHIND))
        assert given_back(controller, NEXT) == []
        assert controller.balance.held_back() == (1,)
