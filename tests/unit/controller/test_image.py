"""What the controller knows, and how facts change it."""

from __future__ import annotations

import pytest
from tests.support.controller.values import (
    TP,
    broker,
    brokers,
    state,
    topic,
    topic_id,
)

from tidelog.controller.elections.leaders import UncleanChanged
from tidelog.controller.image import Image
from tidelog.controller.incarnations import Brokers
from tidelog.controller.partitions.addition import PartitionsAdded
from tidelog.controller.producer_ids import ProducerIdsFound
from tidelog.controller.records import LastProducerId, Presence, Topic
from tidelog.controller.registrations import BrokersChanged
from tidelog.controller.replica_answers import ReplicaAnswered, ReplicasStopped
from tidelog.controller.state_writes import ReplicasRemade, StatePublished
from tidelog.controller.topics.changes import TopicFound, TopicGone, TopicUnreadable
from tidelog.controller.topics.deletion import DeletionCommanded, DeletionRequested
from tidelog.core.errors import InvariantError
from tidelog.core.types import TopicPartition


@pytest.fixture
def image() -> Image:
    made = Image()
    made.apply(BrokersChanged(brokers(1, 2, 3)))
    made.apply(TopicFound(topic("t", {0: (1, 2, 3), 1: (2,)}), {0: state()}))
    return made


def test_a_topic_is_known_by_name_by_id_and_by_who_hosts_it(image: Image) -> None:
    assert image.topic_name(topic_id("t")) == "t"
    assert image.replicas(TP) == (1, 2, 3)
    assert list(image.hosted_by(2)) == [TP, TopicPartition("t", 1)]
    assert list(image.partitions()) == [TP, TopicPartition("t", 1)]
    assert image.states == {TP: state()}


def test_a_topic_that_grows_keeps_what_it_had(image: Image) -> None:
    before = image.key()
    grown = topic("t", {0: (1, 2, 3), 1: (2,), 2: (3, 1)}, version=1)
    image.apply(PartitionsAdded(grown, {2: state((3, 1))}))
    added = TopicPartition("t", 2)
    assert image.states == {TP: state(), added: state((3, 1))}
    assert list(image.hosted_by(3)) == [TP, added]
    assert image.topic_name(topic_id("t")) == "t"
    assert image.key() != before


def test_whether_a_topic_may_be_led_uncleanly_changes_nothing_else(image: Image) -> None:
    before = image.key()
    image.apply(UncleanChanged("t", True))
    assert image.topics["t"] == topic("t", {0: (1, 2, 3), 1: (2,)}, unclean=True)
    assert image.key() != before
    image.apply(UncleanChanged("u", True))
    assert list(image.topics) == ["t"]


def test_what_does_not_exist_is_empty(image: Image) -> None:
    assert image.topic_name(bytes(16)) is None
    assert image.replicas(TopicPartition("t", 9)) == ()
    assert image.replicas(TopicPartition("u", 0)) == ()
    assert list(image.hosted_by(9)) == []


def test_a_topic_that_goes_leaves_nothing(image: Image) -> None:
    image.apply(ReplicaAnswered(TP, 1, Presence.LOST))
    image.apply(DeletionRequested("t"))
    image.apply(TopicGone("t"))
    empty = Image()
    empty.apply(BrokersChanged(brokers(1, 2, 3)))
    assert image.key() == empty.key()
    assert list(image.hosted_by(2)) == []
    image.apply(TopicGone("t"))


def test_a_topic_of_the_same_name_has_another_id(image: Image) -> None:
    image.apply(TopicGone("t"))
    image.apply(TopicFound(Topic("t", topic_id("t", 2), {0: (1,)}), {}))
    assert image.topic_name(topic_id("t")) is None
    assert image.topic_name(topic_id("t", 2)) == "t"
    assert image.states == {}


def test_an_unreadable_topic_is_known_by_name_only(image: Image) -> None:
    image.apply(TopicUnreadable("t", "not JSON"))
    assert image.unreadable == {"t": "not JSON"}
    assert image.topics == {}
    assert image.states == {}
    image.apply(TopicFound(topic("t"), {}))
    assert image.unreadable == {}


