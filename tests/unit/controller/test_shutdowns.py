"""Controlled shutdown: what the controller makes of a broker that is about to stop."""

from __future__ import annotations

import pytest
from tests.support.controller.values import (
    TP,
    alter,
    answer_of,
    broker,
    brokers,
    elect,
    isr_answer,
    left_to,
    loaded,
    run,
    settings,
    shut_down,
    state,
    state_writes,
    step,
    topic,
)

from tidelog.controller import lifecycle, shutdowns
from tidelog.controller.command_builder import CommandBuilder
from tidelog.controller.commands import Stop
from tidelog.controller.controller import Controller
from tidelog.controller.elections import balance
from tidelog.controller.registrations import BrokersRead
from tidelog.controller.shutdowns import ControlledShutdownAsked, ShutdownBegun
from tidelog.controller.topics.changes import TopicFound
from tidelog.controller.topics.deletion import DeletionsRead
from tidelog.controller.writes import Conflict
from tidelog.core.errors import ErrorCode
from tidelog.core.types import NO_LEADER, PartitionState, TopicPartition
from tidelog.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))


def controller_of(*states: PartitionState, live: tuple[int, ...] = (1, 2, 3)) -> Controller:
    """A controller of one topic on brokers 1, 2, 3."""
    found = topic("t", dict.fromkeys(range(len(states)), (1, 2, 3)))
    return loaded(TopicFound(found, dict(enumerate(states))), live=brokers(*live))


def handed_over(controller: Controller, *asked: ControlledShutdownAsked) -> list[object]:
    """The answers, after as many decisions as it takes."""
    return [message for effects in run(controller, *asked) for _, message in effects.answers]


def remaining(answer: object) -> list[str]:
    """What an answer without an error says is left."""
    assert isinstance(answer, ControlledShutdownResponse)
    assert answer.error_code == 0
    return [f"{one.topic_name}-{one.partition_index}" for one in answer.remaining_partitions]


