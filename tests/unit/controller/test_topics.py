"""What a new topic looks like, and which are refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.support.controller.values import (
    CONTROLLER_EPOCH,
    brokers,
    epoch,
    settings,
    topic,
    topic_id,
)

from tidelog.controller.image import Image
from tidelog.controller.registrations import BrokersChanged
from tidelog.controller.settings import TopicDefaults
from tidelog.controller.topics import creation, deletion
from tidelog.controller.topics.changes import TopicFound, TopicUnreadable
from tidelog.controller.topics.creation import NewTopic, TakenNames
from tidelog.controller.topics.deletion import DeletionRequested
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.limits import MAX_NODE_BYTES
from tidelog.core.types import ZERO_TOPIC_ID
from tidelog.metadata.layout_topics import TopicAssignment, encode_topic
from tidelog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
)
from tidelog.wire.messages.delete_topics import DeleteTopicState


@pytest.fixture
def image() -> Image:
    made = Image()
    made.apply(BrokersChanged(brokers(1, 2, 3)))
    made.apply(TopicFound(topic("old.topic"), {}))
    made.apply(TopicFound(topic("leaving"), {}))
    made.apply(TopicUnreadable("broken", "not JSON"))
    made.apply(DeletionRequested("leaving"))
    return made


def plan(image: Image, wanted: CreatableTopic, *, room: int = 1000) -> NewTopic:
    defaults = settings().topic_defaults
    names = TakenNames(image)
    names.add("made")
    return creation.plan(
        wanted, image.brokers, names, defaults, topic_id("t"), 0, CONTROLLER_EPOCH, room
    )


def refused(image: Image, wanted: CreatableTopic, *, room: int = 1000) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        plan(image, wanted, room=room)
    return caught.value


def assigned(*lists: Sequence[int], first: int = 0) -> CreatableTopic:
    return CreatableTopic(
        "t",
        -1,
        -1,
        [CreatableReplicaAssignment(number, list(one)) for number, one in enumerate(lists, first)],
    )


def test_numbers_of_minus_one_mean_the_cluster_defaults(image: Image) -> None:
    made = plan(image, CreatableTopic("t", -1, -1))
    assert len(made.topic.assignments) == 2
    assert made.replication_factor == 2


def test_every_partition_gets_its_first_state(image: Image) -> None:
    made = plan(image, assigned([2, 1], [3, 1]))
    assert made.topic.assignments == {0: (2, 1), 1: (3, 1)}
    assert [one.leader for one in made.states.values()] == [2, 3]
    assert made.states[0].isr_epochs == (epoch(2), epoch(1))
    assert made.states[0].controller_epoch == CONTROLLER_EPOCH


def test_dead_replicas_of_an_explicit_assignment_are_outside_the_isr(image: Image) -> None:
    made = plan(image, assigned([9, 2]))
    assert (made.states[0].leader, made.states[0].isr) == (2, (2,))


def test_an_assignment_without_any_live_replica_is_refused(image: Image) -> None:
    error = refused(image, assigned([8, 9]))
    assert error.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "[8, 9]" in error.message


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (assigned([1], [2], first=1), "0 to n-1"),
        (assigned([1, 2], [3]), "1 replicas"),
        (assigned([]), "no replicas"),
        (assigned([1, 1]), "twice"),
        (assigned([1, -2]), "negative"),
    ],
)
def test_assignments_that_cannot_be_are_refused(
    image: Image, wanted: CreatableTopic, words: str
) -> None:
    error = refused(image, wanted)
    assert error.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert words in error.message


def test_a_partition_number_given_twice_is_refused(image: Image) -> None:
    wanted = assigned([1], [2])
    wanted.assignments[1].partition_index = 0
    assert refused(image, wanted).code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_numbers_and_assignment_together_are_refused(image: Image) -> None:
    for wanted in (assigned([1]), assigned([1])):
        wanted.num_partitions = 1
        assert refused(image, wanted).code is ErrorCode.INVALID_REQUEST
    wanted = assigned([1])
    wanted.replication_factor = 1
    assert refused(image, wanted).code is ErrorCode.INVALID_REQUEST


def test_more_partitions_than_there_is_room_for_are_refused(image: Image) -> None:
    assert refused(image, CreatableTopic("t", 3, 1), room=2).code is ErrorCode.INVALID_PARTITIONS
    assert refused(image, assigned([1], [1]), room=1).code is ErrorCode.INVALID_PARTITIONS


def test_more_replicas_than_brokers_are_refused_with_both_numbers(image: Image) -> None:
    error = refused(image, CreatableTopic("t", 1, 5))
    assert error.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert "5" in error.message
    assert "3" in error.message


@pytest.mark.parametrize("name", ["old.topic", "leaving", "broken", "made"])
def test_names_that_are_taken_are_refused(image: Image, name: str) -> None:
    error = refused(image, CreatableTopic(name, 1, 1))
    assert error.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert name in error.message


@pytest.mark.parametrize("name", ["old_topic", ".", "", "a/b", "x" * 250])
def test_names_that_no_topic_may_have_are_refused(image: Image, name: str) -> None:
    assert refused(image, CreatableTopic(name, 1, 1)).code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_only_dots_and_underscores_collide(image: Image) -> None:
    names = TakenNames(image)
    names.add("a_b")
    for name in ("a.b", "a_b"):
        with pytest.raises(KafkaError):
            names.check(name)
    for name in ("a-b", "ab", "A.b"):
        names.check(name)


def test_a_topic_must_fit_into_one_node_of_the_store(image: Image) -> None:
    image.apply(BrokersChanged(brokers(*range(1, 60))))
    wanted = CreatableTopic("t", 10_000, 40)
    error = refused(image, wanted, room=10_000)
    assert error.code is ErrorCode.INVALID_PARTITIONS
    assert "10000 partitions" in error.message
    made = plan(image, CreatableTopic("t", 10_000, 5), room=10_000)
    node = encode_topic(TopicAssignment(made.topic.topic_id, made.topic.assignments))
    assert len(node) < MAX_NODE_BYTES


def test_configuration_is_checked(image: Image) -> None:
    wanted = CreatableTopic("t", 1, 1, configs=[CreatableTopicConfig("retention.ms", "soon")])
    error = refused(image, wanted)
    assert error.code is ErrorCode.INVALID_CONFIG
    assert "retention.ms" in error.message


def test_settings_of_a_new_topic_fit_beside_its_assignment(image: Image) -> None:
    policy = ",".join(["delete"] * 5_000)
    wanted = CreatableTopic("t", 1, 1, configs=[CreatableTopicConfig("cleanup.policy", policy)])
    error = refused(image, wanted)
    assert error.code is ErrorCode.INVALID_CONFIG
    assert "bytes of settings: at most 32768" in error.message


@pytest.mark.rule("V13")
@pytest.mark.parametrize(("value", "expected"), [("true", True), ("false", False)])
def test_a_topic_may_have_its_own_word_on_unclean_elections(
    image: Image, value: str, expected: bool
) -> None:
    config = CreatableTopicConfig("unclean.leader.election.enable", value)
    made = plan(image, CreatableTopic("t", 1, 1, configs=[config]))
    assert made.topic.unclean is expected
    assert made.configs == {config.name: value}


@pytest.mark.rule("V13")
def test_without_one_the_cluster_decides(image: Image) -> None:
    assert plan(image, CreatableTopic("t", 1, 1)).topic.unclean is None


class TestDeletion:
    DEFAULTS = settings().topic_defaults

    def target(self, image: Image, wanted: DeleteTopicState) -> tuple[str, bytes]:
        return deletion.deletion_target(wanted, image, self.DEFAULTS)

    def fails(
        self, image: Image, wanted: DeleteTopicState, defaults: TopicDefaults | None = None
    ) -> ErrorCode:
        with pytest.raises(KafkaError) as caught:
            deletion.deletion_target(wanted, image, defaults or self.DEFAULTS)
        return caught.value.code

    def test_a_topic_is_found_by_name_and_by_id(self, image: Image) -> None:
        expected = ("old.topic", topic_id("old.topic"))
        assert self.target(image, DeleteTopicState("old.topic")) == expected
        assert self.target(image, DeleteTopicState(None, topic_id("old.topic"))) == expected

    def test_an_unreadable_topic_can_be_deleted_by_name(self, image: Image) -> None:
        assert self.target(image, DeleteTopicState("broken")) == ("broken", ZERO_TOPIC_ID)

    def test_unknown_topics_are_refused(self, image: Image) -> None:
        wanted = DeleteTopicState("nobody")
        assert self.fails(image, wanted) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        wanted = DeleteTopicState(None, topic_id("nobody"))
        assert self.fails(image, wanted) is ErrorCode.UNKNOWN_TOPIC_ID

    @pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
    def test_internal_topics_are_kept(self, image: Image, name: str) -> None:
        image.apply(TopicFound(topic(name), {}))
        for wanted in (DeleteTopicState(name), DeleteTopicState(None, topic_id(name))):
            assert self.fails(image, wanted) is ErrorCode.INVALID_TOPIC_EXCEPTION

    def test_name_and_id_together_are_refused(self, image: Image) -> None:
        wanted = DeleteTopicState("old.topic", topic_id("old.topic"))
        assert self.fails(image, wanted) is ErrorCode.INVALID_REQUEST

    def test_deletion_can_be_disabled(self, image: Image) -> None:
        disabled = settings(deletion_enabled=False).topic_defaults
        wanted = DeleteTopicState("old.topic")
        assert self.fails(image, wanted, disabled) is ErrorCode.TOPIC_DELETION_DISABLED
