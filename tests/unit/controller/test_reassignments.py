"""Reassignments as the controller decides them: begun, completed, ended, refused (V50 to V52)."""

from __future__ import annotations

import pytest
from tests.support.controller.reassigning import (
    FOUR,
    OTHER,
    begin,
    caught_up,
    cluster,
    completing,
    kinds,
    outcome,
    run_writes,
    stops,
)
from tests.support.controller.values import (
    CONTROLLER_EPOCH,
    TP,
    alter,
    answer_of,
    broker,
    brokers,
    create,
    delete,
    ended_moves,
    grow,
    isr_answer,
    list_moves,
    loaded,
    more,
    outdated,
    reassign,
    run,
    state,
    state_writes,
    step,
    stopped,
    topic,
    unloaded,
)

from tidelog.controller.controller import Controller
from tidelog.controller.reassignments import transitions
from tidelog.controller.reassignments.progress import SweepDue, WriteAssignments
from tidelog.controller.records import Move
from tidelog.controller.registrations import BrokersRead
from tidelog.controller.state_writes import WritePartitionState
from tidelog.controller.topics.changes import TopicFound, TopicUnreadable
from tidelog.controller.topics.creation import CreateTopic
from tidelog.controller.topics.deletion import DeletionsRead, RemoveTopic
from tidelog.controller.writes import Conflict
from tidelog.core.errors import ErrorCode
from tidelog.core.types import BrokerInfo, PartitionState, TopicPartition
from tidelog.wire.messages.create_topics import CreatableTopic


