"""Events in, a decision out, effects when it is durable."""

from __future__ import annotations

import pytest
from tests.support.controller.values import (
    CONTROLLER_EPOCH,
    TP,
    alter,
    answer_of,
    broker,
    brokers,
    create,
    delete,
    deleted_unread,
    epoch,
    isr_answer,
    loaded,
    published,
    removed,
    roles_answered,
    run,
    settings,
    state,
    state_writes,
    step,
    topic,
    topic_id,
    unloaded,
    write_all,
)

from tidelog.controller.command_builder import CommandBuilder
from tidelog.controller.commands import Part, Sender
from tidelog.controller.controller import Controller
from tidelog.controller.decision import Effects
from tidelog.controller.elections import leaders
from tidelog.controller.events import Event
from tidelog.controller.producer_ids import ProducerIdsAsked, ProducerIdsRead, TakeProducerIds
from tidelog.controller.records import LastProducerId
from tidelog.controller.registrations import BrokersRead
from tidelog.controller.replica_answers import LeaderAndIsrAnswered, StopReplicaAnswered
from tidelog.controller.state_writes import WritePartitionState
from tidelog.controller.topics.changes import TopicFound, TopicGone, TopicUnreadable
from tidelog.controller.topics.creation import CreateTopic
from tidelog.controller.topics.deletion import (
    DeletionsRead,
    ForgetDeletion,
    QueueDeletion,
    RemoveTopic,
)
from tidelog.controller.topics.readings import TopicsRead
from tidelog.controller.writes import Conflict
from tidelog.core.errors import ErrorCode, InvariantError
from tidelog.core.limits import MAX_PARTITIONS_PER_REQUEST, PRODUCER_ID_BLOCK_SIZE
from tidelog.core.types import NO_LEADER, TopicPartition
from tidelog.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from tidelog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig

SENDER = Sender(1, CONTROLLER_EPOCH, "PLAINTEXT")


def roles_told(effects: Effects) -> dict[int, list[TopicPartition]]:
    """Who is told its role in which partitions."""
    return {
        broker_id: list(commands.roles)
        for broker_id, commands in effects.commands.items()
        if commands.roles
    }


def parts_told(effects: Effects, broker_id: int) -> list[Part]:
    outgoing = effects.commands[broker_id].requests(SENDER, epoch(broker_id))
    return [one.part for one in outgoing]


class TestTakingOffice:
    def test_everybody_gets_everything(self) -> None:
        controller = unloaded(TopicFound(topic(), {0: state()}))
        writes, effects = step(controller)
        assert writes == []
        assert list(effects.commands) == [1, 2, 3]
        for commands in effects.commands.values():
            assert commands.full
            assert commands.shows_all
            assert list(commands.roles) == [TP]
        assert not controller.has_work

    def test_bounces_deaths_and_elections_are_written_first(self) -> None:
        controller = unloaded(TopicFound(topic(), {0: state()}), live=brokers(broker(1, life=2), 2))
        writes, effects = step(controller)
        after = state_writes(writes)[TP]
        assert (after.leader, after.isr) == (2, (2,))
        assert effects.commands[1].roles[TP].state.leader == 2

    def test_partitions_without_a_state_get_one(self) -> None:
        controller = unloaded(TopicFound(topic("t", {0: (1, 2, 3), 1: (9,)}), {}))
        writes, effects = step(controller)
        [write] = writes
        assert isinstance(write, WritePartitionState) and write.expected_epoch == -1
        assert state_writes(writes)[TP].isr == (1, 2, 3)
        assert effects.commands[1].roles[TP].state.is_new
        assert published(effects) == [(TP, state_writes(writes)[TP])]

    def test_deletions_go_on(self) -> None:
        controller = unloaded(TopicFound(topic(), {0: state()}), deletions=["t"])
        writes, effects = step(controller)
        assert writes == []
        assert parts_told(effects, 1) == [Part.BROKERS, Part.STOPS, Part.ROLES, Part.SHOWN]

    def test_requests_to_delete_what_does_not_exist_are_forgotten(self) -> None:
        controller = unloaded(deletions=["nobody"])
        writes, _ = step(controller)
        assert writes == [ForgetDeletion("nobody")]

    def test_with_deletion_disabled_all_requests_are_forgotten(self) -> None:
        controller = unloaded(
            TopicFound(topic(), {0: state()}),
            deletions=["t"],
            of=settings(deletion_enabled=False),
        )
        writes, _ = step(controller)
        assert writes == [ForgetDeletion("t")]