class TestHandingOver:
    def test_leaderships_go_first_and_places_in_isrs_after_them(self) -> None:
        controller = controller_of(state((2, 1, 3)), state((1, 2, 3)), state((3, 1)))
        first, effects = step(controller, shut_down(1))
        assert {tp: (one.leader, one.isr) for tp, one in state_writes(first).items()} == {
            P1: (2, (2, 3))
        }
        assert effects.answers == [], "not all is done yet"
        second, effects = step(controller)
        assert {tp: (one.leader, one.isr) for tp, one in state_writes(second).items()} == {
            P0: (2, (2, 3)),
            P2: (3, (3,)),
        }
        assert remaining(answer_of(effects)) == []
        assert left_to(effects) == [(1, [])]
        assert not controller.has_work

    def test_every_change_raises_the_leader_epoch(self) -> None:
        controller = controller_of(state((1, 2, 3)), state((2, 1, 3)))
        run(controller, shut_down(1))
        assert [controller.image.states[one].leader_epoch for one in (P0, P1)] == [6, 6]

    def test_the_broker_is_told_to_follow_the_new_leader_and_to_stop_what_it_followed(self) -> None:
        controller = controller_of(state((1, 2, 3)), state((2, 1, 3)), state((3, 2)))
        _, effects = step(controller, shut_down(1))
        assert list(effects.commands[1].roles) == [P0]
        assert not effects.commands[1].stops
        _, effects = step(controller)
        assert not effects.commands[1].roles
        assert effects.commands[1].stops == {P1: Stop(6, delete=False), P2: Stop(5, delete=False)}
        assert list(effects.commands[2].roles) == [P1], "nothing has changed in partition 2"

    def test_a_batch_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(shutdowns, "MAX_HAND_OVERS_PER_DECISION", 2)
        controller = controller_of(*[state((1, 2, 3))] * 3, *[state((2, 1, 3))] * 3)
        sizes = []
        controller.offer(shut_down(1))
        while controller.has_work:
            writes, effects = step(controller)
            sizes.append(len(writes))
        assert sizes == [2, 1, 2, 1]
        assert remaining(answer_of(effects)) == []

    def test_a_broker_without_partitions_is_answered_too(self) -> None:
        controller = controller_of(state((1, 2)), live=(1, 2, 3, 4))
        assert [remaining(one) for one in handed_over(controller, shut_down(4))] == [[]]

    def test_one_that_asks_again_is_answered_twice(self) -> None:
        controller = controller_of(state((1, 2, 3)), state((2, 1, 3)))
        _, first = step(controller, shut_down(1, ticket=1))
        assert first.answers == []
        later = run(controller, shut_down(1, ticket=2))
        answers = [one for effects in later for one in effects.answers]
        assert [ticket for ticket, _ in answers] == [1, 2]

    def test_asked_again_it_hands_over_what_can_be_by_then(self) -> None:
        controller = controller_of(state((1,)))
        assert [remaining(one) for one in handed_over(controller, shut_down(1))] == [["t-0"]]
        _, effects = step(controller, alter(1, 2, partition_epoch=10))
        assert isr_answer(effects).error_code == ErrorCode.NONE, "a leaving leader adds others"
        assert [remaining(one) for one in handed_over(controller, shut_down(1))] == [[]]
        assert controller.image.states[TP].leader == 2

    def test_a_conflict_in_the_store_is_decided_again_before_the_answer(self) -> None:
        controller = controller_of(state((1, 2, 3)))
        theirs = state((1, 3), partition_epoch=11)
        _, effects = step(controller, shut_down(1), outcomes={0: Conflict(theirs)})
        answers = [one for later in run(controller) for one in later.answers]
        assert effects.answers == []
        assert [remaining(message) for _, message in answers] == [[]]
        after = controller.image.states[TP]
        assert (after.leader, after.isr, after.partition_epoch) == (3, (3,), 12)

    def test_topics_being_deleted_are_left_alone(self) -> None:
        controller = controller_of(state((1, 2, 3)))
        run(controller, DeletionsRead(["t"]))
        writes, effects = step(controller, shut_down(1))
        assert state_writes(writes) == {}
        assert remaining(answer_of(effects)) == []
        assert 1 not in effects.commands

    def test_nothing_is_told_to_stop_that_cannot_be(self) -> None:
        controller = controller_of(state((1, 2, 3)), state((2, 3)), live=(1, 2, 3, 4))
        builder = CommandBuilder(controller.image)
        for broker_id, topic_partition in ((1, P0), (4, P1), (9, P1), (1, P2)):
            builder.stop_following(broker_id, topic_partition)
        assert builder.build() == {}, "a leader, no replica, nobody, no partition"
        builder.stop_following(1, P1)
        assert builder.build()[1].stops == {P1: Stop(5, delete=False)}


class TestWhatRemains:
    def test_a_leader_whose_followers_have_to_catch_up_goes_on(self) -> None:
        controller = controller_of(state((1,)))
        writes, effects = step(controller, shut_down(1))
        assert state_writes(writes) == {}
        assert remaining(answer_of(effects)) == ["t-0"]
        assert left_to(effects) == [(1, [TP])]

    def test_nobody_is_waited_for_who_is_dead_or_leaving(self) -> None:
        controller = controller_of(state((1, 2)), live=(1, 2))
        assert [remaining(one) for one in handed_over(controller, shut_down(2))] == [[]]
        assert controller.image.states[TP].isr == (1,)
        assert [remaining(one) for one in handed_over(controller, shut_down(1))] == [[]]
        assert (controller.image.states[TP].leader, controller.image.states[TP].isr) == (1, (1,))

    def test_of_brokers_that_leave_together_one_leads_until_it_goes(self) -> None:
        controller = controller_of(state((1, 2, 3)))
        answers = handed_over(controller, *(shut_down(one, ticket=one) for one in (1, 2, 3)))
        assert [remaining(one) for one in answers] == [[], [], []]
        after = controller.image.states[TP]
        assert (after.leader, after.isr) == (1, (1,))
        run(controller, BrokersRead(brokers(2, 3)))
        after = controller.image.states[TP]
        assert (after.leader, after.isr) == (NO_LEADER, (1,)), "who is leaving takes nothing over"