class TestBeginning:
    def test_the_node_names_all_replicas_and_then_the_state_has_another_epoch(self) -> None:
        controller = cluster()
        writes, _ = step(controller, reassign(TP, [4, 2, 1]))
        assert kinds(writes) == [WriteAssignments, WritePartitionState]
        node = writes[0]
        assert isinstance(node, WriteAssignments)
        assert node.topic.assignments[0] == (4, 2, 1, 3)
        assert (node.topic.moves[0].adding, node.topic.moves[0].removing) == ((4,), (3,))
        assert node.topic.moves[0].original == (1, 2, 3)
        assert node.topic.version == 1
        told = state_writes(writes)[TP]
        assert (told.leader, told.isr, told.leader_epoch) == (1, (1, 2, 3), 6)
        assert told.controller_epoch == CONTROLLER_EPOCH

    def test_every_replica_is_told_who_comes_and_goes(self) -> None:
        commands = begin(cluster(), 4, 2, 1).commands
        assert [one for one in sorted(commands) if TP in commands[one].roles] == [1, 2, 3, 4]
        for broker_id in (1, 2, 3, 4):
            role = commands[broker_id].roles[TP].state
            assert tuple(role.replicas) == (4, 2, 1, 3)
            assert (role.adding_replicas, role.removing_replicas) == ((4,), (3,))
            assert role.is_new == (broker_id == 4), "only the new replica may be made"
        [shown] = commands[5].shown.values()
        assert shown.replicas == (4, 2, 1, 3)

    def test_a_leader_may_take_a_new_replica_into_the_isr(self) -> None:
        controller = cluster()
        begin(controller, 4, 2, 1)
        caught_up(controller, 1, 2, 3, 4)
        assert controller.image.states[TP].isr == (1, 2, 3, 4)

    def test_where_the_partition_is_already_nothing_happens(self) -> None:
        controller = cluster()
        writes, effects = step(controller, reassign(TP, [1, 2, 3]))
        assert writes == []
        assert outcome(effects).error_code == ErrorCode.NONE
        begin(controller, 4, 2, 1)
        writes, effects = step(controller, reassign(TP, [4, 2, 1]))
        assert (writes, outcome(effects).error_code) == ([], ErrorCode.NONE)

    def test_another_order_is_one_write_and_moves_nothing(self) -> None:
        controller = cluster()
        writes, effects = step(controller, reassign(TP, [3, 1, 2]))
        assert kinds(writes) == [WriteAssignments]
        assert controller.image.replicas(TP) == (3, 1, 2)
        assert not controller.image.moving
        assert [list(one.shown) for one in effects.commands.values()] == [
            [(topic().topic_id, TP)] for _ in range(5)
        ]

    def test_partitions_of_one_topic_share_a_write(self) -> None:
        two = topic(assignments={0: (1, 2, 3), 1: (2, 3, 1)})
        controller = cluster(TopicFound(two, {0: state(), 1: state((2, 3, 1))}))
        asked = reassign(TP, [4, 2, 3])
        asked.request.topics.extend(reassign(OTHER, [5, 3, 1]).request.topics)
        writes, effects = step(controller, asked)
        assert kinds(writes) == [WriteAssignments, WritePartitionState, WritePartitionState]
        assert [len(one.partitions) for one in answer_of(effects).responses] == [2]
        assert sorted(controller.image.moving) == [TP, OTHER]

    def test_a_partition_that_has_no_state_yet_gets_one_on_all_replicas(self) -> None:
        controller = cluster(TopicFound(topic(assignments={0: (8, 9)}), {}))
        writes, _ = step(controller, reassign(TP, [4]))
        assert kinds(writes) == [WriteAssignments]
        assert controller.image.replicas(TP) == (4, 8, 9)

    def test_where_the_topic_changed_meanwhile_the_client_is_told(self) -> None:
        controller = cluster()
        _, effects = step(controller, reassign(TP, [4, 2, 1]), outcomes={0: Conflict()})
        assert outcome(effects).error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert outdated(effects) == ["t"]
        assert not controller.image.moving

    def test_a_state_that_could_not_be_written_is_written_again(self) -> None:
        controller = cluster()
        found = state(partition_epoch=11, mzxid=1001)
        step(controller, reassign(TP, [4, 2, 1]), outcomes={1: Conflict(found)})
        writes, effects = step(controller)
        assert state_writes(writes)[TP].leader_epoch == 6
        assert 4 in effects.commands[4].roles[TP].state.replicas

    def test_it_waits_for_an_election_of_the_same_moment(self) -> None:
        controller = cluster()
        writes, effects = step(
            controller, BrokersRead(brokers(2, 3, 4, 5)), reassign(TP, [4, 2, 3])
        )
        assert kinds(writes) == [WritePartitionState]
        assert effects.answers == []
        writes, effects = step(controller)
        assert kinds(writes) == [WriteAssignments, WritePartitionState]
        assert state_writes(writes)[TP].leader_epoch == 7

    def test_no_two_kinds_of_change_meet_in_one_write_of_a_topics_node(self) -> None:
        controller = cluster()
        writes, effects = step(controller, grow(more("t", 2)), reassign(TP, [4, 2, 1], ticket=2))
        assert kinds(writes) == [WriteAssignments, WritePartitionState]
        _, effects = step(controller)
        [refused] = answer_of(effects).results
        assert refused.error_code == ErrorCode.REASSIGNMENT_IN_PROGRESS


