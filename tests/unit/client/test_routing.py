"""Whom a client asks, where brokers tell different things of the same partition (KIP-320)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tidelog.client.cluster import TopicMetadata
from tidelog.client.routing import ClusterRouter
from tidelog.client.steps import Address, Call, Operation, Response, T
from tidelog.core.errors import RequestTimeout
from tidelog.core.types import TopicPartition
from tidelog.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

TP = TopicPartition("t", 0)
ONE, TWO = Address("b1", 1), Address("b2", 2)
ID, OTHER_ID = b"1" * 16, b"2" * 16


def told(leader: int, epoch: int, topic_id: bytes = ID, error: int = 0) -> MetadataResponse:
    """Partition 0 of the topic under a leader, as one broker of two tells it."""
    partition = MetadataResponsePartition(
        partition_index=0, leader_id=leader, leader_epoch=epoch, replica_nodes=[1, 2]
    )
    topic = MetadataResponseTopic(
        name="t", topic_id=topic_id, error_code=error, partitions=[] if error else [partition]
    )
    brokers = [MetadataResponseBroker(node_id=n, host=f"b{n}", port=n) for n in (1, 2)]
    return MetadataResponse(brokers=brokers, controller_id=1, topics=[topic])


def finish(operation: Operation[T], answers: Mapping[Address, MetadataResponse]) -> T:
    """Run an operation to its end; each broker answers every call with its one answer."""
    try:
        asked = next(operation)
        while True:
            assert isinstance(asked, Call)
            asked = operation.send(Response(12, answers[asked.address]))
    except StopIteration as end:
        result: T = end.value
        return result


def leader(router: ClusterRouter, answers: Mapping[Address, MetadataResponse]) -> int:
    """The leader as the router finds it, from metadata asked for anew."""
    router.forget()
    return finish(router.leader(TP, router.patience()), answers).broker_id


@pytest.fixture
def router() -> ClusterRouter:
    return ClusterRouter([ONE, TWO], 1000, lambda: 0)


def test_a_broker_that_was_cut_off_does_not_lead_back_to_an_earlier_leader(
    router: ClusterRouter,
) -> None:
    assert leader(router, {ONE: told(2, 4)}) == 2
    assert leader(router, {ONE: told(1, 3), TWO: told(2, 4)}) == 2
    assert router.leader_epoch(TP) == 4
    assert leader(router, {ONE: told(1, 3), TWO: told(1, 3)}) == 2, "nobody knows better"
    assert router.leader_epoch(TP) == 4
    assert leader(router, {ONE: told(1, 5)}) == 1


def test_a_topic_made_anew_begins_with_its_own_epochs(router: ClusterRouter) -> None:
    assert leader(router, {ONE: told(2, 4)}) == 2
    assert leader(router, {ONE: told(1, 0, OTHER_ID)}) == 1
    assert router.leader_epoch(TP) == 0


def test_without_topic_ids_or_epochs_the_last_answer_counts(router: ClusterRouter) -> None:
    none = bytes(16)
    assert leader(router, {ONE: told(2, 4, none)}) == 2
    assert leader(router, {ONE: told(1, 0, none)}) == 1
    assert leader(router, {ONE: told(2, 4)}) == 2
    assert leader(router, {ONE: told(1, -1)}) == 1


def test_an_error_in_between_does_not_make_epochs_forgotten(router: ClusterRouter) -> None:
    assert leader(router, {ONE: told(2, 4)}) == 2
    known = finish(router.metadata(["t"]), {ONE: told(2, 4, error=5)}).topics["t"]
    assert isinstance(known, TopicMetadata) and known.error
    assert leader(router, {ONE: told(1, 3), TWO: told(1, 3)}) == 2


@pytest.mark.parametrize(("saves_time", "first_ms"), [(True, 2_000), (False, 4_000)])
def test_a_broker_that_hangs_leaves_time_for_the_others(saves_time: bool, first_ms: int) -> None:
    now_ms = 0
    router = ClusterRouter([ONE, TWO], 4_000, lambda: now_ms, saves_time=saves_time)
    operation = router.metadata()
    asked = next(operation)
    assert isinstance(asked, Call) and (asked.address, asked.timeout_ms) == (ONE, first_ms)
    now_ms = asked.timeout_ms
    asked = operation.throw(RequestTimeout("no response"))
    assert isinstance(asked, Call) and asked.address == TWO
    assert asked.timeout_ms == max(1, 4_000 - first_ms), "the last one has the rest"
    with pytest.raises(StopIteration):
        operation.send(Response(12, told(1, 3)))
    following = next(router.metadata())
    assert isinstance(following, Call) and following.address == TWO, "the one that answered"
