"""Leaders elected on request, given back to preferred replicas, found after a configuration."""

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
    loaded,
    roles_answered,
    settings,
    state,
    state_writes,
    step,
    topic,
)

from tidelog.controller.controller import Controller
from tidelog.controller.elections.leaders import ElectLeadersAsked, UncleanRead
from tidelog.controller.elections.preferred import ForgetPreferredElection, PreferredElectionRead
from tidelog.controller.registrations import BrokersRead
from tidelog.controller.state_writes import WritePartitionState
from tidelog.controller.topics.changes import TopicFound
from tidelog.controller.topics.deletion import DeletionsRead
from tidelog.controller.writes import Conflict
from tidelog.core.errors import ErrorCode
from tidelog.core.limits import MAX_PREFERRED_ELECTIONS_PER_DECISION
from tidelog.core.types import NO_LEADER, PartitionState, TopicPartition
from tidelog.wire.messages.elect_leaders import ElectLeadersRequest

ELSEWHERE = state((1, 2, 3), leader=2)
LEADERLESS = state((1,), leader=NO_LEADER)


def controller_of(
    found: PartitionState = ELSEWHERE, live: tuple[int, ...] = (1, 2, 3), *, unclean: bool = False
) -> Controller:
    """A controller of one partition on brokers 1, 2, 3."""
    return loaded(
        TopicFound(topic(), {0: found}), live=brokers(*live), of=settings(unclean=unclean)
    )


def outcome(controller: Controller, asked: ElectLeadersAsked) -> tuple[ErrorCode, str]:
    """What one partition's election came to."""
    [one] = answer_of(step(controller, asked)[1]).replica_election_results
    [data] = one.partition_result
    assert (one.topic, data.partition_id) == TP
    return ErrorCode(data.error_code), data.error_message or ""


class TestPreferred:
    def test_the_first_replica_leads_again_under_a_new_epoch(self) -> None:
        controller = controller_of()
        writes, effects = step(controller, elect(TP))
        elected = state_writes(writes)[TP]
        assert (elected.leader, elected.isr, elected.leader_epoch) == (1, (1, 2, 3), 6)
        assert elected.partition_epoch == 11
        assert answer_of(effects).replica_election_results[0].partition_result[0].error_code == 0
        assert all(one.roles[TP].state.leader == 1 for one in effects.commands.values())
        assert not any(one.roles[TP].state.is_new for one in effects.commands.values())

    def test_it_is_not_needed_where_it_leads(self) -> None:
        error, message = outcome(controller_of(state()), elect(TP))
        assert error is ErrorCode.ELECTION_NOT_NEEDED
        assert "preferred replica 1 leads" in message

    @pytest.mark.parametrize(
        ("found", "live"),
        [(state((2, 3)), (1, 2, 3)), (state((2, 3)), (2, 3))],
        ids=["not in sync", "not alive"],
    )
    def test_it_is_not_available(self, found: PartitionState, live: tuple[int, ...]) -> None:
        controller = controller_of(found, live)
        error, message = outcome(controller, elect(TP))
        assert error is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        assert "preferred replica 1" in message and "[2, 3]" in message
        assert controller.image.states[TP] == found

    def test_a_preferred_replica_that_goes_in_the_same_moment_does_not_lead(self) -> None:
        controller = controller_of()
        controller.offer(BrokersRead(brokers(2, 3)))
        assert outcome(controller, elect(TP))[0] is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        assert controller.image.states[TP].isr == (2, 3)

    def test_a_preferred_replica_that_bounced_and_is_alone_in_sync_does_not_lead(self) -> None:
        """Nobody is left who has not: it leads by the election that V10 makes, not by this one."""
        bounced = state((1,), leader=NO_LEADER)
        controller = loaded(
            TopicFound(topic(), {0: bounced}), live={1: broker(1, life=2), 2: broker(2)}
        )
        assert controller.image.states[TP].leader == 1
        assert outcome(controller, elect(TP))[0] is ErrorCode.ELECTION_NOT_NEEDED

    def test_one_write_holds_an_election_and_what_was_due_anyway(self) -> None:
        """Broker 3 went: the ISR shrinks and the preferred replica leads, epochs rise once."""
        controller = controller_of()
        controller.offer(BrokersRead(brokers(1, 2)))
        writes, effects = step(controller, elect(TP))
        [write] = writes
        assert isinstance(write, WritePartitionState)
        assert (write.expected_epoch, write.state.partition_epoch) == (10, 11)
        assert (write.state.leader, write.state.isr, write.state.leader_epoch) == (1, (1, 2), 6)
        assert answer_of(effects).replica_election_results[0].partition_result[0].error_code == 0

    def test_a_leader_that_asks_in_the_same_moment_is_told_that_it_leads_no_more(self) -> None:
        controller = controller_of()
        controller.offer(alter(1, 2, sender=2, ticket=2))
        writes, effects = step(controller, elect(TP))
        assert len(writes) == 1
        assert isr_answer(effects, 2).error_code == ErrorCode.FENCED_LEADER_EPOCH

    def test_asking_twice_at_once_elects_once(self) -> None:
        controller = controller_of()
        controller.offer(elect(TP, ticket=2))
        writes, effects = step(controller, elect(TP, TP))
        assert len(writes) == 1
        codes = [
            [it.error_code for it in one.partition_result]
            for _, message in effects.answers
            for one in message.replica_election_results
        ]
        assert codes == [[ErrorCode.NONE], [ErrorCode.ELECTION_NOT_NEEDED]]

    def test_a_conflict_in_the_store_is_told(self) -> None:
        controller = controller_of()
        theirs = state((1, 2, 3), leader=3, partition_epoch=12)
        _, effects = step(controller, elect(TP), outcomes={0: Conflict(theirs)})
        [one] = answer_of(effects).replica_election_results
        assert one.partition_result[0].error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert controller.image.states[TP] == theirs