class TestRefusals:
    @pytest.mark.parametrize(
        ("target", "reason"),
        [
            ((), "t-0 is given no replicas"),
            ((4, 4, 1), "t-0 names a broker twice: [4, 4, 1]"),
            ((-1, 2), "t-0 names a negative broker id: [-1, 2]"),
            ((9, 2, 1), "t-0 names brokers [9], live brokers are [1, 2, 3, 4, 5]"),
        ],
    )
    def test_targets_that_cannot_be(self, target: tuple[int, ...], reason: str) -> None:
        controller = cluster()
        writes, effects = step(controller, reassign(TP, target))
        assert writes == []
        assert outcome(effects).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert reason in outcome(effects).error_message

    @pytest.mark.parametrize("wanted", [TopicPartition("u", 0), TopicPartition("t", 7)])
    def test_partitions_that_do_not_exist(self, wanted: TopicPartition) -> None:
        _, effects = step(cluster(), reassign(wanted, [4]))
        assert outcome(effects).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert f"there is no partition {wanted}" in outcome(effects).error_message

    def test_a_topic_that_is_being_deleted(self) -> None:
        controller = cluster()
        step(controller, delete("t", ticket=2))
        _, effects = step(controller, reassign(TP, [4, 2, 1]))
        assert "is being deleted" in outcome(effects).error_message

    def test_a_topic_that_cannot_be_read(self) -> None:
        controller = loaded(TopicUnreadable("t", "isr is missing"), live=FOUR)
        _, effects = step(controller, reassign(TP, [4]))
        assert "it is left alone: isr is missing" in outcome(effects).error_message

    def test_another_number_of_replicas_where_the_client_forbids_it(self) -> None:
        controller = cluster()
        asked = reassign(TP, [4, 5])
        asked.request.allow_replication_factor_change = False
        _, effects = step(controller, asked)
        assert outcome(effects).error_code == ErrorCode.INVALID_REPLICATION_FACTOR
        assert "has 3 replicas" in outcome(effects).error_message
        assert not answer_of(effects).allow_replication_factor_change
        begin(controller, 4, 5)

    def test_a_partition_that_is_named_twice(self) -> None:
        asked = reassign(TP, [4, 2, 1])
        asked.request.topics.extend(reassign(TP, [5, 2, 1]).request.topics)
        writes, effects = step(cluster(), asked)
        [one] = answer_of(effects).responses
        assert [each.error_code for each in one.partitions] == [0, ErrorCode.INVALID_REQUEST]
        assert kinds(writes) == [WriteAssignments, WritePartitionState]

    def test_a_node_that_would_be_too_large(self) -> None:
        wide = {number: tuple(range(1, 6)) for number in range(24_000)}
        controller = cluster(TopicFound(topic(assignments=wide), {0: state((1, 2, 3, 4, 5))}))
        asked = reassign(TP, [1])
        for number in range(1, 16_000):
            asked.request.topics.extend(reassign(TopicPartition("t", number), [2]).request.topics)
        _, effects = step(controller, asked)
        errors = [one.error_code for one in answer_of(effects).responses[0].partitions]
        assert errors[0] == ErrorCode.NONE
        assert errors[-1] == ErrorCode.INVALID_PARTITIONS


