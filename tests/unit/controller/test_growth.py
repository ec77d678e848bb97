"""CreatePartitions: what is refused and why, what a topic becomes."""

from __future__ import annotations

import pytest
from tests.support.controller.values import (
    answer_of,
    brokers,
    delete,
    epoch,
    grow,
    loaded,
    more,
    outdated,
    published,
    state,
    step,
    topic,
    unloaded,
)

from tidelog.controller.controller import Controller
from tidelog.controller.partitions.addition import AddPartitions, CreatePartitionsAsked
from tidelog.controller.records import Move, Topic
from tidelog.controller.topics.changes import TopicFound, TopicUnreadable
from tidelog.controller.topics.deletion import DeletionsRead, QueueDeletion
from tidelog.controller.topics.readings import TopicsRead
from tidelog.controller.writes import Conflict
from tidelog.core.errors import ErrorCode
from tidelog.core.limits import MAX_PARTITIONS_PER_REQUEST
from tidelog.core.types import TopicPartition
from tidelog.wire.messages.create_partitions import CreatePartitionsTopicResult

NEW = TopicPartition("t", 1)


def result(controller: Controller, asked: CreatePartitionsAsked) -> CreatePartitionsTopicResult:
    """The outcome of a request for one topic."""
    [one] = answer_of(step(controller, asked)[1]).results
    assert isinstance(one, CreatePartitionsTopicResult)
    return one


def of(found: Topic) -> Controller:
    """A controller that knows one topic, in good health."""
    states = {number: state(replicas) for number, replicas in found.assignments.items()}
    return loaded(TopicFound(found, states))


class TestMorePartitions:
    def test_new_partitions_are_led_and_the_old_ones_stay_as_they_are(self) -> None:
        controller = loaded()
        writes, effects = step(controller, grow(more("t", 3)))
        [write] = writes
        assert isinstance(write, AddPartitions)
        assert write.growth.topic.version == 1
        assert write.growth.topic.assignments[0] == (1, 2, 3)
        assert list(write.growth.states) == [1, 2]
        assert answer_of(effects).results[0].error_code == ErrorCode.NONE
        assert controller.image.topics["t"] == write.growth.topic
        assert [one for one, _ in published(effects)] == [NEW, TopicPartition("t", 2)]
        assert controller.image.states[NEW].mzxid > 0

    def test_brokers_are_told_to_make_their_replicas(self) -> None:
        controller = loaded()
        _, effects = step(controller, grow(more("t", 2, (2, 3, 1))))
        assert list(effects.commands) == [1, 2, 3]
        for commands in effects.commands.values():
            assert list(commands.roles) == [NEW]
            assert commands.roles[NEW].state.is_new
            assert commands.roles[NEW].state.leader == 2
            assert [one for _, one in commands.shown] == [NEW]

    def test_the_first_state_is_that_of_a_new_partition(self) -> None:
        controller = loaded()
        step(controller, grow(more("t", 2, (2, 3, 1))))
        made = controller.image.states[NEW]
        assert (made.leader, made.isr, made.leader_epoch) == (2, (2, 3, 1), 0)
        assert made.isr_epochs == (epoch(2), epoch(3), epoch(1))

    def test_partitions_may_be_added_again(self) -> None:
        controller = loaded()
        step(controller, grow(more("t", 2)))
        writes, _ = step(controller, grow(more("t", 3)))
        assert isinstance(writes[0], AddPartitions)
        assert writes[0].growth.topic.version == 2
        assert list(controller.image.topics["t"].assignments) == [0, 1, 2]
        assert TopicPartition("t", 2) in list(controller.image.hosted_by(1))

    def test_checking_only_writes_nothing(self) -> None:
        controller = loaded()
        writes, effects = step(controller, grow(more("t", 2), validate_only=True))
        assert writes == []
        assert answer_of(effects).results[0].error_code == ErrorCode.NONE
        assert list(controller.image.topics["t"].assignments) == [0]

    def test_topics_of_a_request_succeed_and_fail_by_themselves(self) -> None:
        controller = loaded()
        _, effects = step(controller, grow(more("t", 2), more("u", 2)))
        codes = [one.error_code for one in answer_of(effects).results]
        assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    def test_a_second_request_for_a_topic_is_decided_on_what_the_first_made(self) -> None:
        controller = loaded()
        controller.offer(grow(more("t", 2), ticket=1))
        writes, effects = step(controller, grow(more("t", 3), ticket=2))
        assert len(writes) == 1
        assert [ticket for ticket, _ in effects.answers] == [1]
        assert controller.has_work
        writes, effects = step(controller)
        assert answer_of(effects, 2).results[0].error_code == ErrorCode.NONE
        assert list(controller.image.topics["t"].assignments) == [0, 1, 2]


