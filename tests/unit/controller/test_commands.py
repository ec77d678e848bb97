"""What each broker is told, in which order, and what becomes of commands that wait."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.controller.values import (
    TP,
    broker,
    brokers,
    epoch,
    state,
    topic,
    topic_id,
)

from tidelog.controller.command_builder import CommandBuilder
from tidelog.controller.commands import (
    FULL,
    INCREMENTAL,
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    Commands,
    Outgoing,
    Part,
    Sender,
    Stop,
    endpoint_of,
)
from tidelog.controller.image import Image
from tidelog.controller.records import Topic
from tidelog.controller.registrations import BrokersChanged
from tidelog.controller.state_writes import StatePublished
from tidelog.controller.topics.changes import TopicFound, TopicGone, TopicUnreadable
from tidelog.controller.topics.deletion import DeletionRequested, deletion_order
from tidelog.core import limits
from tidelog.core.types import BrokerInfo, Endpoint, TopicPartition
from tidelog.wire.schema import SharedList

SENDER = Sender(controller_id=1, controller_epoch=7, listener="PLAINTEXT")
OTHER = TopicPartition("u", 0)


@pytest.fixture
def image() -> Image:
    """t-0 on 1, 2, 3 and u-0 on 2, 3; all alive."""
    made = Image()
    made.apply(BrokersChanged(brokers(1, 2, 3)))
    made.apply(TopicFound(topic("t"), {0: state()}))
    made.apply(TopicFound(topic("u", {0: (2, 3)}), {0: state((2, 3))}))
    return made


def sent(commands: Commands) -> list[tuple[Part, int]]:
    return [(one.part, one.api_key) for one in commands.requests(SENDER, 102)]


def the(part: Part, commands: Commands) -> Any:
    [found] = [one.message for one in commands.requests(SENDER, 102) if one.part is part]
    return found


def delete(builder: CommandBuilder, image: Image, name: str) -> Any:
    """Add the deletion of a topic; return the replicas of live brokers."""
    order = deletion_order(name, image)
    order.give(builder)
    return order.replicas


class TestRoles:
    def test_a_role_goes_to_every_live_replica(self, image: Image) -> None:
        image.apply(BrokersChanged(brokers(1, 2)))
        builder = CommandBuilder(image)
        builder.send_role(TP, is_new=True)
        assert list(builder.build()) == [1, 2]

    def test_it_says_what_published_state_says(self, image: Image) -> None:
        builder = CommandBuilder(image)
        builder.send_role(TP, is_new=True)
        request = the(Part.ROLES, builder.build()[2])
        assert (request.controller_id, request.controller_epoch) == (1, 7)
        assert (request.broker_epoch, request.type) == (102, INCREMENTAL)
        [told] = request.topic_states
        assert (told.topic_name, told.topic_id) == ("t", topic_id("t"))
        [role] = told.partition_states
        assert (role.partition_index, role.leader, role.leader_epoch) == (0, 1, 5)
        assert (role.isr, role.partition_epoch, role.replicas) == ((1, 2, 3), 10, (1, 2, 3))
        assert (role.is_new, role.leader_recovery_state, role.controller_epoch) == (True, 0, 6)

    def test_it_names_where_the_leaders_listen(self, image: Image) -> None:
        builder = CommandBuilder(image)
        builder.send_role(TP, is_new=False)
        builder.send_role(OTHER, is_new=False)
        request = the(Part.ROLES, builder.build()[3])
        assert [(one.broker_id, one.host_name, one.port) for one in request.live_leaders] == [
            (1, "host1", 9001),
            (2, "host2", 9002),
        ]

    def test_partitions_of_a_topic_share_an_entry(self, image: Image) -> None:
        image.apply(TopicFound(topic("t", {0: (1,), 1: (1,)}), {0: state((1,)), 1: state((1,))}))
        builder = CommandBuilder(image)
        builder.send_role(TP, is_new=False)
        builder.send_role(TopicPartition("t", 1), is_new=False)
        [told] = the(Part.ROLES, builder.build()[1]).topic_states
        assert [one.partition_index for one in told.partition_states] == [0, 1]

    def test_a_partition_without_a_state_is_not_told(self, image: Image) -> None:
        builder = CommandBuilder(image)
        builder.send_role(TopicPartition("t", 9), is_new=False)
        builder.resend_role(1, TopicPartition("t", 9))
        assert builder.build() == {}

    def test_one_broker_alone_can_be_told_again(self, image: Image) -> None:
        builder = CommandBuilder(image)
        builder.resend_role(2, TP)
        builder.resend_role(9, TP)
        assert list(builder.build()) == [2]

    def test_telling_again_does_not_replace_what_is_told_anyway(self, image: Image) -> None:
        builder = CommandBuilder(image)
        builder.send_role(TP, is_new=True)
        builder.resend_role(2, TP)
        assert builder.build()[2].roles[TP].state.is_new


class TestMetadata:
    def test_it_goes_to_everybody(self, image: Image) -> None:
        builder = CommandBuilder(image)
        builder.send_metadata(OTHER)
        commands = builder.build()
        assert list(commands) == [1, 2, 3]
        request = the(Part.SHOWN, commands[1])
        assert (request.type, request.broker_epoch) == (INCREMENTAL, 102)
        [told] = request.topic_states
        assert (told.topic_name, told.topic_id) == ("u", topic_id("u"))
        [shown] = told.partition_states
        assert (shown.leader, shown.leader_epoch, shown.isr) == (2, 5, (2, 3))
        assert (shown.zk_version, shown.replicas, shown.offline_replicas) == (10, (2, 3), [])

    def test_it_lists_live_brokers_with_endpoints_and_racks(self, image: Image) -> None:
        secured = BrokerInfo(4, 104, (Endpoint("TLS", "h", 1, "SSL"),), rack="r")
        image.apply(BrokersChanged(brokers(1, secured)))
        builder = CommandBuilder(image)
        builder.send_brokers()
        live = the(Part.SHOWN, builder.build()[1]).live_brokers
        assert [(one.id, one.rack) for one in live] == [(1, None), (4, "r")]
        [endpoint] = live[1].endpoints
        assert (endpoint.listener, endpoint.host, endpoint.port) == ("TLS", "h", 1)
        assert endpoint.security_protocol == 1

    def test_replicas_on_dead_brokers_are_offline(self, image: Image) -> None:
        image.apply(BrokersChanged(brokers(1, 3)))
        builder = CommandBuilder(image)
        builder.send_metadata(TP)
        [told] = the(Part.SHOWN, builder.build()[1]).topic_states
        assert told.partition_states[0].offline_replicas == [2]

    def test_a_partition_without_a_state_is_not_shown(self, image: Image) -> None:
        builder = CommandBuilder(image)
        builder.send_metadata(TopicPartition("t", 9))
        assert builder.build() == {}

    def test_partitions_of_a_topic_share_an_entry(self, image: Image) -> None:
        image.apply(TopicFound(topic("t", {0: (1,), 1: (1,)}), {0: state((1,)), 1: state((1,))}))
        builder = CommandBuilder(image)
        builder.send_metadata(TP)
        builder.send_metadata(TopicPartition("t", 1))
        [told] = the(Part.SHOWN, builder.build()[1]).topic_states
        assert [one.partition_index for one in told.partition_states] == [0, 1]


class TestDeletion:
    def test_live_replicas_are_told_to_delete_whatever_their_epoch(self, image: Image) -> None:
        image.apply(BrokersChanged(brokers(1, 2)))
        image.apply(DeletionRequested("t"))
        builder = CommandBuilder(image)
        told = delete(builder, image, "t")
        assert told == {1: (TP,), 2: (TP,)}
        request = the(Part.STOPS, builder.build()[2])
        assert (request.controller_id, request.controller_epoch) == (1, 7)
        [stopped] = request.topic_states
        [one] = stopped.partition_states
        assert (stopped.topic_name, one.partition_index) == ("t", 0)
        assert (one.leader_epoch, one.delete_partition) == (-2, True)

    def test_no_role_is_told_any_more(self, image: Image) -> None:
        image.apply(DeletionRequested("t"))
        builder = CommandBuilder(image)
        delete(builder, image, "t")
        builder.send_role(TP, is_new=False)
        builder.resend_role(1, TP)
        assert all(not one.roles for one in builder.build().values())

    def test_everybody_hears_that_the_topic_goes(self, image: Image) -> None:
        image.apply(DeletionRequested("t"))
        builder = CommandBuilder(image)
        delete(builder, image, "t")
        [told] = the(Part.SHOWN, builder.build()[3]).topic_states
        assert (told.partition_states[0].leader, told.partition_states[0].leader_epoch) == (-2, -2)

    def test_partitions_of_a_topic_share_an_entry(self, image: Image) -> None:
        image.apply(TopicFound(topic("t", {0: (1,), 1: (1,)}), {}))
        builder = CommandBuilder(image)
        assert delete(builder, image, "t") == {1: (TP, TopicPartition("t", 1))}
        [stopped] = the(Part.STOPS, builder.build()[1]).topic_states
        assert len(stopped.partition_states) == 2


class TestFullCommand:
    def full(self, image: Image, broker_id: int) -> Commands:
        builder = CommandBuilder(image)
        builder.send_everything(broker_id)
        return builder.build()[broker_id]

    def test_it_lists_all_that_the_broker_should_hold(self, image: Image) -> None:
        assert list(self.full(image, 1).roles) == [TP]
        assert list(self.full(image, 2).roles) == [TP, OTHER]
        request = the(Part.ROLES, self.full(image, 2))
        assert request.type == FULL

    def test_it_goes_even_where_the_broker_should_hold_nothing(self, image: Image) -> None:
        image.apply(BrokersChanged(brokers(1, 2, 3, 4)))
        request = the(Part.ROLES, self.full(image, 4))
        assert (request.type, request.topic_states) == (FULL, [])

    def test_it_shows_everything(self, image: Image) -> None:
        request = the(Part.SHOWN, self.full(image, 1))
        assert request.type == FULL
        assert [one.topic_name for one in request.topic_states] == ["t", "u"]

    def test_partitions_without_a_state_are_not_in_it(self, image: Image) -> None:
        image.apply(TopicFound(topic("new", {0: (2,)}), {}))
        assert list(self.full(image, 2).roles) == [TP, OTHER]

    def test_topics_being_deleted_are_not_in_it(self, image: Image) -> None:
        image.apply(DeletionRequested("u"))
        commands = self.full(image, 2)
        assert list(commands.roles) == [TP]
        assert [one.topic_name for one in the(Part.SHOWN, commands).topic_states] == ["t"]

    def test_topics_that_cannot_be_read_are_kept(self, image: Image) -> None:
        for name in ("broken", "leaving"):
            image.apply(TopicUnreadable(name, "not JSON"))
        image.apply(DeletionRequested("leaving"))
        request = the(Part.ROLES, self.full(image, 1))
        kept = [one for one in request.topic_states if not one.partition_states]
        assert [(one.topic_name, one.topic_id) for one in kept] == [("broken", bytes(16))]

    def test_what_is_decided_at_the_same_time_is_part_of_it(self, image: Image) -> None:
        builder = CommandBuilder(image)
        builder.send_role(TP, is_new=True)
        builder.send_metadata(TP)
        builder.send_everything(1)
        commands = builder.build()
        assert commands[1].roles[TP].state.is_new
        assert len(commands[1].shown) == 2
        assert len(commands[2].shown) == 1

    def test_a_broker_that_has_gone_is_not_told(self, image: Image) -> None:
        builder = CommandBuilder(image)
        builder.send_everything(9)
        assert builder.build() == {}


class TestOrder:
    def test_live_brokers_then_stops_then_roles_then_metadata(self, image: Image) -> None:
        image.apply(DeletionRequested("u"))
        builder = CommandBuilder(image)
        builder.send_brokers()
        delete(builder, image, "u")
        builder.send_role(TP, is_new=False)
        builder.send_metadata(TP)
        commands = builder.build()
        assert sent(commands[2]) == [
            (Part.BROKERS, UPDATE_METADATA),
            (Part.STOPS, STOP_REPLICA),
            (Part.ROLES, LEADER_AND_ISR),
            (Part.SHOWN, UPDATE_METADATA),
        ]
        first = commands[2].requests(SENDER, 102)[0].message
        assert first.topic_states == []
        assert [one.id for one in first.live_brokers] == [1, 2, 3]

    def test_live_brokers_alone_take_one_request(self, image: Image) -> None:
        builder = CommandBuilder(image)
        builder.send_brokers()
        assert sent(builder.build()[1]) == [(Part.SHOWN, UPDATE_METADATA)]

    def test_a_new_broker_hears_of_live_brokers_before_its_roles(self, image: Image) -> None:
        builder = CommandBuilder(image)
        builder.send_everything(1)
        parts = [part for part, _ in sent(builder.build()[1])]
        assert parts == [Part.BROKERS, Part.ROLES, Part.SHOWN]

    def test_versions_are_those_of_kafka_3_9(self, image: Image) -> None:
        builder = CommandBuilder(image)
        delete(builder, image, "u")
        builder.send_role(TP, is_new=False)
        outgoing = builder.build()[2].requests(SENDER, 102)
        assert [(one.api_key, one.version) for one in outgoing] == [(5, 4), (4, 7), (6, 8)]


class TestAnswered:
    def test_what_was_answered_is_not_sent_again(self, image: Image) -> None:
        image.apply(DeletionRequested("u"))
        builder = CommandBuilder(image)
        builder.send_brokers()
        delete(builder, image, "u")
        builder.send_everything(2)
        commands = builder.build()[2]
        left = [Part.BROKERS, Part.STOPS, Part.ROLES, Part.SHOWN]
        while left:
            assert [part for part, _ in sent(commands)] == left
            left.pop(0)
            commands.answered(commands.requests(SENDER, 1)[0])
        assert sent(commands) == []

    def test_metadata_carries_the_live_brokers_too(self, image: Image) -> None:
        builder = CommandBuilder(image)
        builder.send_brokers()
        builder.send_role(TP, is_new=False)
        commands = builder.build()[1]
        commands.answered(Outgoing(Part.SHOWN, 0, 0, None))
        assert [part for part, _ in sent(commands)] == [Part.ROLES]


class TestMerging:
    def told(self, image: Image, **what: bool) -> Commands:
        builder = CommandBuilder(image)
        builder.send_role(TP, is_new=what.get("is_new", False))
        builder.send_metadata(TP)
        if what.get("brokers"):
            builder.send_brokers()
        return builder.build()[2]

    def test_the_last_state_of_a_partition_wins(self, image: Image) -> None:
        commands = self.told(image)
        image.apply(StatePublished(TP, state((2, 3), leader_epoch=6)))
        commands.merge(self.told(image))
        assert commands.roles[TP].state.leader_epoch == 6
        assert [one.leader_epoch for one in commands.shown.values()] == [6]

    def test_a_replica_that_is_new_stays_new(self, image: Image) -> None:
        commands = self.told(image, is_new=True)
        image.apply(StatePublished(TP, state((2, 3), leader_epoch=6)))
        commands.merge(self.told(image))
        role = commands.roles[TP].state
        assert (role.is_new, role.leader_epoch) == (True, 6)

    def test_metadata_that_outgrows_all_that_is_there_may_be_dropped(
        self, image: Image, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        commands = self.told(image)
        assert not commands.has_outgrown
        commands.merge(self.told(image))
        monkeypatch.setattr(limits, "MAX_SUPERSEDED_STATES", -3 * commands.partition_count)
        assert commands.has_outgrown
        commands.drop_shown()
        assert commands.shown == {} and not commands.shows_all

    def test_new_live_brokers_are_not_forgotten(self, image: Image) -> None:
        commands = self.told(image, brokers=True)
        image.apply(BrokersChanged(brokers(1, 2)))
        commands.merge(self.told(image))
        assert commands.brokers_changed
        assert [one.broker_id for one in commands.brokers] == [1, 2]

    def test_a_deletion_replaces_a_role_that_waits(self, image: Image) -> None:
        commands = self.told(image)
        image.apply(DeletionRequested("t"))
        builder = CommandBuilder(image)
        delete(builder, image, "t")
        commands.merge(builder.build()[2])
        assert commands.roles == {}
        assert commands.stops == {TP: Stop(-2, delete=True)}

    def test_a_deletion_followed_by_a_new_topic_keeps_both_in_order(self, image: Image) -> None:
        image.apply(DeletionRequested("t"))
        builder = CommandBuilder(image)
        delete(builder, image, "t")
        commands = builder.build()[2]
        image.apply(TopicGone("t"))
        image.apply(TopicFound(Topic("t", topic_id("t", 2), {0: (1, 2, 3)}), {0: state()}))
        commands.merge(self.told(image, is_new=True))
        assert [part for part, _ in sent(commands)] == [Part.STOPS, Part.ROLES, Part.SHOWN]
        first, second = the(Part.SHOWN, commands).topic_states
        assert (first.topic_id, first.partition_states[0].leader) == (topic_id("t"), -2)
        assert (second.topic_id, second.partition_states[0].leader) == (topic_id("t", 2), 1)

    def test_a_full_command_replaces_what_waits(self, image: Image) -> None:
        commands = self.told(image)
        image.apply(BrokersChanged(brokers(1, broker(2, life=2), 3)))
        builder = CommandBuilder(image)
        builder.send_everything(2)
        commands.merge(builder.build()[2])
        assert commands.full
        assert commands.shows_all
        assert list(commands.roles) == [TP, OTHER]

    def test_merging_does_not_touch_what_other_brokers_are_told(self, image: Image) -> None:
        builder = CommandBuilder(image)
        builder.send_metadata(TP)
        both = builder.build()
        both[1].merge(self.told(image))
        builder = CommandBuilder(image)
        builder.send_metadata(OTHER)
        both[1].merge(builder.build()[1])
        both[1].merge(Commands(both[1].brokers))
        assert len(both[1].shown) == 2
        assert len(both[2].shown) == 1


class TestSharing:
    """Brokers are sent the same metadata, which is encoded once."""

    def test_requests_of_all_brokers_have_one_list(self, image: Image) -> None:
        builder = CommandBuilder(image)
        builder.send_everything_to_all()
        requests = [the(Part.SHOWN, commands) for commands in builder.build().values()]
        assert len(requests) == 3
        assert all(each.topic_states is requests[0].topic_states for each in requests)
        assert isinstance(requests[0].topic_states, SharedList)

    def test_a_broker_with_more_to_learn_has_a_list_of_its_own(self, image: Image) -> None:
        builder = CommandBuilder(image)
        builder.send_metadata(TP)
        both = builder.build()
        before = the(Part.SHOWN, both[2]).topic_states
        builder = CommandBuilder(image)
        builder.send_metadata(OTHER)
        both[1].merge(builder.build()[1])
        partitions = [state.partition_states for state in the(Part.SHOWN, both[1]).topic_states]
        assert sum(map(len, partitions)) == 2
        assert the(Part.SHOWN, both[2]).topic_states is before
        assert [len(state.partition_states) for state in before] == [1]


def test_brokers_reach_each_other_on_the_inter_broker_listener() -> None:
    info = BrokerInfo(1, epoch(1), (Endpoint("CLIENT", "a", 1), Endpoint("INTERNAL", "b", 2)))
    assert endpoint_of(info, "INTERNAL").host == "b"
    assert endpoint_of(info, "ELSEWHERE").host == "a"


class TestLogEnds:
    def test_the_ends_of_logs_are_asked_for_behind_the_roles_and_until_they_are_answered(
        self, image: Image
    ) -> None:
        builder = CommandBuilder(image)
        builder.send_role(TP, is_new=False)
        builder.ask_for_log_end(2, TP)
        builder.ask_for_log_end(2, OTHER)
        builder.ask_for_log_end(9, TP)
        builder.ask_for_log_end(2, TopicPartition("gone", 0))
        commands = builder.build()[2]
        assert [part for part, _ in sent(commands)] == [Part.ROLES, Part.LOG_ENDS]
        topics = the(Part.LOG_ENDS, commands).topic_partitions
        assert [list(topic.partitions) for topic in topics] == [[0], [0]]
        commands.answered(commands.requests(SENDER, 102)[-1])
        assert [part for part, _ in sent(commands)] == [Part.ROLES]

    def test_questions_that_wait_are_merged(self, image: Image) -> None:
        first, second = CommandBuilder(image), CommandBuilder(image)
        first.ask_for_log_end(2, TP)
        second.ask_for_log_end(2, OTHER)
        commands = first.build()[2]
        commands.merge(second.build()[2])
        assert len(the(Part.LOG_ENDS, commands).topic_partitions) == 2