class TestCompleting:
    def test_it_waits_for_the_last_replica_of_the_target(self) -> None:
        controller = cluster()
        begin(controller, 4, 5)
        caught_up(controller, 1, 2, 3, 4)
        assert step(controller)[0] == []

    def test_old_replicas_need_not_be_in_sync(self) -> None:
        controller = cluster(TopicFound(topic(), {0: state((2,))}), live=brokers(2, 4))
        begin(controller, 4, 2)
        caught_up(controller, 2, 4)
        writes, _ = step(controller)
        assert state_writes(writes)[TP].isr == (2, 4)

    def test_the_isr_shrinks_to_the_target_and_a_leader_in_it_stays(self) -> None:
        controller, effects = completing(4, 2, 1)
        now = controller.image.states[TP]
        assert (now.leader, now.isr, now.leader_epoch) == (1, (1, 2, 4), 7)
        assert now.reassigned_to == (4, 2, 1)
        assert now.isr_epochs == (101, 102, 104)
        for broker_id in (1, 2, 4):
            role = effects.commands[broker_id].roles[TP].state
            assert tuple(role.replicas) == (4, 2, 1)
            assert (role.adding_replicas, role.removing_replicas) == ((), ())
        assert TP not in effects.commands[3].roles
        assert stops(effects.commands) == {3: True}
        assert effects.commands[3].stops[TP].leader_epoch == 7

    def test_another_leader_is_elected_where_the_old_one_is_to_go(self) -> None:
        controller, effects = completing(5, 4)
        assert controller.image.states[TP].leader == 5
        assert stops(effects.commands) == {1: True, 2: True, 3: True}

    def test_from_then_on_nobody_else_gets_into_the_isr(self) -> None:
        controller, _ = completing(4, 2, 1)
        now = controller.image.states[TP]
        asked = alter(
            1, 2, 3, 4, leader_epoch=now.leader_epoch, partition_epoch=now.partition_epoch
        )
        assert isr_answer(step(controller, asked)[1]).error_code == ErrorCode.INVALID_REQUEST, (
            "the ISR is not within the target"
        )

    def test_the_node_is_written_when_the_last_one_has_gone(self) -> None:
        controller, _ = completing(4, 2, 1)
        assert step(controller)[0] == []
        writes, effects = step(controller, stopped(3))
        assert kinds(writes) == [WriteAssignments]
        assert controller.image.topics["t"].assignments[0] == (4, 2, 1)
        assert not controller.image.topics["t"].is_reassigning
        assert TP not in controller.image.hosted_by(3)
        assert TP in controller.image.hosted_by(4)
        assert ended_moves(effects) == [(TP, (4, 2, 1))]
        assert not controller.has_work

    def test_a_dead_broker_is_not_waited_for(self) -> None:
        controller, _ = completing(4, 2, 1)
        run(controller, BrokersRead(brokers(1, 2, 4, 5)))
        assert not controller.image.moving
        assert controller.image.replicas(TP) == (4, 2, 1)

    def test_who_was_dead_all_the_time_is_not_told(self) -> None:
        controller = cluster(TopicFound(topic(), {0: state((1, 2))}), live=brokers(1, 2, 4))
        begin(controller, 4, 2, 1)
        caught_up(controller, 1, 2, 4)
        effects = step(controller)[1]
        assert stops(effects.commands) == {}
        assert kinds(step(controller)[0]) == [WriteAssignments]

    def test_who_returns_while_it_completes_does_not_get_its_replica_back(self) -> None:
        controller, _ = completing(4, 2, 1)
        run(controller, BrokersRead(brokers(1, 2, 4, 5)))
        controller, _ = completing(4, 2, 1)
        effects = step(controller, BrokersRead(brokers(1, 2, broker(3, 2), 4, 5)))[1]
        assert effects.commands[3].full
        assert TP not in effects.commands[3].roles

    def test_fewer_replicas_complete_at_once(self) -> None:
        controller = cluster()
        begin(controller, 1, 2)
        writes, effects = step(controller)
        assert state_writes(writes)[TP].isr == (1, 2)
        assert stops(effects.commands) == {3: True}

    def test_a_member_that_restarted_is_looked_at_first(self) -> None:
        controller = cluster()
        begin(controller, 4, 2, 1)
        writes, _ = step(
            controller,
            alter(1, 2, 3, 4, leader_epoch=6, partition_epoch=11),
        )
        writes, _ = step(controller, BrokersRead(brokers(1, 2, 3, broker(4, 2), 5)))
        assert state_writes(writes)[TP].isr == (1, 2, 3)
        assert step(controller)[0] == []

    def test_a_member_that_restarted_cleanly_counts_as_it_is_now(self) -> None:
        controller = cluster()
        begin(controller, 4, 2, 1)
        clean = broker(2, 2, previous_broker_epoch=102)
        step(controller, BrokersRead(brokers(1, clean, 3, 4, 5)))
        caught_up(controller, 1, (2, 202), 3, 4)
        step(controller)
        now = controller.image.states[TP]
        assert (now.isr, now.isr_epochs) == ((1, 2, 4), (101, 202, 104))
        again = broker(2, 3, previous_broker_epoch=202)
        done = TopicFound(
            topic(assignments={0: (4, 2, 1, 3)}, moves={0: Move((4,), (3,), (1, 2, 3))}),
            {0: state((1, 2, 4), isr_epochs=(101, 202, 104))},
        )
        controller = cluster(done, live=brokers(1, again, 3, 4))
        run(controller)
        now = controller.image.states[TP]
        assert (now.reassigned_to, now.isr_epochs) == ((4, 2, 1), (101, 302, 104))

    def test_a_partition_that_becomes_unreadable_meanwhile_is_left_alone(self) -> None:
        two = topic(assignments={0: (1, 2), 1: (3, 1)})
        controller = cluster(TopicFound(two, {0: state((1, 2)), 1: state((3, 1))}))
        events = (BrokersRead(brokers(1, 2, 4, 5)), reassign(TP, [4, 1]))
        writes, effects = step(controller, *events, outcomes={0: Conflict()})
        assert kinds(writes) == [WritePartitionState, WriteAssignments, WritePartitionState]
        [left] = controller.image.unreadable_states
        assert isinstance(writes[0], WritePartitionState)
        assert left == writes[0].topic_partition
        assert ended_moves(effects) == []

    def test_a_leader_is_needed(self) -> None:
        lone = TopicFound(
            topic(assignments={0: (4, 1)}, moves={0: Move((4,), (1,), (1,))}),
            {0: state((1, 4), leader=-1)},
        )
        controller = unloaded(lone, live=brokers(4))
        writes, _ = step(controller)
        assert state_writes(writes)[TP].leader == 4
        writes, _ = step(controller)
        assert state_writes(writes)[TP].reassigned_to == (4,)

    def test_where_the_target_has_no_leader_left_it_waits_and_resumes(self) -> None:
        controller, _ = completing(4)
        run(controller, BrokersRead(brokers(1, 2, 3, 5)), stopped(1), stopped(2), stopped(3))
        assert controller.image.states[TP].leader == -1
        assert controller.image.states[TP].isr == (4,)
        assert controller.image.replicas(TP) == (4,)

    def test_a_conflict_with_the_node_reads_it_again(self) -> None:
        controller, _ = completing(4, 2, 1)
        _, effects = step(controller, stopped(3), outcomes={0: Conflict()})
        assert outdated(effects) == ["t"]
        assert TP in controller.image.moving


