"""Partitions whose state nodes cannot be read, decision by decision: left alone, the rest goes on
(V25, V35)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.support.controller.values import (
    alter,
    answer_of,
    broker,
    brokers,
    delete,
    elect,
    grow,
    isr_answer,
    loaded,
    more,
    reports,
    run,
    shut_down,
    state,
    state_writes,
    step,
    topic,
    unloaded,
)
from tests.unit.controller.test_removals import remove

from tidelog.controller.commands import Commands, Part, Sender
from tidelog.controller.controller import Controller
from tidelog.controller.partitions.removal import RemovalsRead
from tidelog.controller.reassignments.requests import ReassignmentsAsked
from tidelog.controller.reassignments.stored_nodes import ReassignmentsRead
from tidelog.controller.records import Move, RequestedReassignments
from tidelog.controller.registrations import BrokersRead
from tidelog.controller.replica_answers import StopReplicaAnswered
from tidelog.controller.state_writes import StateUnreadable
from tidelog.controller.topics.changes import TopicFound
from tidelog.controller.topics.deletion import RemoveTopic
from tidelog.controller.topics.readings import StatesRead, TopicsRead
from tidelog.controller.writes import Conflict
from tidelog.core.errors import ErrorCode
from tidelog.core.types import PartitionState, ReassignmentEntry, TopicPartition
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)

WHY = "/brokers/topics/t/partitions/0/state: not JSON"
BAD, GOOD = TopicPartition("t", 0), TopicPartition("t", 1)
HOSTED: Mapping[int, tuple[int, ...]] = {0: (1, 2), 1: (1, 2)}
FOUND = TopicFound(topic("t", dict(HOSTED)), {1: state((1, 2))}, {0: WHY})


def damaged() -> Controller:
    """In office; one of the two partitions of a topic cannot be read."""
    return loaded(FOUND)


def told_in_full(commands: Commands) -> dict[int, tuple[int, int]]:
    """Leader and leader epoch of each partition that a LeaderAndIsr request names."""
    [request] = [
        one.message for one in commands.requests(Sender(1, 1, "x"), 5) if one.part is Part.ROLES
    ]
    return {
        one.partition_index: (one.leader, one.leader_epoch)
        for named in request.topic_states
        for one in named.partition_states
    }


def reassign(target: list[int] | None) -> ReassignmentsAsked:
    named = [ReassignableTopic("t", [ReassignablePartition(0, target)])]
    return ReassignmentsAsked(1, AlterPartitionReassignmentsRequest(topics=named))


class TestLeftAlone:
    def test_others_of_the_topic_get_leaders_and_it_gets_no_state(self) -> None:
        controller = damaged()
        writes, effects = step(controller, BrokersRead(brokers(2)))
        assert {one: now.leader for one, now in state_writes(writes).items()} == {GOOD: 2}
        assert list(effects.commands[2].roles) == [GOOD]
        assert [key[1] for key in effects.commands[2].shown] == [GOOD]
        assert not controller.has_work

    def test_in_full_it_is_named_to_all_and_nobody_has_a_role_in_it(self) -> None:
        _, effects = step(unloaded(FOUND))
        for broker_id in (1, 2, 3):
            commands = effects.commands[broker_id]
            assert told_in_full(commands)[0] == (-1, -1)
            assert not commands.roles[BAD].state.is_new
            shown = {key[1]: (one.leader, one.leader_epoch) for key, one in commands.shown.items()}
            assert shown == {BAD: (-1, -1), GOOD: (1, 5)}

    def test_a_replica_that_was_to_be_made_is_not_to_be_made_now(self) -> None:
        _, first = step(unloaded(TopicFound(topic("t", dict(HOSTED)), {})))
        waiting = first.commands[1]
        assert waiting.roles[BAD].state.is_new
        _, later = step(unloaded(FOUND))
        waiting.merge(later.commands[1])
        assert not waiting.roles[BAD].state.is_new
        assert waiting.roles[GOOD].state.is_new

    def test_a_write_that_finds_it_unreadable_says_what_was_known(self) -> None:
        controller = loaded(
            TopicFound(topic("t", dict(HOSTED)), {0: state((1, 2)), 1: state((1, 2))})
        )
        _, effects = step(controller, BrokersRead(brokers(2)), outcomes={0: Conflict(reason=WHY)})
        assert controller.image.unreadable_states == {BAD: WHY}
        assert BAD not in controller.image.states
        assert list(effects.commands[2].roles) == [GOOD]
        [line] = reports(effects)
        assert "t-0" in line and "under leader epoch 5" in line and "at least 6" in line
        assert not controller.has_work

    def test_a_first_state_that_finds_a_node_leaves_it_alone(self) -> None:
        controller = unloaded(TopicFound(topic("t", dict(HOSTED)), {}))
        _, effects = step(controller, outcomes={0: Conflict(reason=WHY), 1: Conflict()})
        assert controller.image.unreadable_states == {BAD: WHY, GOOD: "the node has gone"}
        assert reports(effects) == []

    def test_an_image_tells_it_apart_and_copies_it(self) -> None:
        image = damaged().image
        copied = image.copy()
        assert copied.key() == image.key()
        copied.apply(StateUnreadable(GOOD, "gone"))
        assert copied.key() != image.key()
        assert list(image.unreadable_states) == [BAD]


class TestRequests:
    def test_no_leader_is_elected_on_request(self) -> None:
        _, effects = step(damaged(), elect(BAD, GOOD))
        [answer] = answer_of(effects).replica_election_results
        [bad, good] = answer.partition_result
        assert bad.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and WHY in bad.error_message
        assert good.error_code == ErrorCode.ELECTION_NOT_NEEDED

    def test_its_leader_changes_no_isr(self) -> None:
        _, effects = step(damaged(), alter(1))
        assert isr_answer(effects).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    @pytest.mark.parametrize("target", [[2, 3], None])
    def test_it_is_not_moved(self, target: list[int] | None) -> None:
        writes, effects = step(damaged(), reassign(target))
        assert writes == []
        [[answer]] = [one.partitions for one in answer_of(effects).responses]
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert WHY in answer.error_message

    def test_a_move_that_an_administrator_left_waits(self) -> None:
        entry = ReassignmentEntry(BAD, (2, 3), ())
        controller = damaged()
        writes, _ = step(controller, ReassignmentsRead(RequestedReassignments(1, {BAD: entry})))
        assert writes == []
        run(controller, StatesRead({BAD: state((1, 2))}))
        move = controller.image.move(BAD)
        assert move is not None and move.adding == (3,)

    def test_it_is_not_removed_on_request(self) -> None:
        found = TopicFound(topic("t", {0: (1, 2), 1: (1, 2)}), {0: state((1, 2))}, {1: WHY})
        _, effects = step(loaded(found), remove(("t", 1)))
        [answer] = answer_of(effects).results
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert WHY in answer.error_message

    def test_a_removal_that_was_left_in_the_store_waits(self) -> None:
        found = TopicFound(topic("t", {0: (1, 2), 1: (1, 2)}), {0: state((1, 2))}, {1: WHY})
        controller = loaded(found)
        writes, effects = step(controller, RemovalsRead({"t": {1: False}}))
        assert writes == [] and all(not one.stops for one in effects.commands.values())
        assert not controller.has_work
        run(controller, StatesRead({GOOD: state((1, 2))}))
        assert controller.image.states[GOOD].removed

    def test_partitions_are_added_beside_it(self) -> None:
        controller = damaged()
        _, effects = step(controller, grow(more("t", 3, (1, 2))))
        [answer] = answer_of(effects).results
        assert answer.error_code == ErrorCode.NONE
        assert list(controller.image.unreadable_states) == [BAD]

    def test_its_topic_is_deleted_with_it(self) -> None:
        controller = damaged()
        _, effects = step(controller, delete("t"))
        for broker_id in (1, 2):
            commands = effects.commands[broker_id]
            assert sorted(commands.stops) == [BAD, GOOD]
            shown = {key[1]: (one.leader, one.leader_epoch) for key, one in commands.shown.items()}
            assert shown == {BAD: (-2, -2), GOOD: (-2, -2)}
        _, effects = step(controller, BrokersRead(brokers(1, broker(2, 2), 3)))
        assert effects.commands[2].full
        assert BAD not in effects.commands[2].roles
        assert not effects.commands[2].shown
        writes, _ = step(controller, StopReplicaAnswered(1, 101, [BAD, GOOD]))
        assert any(isinstance(one, RemoveTopic) for one in writes)
        assert controller.image.unreadable_states == {}

    def test_who_leads_it_is_let_go(self) -> None:
        controller = damaged()
        effects = run(controller, shut_down(1))
        assert answer_of(effects[-1]).error_code == ErrorCode.NONE


class TestMended:
    def mended(self, now: PartitionState | str = WHY) -> tuple[Controller, dict[int, Commands]]:
        controller = damaged()
        _, effects = step(controller, StatesRead({BAD: now}))
        return controller, effects.commands

    def test_everybody_is_told_everything(self) -> None:
        controller, commands = self.mended(state((1, 2), leader_epoch=9))
        assert controller.image.unreadable_states == {}
        for broker_id in (1, 2):
            assert commands[broker_id].full
            assert told_in_full(commands[broker_id]) == {0: (1, 9), 1: (1, 5)}

    def test_what_happened_meanwhile_is_caught_up_with(self) -> None:
        controller = damaged()
        run(controller, BrokersRead(brokers(2)))
        writes, _ = step(controller, StatesRead({BAD: state((1, 2), leader_epoch=9)}))
        now = state_writes(writes)[BAD]
        assert (now.leader, now.leader_epoch) == (2, 10)

    def test_another_reason_is_no_news_to_brokers(self) -> None:
        controller, commands = self.mended("gone")
        assert controller.image.unreadable_states == {BAD: "gone"}
        assert not commands

    def test_what_has_been_mended_already_counts_once(self) -> None:
        controller, _ = self.mended(state((1, 2), leader_epoch=9))
        step(controller, StatesRead({BAD: state((2, 1), leader_epoch=3)}))
        assert controller.image.states[BAD].leader_epoch == 9

    def test_a_move_goes_on(self) -> None:
        moving = topic("t", {0: (3, 1, 2), 1: (1, 2)}, moves={0: Move((3,), (1,), (1, 2))})
        controller = loaded(TopicFound(moving, {1: state((1, 2))}, {0: WHY}))
        run(controller, StatesRead({BAD: state((3, 1, 2), leader_epoch=9)}))
        assert controller.image.states[BAD].isr == (3, 2)

    def test_with_its_topic_it_is_told_to_everybody(self) -> None:
        controller = damaged()
        both = TopicFound(FOUND.topic, {0: state((1, 2), leader_epoch=9), 1: state((1, 2))})
        _, effects = step(controller, TopicsRead(["t"], [both]))
        assert controller.image.unreadable_states == {}
        assert told_in_full(effects.commands[1]) == {0: (1, 9), 1: (1, 5)}


class TestReadAgainWithItsTopic:
    def test_what_was_known_is_said(self) -> None:
        controller = loaded(
            TopicFound(topic("t", dict(HOSTED)), {0: state((1, 2)), 1: state((1, 2))})
        )
        _, effects = step(controller, TopicsRead(["t"], [FOUND]))
        assert controller.image.unreadable_states == {BAD: WHY}
        assert ["leader epoch of at least 6" in line for line in reports(effects)] == [True]

    def test_a_node_that_is_gone_is_no_partition_that_begins(self) -> None:
        controller = damaged()
        gone = TopicFound(FOUND.topic, {1: state((1, 2))})
        writes, _ = step(controller, TopicsRead(["t"], [gone]))
        assert writes == []
        assert controller.image.unreadable_states == {BAD: WHY}

    def test_an_edit_that_takes_it_away_waits(self) -> None:
        found = TopicFound(topic("t", {0: (1, 2), 1: (1, 2)}), {0: state((1, 2))}, {1: WHY})
        controller = loaded(found)
        fewer = TopicFound(topic("t", {0: (1, 2)}, version=9), {0: state((1, 2))})
        _, effects = step(controller, TopicsRead(["t"], [fewer]))
        assert controller.image.unreadable_states == {GOOD: WHY}
        assert all(not one.stops for one in effects.commands.values())

    def test_an_edit_that_is_not_adopted_leaves_it_as_it_is(self) -> None:
        controller = damaged()
        odd = topic("t", {0: (1, 3), 1: (1, 2), 2: (1, 2)}, version=9)
        read = TopicFound(odd, {1: state((1, 2))}, {0: WHY, 2: "not JSON"})
        step(controller, TopicsRead(["t"], [read]))
        assert controller.image.unreadable_states == {BAD: WHY}

    def test_one_that_is_added_over_nonsense_is_left_alone(self) -> None:
        controller = damaged()
        grown = topic("t", {**HOSTED, 2: (1, 2)}, version=9)
        read = TopicFound(grown, {1: state((1, 2))}, {0: WHY, 2: "not JSON"})
        writes, _ = step(controller, TopicsRead(["t"], [read]))
        assert state_writes(writes) == {}
        assert sorted(one.partition for one in controller.image.unreadable_states) == [0, 2]