class TestRefusals:
    @pytest.mark.parametrize(
        ("request_", "error"),
        [
            (ControlledShutdownRequest(9, 109), ErrorCode.BROKER_NOT_AVAILABLE),
            (ControlledShutdownRequest(-1, -1), ErrorCode.BROKER_NOT_AVAILABLE),
            (ControlledShutdownRequest(1, 201), ErrorCode.STALE_BROKER_EPOCH),
            (ControlledShutdownRequest(1, 0), ErrorCode.STALE_BROKER_EPOCH),
            (ControlledShutdownRequest(1, -2), ErrorCode.STALE_BROKER_EPOCH),
            (ControlledShutdownRequest(1, -1), ErrorCode.NONE),
        ],
    )
    def test_who_is_unknown_or_of_another_life_is_refused(
        self, request_: ControlledShutdownRequest, error: ErrorCode
    ) -> None:
        controller = controller_of(state((1, 2, 3)))
        [answer] = handed_over(controller, ControlledShutdownAsked(1, request_))
        assert isinstance(answer, ControlledShutdownResponse)
        assert answer.error_code == error
        expected = 2 if error is ErrorCode.NONE else 1
        assert controller.image.states[TP].leader == expected

    def test_a_registration_that_ends_meanwhile_is_told(self) -> None:
        controller = controller_of(state((1, 2, 3)), state((2, 1, 3)))
        step(controller, shut_down(1))
        live = brokers(broker(1, life=2, previous_broker_epoch=101), 2, 3)
        _, effects = step(controller, BrokersRead(live))
        assert answer_of(effects).error_code == ErrorCode.STALE_BROKER_EPOCH
        assert not controller.image.brokers[1].is_leaving, "the next life stays"
        assert not controller.has_work


class TestLeaving:
    def test_nobody_who_is_leaving_is_elected(self) -> None:
        controller = controller_of(state((1, 2, 3)))
        run(controller, shut_down(2))
        run(controller, BrokersRead(brokers(2, 3)))
        assert controller.image.states[TP].leader == 3

    def test_it_is_left_out_although_its_registration_is_read_again(self) -> None:
        controller = controller_of(state((1, 2, 3)))
        run(controller, shut_down(2))
        assert not controller.has_work
        writes, effects = step(controller, BrokersRead(brokers(1, 2, 3)))
        assert (writes, effects.commands) == ([], {}), "nothing is new"
        assert controller.image.brokers[2].is_leaving

    def test_nobody_adds_it_to_an_isr(self) -> None:
        controller = controller_of(state((1, 2, 3)))
        run(controller, shut_down(2))
        now = controller.image.states[TP]
        asked = alter(1, 3, 2, leader_epoch=now.leader_epoch, partition_epoch=now.partition_epoch)
        assert isr_answer(step(controller, asked)[1]).error_code == ErrorCode.INELIGIBLE_REPLICA

    def test_it_is_not_given_its_preferred_leaderships(self) -> None:
        controller = controller_of(state((2, 3)))
        controller.image.apply(ShutdownBegun(1))
        assert balance.out_of_balance(controller.image, 0) == []
        controller = controller_of(state((2, 1, 3)))
        controller.image.apply(ShutdownBegun(1))
        assert balance.out_of_balance(controller.image, 0) == []
        [one] = answer_of(step(controller, elect(TP))[1]).replica_election_results
        code = one.partition_result[0].error_code
        assert code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE

    def test_an_unclean_election_leaves_it_out(self) -> None:
        found = TopicFound(topic(), {0: state((3,))})
        controller = loaded(found, live=brokers(1, 2, 3), of=settings(unclean=True))
        run(controller, shut_down(1))
        run(controller, BrokersRead(brokers(1, 2)))
        assert controller.image.states[TP].leader == 2

    def test_a_new_partition_begins_with_those_that_stay(self) -> None:
        live = brokers(1, 2, 3)
        controller = controller_of(state((1, 2, 3)))
        run(controller, BrokersRead(live), shut_down(1))
        first = lifecycle.first_state((1, 2, 3), controller.image.brokers, 7)
        assert first is not None
        assert (first.leader, first.isr) == (2, (2, 3))
        alone = lifecycle.first_state((1,), controller.image.brokers, 7)
        assert alone is not None
        assert alone.leader == 1, "there is nobody else"

    def test_a_copy_goes_its_own_way(self) -> None:
        controller = controller_of(state((1, 2, 3)), state((2, 1, 3)))
        step(controller, shut_down(1))
        other = controller.copy()
        assert other.key() == controller.key()
        run(other)
        assert other.key() != controller.key()
        assert controller.has_work
        assert controller.image.states[P1].isr == (2, 1, 3)
