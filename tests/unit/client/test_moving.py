"""Moves of partitions: what is asked of which broker, and what is told of the answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.client.fake_cluster import FakeCluster

from tidelog.client.moving import MoveUnderWay
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from tidelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from tidelog.wire.registry import ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    made = FakeCluster(2)
    made.topics["t"] = [1, 2]
    yield made
    made.close()


@pytest.fixture
def client(cluster: FakeCluster) -> Iterator[BlockingClient]:
    with BlockingClient(cluster.bootstrap, timeout_ms=5_000) as made:
        yield made


def accepted(*codes: int) -> AlterPartitionReassignmentsResponse:
    told = [
        ReassignablePartitionResponse(number, code, "why" if code else None)
        for number, code in enumerate(codes)
    ]
    return AlterPartitionReassignmentsResponse(responses=[ReassignableTopicResponse("t", told)])


def test_every_partition_has_its_own_outcome(cluster: FakeCluster, client: BlockingClient) -> None:
    cluster[1].on(ALTER_PARTITION_REASSIGNMENTS, lambda _: accepted(0, 39))
    found = client.reassign({T0: (2, 1), T1: None})
    assert (found[T0].error, found[T0].message) == (ErrorCode.NONE, "")
    assert (found[T1].error, found[T1].message) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, "why")
    (asked,) = cluster[1].asked(ALTER_PARTITION_REASSIGNMENTS)
    [topic] = asked.topics
    assert [(one.partition_index, one.replicas) for one in topic.partitions] == [
        (0, [2, 1]),
        (1, None),
    ]


def test_a_cancel_names_the_moves_that_it_ends(
    cluster: FakeCluster, client: BlockingClient
) -> None:
    cluster[1].on(ALTER_PARTITION_REASSIGNMENTS, lambda _: accepted(0, 85))
    found = client.cancel_reassignments({T0: [(2, 1), (3, 1)], T1: []})
    assert found[T1].error is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    (asked,) = cluster[1].asked(ALTER_PARTITION_REASSIGNMENTS)
    assert [
        (one.replicas, [list(each.replicas) for each in one.ended_targets])
        for one in asked.topics[0].partitions
    ] == [(None, [[2, 1], [3, 1]]), (None, [])]


def test_another_controller_is_asked_when_this_is_none(
    cluster: FakeCluster, client: BlockingClient
) -> None:
    def step_down(_: object) -> AlterPartitionReassignmentsResponse:
        cluster.controller_id = 2
        return AlterPartitionReassignmentsResponse(error_code=ErrorCode.NOT_CONTROLLER)

    cluster[1].on(ALTER_PARTITION_REASSIGNMENTS, step_down)
    cluster[2].on(ALTER_PARTITION_REASSIGNMENTS, lambda _: accepted(0))
    assert client.reassign({T0: (2,)})[T0].error is ErrorCode.NONE


def test_a_refusal_of_the_whole_is_raised(cluster: FakeCluster, client: BlockingClient) -> None:
    refused = AlterPartitionReassignmentsResponse(error_code=ErrorCode.INVALID_REQUEST)
    cluster[1].on(ALTER_PARTITION_REASSIGNMENTS, lambda _: refused)
    with pytest.raises(KafkaError, match="INVALID_REQUEST"):
        client.reassign({T0: (2,)})


def test_moves_under_way(cluster: FakeCluster, client: BlockingClient) -> None:
    told = [OngoingPartitionReassignment(1, [3, 2, 1], [3], [1])]
    listed = ListPartitionReassignmentsResponse(topics=[OngoingTopicReassignment("t", told)])
    cluster[1].on(LIST_PARTITION_REASSIGNMENTS, lambda _: listed)
    found = client.list_reassignments()
    assert found == {T1: MoveUnderWay((3, 2, 1), (3,), (1,))}
    assert found[T1].target == (3, 2)
    client.list_reassignments([T0, T1])
    everything, some = cluster[1].asked(LIST_PARTITION_REASSIGNMENTS)
    assert everything.topics is None
    assert [(one.name, list(one.partition_indexes)) for one in some.topics] == [("t", [0, 1])]


def test_a_list_is_asked_of_another_controller_too(
    cluster: FakeCluster, client: BlockingClient
) -> None:
    def step_down(_: object) -> ListPartitionReassignmentsResponse:
        cluster.controller_id = 2
        return ListPartitionReassignmentsResponse(error_code=ErrorCode.NOT_CONTROLLER)

    cluster[1].on(LIST_PARTITION_REASSIGNMENTS, step_down)
    cluster[2].on(LIST_PARTITION_REASSIGNMENTS, lambda _: ListPartitionReassignmentsResponse())
    assert client.list_reassignments() == {}


@pytest.mark.parametrize("is_list", [True, False])
def test_a_controller_that_hangs_does_not_use_up_the_time(
    cluster: FakeCluster,
    client: BlockingClient,
    monkeypatch: pytest.MonkeyPatch,
    is_list: bool,
) -> None:
    monkeypatch.setattr("tidelog.client.moving._LIST_MS", 200)
    monkeypatch.setattr("tidelog.client.moving._ALTER_MS", 200)
    monkeypatch.setattr("tidelog.client.moving._ANSWER_MARGIN_MS", 100)

    def hang(_: object) -> None:
        """The others elect another controller meanwhile."""
        cluster.controller_id = 2

    for api in (LIST_PARTITION_REASSIGNMENTS, ALTER_PARTITION_REASSIGNMENTS):
        cluster[1].on(api, hang)
    cluster[2].on(LIST_PARTITION_REASSIGNMENTS, lambda _: ListPartitionReassignmentsResponse())
    cluster[2].on(ALTER_PARTITION_REASSIGNMENTS, lambda _: accepted(0))
    if is_list:
        assert client.list_reassignments() == {}
    else:
        assert client.reassign({T0: (2,)})[T0].error is ErrorCode.NONE


@pytest.mark.parametrize("is_list", [True, False])
def test_the_message_of_an_error_as_a_whole_is_kept(
    cluster: FakeCluster, client: BlockingClient, is_list: bool
) -> None:
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if is_list:
        answer = ListPartitionReassignmentsResponse(error_code=refused, error_message="why")
        cluster[1].on(LIST_PARTITION_REASSIGNMENTS, lambda _: answer)
    else:
        whole = AlterPartitionReassignmentsResponse(error_code=refused, error_message="why")
        cluster[1].on(ALTER_PARTITION_REASSIGNMENTS, lambda _: whole)
    with pytest.raises(KafkaError, match="why"):
        client.list_reassignments() if is_list else client.reassign({T0: None})