class TestDecisions:
    def test_a_decision_changes_nothing_before_it_is_durable(self) -> None:
        controller = loaded()
        controller.offer(BrokersRead(brokers(2, 3)))
        decision = controller.decide()
        assert controller.image.states[TP] == state()
        controller.applied(decision, write_all(decision.writes))
        assert controller.image.states[TP].leader == 2

    def test_neither_decisions_nor_commands_change_the_image(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def meddle(builder: CommandBuilder) -> None:
            controller.image.apply(TopicGone("t"))

        controller = loaded()
        controller.offer(BrokersRead(brokers(2, 3)))
        with monkeypatch.context() as patched:
            patched.setattr(leaders, "look_at", lambda *_: controller.image.apply(TopicGone("t")))
            with pytest.raises(InvariantError, match="while it is read"):
                controller.decide()
        controller = loaded()
        controller.offer(BrokersRead(brokers(2, 3)))
        decision = controller.decide()
        monkeypatch.setattr(CommandBuilder, "send_brokers", meddle)
        with pytest.raises(InvariantError, match="while it is read"):
            controller.applied(decision, write_all(decision.writes))

    def test_one_decision_is_in_flight(self) -> None:
        controller = loaded()
        decision = controller.decide()
        with pytest.raises(InvariantError):
            controller.decide()
        controller.applied(decision, [])
        with pytest.raises(InvariantError):
            controller.applied(decision, [])

    def test_what_comes_meanwhile_is_decided_on_the_applied_image(self) -> None:
        controller = loaded()
        controller.offer(BrokersRead(brokers(2, 3)))
        decision = controller.decide()
        controller.offer(alter(1, 2))
        controller.offer(BrokersRead(brokers(3)))
        controller.applied(decision, write_all(decision.writes))
        writes, effects = step(controller)
        assert state_writes(writes)[TP].leader == 3
        assert answer_of(effects).error_code == ErrorCode.STALE_BROKER_EPOCH

    def test_elections_go_before_requests_of_the_same_decision(self) -> None:
        controller = loaded()
        writes, effects = step(controller, alter(1, 2), BrokersRead(brokers(1, 2)))
        assert [one.leader_epoch for one in state_writes(writes).values()] == [6]
        assert isr_answer(effects).error_code == ErrorCode.FENCED_LEADER_EPOCH

    def test_an_unreadable_topic_is_left_alone(self) -> None:
        controller = loaded(TopicUnreadable("t", "not JSON"))
        writes, _ = step(controller, BrokersRead(brokers(2, 3)))
        assert writes == []

    def test_topics_may_allow_unclean_elections(self) -> None:
        own = TopicFound(topic(unclean=True), {0: state((1,))})
        controller = loaded(own)
        writes, _ = step(controller, BrokersRead(brokers(2, 3)))
        assert state_writes(writes)[TP].leader == 2

    def test_so_may_the_cluster_but_a_topic_overrules_it(self) -> None:
        lenient = settings(unclean=True)
        controller = loaded(TopicFound(topic(), {0: state((1,))}), of=lenient)
        writes, _ = step(controller, BrokersRead(brokers(2, 3)))
        assert state_writes(writes)[TP].leader == 2
        strict = TopicFound(topic(unclean=False), {0: state((1,))})
        writes, _ = step(loaded(strict, of=lenient), BrokersRead(brokers(2, 3)))
        assert state_writes(writes)[TP].leader == NO_LEADER


class TestBrokers:
    def test_a_reading_without_news_does_nothing(self) -> None:
        controller = loaded()
        writes, effects = step(controller, BrokersRead(brokers(1, 2, 3)))
        assert writes == []
        assert effects.commands == {}

    def test_a_new_broker_gets_everything_the_others_the_news(self) -> None:
        controller = loaded(live=brokers(1, 2))
        _, effects = step(controller, BrokersRead(brokers(1, 2, 3)))
        assert effects.commands[3].full
        assert list(effects.commands[3].roles) == [TP]
        assert parts_told(effects, 1) == [Part.SHOWN]
        [shown] = effects.commands[1].shown.values()
        assert shown.offline_replicas == []

    def test_a_death_tells_live_replicas_and_everybody(self) -> None:
        controller = loaded(live=brokers(1, 2, 3, 4))
        _, effects = step(controller, BrokersRead(brokers(2, 3, 4)))
        assert roles_told(effects) == {2: [TP], 3: [TP]}
        [shown] = effects.commands[4].shown.values()
        assert (shown.leader, shown.offline_replicas) == (2, [1])

    def test_a_death_outside_the_isr_still_shows_the_replica_as_offline(self) -> None:
        controller = loaded(TopicFound(topic(), {0: state((1, 2))}))
        writes, effects = step(controller, BrokersRead(brokers(1, 2)))
        assert writes == []
        [shown] = effects.commands[1].shown.values()
        assert shown.offline_replicas == [3]

    def test_a_moved_endpoint_is_told_to_everybody(self) -> None:
        controller = loaded()
        moved = broker(2)
        moved = type(moved)(2, moved.broker_epoch, (moved.endpoints[0]._replace(port=1),))
        _, effects = step(controller, BrokersRead(brokers(1, moved, 3)))
        assert [parts_told(effects, one) for one in (1, 2, 3)] == [[Part.SHOWN]] * 3


class TestConflicts:
    def test_only_the_conflicting_partition_is_decided_again(self) -> None:
        two = TopicFound(topic("t", {0: (1, 2), 1: (1, 2)}), {0: state((1, 2)), 1: state((1, 2))})
        controller = loaded(two)
        found = state((1, 2), 2, leader_epoch=9, partition_epoch=20)
        writes, effects = step(
            controller, BrokersRead(brokers(2)), outcomes={0: Conflict(state=found)}
        )
        assert len(writes) == 2
        assert [tp.partition for tp, _ in published(effects)] == [1]
        assert controller.image.states[TP] == found
        assert effects.commands[2].roles[TP].state.leader_epoch == 9
        writes, _ = step(controller)
        after = state_writes(writes)
        assert list(after) == [TP]
        assert (after[TP].leader_epoch, after[TP].partition_epoch) == (10, 21)

    def test_a_state_that_cannot_be_read_any_more_takes_its_partition_out(self) -> None:
        two = TopicFound(topic("t", {0: (1, 2), 1: (1, 2)}), {0: state((1, 2)), 1: state((1, 2))})
        controller = loaded(two)
        _, effects = step(
            controller, BrokersRead(brokers(2)), outcomes={1: Conflict(reason="not JSON")}
        )
        assert controller.image.unreadable_states == {TopicPartition("t", 1): "not JSON"}
        assert [one for one, _ in published(effects)] == [TP]
        assert not controller.has_work

    def test_a_leader_hears_of_a_conflict_and_of_the_state_that_holds(self) -> None:
        controller = loaded()
        found = state((1, 3), partition_epoch=20)
        _, effects = step(controller, alter(1, 2), outcomes={0: Conflict(state=found)})
        assert isr_answer(effects).error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert effects.commands[1].roles[TP].state.partition_epoch == 20


class TestAlterPartition:
    def test_an_accepted_change_is_answered_and_shown_but_not_commanded(self) -> None:
        controller = loaded()
        writes, effects = step(controller, alter(1, 2))
        assert state_writes(writes)[TP].isr == (1, 2)
        answer = isr_answer(effects)
        assert (answer.error_code, answer.isr, answer.partition_epoch) == (0, (1, 2), 11)
        assert (answer.leader_id, answer.leader_epoch) == (1, 5)
        assert roles_told(effects) == {}
        assert all(parts_told(effects, one) == [Part.SHOWN] for one in (1, 2, 3))
        assert published(effects) == [(TP, state_writes(writes)[TP])]

    def test_a_stale_partition_epoch_is_answered_by_the_role_too(self) -> None:
        controller = loaded()
        writes, effects = step(controller, alter(1, 2, partition_epoch=9))
        assert writes == []
        assert isr_answer(effects).error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert roles_told(effects) == {1: [TP]}

    def test_the_same_request_twice_is_written_once(self) -> None:
        controller = loaded()
        writes, effects = step(controller, alter(1, 2), alter(1, 2, ticket=2))
        assert len(writes) == 1
        assert isr_answer(effects, 1) == isr_answer(effects, 2)

    def test_both_hear_of_a_conflict(self) -> None:
        controller = loaded()
        found = Conflict(state=state((1, 3), partition_epoch=20))
        _, effects = step(controller, alter(1, 2), alter(1, 2, ticket=2), outcomes={0: found})
        assert isr_answer(effects, 1).error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert isr_answer(effects, 2).error_code == ErrorCode.INVALID_UPDATE_VERSION

    def test_a_second_change_of_a_partition_meets_the_first(self) -> None:
        controller = loaded()
        writes, effects = step(controller, alter(1, 2), alter(1, 3, ticket=2))
        assert len(writes) == 1
        assert isr_answer(effects, 2).error_code == ErrorCode.INVALID_UPDATE_VERSION

    @pytest.mark.parametrize(
        ("asked", "code"),
        [
            (alter(1, 2, of_topic=topic_id("nobody")), ErrorCode.UNKNOWN_TOPIC_ID),
            (alter(1, 2, partition=9), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ],
    )
    def test_unknown_partitions_are_refused(self, asked: Event, code: ErrorCode) -> None:
        writes, effects = step(loaded(), asked)
        assert writes == []
        assert isr_answer(effects).error_code == code

    def test_a_topic_on_its_way_out_is_unknown(self) -> None:
        controller = loaded()
        step(controller, DeletionsRead(["t"]))
        _, effects = step(controller, alter(1, 2))
        assert isr_answer(effects).error_code == ErrorCode.UNKNOWN_TOPIC_ID

    @pytest.mark.parametrize(
        "asked", [alter(1, 2, sender=9), alter(1, 2, sender_epoch=epoch(1, life=2))]
    )
    def test_a_sender_of_another_life_is_refused_whole(self, asked: Event) -> None:
        writes, effects = step(loaded(), asked)
        assert writes == []
        answer = answer_of(effects)
        assert (answer.error_code, answer.topics) == (ErrorCode.STALE_BROKER_EPOCH, [])

    def test_partitions_of_a_topic_are_answered_together(self) -> None:
        asked = alter(1, 2)
        partitions = asked.request.topics[0].partitions
        partitions.append(type(partitions[0])(9, 5))
        _, effects = step(loaded(), asked)
        [answered] = answer_of(effects).topics
        assert [one.partition_index for one in answered.partitions] == [0, 9]


class TestTopicCreation:
    def test_a_topic_is_made_told_and_answered(self) -> None:
        controller = loaded()
        config = CreatableTopicConfig("retention.ms", "1000")
        wanted = CreatableTopic("new", 2, 3, configs=[config])
        writes, effects = step(controller, create(wanted))
        [made] = writes
        assert isinstance(made, CreateTopic)
        assert made.made.configs == {"retention.ms": "1000"}
        new = [TopicPartition("new", 0), TopicPartition("new", 1)]
        assert roles_told(effects) == {1: new, 2: new, 3: new}
        assert all(one.state.is_new for one in effects.commands[1].roles.values())
        [answer] = answer_of(effects).topics
        assert (answer.name, answer.error_code) == ("new", ErrorCode.NONE)
        assert answer.topic_id == topic_id("new", 2)
        assert (answer.num_partitions, answer.replication_factor) == (2, 3)
        assert [(one.name, one.value) for one in answer.configs] == [("retention.ms", "1000")]
        assert [one for one, _ in published(effects)] == new
        assert controller.image.topic_name(topic_id("new", 2)) == "new"

    def test_refused_topics_do_not_hold_up_others(self) -> None:
        wanted = [CreatableTopic("t", 1, 1), CreatableTopic("new", 1, 1)]
        writes, effects = step(loaded(), create(*wanted))
        assert len(writes) == 1
        answers = answer_of(effects).topics
        assert [one.error_code for one in answers] == [ErrorCode.TOPIC_ALREADY_EXISTS, 0]
        assert "'t'" in answers[0].error_message

    def test_a_name_given_twice_is_refused_each_time(self) -> None:
        writes, effects = step(
            loaded(), create(CreatableTopic("new", 1, 1), CreatableTopic("new", 2, 1))
        )
        assert writes == []
        codes = [one.error_code for one in answer_of(effects).topics]
        assert codes == [ErrorCode.INVALID_REQUEST] * 2

    def test_two_requests_for_the_same_name_make_one_topic(self) -> None:
        one = create(CreatableTopic("new", 1, 1))
        writes, effects = step(loaded(), one, create(CreatableTopic("new", 1, 1), ticket=2))
        assert len(writes) == 1
        assert answer_of(effects, 2).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS

    def test_a_request_may_only_ask(self) -> None:
        controller = loaded()
        writes, effects = step(controller, create(CreatableTopic("new", 1, 1), validate_only=True))
        assert writes == []
        [answer] = answer_of(effects).topics
        assert (answer.error_code, answer.topic_id) == (ErrorCode.NONE, bytes(16))
        assert "new" not in controller.image.topics

    def test_a_topic_made_by_somebody_else_meanwhile_is_answered_as_existing(self) -> None:
        controller = loaded()
        _, effects = step(controller, create(CreatableTopic("new", 1, 1)), outcomes={0: Conflict()})
        assert answer_of(effects).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert "new" not in controller.image.topics

    def test_one_request_makes_so_many_partitions_and_no_more(self) -> None:
        half = MAX_PARTITIONS_PER_REQUEST // 2 + 1
        wanted = [CreatableTopic("a", half, 1), CreatableTopic("b", half, 1)]
        writes, effects = step(loaded(), create(*wanted))
        assert len(writes) == 1
        codes = [one.error_code for one in answer_of(effects).topics]
        assert codes == [0, ErrorCode.INVALID_PARTITIONS]


class TestAdoption:
    def test_a_topic_that_appears_is_taken_over(self) -> None:
        controller = loaded()
        found = TopicFound(topic("u", {0: (2, 3)}), {})
        writes, effects = step(controller, TopicsRead(["t", "u"], [found]))
        assert state_writes(writes)[TopicPartition("u", 0)].leader == 2
        assert effects.commands[2].roles[TopicPartition("u", 0)].state.is_new

    def test_a_topic_that_can_be_read_again_is_told_to_everybody(self) -> None:
        controller = loaded(TopicUnreadable("t", "not JSON"))
        _, effects = step(controller, TopicsRead(["t"], [TopicFound(topic(), {0: state()})]))
        assert all(effects.commands[broker_id].full for broker_id in (1, 2, 3))
        assert TP in effects.commands[1].roles
        assert effects.commands[1].keep == ()

    def test_topics_that_vanish_are_forgotten(self) -> None:
        controller = loaded(TopicFound(topic(), {0: state()}), TopicUnreadable("u", "not JSON"))
        step(controller, TopicsRead([], []))
        assert controller.image.topics == {}
        assert controller.image.unreadable == {}


class TestDeletion:
    def deleting(self, controller: Controller) -> Effects:
        writes, effects = step(controller, delete("t"))
        assert writes == [QueueDeletion("t")]
        return effects

    def stopped(self, broker_id: int, life: int = 1) -> StopReplicaAnswered:
        return StopReplicaAnswered(broker_id, epoch(broker_id, life), [TP])

    def test_live_replicas_delete_and_only_then_the_nodes_go(self) -> None:
        controller = loaded()
        effects = self.deleting(controller)
        assert [list(one.stops) for one in effects.commands.values()] == [[TP]] * 3
        assert effects.answers == []
        assert not controller.has_work
        for broker_id in (1, 2):
            writes, effects = step(controller, self.stopped(broker_id))
            assert (writes, effects.answers) == ([], [])
        writes, effects = step(controller, self.stopped(3))
        assert writes == [RemoveTopic("t", topic())]
        assert removed(effects) == ["t"]
        [answer] = answer_of(effects).responses
        assert (answer.name, answer.error_code) == ("t", ErrorCode.NONE)
        assert controller.image.topics == {}
        assert not controller.has_work

    def test_answers_of_an_earlier_life_do_not_count(self) -> None:
        controller = loaded()
        self.deleting(controller)
        step(controller, self.stopped(1, life=2), self.stopped(2), self.stopped(3))
        assert not controller.has_work

    def test_dead_brokers_are_not_waited_for(self) -> None:
        controller = loaded(live=brokers(1, 2))
        self.deleting(controller)
        step(controller, self.stopped(1))
        writes, _ = step(controller, BrokersRead(brokers(1)))
        assert writes == [RemoveTopic("t", topic())]

    def test_with_nobody_alive_the_nodes_go_at_once(self) -> None:
        controller = loaded(TopicFound(topic("t", {0: (8, 9)}), {}))
        effects = run(controller, delete("t"))
        assert removed(effects[-1]) == ["t"]

    def test_nobody_is_elected_any_more(self) -> None:
        controller = loaded()
        self.deleting(controller)
        writes, _ = step(controller, BrokersRead(brokers(2, 3)))
        assert state_writes(writes) == {}

    def test_a_second_request_waits_for_the_same_end(self) -> None:
        controller = loaded()
        self.deleting(controller)
        writes, _ = step(controller, delete("t", ticket=2))
        assert writes == []
        effects = run(controller, *(self.stopped(one) for one in (1, 2, 3)))
        assert sorted(ticket for ticket, _ in effects[-1].answers) == [1, 2]

    def test_a_topic_named_twice_is_queued_once(self) -> None:
        writes, _ = step(loaded(), delete("t", "t"))
        assert writes == [QueueDeletion("t")]

    def test_a_topic_is_found_by_its_id(self) -> None:
        writes, _ = step(loaded(), delete("t", by_id=True))
        assert writes == [QueueDeletion("t")]

    def test_unknown_topics_are_answered_at_once_when_nothing_else_is_waited_for(self) -> None:
        _, effects = step(loaded(), delete("nobody"))
        [answer] = answer_of(effects).responses
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert answer.name == "nobody"

    def test_a_client_whose_time_is_over_hears_so_and_the_deletion_goes_on(self) -> None:
        controller = loaded()
        step(controller, delete("t", "nobody"))
        answer = controller.give_up(1)
        codes = [one.error_code for one in answer.responses]  # type: ignore[union-attr]  # of this kind only
        assert codes == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        effects = run(controller, *(self.stopped(one) for one in (1, 2, 3)))
        assert removed(effects[-1]) == ["t"]
        assert effects[-1].answers == []

    def test_one_that_gives_up_before_the_decision_hears_of_it_then(self) -> None:
        controller = loaded()
        step(controller, delete("t", ticket=7))
        assert controller.give_up(1) is None
        _, effects = step(controller, delete("t"))
        [answer] = answer_of(effects).responses
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT

    def test_two_topics_of_one_request_are_answered_together(self) -> None:
        controller = loaded(
            TopicFound(topic(), {0: state()}), TopicFound(topic("u", {0: (9,)}), {})
        )
        effects = run(controller, delete("t", "u"))
        assert [removed(one) for one in effects] == [[], ["u"]]
        assert effects[-1].answers == []
        effects = run(controller, *(self.stopped(one) for one in (1, 2, 3)))
        assert [one.error_code for one in answer_of(effects[-1]).responses] == [0, 0]

    @pytest.mark.rule("V35")
    def test_an_unreadable_topic_goes_and_everybody_is_told_what_there_is_without_it(self) -> None:
        controller = loaded(TopicUnreadable("broken", "not JSON"))
        writes, effects = step(controller, delete("broken"))
        assert writes == [QueueDeletion("broken")]
        assert deleted_unread(effects) == ["broken"]
        assert all(told.full and told.keep == () for told in effects.commands.values())
        assert sorted(effects.commands) == sorted(controller.image.brokers)
        writes, effects = step(controller)
        assert deleted_unread(effects) == []
        assert writes == [RemoveTopic("broken", None)]
        assert len(answer_of(effects).responses) == 1


class TestAbsentReplicas:
    @pytest.mark.rule("D3")
    def test_a_member_without_its_replica_leaves_the_isr_and_makes_it_anew(self) -> None:
        controller = loaded()
        writes, effects = step(controller, roles_answered(2))
        assert state_writes(writes)[TP].isr == (1, 3)
        role = effects.commands[2].roles[TP].state
        assert (role.isr, role.is_new) == ((1, 3), False)
        step(controller, roles_answered(2, ErrorCode.NONE))
        assert controller.image.absent(TP) == ()

    @pytest.mark.rule("D3")
    def test_outside_the_isr_it_says_nothing(self) -> None:
        controller = loaded(TopicFound(topic(), {0: state((1, 3))}))
        step(controller, roles_answered(2))
        assert controller.image.absent(TP) == ()

    @pytest.mark.rule("D3")
    def test_other_answers_change_nothing(self) -> None:
        controller = loaded()
        for answer in (
            roles_answered(2, ErrorCode.NONE),
            roles_answered(2, life=2),
            roles_answered(9),
            roles_answered(2, topic_partition=TopicPartition("u", 0)),
        ):
            writes, effects = step(controller, answer)
            assert (writes, effects.commands) == ([], {})

    @pytest.mark.rule("D3")
    def test_a_sole_member_without_its_replica_stays_leaderless(self) -> None:
        controller = loaded(TopicFound(topic(), {0: state((1,))}))
        writes, _ = step(controller, roles_answered(1))
        assert (state_writes(writes)[TP].leader, state_writes(writes)[TP].isr) == (NO_LEADER, (1,))
        writes, _ = step(controller, roles_answered(1))
        assert writes == []

    @pytest.mark.rule("D3")
    def test_an_unclean_election_with_nothing_left_makes_an_empty_replica(self) -> None:
        controller = loaded(
            TopicFound(topic("t", {0: (1,)}), {0: state((1,))}), of=settings(unclean=True)
        )
        writes, effects = step(controller, roles_answered(1))
        assert state_writes(writes)[TP].leader_recovery_state == 1
        assert effects.commands[1].roles[TP].state.is_new
        assert controller.image.absent(TP) == ()


class TestCreationCutShort:
    FRESH = state(leader_epoch=0, partition_epoch=0)

    def fresh(self) -> Controller:
        return loaded(TopicFound(topic(), {0: self.FRESH}))

    @pytest.mark.rule("D3")
    def test_when_one_lacks_the_replica_the_others_are_asked(self) -> None:
        controller = self.fresh()
        writes, effects = step(controller, roles_answered(1))
        assert writes == []
        assert roles_told(effects) == {2: [TP], 3: [TP]}
        assert not effects.commands[2].roles[TP].state.is_new

    @pytest.mark.rule("D3")
    def test_when_nobody_has_it_it_is_made_anew(self) -> None:
        controller = self.fresh()
        effects = run(controller, roles_answered(1), roles_answered(2), roles_answered(3))
        assert roles_told(effects[-1]) == {1: [TP], 2: [TP], 3: [TP]}
        assert effects[-1].commands[1].roles[TP].state.is_new
        assert controller.image.states[TP] == self.FRESH
        assert controller.image.absent(TP) == ()

    @pytest.mark.rule("D3")
    @pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH])
    def test_when_somebody_has_it_the_others_leave_the_isr(self, error: ErrorCode) -> None:
        controller = self.fresh()
        run(controller, roles_answered(1), roles_answered(2, error))
        assert controller.image.states[TP].leader == 2
        assert controller.image.states[TP].isr == (2, 3)