class TestAnotherController:
    def moving(self, published: PartitionState, since: int = 1000) -> Controller:
        move = Move((4,), (3,), (1, 2, 3), since)
        found = topic(assignments={0: (4, 2, 1, 3)}, moves={0: move}, version=8)
        return unloaded(TopicFound(found, {0: published}), live=FOUR)

    def test_it_tells_everybody_who_may_not_know(self) -> None:
        controller = self.moving(state(mzxid=999))
        writes, effects = step(controller)
        assert state_writes(writes)[TP].leader_epoch == 6
        assert effects.commands[4].full
        assert not effects.commands[4].roles[TP].state.is_new, "it may be there"
        assert controller.image.states[TP].reassigned_to == ()

    def test_who_was_told_is_not_told_under_another_epoch(self) -> None:
        writes, effects = step(self.moving(state()))
        assert writes == []
        assert effects.commands[1].roles[TP].state.adding_replicas == (4,)

    def test_it_completes_once_its_full_commands_are_out(self) -> None:
        controller = self.moving(state((1, 2, 3, 4)))
        assert step(controller)[0] == []
        assert state_writes(step(controller)[0])[TP].isr == (1, 2, 4)

    def test_it_tells_those_who_are_to_go_before_they_would_be_strays(self) -> None:
        done = PartitionState(1, 7, (1, 2, 4), 6, 12, reassigned_to=(4, 2, 1), mzxid=2000)
        controller = self.moving(done)
        effects = step(controller)[1]
        assert stops(effects.commands) == {3: True}
        assert effects.commands[3].full
        assert TP not in effects.commands[3].roles
        assert effects.commands[1].roles[TP].state.leader_epoch == 7
        assert kinds(run_writes(controller, stopped(3))) == [WriteAssignments]

    def test_a_move_that_goes_on_does_not_keep_replicas_of_another_from_leaving(self) -> None:
        move = Move((4,), (3,), (1, 2, 3), 1000)
        done = PartitionState(1, 7, (1, 2, 4), 6, 12, reassigned_to=(4, 2, 1), mzxid=2000)
        found = topic(
            assignments=dict.fromkeys((0, 1), (4, 2, 1, 3)), moves={0: move, 1: move}, version=8
        )
        controller = unloaded(TopicFound(found, {0: state(), 1: done}), live=FOUR)
        effects = step(controller)[1]
        assert stops(effects.commands) == {}
        leaving = effects.commands[3].stops
        assert {partition: stop.delete for partition, stop in leaving.items()} == {OTHER: True}

    def test_who_may_not_know_that_it_completes_is_told_so(self) -> None:
        done = PartitionState(1, 7, (1, 2, 4), 6, 12, reassigned_to=(4, 2, 1), mzxid=999)
        writes, _ = step(self.moving(done))
        assert state_writes(writes)[TP].leader_epoch == 8
        assert state_writes(writes)[TP].reassigned_to == (4, 2, 1)

    def test_a_target_that_the_state_does_not_mean_counts_for_nothing(self) -> None:
        stale = PartitionState(1, 7, (1, 2), 6, 12, reassigned_to=(1, 2), mzxid=2000)
        controller = self.moving(stale)
        effects = step(controller)[1]
        assert stops(effects.commands) == {}
        assert 3 in effects.commands[3].roles[TP].state.replicas
        run(controller)
        assert controller.image.states[TP].isr == (1, 2)