class TestRequests:
    def test_all_partitions_leave_out_those_that_need_nothing(self) -> None:
        found = topic(assignments={0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)})
        states = {0: ELSEWHERE, 1: state((2, 3, 1)), 2: state((1, 2))}
        _, effects = step(loaded(TopicFound(found, states)), elect(everything=True))
        [one] = answer_of(effects).replica_election_results
        assert [(it.partition_id, it.error_code) for it in one.partition_result] == [
            (0, ErrorCode.NONE),
            (2, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        ]

    def test_a_partition_that_does_not_exist(self) -> None:
        _, effects = step(controller_of(), elect(TopicPartition("t", 9), TopicPartition("u", 0)))
        codes = [
            it.error_code
            for one in answer_of(effects).replica_election_results
            for it in one.partition_result
        ]
        assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2

    def test_a_topic_that_is_being_deleted(self) -> None:
        controller = controller_of()
        controller.offer(DeletionsRead(["t"]))
        assert outcome(controller, elect(TP))[0] is ErrorCode.INVALID_TOPIC_EXCEPTION

    def test_an_unknown_election_type(self) -> None:
        request = ElectLeadersRequest(election_type=7, topic_partitions=None)
        _, effects = step(controller_of(), ElectLeadersAsked(1, request))
        [one] = answer_of(effects).replica_election_results
        assert one.partition_result[0].error_code == ErrorCode.INVALID_REQUEST


class TestUnclean:
    def test_a_live_replica_outside_the_isr_leads_whatever_is_configured(self) -> None:
        controller = controller_of(LEADERLESS, (2, 3))
        writes, _ = step(controller, elect(TP, unclean=True))
        elected = state_writes(writes)[TP]
        assert (elected.leader, elected.isr) == (2, (2,))
        assert elected.leader_recovery_state == 1

    def test_it_is_not_needed_where_somebody_leads(self) -> None:
        error, message = outcome(controller_of(), elect(TP, unclean=True))
        assert (error, message) == (ErrorCode.ELECTION_NOT_NEEDED, "broker 2 leads")

    def test_nobody_is_alive(self) -> None:
        controller = controller_of(LEADERLESS, (9,))
        error, message = outcome(controller, elect(TP, unclean=True))
        assert error is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        assert "[1, 2, 3]" in message and "[9]" in message

    def test_the_last_one_goes_in_the_same_moment(self) -> None:
        controller = controller_of()
        controller.offer(BrokersRead(brokers(9)))
        error, _ = outcome(controller, elect(TP, unclean=True))
        assert error is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        assert controller.image.states[TP].leader == NO_LEADER

    def test_the_leader_goes_in_the_same_moment(self) -> None:
        controller = controller_of(state((1,)))
        controller.offer(BrokersRead(brokers(2, 3)))
        writes, _ = step(controller, elect(TP, unclean=True))
        [write] = writes
        assert isinstance(write, WritePartitionState)
        assert (write.expected_epoch, write.state.partition_epoch) == (10, 11)
        assert (write.state.leader, write.state.leader_epoch) == (2, 6)

    def test_a_leader_without_a_log_is_told_to_make_one(self) -> None:
        lone = topic(assignments={0: (1,)})
        controller = loaded(TopicFound(lone, {0: state((1,))}), live=brokers(1))
        step(controller, roles_answered(1))
        assert controller.image.states[TP].leader == NO_LEADER
        _, effects = step(controller, elect(TP, unclean=True))
        assert effects.commands[1].roles[TP].state.is_new


class TestPreferredOnRequest:
    def test_they_go_back_a_few_at_a_time(self) -> None:
        count = MAX_PREFERRED_ELECTIONS_PER_DECISION + 1
        found = topic(assignments=dict.fromkeys(range(count), (1, 2, 3)))
        controller = loaded(TopicFound(found, dict.fromkeys(range(count), ELSEWHERE)))
        asked = [TopicPartition("t", number) for number in range(count)]
        writes, _ = step(controller, PreferredElectionRead(asked))
        assert len(writes) == MAX_PREFERRED_ELECTIONS_PER_DECISION
        assert controller.has_work and controller.copy().has_work
        waiting = controller.key()
        writes, _ = step(controller)
        assert len(state_writes(writes)) == 1
        assert writes[-1] == ForgetPreferredElection()
        assert not controller.has_work
        assert controller.key() != waiting

    def test_what_changed_meanwhile_is_not_given_back(self) -> None:
        controller = controller_of()
        controller.offer(PreferredElectionRead([TP]))
        controller.offer(BrokersRead(brokers(2, 3)))
        writes, _ = step(controller)
        assert state_writes(writes)[TP].leader == 2
        assert state_writes(writes)[TP].isr == (2, 3)

    @pytest.mark.parametrize(
        "found", [state(), state((2, 3))], ids=["leads already", "not in sync"]
    )
    def test_a_request_that_cannot_be_met_writes_nothing(self, found: PartitionState) -> None:
        controller = controller_of(found)
        writes, _ = step(controller, PreferredElectionRead([TP, TopicPartition("u", 0)]))
        assert writes == [ForgetPreferredElection()]

    def test_a_request_left_in_the_store_is_taken_away_when_it_is_decided(self) -> None:
        controller = controller_of()
        writes, _ = step(controller, PreferredElectionRead([TP]))
        assert state_writes(writes)[TP].leader == 1
        assert writes[-1] == ForgetPreferredElection()
        assert not controller.has_work

    def test_a_request_for_a_topic_on_its_way_out_is_passed_over(self) -> None:
        controller = controller_of()
        controller.offer(DeletionsRead(["t"]))
        writes, _ = step(controller, PreferredElectionRead([TP]))
        assert writes == [ForgetPreferredElection()]


class TestUncleanConfiguration:
    def test_a_topic_that_allows_it_gets_a_leader_at_once(self) -> None:
        controller = controller_of(LEADERLESS, (2, 3))
        writes, _ = step(controller, UncleanRead({"t": True}))
        assert state_writes(writes)[TP].leader == 2
        assert controller.image.topics["t"].unclean is True

    def test_the_cluster_that_allows_it_gives_leaders_to_topics_that_say_nothing(self) -> None:
        refusing = topic("refusing", unclean=False)
        controller = loaded(
            TopicFound(topic(), {0: LEADERLESS}),
            TopicFound(refusing, {0: LEADERLESS}),
            live=brokers(2, 3),
        )
        writes, _ = step(controller, UncleanRead({}, cluster=True))
        assert list(state_writes(writes)) == [TP]
        assert controller.settings.unclean

    def test_what_says_the_same_changes_nothing(self) -> None:
        controller = controller_of()
        writes, _ = step(controller, UncleanRead({"t": None, "u": True}, cluster=False))
        assert writes == []
        assert controller.image.topics["t"].unclean is None

    def test_partitions_with_a_leader_or_without_a_state_are_not_looked_at(self) -> None:
        found = topic(assignments={0: (1, 2), 1: (9,)})
        controller = loaded(TopicFound(found, {0: state((1, 2))}))
        writes, _ = step(controller, UncleanRead({"t": True}))
        assert writes == []
