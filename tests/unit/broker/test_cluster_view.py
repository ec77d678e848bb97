"""The view holds what the controller published, and forgets what it says is gone."""

from __future__ import annotations

import pytest

from tidelog.broker.cluster_view import LEADER_DURING_DELETE, ClusterView
from tidelog.core.types import TopicPartition
from tidelog.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

ID_A = b"a" * 16
ID_B = b"b" * 16


def told(
    topic: str = "t", topic_id: bytes = ID_A, leader: int = 1, full: bool = False
) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(
        controller_id=3,
        controller_epoch=5,
        type=2 if full else 1,
        topic_states=[
            UpdateMetadataTopicState(
                topic_name=topic,
                topic_id=topic_id,
                partition_states=[
                    UpdateMetadataPartitionState(
                        partition_index=0,
                        leader=leader,
                        leader_epoch=4,
                        isr=[1, 2],
                        zk_version=8,
                        replicas=[1, 2, 3],
                        offline_replicas=[3],
                    )
                ],
            )
        ],
        live_brokers=[
            UpdateMetadataBroker(
                id=1,
                endpoints=[
                    UpdateMetadataEndpoint(
                        port=9092, host="h", listener="PLAINTEXT", security_protocol=0
                    )
                ],
                rack="r1",
            )
        ],
    )


def test_it_knows_brokers_leaders_and_topic_ids() -> None:
    view = ClusterView()
    assert view.apply(told()) == ({}, {})
    assert (view.controller_id, view.controller_epoch) == (3, 5)
    partition = view.partition(TopicPartition("t", 0))
    assert partition is not None
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (1, 4, 8)
    assert (partition.isr, partition.offline_replicas) == ((1, 2), (3,))
    assert view.topic_name(ID_A) == "t"
    assert view.is_alive(1)
    assert not view.is_alive(2)
    endpoint = view.endpoint(1, "PLAINTEXT")
    assert endpoint is not None
    assert (endpoint.host, endpoint.port) == ("h", 9092)
    assert view.endpoint(1, "SSL") is None
    assert view.endpoint(2, "PLAINTEXT") is None


def test_a_deleted_topic_is_gone_by_name_and_id() -> None:
    view = ClusterView()
    view.apply(told())
    assert view.apply(told(leader=LEADER_DURING_DELETE)) == ({"t": ID_A}, {})
    assert view.partition(TopicPartition("t", 0)) is None
    assert view.topic_name(ID_A) is None


def test_a_topic_made_again_under_its_name_replaces_the_old_one() -> None:
    view = ClusterView()
    view.apply(told())
    view.apply(told(topic_id=ID_B))
    assert view.topic_name(ID_A) is None
    assert view.topic_name(ID_B) == "t"
    # The late deletion of the old topic does not touch the new one (V23).
    assert view.apply(told(topic_id=ID_A, leader=LEADER_DURING_DELETE)) == ({}, {})
    assert view.topic_name(ID_B) == "t"


def test_a_full_request_forgets_what_it_does_not_name() -> None:
    view = ClusterView()
    view.apply(told("old"))
    view.apply(told("new", ID_B, full=True))
    assert sorted(view.topics) == ["new"]
    view.apply(told("more"))
    assert sorted(view.topics) == ["more", "new"]


@pytest.mark.parametrize(("kind", "is_whole"), [(0, True), (1, False), (2, True)])
def test_a_view_is_known_once_the_controller_has_sent_all_of_it(kind: int, is_whole: bool) -> None:
    """Kafka's controllers name no type (0) and begin with everything."""
    view = ClusterView()
    request = told()
    request.type = kind
    view.apply(request)
    assert view.is_known is is_whole


def test_a_topic_that_the_controller_could_not_read_stays_as_it_was_known() -> None:
    view = ClusterView()
    view.apply(told())
    everything = told("u", ID_B, full=True)
    everything.topic_states.append(UpdateMetadataTopicState(topic_name="t"))
    everything.topic_states.append(UpdateMetadataTopicState(topic_name="never known"))
    assert view.apply(everything) == ({}, {})
    assert view.topic_name(ID_A) == "t"
    known = view.partition(TopicPartition("t", 0))
    assert known is not None and known.leader == 1
    assert list(view.topics) == ["t", "u"]
    assert view.apply(told("u", ID_B, full=True)) == ({"t": ID_A}, {})
    assert view.topic_name(ID_A) is None


def without_epoch(topic_id: bytes = ID_A) -> UpdateMetadataRequest:
    """In full; of the topic there is one more partition, and the first could not be read."""
    everything = told(topic_id=topic_id, full=True)
    [topic] = everything.topic_states
    unread = UpdateMetadataPartitionState(
        partition_index=0, leader=-1, leader_epoch=-1, zk_version=-1, replicas=[1, 2, 3]
    )
    topic.partition_states[0].partition_index = 1
    topic.partition_states.append(unread)
    return everything


def test_a_partition_that_the_controller_could_not_read_stays_as_it_was_known() -> None:
    view = ClusterView()
    view.apply(told())
    assert view.apply(without_epoch()) == ({}, {})
    known = view.partition(TopicPartition("t", 0))
    assert known is not None and (known.leader, known.leader_epoch, known.isr) == (1, 4, (1, 2))
    assert list(view.topics["t"].partitions) == [1, 0]
    view.apply(without_epoch(ID_B))
    known = view.partition(TopicPartition("t", 0))
    assert known is not None and known.leader == -1


def test_one_that_could_not_be_read_and_was_not_known_has_no_leader_until_it_is_told() -> None:
    view = ClusterView()
    view.apply(without_epoch())
    known = view.partition(TopicPartition("t", 0))
    assert known is not None and (known.leader, known.replicas) == (-1, (1, 2, 3))
    later = told()
    later.topic_states[0].partition_states[0].first_leader_epoch = 3
    assert view.apply(later) == ({}, {})  # nothing has ended
    known = view.partition(TopicPartition("t", 0))
    assert known is not None and known.leader == 1


T0 = TopicPartition("t", 0)


def test_a_leader_that_was_commanded_stands_aside_until_it_is_shown() -> None:
    view = ClusterView()
    view.apply(told())
    view.leader_commanded(T0, 2, 5, 70)
    assert view.partition(T0) is not None
    assert view.latest_leader(T0) == (2, 5)
    assert view.commanded["t"].since_ms == 70
    view.apply(told())  # of another decision
    assert view.latest_leader(T0) == (2, 5)
    later = told(leader=2)
    later.topic_states[0].partition_states[0].leader_epoch = 5
    view.apply(later)
    assert view.latest_leader(T0) == (2, 5)
    assert view.commanded == {}


@pytest.mark.parametrize(
    ("leader", "epoch"), [(1, 5), (2, 4), (-1, 5)], ids=["shown", "older", "none"]
)
def test_commands_without_another_leader_change_nothing(leader: int, epoch: int) -> None:
    view = ClusterView()
    view.apply(told())
    view.leader_commanded(T0, leader, epoch, 70)
    assert view.latest_leader(T0) == (1, 4)
    assert view.commanded == {}


def test_a_topic_that_is_gone_takes_its_commanded_leaders_along() -> None:
    view = ClusterView()
    view.leader_commanded(T0, 2, 5, 70)
    assert view.latest_leader(T0) is None
    view.apply(told())
    view.leader_commanded(T0, 2, 5, 70)
    view.apply(told(leader=LEADER_DURING_DELETE))
    assert view.commanded == {}
    assert view.latest_leader(T0) is None