def test_nobody_in_sync_is_told_to_go_whatever_the_state_says() -> None:
    odd = PartitionState(1, 7, (1, 2, 3), 6, 12, reassigned_to=(4, 2, 1), mzxid=2000)
    found = topic(assignments={0: (4, 2, 1, 3)}, moves={0: Move((4,), (3,), (1, 2, 3))})
    controller = unloaded(TopicFound(found, {0: odd}), live=FOUR)
    assert stops(step(controller)[1].commands) == {}
    assert not controller.image.is_completing(TP)


class TestAnotherTarget:
    def test_what_was_added_and_is_not_needed_goes_at_the_end(self) -> None:
        controller = cluster()
        begin(controller, 4, 2, 1)
        begin(controller, 5, 2, 1)
        found = controller.image.topics["t"]
        assert found.assignments[0] == (5, 2, 1, 4, 3)
        assert (found.moves[0].adding, found.moves[0].removing) == ((5, 4), (4, 3))
        assert found.moves[0].original == (1, 2, 3), "the first ones are kept"
        caught_up(controller, 1, 2, 3, 5)
        effects = step(controller)[1]
        assert controller.image.states[TP].isr == (1, 2, 5)
        assert stops(effects.commands) == {3: True, 4: True}

    def test_a_cancel_leads_back_to_the_same_order(self) -> None:
        controller = cluster()
        begin(controller, 4, 5, 1)
        caught_up(controller, 1, 2, 3, 4)
        effects = step(controller, reassign(TP, None))[1]
        assert outcome(effects).error_code == ErrorCode.NONE
        run(controller, stopped(4), stopped(5))
        run(controller, stopped(4), stopped(5))
        assert controller.image.replicas(TP) == (1, 2, 3)
        assert controller.image.states[TP].isr == (1, 2, 3)
        assert not controller.image.moving

    def test_a_cancel_waits_for_no_replica_that_is_out_of_sync(self) -> None:
        controller = cluster(TopicFound(topic(), {0: state((1, 2))}))
        begin(controller, 4, 5)
        run(controller, reassign(TP, None))
        run(controller, stopped(4), stopped(5))
        assert not controller.image.moving
        assert controller.image.replicas(TP) == (1, 2, 3)
        assert controller.image.states[TP].isr == (1, 2)

    def test_nothing_to_cancel(self) -> None:
        _, effects = step(cluster(), reassign(TP, None))
        assert outcome(effects).error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS

    def test_originals_that_nobody_recorded(self) -> None:
        found = topic(assignments={0: (4, 2, 1, 3)}, moves={0: Move((4,), (3,), ())})
        controller = cluster(TopicFound(found, {0: state()}))
        _, effects = step(controller, reassign(TP, None))
        assert "the former replicas of t-0 are not recorded" in outcome(effects).error_message
        begin(controller, 1, 2, 3)
        assert controller.image.topics["t"].moves[0].adding == (4,)

    def test_it_is_too_late_once_the_target_is_all_there_is(self) -> None:
        controller, _ = completing(4, 2, 1)
        for wanted in ([1, 2, 3], None):
            _, effects = step(controller, reassign(TP, wanted))
            assert outcome(effects).error_code == ErrorCode.REASSIGNMENT_IN_PROGRESS
        begin(controller, 4, 2, 1)

    def test_turning_back_from_fewer_replicas_ends_the_move(self) -> None:
        controller = cluster(TopicFound(topic(), {0: state((1, 3))}))
        begin(controller, 1, 2)
        assert TP in controller.image.moving
        step(controller, reassign(TP, None))
        assert not controller.image.moving
        assert controller.image.replicas(TP) == (1, 2, 3)

    def test_what_turns_back_is_not_completed_at_the_same_moment(self) -> None:
        controller = cluster()
        begin(controller, 1, 2)
        writes, _ = step(controller, reassign(TP, None))
        assert kinds(writes) == [WriteAssignments]
        assert controller.image.states[TP].isr == (1, 2, 3)


