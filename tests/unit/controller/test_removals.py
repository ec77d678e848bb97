"""Partitions on their way out, decision by decision: requests, tombstones, commands, the end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.controller.values import (
    answer_of,
    broker,
    brokers,
    delete,
    elect,
    epoch,
    grow,
    loaded,
    more,
    outdated,
    reports,
    run,
    state,
    state_writes,
    step,
    topic,
    unloaded,
    write_all,
)

from tidelog.controller.controller import Controller
from tidelog.controller.notices import UnmetRequest
from tidelog.controller.partitions import removal
from tidelog.controller.partitions.addition import AdditionsRead, AddPartitions, FormerRead
from tidelog.controller.partitions.refusals import ForgetRequest, RequestsUnreadable
from tidelog.controller.partitions.removal import (
    DrainRead,
    QueueRemovals,
    RemovalsRead,
    RemovePartitions,
    RemovePartitionsAsked,
)
from tidelog.controller.records import Topic
from tidelog.controller.registrations import BrokersRead
from tidelog.controller.replica_answers import StopReplicaAnswered
from tidelog.controller.topics.changes import TopicFound, TopicUnreadable
from tidelog.controller.topics.readings import TopicsRead
from tidelog.controller.writes import Conflict
from tidelog.core.errors import ErrorCode
from tidelog.core.types import PartitionState, TopicPartition, topic_id_to_text
from tidelog.wire.messages.remove_partitions import RemovePartitionsRequest, RemovePartitionsTopic

ALL = (1, 2, 3)
LAST = TopicPartition("t", 2)
MIDDLE = TopicPartition("t", 1)
TOMBSTONE = PartitionState(-1, 6, (), 7, 11, isr_epochs=(), removed=True)


def of(partitions: int = 3, **states: PartitionState) -> Controller:
    """A controller that knows topic t with so many partitions."""
    return loaded(found(partitions))


def found(partitions: int, name: str = "t", version: int = 0) -> TopicFound:
    assignments = dict.fromkeys(range(partitions), ALL)
    states = {number: state() for number in assignments}
    return TopicFound(topic(name, assignments, version=version), states)


def remove(
    *wanted: tuple[str, int], drain: bool = False, validate_only: bool = False, ticket: int = 1
) -> RemovePartitionsAsked:
    topics = [RemovePartitionsTopic(name, count, drain) for name, count in wanted]
    return RemovePartitionsAsked(ticket, RemovePartitionsRequest(topics, validate_only))


def wanted(*partitions: int, drain: bool = False, name: str = "t") -> RemovalsRead:
    return RemovalsRead({name: dict.fromkeys(partitions, drain)} if partitions else {})


def stopped(*partitions: TopicPartition, by: tuple[int, ...] = ALL) -> list[StopReplicaAnswered]:
    return [StopReplicaAnswered(one, epoch(one), list(partitions)) for one in by]


def buried(partitions: int = 3, *numbers: int) -> Controller:
    """A controller whose brokers have been told to delete these."""
    controller = of(partitions)
    run(controller, wanted(*numbers))
    return controller


class TestRequests:
    def test_a_request_becomes_durable_then_tombstones_then_commands(self) -> None:
        controller = of()
        writes, effects = step(controller, remove(("t", 1)))
        assert writes == [QueueRemovals("t", {1: False, 2: False})]
        assert answer_of(effects).results[0].error_code == ErrorCode.NONE
        assert effects.commands == {}
        assert controller.has_work
        writes, effects = step(controller)
        states = state_writes(writes)
        assert list(states) == [LAST, MIDDLE]
        assert all(one.removed and one.leader_epoch == 6 for one in states.values())
        for commands in effects.commands.values():
            assert {tp: one.leader_epoch for tp, one in commands.stops.items()} == {
                LAST: 6,
                MIDDLE: 6,
            }
            assert [one.leader for one in commands.shown.values()] == [-2, -2]
            assert commands.roles == {}
        assert not controller.has_work

    def test_the_topic_is_written_when_all_have_answered(self) -> None:
        controller = buried(3, 2)
        writes, _ = step(controller, *stopped(LAST, by=(1, 2)))
        assert writes == []
        writes, _ = step(controller, *stopped(LAST, by=(3,)))
        [write] = writes
        assert isinstance(write, RemovePartitions)
        assert sorted(write.topic.assignments) == [0, 1]
        assert (write.topic.version, write.partitions) == (1, (2,))
        assert LAST not in controller.image.states
        assert controller.image.former[LAST] is not None
        assert controller.image.removals == {}
        assert LAST not in controller.image.hosted_by(1)
        assert not controller.has_work

    def test_a_broker_that_goes_is_not_waited_for(self) -> None:
        controller = buried(3, 2)
        step(controller, *stopped(LAST, by=(1, 2)))
        writes, _ = step(controller, BrokersRead(brokers(1, 2)))
        assert [type(one) for one in writes if isinstance(one, RemovePartitions)]

    def test_a_write_that_fails_has_the_topic_read_again(self) -> None:
        controller = buried(3, 2)
        _, effects = step(controller, *stopped(LAST), outcomes={0: Conflict()})
        assert outdated(effects) == ["t"]
        run(controller, TopicsRead(["t"], [found(3, version=4)]))
        assert sorted(controller.image.topics["t"].assignments) == [0, 1]
        assert controller.image.topics["t"].version == 5

    def test_the_request_that_is_not_durable_is_not_carried_out(self) -> None:
        controller = of()
        _, effects = step(controller, remove(("t", 1)), outcomes={0: Conflict(reason="why")})
        [refused] = answer_of(effects).results
        assert (refused.error_code, refused.error_message) == (
            ErrorCode.INVALID_UPDATE_VERSION,
            "why",
        )
        assert controller.image.removals == {}

    def test_validation_writes_nothing(self) -> None:
        controller = of()
        writes, effects = step(controller, remove(("t", 1), validate_only=True))
        assert writes == []
        assert answer_of(effects).results[0].error_code == ErrorCode.NONE

    def test_a_topic_named_twice_is_refused(self) -> None:
        _, effects = step(of(), remove(("t", 1), ("t", 2)))
        assert [one.error_code for one in answer_of(effects).results] == [
            ErrorCode.INVALID_REQUEST,
            ErrorCode.INVALID_REQUEST,
        ]

    def test_a_second_request_for_the_same_topic_is_decided_later(self) -> None:
        controller = of()
        writes, _ = step(controller, remove(("t", 2)), remove(("t", 1), ticket=2))
        assert writes == [QueueRemovals("t", {2: False})]
        effects = run(controller)
        assert answer_of(effects[0], 2).results[0].error_code == ErrorCode.NONE
        assert controller.image.states[MIDDLE].removed

    def test_a_topic_that_is_deleted_in_the_same_decision_keeps_its_partitions(self) -> None:
        controller = of()
        writes, effects = step(controller, delete("t"), remove(("t", 2)))
        assert not any(isinstance(one, QueueRemovals) for one in writes)
        assert answer_of(effects).results[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    def test_a_deletion_takes_a_removal_with_it(self) -> None:
        controller = of()
        run(controller, wanted(2, drain=True))
        run(controller, delete("t"))
        assert controller.image.closing("t") == range(0)
        assert not controller.has_work
        run(controller, *stopped(LAST, MIDDLE, TopicPartition("t", 0)))
        assert controller.image.removals == {}
        assert controller.image.topics == {}

    def test_what_was_remembered_of_a_topic_goes_with_it(self) -> None:
        controller = of()
        step(controller, FormerRead({TopicPartition("t", 9): TOMBSTONE}))
        run(controller, TopicsRead([], []))
        assert controller.image.former == {}

    def test_partitions_that_are_going_may_be_asked_for_again(self) -> None:
        controller = of()
        run(controller, wanted(2, drain=True))
        writes, _ = step(controller, remove(("t", 1)))
        assert writes == [QueueRemovals("t", {1: False, 2: False})]

    def test_refusals_while_others_go(self) -> None:
        controller = of()
        run(controller, wanted(2, drain=True))
        _, effects = step(controller, remove(("t", 0)))
        assert "keeps at least one" in answer_of(effects).results[0].error_message
        _, effects = step(controller, remove(("t", 3)))
        assert "fewer than that can be left" in answer_of(effects).results[0].error_message
        _, effects = step(controller, grow(more("t", 4)))
        assert "partitions 2 to 2 of topic 't' are being removed" in (
            answer_of(effects).results[0].error_message
        )

    def test_leaders_cannot_be_elected_for_what_is_gone(self) -> None:
        _, effects = step(buried(3, 2), elect(LAST, unclean=True))
        [[one]] = [it.partition_result for it in answer_of(effects).replica_election_results]
        assert one.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_requests_of_a_topic_that_cannot_be_read_wait(self) -> None:
        controller = loaded(TopicUnreadable("t", "nonsense"))
        writes, _ = step(controller, wanted(2), AdditionsRead({"t": {3: ALL}}, 0))
        assert writes == []
        assert not controller.has_work

    @pytest.mark.parametrize(
        ("name", "partition", "reason"),
        [
            ("none", 0, "there is no topic 'none'"),
            ("t", 9, "topic 't' has no partition 9"),
            ("t", 0, "topic 't' keeps at least one partition; to remove all, delete it"),
            ("__consumer_offsets", 3, "internal topic '__consumer_offsets' cannot be changed"),
        ],
    )
    def test_what_can_never_be_done_is_dropped(
        self, name: str, partition: int, reason: str
    ) -> None:
        controller = of()
        writes, effects = step(controller, wanted(partition, name=name))
        assert writes == [ForgetRequest(TopicPartition(name, partition), is_removal=True)]
        [report] = reports(effects)
        assert reason in report

    def test_what_cannot_be_read_is_dropped(self) -> None:
        writes, effects = step(of(), RequestsUnreadable([LAST], is_removal=False))
        assert writes == [ForgetRequest(LAST, is_removal=False)]
        assert "holds no valid request" in reports(effects)[0]

    def test_a_copy_goes_on_by_itself(self) -> None:
        controller = of()
        run(controller, wanted(2, drain=True))
        other = controller.copy()
        assert other.key() == controller.key()
        run(other, DrainRead([LAST]))
        assert other.key() != controller.key()
        assert not controller.image.states[LAST].removed


class TestDraining:
    def test_replicas_are_told_once_and_again_when_it_is_taken_back(self) -> None:
        controller = of()
        _, effects = step(controller, wanted(2, drain=True))
        assert all(commands.roles[LAST].state.is_closing for commands in effects.commands.values())
        assert removal.to_drain(controller.image) == [LAST]
        assert not controller.has_work
        _, effects = step(controller, wanted())
        assert not any(
            commands.roles[LAST].state.is_closing for commands in effects.commands.values()
        )
        assert controller.image.removals == {}

    def test_another_that_waits_is_not_taken_back_with_it(self) -> None:
        controller = of(4)
        step(controller, wanted(1, 3, drain=True))
        step(controller, wanted(1, drain=True))
        assert list(controller.image.removals["t"].requested) == [1]
        step(controller, wanted(1, drain=True))
        step(controller, wanted())
        assert controller.image.removals == {}

    def test_the_highest_is_read_first(self) -> None:
        controller = of()
        run(controller, wanted(1, 2, drain=True))
        run(controller, DrainRead([MIDDLE]))
        assert not controller.image.states[MIDDLE].removed
        run(controller, DrainRead([LAST]))
        assert controller.image.states[LAST].removed
        assert controller.image.states[MIDDLE].removed

    def test_what_is_read_of_a_removal_that_was_taken_back_counts_for_nothing(self) -> None:
        controller = of()
        run(controller, DrainRead([LAST]))
        assert controller.image.removals == {}

    def test_a_lower_one_goes_on_when_the_highest_is_gone(self) -> None:
        controller = of()
        run(controller, RemovalsRead({"t": {1: True, 2: False}}))
        run(controller, *stopped(LAST))
        assert sorted(controller.image.topics["t"].assignments) == [0, 1]
        assert controller.image.closing("t") == range(1, 2)
        assert controller.image.removals["t"].closed == {1: None}

    def test_what_was_commanded_is_finished_though_it_is_taken_back(self) -> None:
        controller = buried(3, 2)
        run(controller, wanted())
        run(controller, *stopped(LAST))
        assert sorted(controller.image.topics["t"].assignments) == [0, 1]


class TestAfterwards:
    def test_a_partition_without_a_state_just_goes(self) -> None:
        one = found(3)
        controller = unloaded(TopicFound(one.topic, {0: state(), 1: state()}))
        controller.offer(wanted(2))
        run(controller)
        assert sorted(controller.image.topics["t"].assignments) == [0, 1]
        assert controller.image.former[LAST] is None

    def test_a_new_controller_commands_what_the_last_one_buried(self) -> None:
        one = found(3)
        controller = unloaded(TopicFound(one.topic, {0: state(), 1: state(), 2: TOMBSTONE}))
        controller.offer(wanted(2))
        writes, effects = step(controller)
        assert state_writes(writes) == {}
        assert [LAST in commands.stops for commands in effects.commands.values()] == [True] * 3
        run(controller, *stopped(LAST))
        assert sorted(controller.image.topics["t"].assignments) == [0, 1]

    def test_a_dead_replica_is_not_told(self) -> None:
        one = found(3)
        controller = unloaded(
            TopicFound(one.topic, {0: state(), 1: state(), 2: TOMBSTONE}), live=brokers(1, 2)
        )
        controller.offer(wanted(2))
        _, effects = step(controller)
        assert sorted(effects.commands) == [1, 2]

    def test_a_tombstone_that_nobody_asked_for_is_where_a_new_life_begins(self) -> None:
        one = found(3)
        controller = unloaded(TopicFound(one.topic, {0: state(), 1: state(), 2: TOMBSTONE}))
        run(controller)
        again = controller.image.states[LAST]
        assert (again.leader_epoch, again.partition_epoch) == (7, 12)
        assert again.first_epochs == (7, 12)

    def test_it_waits_for_a_replica_that_lives(self) -> None:
        one = found(3)
        controller = unloaded(TopicFound(one.topic, {0: state(), 2: TOMBSTONE}), live={})
        run(controller)
        assert controller.image.states[LAST] == TOMBSTONE
        run(controller, BrokersRead(brokers(broker(3))))
        assert controller.image.states[LAST].leader == 3

    def test_a_partition_looked_at_once_in_a_decision_is_written_once(self) -> None:
        controller = of()
        controller.offer(wanted(2))
        writes, _ = step(controller, BrokersRead(brokers(1, 2)))
        assert state_writes(writes)[LAST].removed


class TestAdditions:
    def test_those_that_wait_are_reported_once_with_the_numbers_that_are_missing(self) -> None:
        def reports(*wanted: int) -> list[str]:
            controller.offer(AdditionsRead({"t": dict.fromkeys(wanted, ALL)} if wanted else {}, 0))
            decision = controller.decide()
            controller.applied(decision, write_all(decision.writes))
            return [one.text for one in decision.notices.of(UnmetRequest)]

        controller = of()
        assert reports(5, 7) == [
            "topic 't' has 3 partitions: requests to add partition 5, 7 wait for requests to add"
            " partition 3 to 4 (nodes /admin/partitions_add/t/3 and on)"
        ]
        assert reports(5, 7) == []
        [other] = reports(4)
        assert "partition 4 wait for requests to add partition 3 (" in other
        assert reports() == []
        assert len(reports(4)) == 1

    def test_they_wait_for_lower_numbers(self) -> None:
        controller = of()
        assert step(controller, AdditionsRead({"t": {4: ALL}}, 0))[0] == []
        writes, _ = step(controller, AdditionsRead({"t": {4: ALL, 3: (2, 1, 3)}}, 0))
        [write] = writes
        assert isinstance(write, AddPartitions)
        assert write.growth.topic.assignments[3] == (2, 1, 3)
        # What is there needs no request any more.
        writes, _ = step(controller)
        assert {one.topic_partition.partition for one in writes if isinstance(one, ForgetRequest)}

    def test_those_without_replicas_are_placed(self) -> None:
        writes, _ = step(of(), AdditionsRead({"t": {3: (), 4: (), 5: ALL}}, 0))
        [write] = writes
        assert isinstance(write, AddPartitions)
        assert list(write.growth.states) == [3, 4]

    def test_they_wait_while_partitions_go_and_while_the_number_changes(self) -> None:
        controller = of()
        run(controller, wanted(2, drain=True))
        assert step(controller, AdditionsRead({"t": {3: ALL}}, 0))[0] == []
        controller = of()
        writes, _ = step(controller, AdditionsRead({"t": {3: ALL}}, 0), grow(more("t", 4)))
        assert len(writes) == 1

    def test_what_cannot_be_added_is_dropped(self) -> None:
        writes, effects = step(of(), AdditionsRead({"none": {0: ALL, 1: ALL}, "t": {3: (9,)}}, 0))
        assert len([one for one in writes if isinstance(one, ForgetRequest)]) == 3
        assert len(reports(effects)) == 3

    def test_growth_and_removal_of_one_topic_take_turns(self) -> None:
        controller = of()
        writes, _ = step(controller, grow(more("t", 4)), remove(("t", 3), ticket=2))
        assert len(writes) == 1
        controller = of()
        writes, _ = step(controller, remove(("t", 2)), grow(more("t", 4), ticket=2))
        assert len(writes) == 1
        controller = buried(3, 2)
        controller.offer(remove(("t", 1), ticket=2))
        writes, _ = step(controller, *stopped(LAST))
        assert [type(one) for one in writes] == [RemovePartitions]

    def test_what_there_was_before_is_asked_for_once(self) -> None:
        controller = of()
        new = TopicPartition("t", 3)
        controller.offer(grow(more("t", 4), more("none", 4), more("t", 2)))
        assert controller.wanted_former() == [new]
        controller.offer(FormerRead({new: None}))
        controller.offer(wanted())
        assert controller.wanted_former() == []
        step(controller)
        step(controller, FormerRead({new: TOMBSTONE}))
        controller.offer(AdditionsRead({"t": {5: ALL}}, 0))
        assert controller.wanted_former() == [TopicPartition("t", 4), TopicPartition("t", 5)]

    def test_former_lives_are_not_asked_for_again_once_known(self) -> None:
        controller = of()
        new = TopicPartition("t", 3)
        step(controller, FormerRead({new: TOMBSTONE}))
        controller.offer(grow(more("t", 4)))
        assert controller.wanted_former() == []
        step(controller)
        assert controller.image.states[new].leader_epoch == TOMBSTONE.leader_epoch + 1
        assert new not in controller.image.former

    def test_after_a_conflict_nothing_is_known(self) -> None:
        controller = of()
        new = TopicPartition("t", 3)
        other = TopicPartition("u", 1)
        step(controller, FormerRead({new: None, other: None}))
        step(controller, grow(more("t", 4)), outcomes={0: Conflict()})
        assert list(controller.image.former) == [other]


class TestEdits:
    def edited(
        self, assignments: dict[int, tuple[int, ...]], **states: PartitionState
    ) -> tuple[Controller, list[str]]:
        controller = of()
        node = Topic("t", controller.image.topics["t"].topic_id, assignments, version=4)
        read = {number: state() for number in assignments if number < 3}
        controller.offer(TopicsRead(["t"], [TopicFound(node, read)]))
        found = [report for effects in run(controller) for report in reports(effects)]
        return controller, found

    def test_the_same_again_changes_nothing(self) -> None:
        controller, reports = self.edited({0: ALL, 1: ALL, 2: ALL})
        assert reports == []
        assert controller.image.topics["t"].version == 4

    def test_added_ones_begin(self) -> None:
        controller, reports = self.edited({0: ALL, 1: ALL, 2: ALL, 3: (3, 1, 2)})
        assert reports == []
        assert controller.image.states[TopicPartition("t", 3)].leader == 3

    def test_removed_ones_go(self) -> None:
        controller, reports = self.edited({0: ALL, 1: ALL})
        assert reports == []
        assert controller.image.states[LAST].removed
        run(controller, wanted())
        run(controller, *stopped(LAST))
        assert sorted(controller.image.topics["t"].assignments) == [0, 1]

    @pytest.mark.parametrize(
        ("assignments", "reason"),
        [
            ({0: ALL, 1: ALL, 2: (3, 2, 1)}, "other replicas for partition 2"),
            ({0: ALL, 2: ALL}, "numbers 0 to n-1 expected"),
            ({}, "at least one"),
            ({0: ALL, 1: ALL, 2: ALL, 3: (1, 9, 2)}, "names brokers [9]"),
        ],
    )
    def test_others_are_left_alone(
        self, assignments: dict[int, tuple[int, ...]], reason: str
    ) -> None:
        controller, reports = self.edited(assignments)
        assert sorted(controller.image.topics["t"].assignments) == [0, 1, 2]
        assert all(not one.removed for one in controller.image.states.values())
        [report] = reports
        assert "the node of topic 't' was edited, the edit is ignored" in report
        assert reason in report

    def test_another_id_beside_the_same_states_is_no_other_topic(self) -> None:
        controller = of()
        before = controller.image.topics["t"]
        states = {number: state() for number in range(3)}
        node = replace(before, topic_id=b"another-topic-id", version=4)
        controller.offer(TopicsRead(["t"], [TopicFound(node, states)]))
        [report] = [one for effects in run(controller) for one in reports(effects)]
        assert "the node of topic 't' was edited, the edit is ignored: it has another" in report
        assert topic_id_to_text(node.topic_id) in report
        assert topic_id_to_text(before.topic_id) in report
        assert controller.image.topics["t"] == replace(before, version=4)
        assert controller.image.topic_name(before.topic_id) == "t"
        assert controller.image.topic_name(node.topic_id) is None

    @pytest.mark.parametrize("states", [{}, {0: replace(state(), mzxid=77)}])
    def test_another_id_without_the_same_states_is_another_topic(
        self, states: dict[int, PartitionState]
    ) -> None:
        controller = of()
        node = Topic("t", b"another-topic-id", {0: ALL})
        controller.offer(TopicsRead(["t"], [TopicFound(node, states)]))
        found = [one for effects in run(controller) for one in reports(effects)]
        assert found == []
        assert controller.image.topics["t"].topic_id == node.topic_id