class TestConflicts:
    def test_a_topic_that_somebody_else_changed_is_read_again(self) -> None:
        controller = loaded()
        _, effects = step(controller, grow(more("t", 2)), outcomes={0: Conflict()})
        [one] = answer_of(effects).results
        assert one.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert "'t' was changed concurrently" in one.error_message
        assert outdated(effects) == ["t"]
        assert published(effects) == []
        assert list(controller.image.topics["t"].assignments) == [0]

    def test_what_was_read_then_is_what_the_next_request_is_decided_on(self) -> None:
        controller = loaded()
        step(controller, grow(more("t", 2)), outcomes={0: Conflict()})
        theirs = topic(assignments={0: (1, 2, 3), 1: (3, 1, 2)}, version=4)
        controller.offer(TopicsRead(["t"], [TopicFound(theirs, {0: state()})]))
        writes, _ = step(controller, grow(more("t", 3)))
        [grown] = [one for one in writes if isinstance(one, AddPartitions)]
        assert grown.growth.topic.version == 5
        assert list(grown.growth.states) == [2]

    def test_a_topic_that_went_meanwhile_stays_gone(self) -> None:
        controller = loaded()
        controller.offer(grow(more("t", 2)))
        decision = controller.decide()
        controller.offer(TopicsRead([], []))
        effects = controller.applied(decision, [Conflict()])
        assert outdated(effects) == ["t"]
        step(controller)
        assert controller.image.topics == {}


class TestRefusals:
    @pytest.mark.parametrize(
        ("count", "expected"),
        [(1, "has 1 partitions already"), (0, "only adds"), (-1, "only adds")],
    )
    def test_the_number_must_grow(self, count: int, expected: str) -> None:
        refused = result(loaded(), grow(more("t", count)))
        assert refused.error_code == ErrorCode.INVALID_PARTITIONS
        assert expected in str(refused.error_message)

    def test_a_topic_that_does_not_exist(self) -> None:
        assert (
            result(loaded(), grow(more("u", 2))).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )

    def test_a_topic_that_cannot_be_read(self) -> None:
        controller = loaded(TopicUnreadable("t", "bad"))
        assert (
            result(controller, grow(more("t", 2))).error_code
            == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )

    @pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
    def test_an_internal_topic(self, name: str) -> None:
        refused = result(of(topic(name)), grow(more(name, 2)))
        assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert "cannot be changed" in str(refused.error_message)

    def test_a_topic_that_is_being_deleted(self) -> None:
        controller = loaded()
        controller.offer(DeletionsRead(["t"]))
        refused = result(controller, grow(more("t", 2)))
        assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    def test_a_topic_that_this_decision_deletes(self) -> None:
        controller = loaded()
        writes, effects = step(controller, delete("t", ticket=2), grow(more("t", 2)))
        assert [type(one) for one in writes] == [QueueDeletion]
        [one] = answer_of(effects).results
        assert one.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    def test_a_topic_that_is_deleted_after_it_grew_makes_no_replicas(self) -> None:
        controller = loaded()
        writes, effects = step(controller, grow(more("t", 2)), delete("t", ticket=2))
        assert [type(one) for one in writes] == [AddPartitions, QueueDeletion]
        assert all(commands.roles == {} for commands in effects.commands.values())
        assert all(NEW in commands.stops for commands in effects.commands.values())

    def test_a_topic_under_reassignment(self) -> None:
        refused = result(of(topic(moves={0: Move((), (3,), (1, 2, 3))})), grow(more("t", 2)))
        assert refused.error_code == ErrorCode.REASSIGNMENT_IN_PROGRESS

    @pytest.mark.parametrize("assignments", [{1: (1, 2, 3)}, {0: (1, 2), 2: (1, 2)}])
    def test_a_topic_whose_partitions_are_not_numbered_from_0_on(
        self, assignments: dict[int, tuple[int, ...]]
    ) -> None:
        controller = loaded()
        controller.image.apply(TopicFound(topic(assignments=assignments), {}))
        refused = result(controller, grow(more("t", 5)))
        assert refused.error_code == ErrorCode.INVALID_PARTITIONS
        assert "not numbered from 0 on" in str(refused.error_message)

    def test_a_topic_named_twice(self) -> None:
        _, effects = step(loaded(), grow(more("t", 2), more("t", 3)))
        codes = [one.error_code for one in answer_of(effects).results]
        assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST]

    def test_more_than_one_request_may_make(self) -> None:
        refused = result(loaded(), grow(more("t", MAX_PARTITIONS_PER_REQUEST + 2)))
        assert refused.error_code == ErrorCode.INVALID_PARTITIONS

    def test_more_than_one_node_holds(self) -> None:
        wide = topic(assignments={0: tuple(range(1, 100))})
        live = brokers(*range(1, 100))
        controller = unloaded(TopicFound(wide, {0: state(range(1, 100))}), live=live)
        refused = result(controller, grow(more("t", 9_000)))
        assert refused.error_code == ErrorCode.INVALID_PARTITIONS
        assert "bytes of metadata" in str(refused.error_message)

    def test_fewer_live_brokers_than_replicas(self) -> None:
        controller = loaded(TopicFound(topic(), {0: state((1, 2))}), live=brokers(1, 2))
        refused = result(controller, grow(more("t", 2)))
        assert refused.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
        assert "3" in str(refused.error_message) and "2" in str(refused.error_message)

    @pytest.mark.parametrize(
        ("replicas", "expected"),
        [
            (((1, 2, 3), (2, 3, 1)), "2 assignments for 1 new partitions"),
            (((1, 2),), "has 2 replicas, partition 0 has 3"),
            (((1, 1, 2),), "names a broker twice"),
            (((1, 2, 9),), "names brokers [9], live brokers are [1, 2, 3]"),
        ],
    )
    def test_replicas_that_cannot_be(
        self, replicas: tuple[tuple[int, ...], ...], expected: str
    ) -> None:
        refused = result(loaded(), grow(more("t", 2, *replicas)))
        assert refused.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert expected in str(refused.error_message)