class TestOtherEvents:
    def test_elections_go_by_the_isr_in_the_order_of_the_assignment(self) -> None:
        controller = cluster()
        begin(controller, 4, 5, 2)
        caught_up(controller, 1, 2, 3, 4)
        step(controller, BrokersRead(brokers(2, 3, 4, 5)))
        assert controller.image.states[TP].leader == 4
        assert controller.image.states[TP].isr == (2, 3, 4)

    def test_while_it_completes_only_the_target_may_lead(self) -> None:
        controller, _ = completing(4, 5)
        run(controller, BrokersRead(brokers(1, 2, 3, 5)))
        now = controller.image.states[TP]
        assert (now.leader, now.isr, now.reassigned_to) == (5, (5,), (4, 5))

    def test_when_it_is_over_the_state_says_nothing_of_it_any_more(self) -> None:
        controller, _ = completing(4, 2, 1)
        run(controller, stopped(3))
        writes, _ = step(controller, BrokersRead(brokers(2, 3, 4, 5)))
        assert state_writes(writes)[TP].leader == 4
        assert state_writes(writes)[TP].reassigned_to == ()

    def test_one_ends_and_another_goes_on(self) -> None:
        two = topic(assignments={0: (1, 2, 3), 1: (2, 3, 1)})
        controller = cluster(TopicFound(two, {0: state(), 1: state((2, 3, 1))}))
        asked = reassign(TP, [1, 2])
        asked.request.topics.extend(reassign(OTHER, [5, 3, 1]).request.topics)
        run(controller, asked)
        run(controller, stopped(3))
        assert list(controller.image.moving) == [OTHER]
        assert list(controller.image.topics["t"].moves) == [1]

    def test_a_deletion_ends_it_and_reaches_every_replica(self) -> None:
        controller = cluster()
        begin(controller, 4, 2, 1)
        caught_up(controller, 1, 2, 3, 4)
        effects = step(controller, delete("t"))[1]
        assert stops(effects.commands) == {1: True, 2: True, 3: True, 4: True}
        assert answer_of(step(controller, list_moves(ticket=3))[1], 3).topics == []
        writes = run_writes(controller, *(stopped(one) for one in (1, 2, 3, 4)))
        assert kinds(writes) == [RemoveTopic]
        assert not controller.image.moving

    def test_a_deletion_while_it_completes_reaches_those_who_are_to_go_as_well(self) -> None:
        controller, _ = completing(4, 2, 1)
        effects = step(controller, DeletionsRead(["t"]))[1]
        assert stops(effects.commands) == {1: True, 2: True, 3: True, 4: True}
        assert kinds(run_writes(controller, *(stopped(one) for one in (1, 2, 3, 4)))) == [
            RemoveTopic
        ]

    def test_a_topic_can_be_made_meanwhile(self) -> None:
        controller = cluster()
        writes, _ = step(
            controller, reassign(TP, [4, 2, 1]), create(CreatableTopic("u", 1, 1), ticket=2)
        )
        assert kinds(writes) == [WriteAssignments, WritePartitionState, CreateTopic]

    def test_a_sweep_finds_what_is_due(self) -> None:
        controller = cluster()
        begin(controller, 4, 2, 1)
        run(controller)
        controller.image.states[TP] = state((1, 2, 3, 4), leader_epoch=6, partition_epoch=12)
        assert not controller.has_work
        assert state_writes(step(controller, SweepDue())[0])[TP].isr == (1, 2, 4)

    def test_a_copy_goes_on_by_itself(self) -> None:
        controller, _ = completing(4, 2, 1)
        other = controller.copy()
        assert other.key() == controller.key()
        run(other, stopped(3))
        assert not other.image.moving
        assert TP in controller.image.moving
        assert other.key() != controller.key()


@pytest.mark.parametrize(
    ("live", "absent"),
    [
        (brokers(1, 2), ()),
        (brokers(1, 2, 4), (4,)),
        (brokers(1, 2, broker(4, 2)), ()),
    ],
)
def test_no_move_is_complete_with_a_replica_that_is_not_there(
    live: dict[int, BrokerInfo], absent: tuple[int, ...]
) -> None:
    there = state((1, 2, 4))
    assert transitions.completed(there, (4, 2, 1), live, absent, 7) is None
    assert transitions.completed(there, (4, 2, 1), brokers(1, 2, 4), (), 7) is not None