def test_a_state_of_a_topic_that_is_not_there_is_not_taken(image: Image) -> None:
    image.apply(StatePublished(TopicPartition("u", 0), state()))
    assert list(image.states) == [TP]


class TestPresence:
    def test_it_is_kept_while_somebody_lacks_the_replica(self, image: Image) -> None:
        image.apply(ReplicaAnswered(TP, 1, Presence.HERE))
        assert image.presence(TP) == {}
        image.apply(ReplicaAnswered(TP, 2, Presence.LOST))
        image.apply(ReplicaAnswered(TP, 1, Presence.HERE))
        assert image.presence(TP) == {1: Presence.HERE, 2: Presence.LOST}
        assert image.absent(TP) == (2,)
        image.apply(ReplicaAnswered(TP, 2, Presence.HERE))
        assert image.presence(TP) == {}

    @pytest.mark.rule("D3")
    def test_another_life_of_the_broker_has_said_nothing(self, image: Image) -> None:
        image.apply(ReplicaAnswered(TP, 1, Presence.LOST))
        image.apply(ReplicaAnswered(TP, 2, Presence.LOST))
        image.apply(BrokersChanged(brokers(1, broker(2, life=2), 3)))
        assert image.absent(TP) == (1,)
        image.apply(BrokersChanged(brokers(broker(2, life=2), 3)))
        assert image.absent(TP) == ()

    def test_it_is_forgotten_when_the_partition_is_made_anew(self, image: Image) -> None:
        image.apply(ReplicaAnswered(TP, 2, Presence.LOST))
        image.apply(ReplicasRemade(TP))
        assert image.absent(TP) == ()


class TestDeletions:
    def test_it_is_done_when_every_live_replica_has_answered(self, image: Image) -> None:
        image.apply(DeletionRequested("t"))
        assert image.is_deleting("t")
        assert not image.deletions["t"].done
        other = TopicPartition("t", 1)
        image.apply(DeletionCommanded("t", {1: (TP,), 2: (TP, other)}))
        image.apply(DeletionRequested("t"))
        image.apply(ReplicasStopped(1, (TP, TopicPartition("u", 0))))
        image.apply(ReplicasStopped(2, (TP,)))
        image.apply(ReplicasStopped(1, (TP,)))
        assert not image.deletions["t"].done
        image.apply(ReplicasStopped(2, (other,)))
        assert image.deletions["t"].done

    @pytest.mark.rule("V22")
    @pytest.mark.parametrize("after", [brokers(2, 3), brokers(broker(1, life=2), 2, 3)])
    def test_a_broker_that_dies_or_bounces_is_not_waited_for(
        self, image: Image, after: Brokers
    ) -> None:
        image.apply(DeletionCommanded("t", {1: (TP,)}))
        image.apply(BrokersChanged(after))
        assert image.deletions["t"].done


def test_a_copy_goes_its_own_way(image: Image) -> None:
    image.apply(DeletionRequested("t"))
    image.apply(DeletionCommanded("t", {1: (TP,)}))
    image.apply(ReplicaAnswered(TP, 2, Presence.LOST))
    image.apply(ProducerIdsFound(LastProducerId(999, 3)))
    copied = image.copy()
    assert copied.key() == image.key()
    copied.apply(ReplicasStopped(1, (TP,)))
    copied.apply(ReplicaAnswered(TP, 3, Presence.LOST))
    copied.apply(TopicUnreadable("u", "not JSON"))
    assert copied.key() != image.key()
    assert not image.deletions["t"].done
    copied.apply(TopicGone("t"))
    assert list(image.states) == [TP]
    assert list(image.hosted_by(1)) == [TP]
    assert image.producer_ids == LastProducerId(999, 3)


def test_nothing_changes_an_image_that_is_read(image: Image) -> None:
    before = image.key()
    with pytest.raises(InvariantError, match="while it is read"), image.read_only():
        image.apply(TopicGone("t"))
    assert image.key() == before
    image.apply(TopicGone("t"))
    assert image.key() != before