class TestProducerIds:
    def asked(self, ticket: int = 1, broker_id: int = 1, life: int = 1) -> ProducerIdsAsked:
        request = AllocateProducerIdsRequest(broker_id, epoch(broker_id, life))
        return ProducerIdsAsked(ticket, request)

    def test_blocks_follow_each_other_and_one_write_covers_them(self) -> None:
        controller = loaded()
        writes, effects = step(controller, self.asked(1), self.asked(2, broker_id=2))
        size = PRODUCER_ID_BLOCK_SIZE
        assert writes == [TakeProducerIds(2, size, 2 * size - 1, 0)]
        blocks = [answer_of(effects, ticket) for ticket in (1, 2)]
        assert [one.producer_id_start for one in blocks] == [0, size]
        assert [one.producer_id_len for one in blocks] == [size, size]
        writes, _ = step(controller, self.asked(3))
        assert writes == [TakeProducerIds(1, 2 * size, 3 * size - 1, 1)]

    def test_a_block_that_could_not_be_written_is_not_given(self) -> None:
        controller = loaded()
        found = Conflict(producer_ids=LastProducerId(4999, 8))
        _, effects = step(controller, self.asked(1), self.asked(2, 9), outcomes={0: found})
        assert [ticket for ticket, _ in effects.answers] == [2]
        writes, effects = step(controller)
        assert writes == [TakeProducerIds(1, 5000, 5999, 8)]
        assert answer_of(effects).producer_id_start == 5000

    @pytest.mark.parametrize(
        ("broker_id", "life", "code"),
        [(9, 1, ErrorCode.BROKER_ID_NOT_REGISTERED), (1, 2, ErrorCode.STALE_BROKER_EPOCH)],
    )
    def test_strangers_get_none(self, broker_id: int, life: int, code: ErrorCode) -> None:
        writes, effects = step(loaded(), self.asked(1, broker_id, life))
        assert writes == []
        assert answer_of(effects).error_code == code

    @pytest.mark.parametrize("found", [None, LastProducerId(2**63 - 100, 1)])
    def test_an_unreadable_or_exhausted_node_gives_none(self, found: LastProducerId | None) -> None:
        controller = loaded()
        writes, effects = step(controller, ProducerIdsRead(found), self.asked())
        assert writes == []
        assert answer_of(effects).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


class TestCopies:
    def test_a_copy_goes_its_own_way(self) -> None:
        controller = loaded()
        step(controller, delete("t"))
        controller.offer(BrokersRead(brokers(2, 3)))
        copied = controller.copy()
        assert copied.key() == controller.key()
        run(copied)
        assert copied.key() != controller.key()
        assert copied.give_up(1) is not None
        assert controller.give_up(1) is not None


def test_a_broker_may_answer_for_several_partitions() -> None:
    two = TopicFound(topic("t", {0: (1, 2), 1: (1, 2)}), {0: state((1, 2)), 1: state((1, 2))})
    controller = loaded(two)
    absent = ErrorCode.REPLICA_NOT_AVAILABLE
    answer = LeaderAndIsrAnswered(2, epoch(2), [(TP, absent), (TopicPartition("t", 1), absent)])
    writes, _ = step(controller, answer)
    assert [one.isr for one in state_writes(writes).values()] == [(1,), (1,)]
