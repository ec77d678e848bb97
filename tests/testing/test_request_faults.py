"""Faults on requests as real clients meet them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.clients.librdkafka import produce
from tests.support.cluster.values import read_values

from tidelog.core.types import TopicPartition
from tidelog.local import ClusterStatus
from tidelog.testing import Cluster

pytestmark = pytest.mark.tidelog(
    config={"replica.lag.time.max.ms": 1500, "replica.socket.timeout.ms": 1000}
)


@pytest.fixture
def cluster(tidelog_cluster_module: Cluster) -> Cluster:
    return tidelog_cluster_module


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    return cluster.create_topic(request.node.name.replace("[", "-").replace("]", ""))


def values(cluster: Cluster, topic: str) -> list[bytes]:
    return read_values(cluster.bootstrap, TopicPartition(topic, 0))


def test_a_lost_acknowledgement_costs_an_idempotent_producer_nothing(
    cluster: Cluster, topic: str
) -> None:
    fault = cluster.on_request("Produce").where(topic=topic).once().after().disconnect()
    assert produce(cluster.bootstrap, topic, ["paid"], enable_idempotence=True) == []
    assert (fault.count, fault.matched) == (1, 2)
    assert values(cluster, topic) == [b"paid"]


def test_a_lost_acknowledgement_doubles_the_record_of_a_producer_that_is_not(
    cluster: Cluster, topic: str
) -> None:
    fault = cluster.on_request("Produce").where(topic=topic).once().after().disconnect()
    assert produce(cluster.bootstrap, topic, ["paid"], enable_idempotence=False) == []
    assert fault.count == 1
    assert values(cluster, topic) == [b"paid", b"paid"]


def test_a_request_that_is_cut_off_did_nothing(cluster: Cluster, topic: str) -> None:
    fault = cluster.on_request("Produce").where(topic=topic).once().disconnect()
    assert produce(cluster.bootstrap, topic, ["paid"], enable_idempotence=False) == []
    assert (fault.count, values(cluster, topic)) == (1, [b"paid"])


@pytest.mark.parametrize("after", [False, True])
def test_a_lost_request_is_sent_again_when_its_client_gave_up(
    cluster: Cluster, topic: str, after: bool
) -> None:
    requests = cluster.on_request("Produce").where(topic=topic).once()
    fault = (requests.after() if after else requests).drop()
    sent = produce(cluster.bootstrap, topic, ["a", "b"], linger_ms=50, socket_timeout_ms=1000)
    assert (sent, fault.count) == ([], 1)
    assert values(cluster, topic)[-2:] == [b"a", b"b"]


def test_an_error_that_may_pass_is_retried(cluster: Cluster, topic: str) -> None:
    fault = cluster.on_request("Produce").where(topic=topic).times(2).answer("NOT_ENOUGH_REPLICAS")
    assert produce(cluster.bootstrap, topic, ["a"]) == []
    assert (fault.count, fault.matched) == (2, 3)
    assert values(cluster, topic) == [b"a"]


def test_an_error_that_stays_reaches_the_caller(cluster: Cluster, topic: str) -> None:
    cluster.on_request("Produce").where(topic=topic).answer("TOPIC_AUTHORIZATION_FAILED")
    (error,) = produce(cluster.bootstrap, topic, ["a"])
    assert error.name() == "TOPIC_AUTHORIZATION_FAILED"
    assert values(cluster, topic) == []


def test_held_requests_take_effect_in_their_order(cluster: Cluster, topic: str) -> None:
    fault = cluster.on_request("Produce").where(topic=topic).every(3).delay(0.2)
    sent = [str(number) for number in range(10)]
    assert produce(cluster.bootstrap, topic, sent, batch_num_messages=1) == []
    assert fault.count == 3
    assert values(cluster, topic) == [value.encode() for value in sent]


def test_only_what_is_named_is_struck(cluster: Cluster, topic: str) -> None:
    other = cluster.create_topic(f"{topic}-other", replicas={0: [2]})
    leader = cluster.leader(topic)
    elsewhere = next(broker for broker in cluster.brokers if broker != leader)
    spared = [
        cluster.on_request("Produce").where(topic=other).drop(),
        cluster.on_request("Produce").where(client_id="somebody").drop(),
        cluster.on_request("Produce").on(elsewhere).where(topic=topic).drop(),
    ]
    met = cluster.on_request("Produce").on(leader).where(client_id="us", topic=topic).watch()
    assert produce(cluster.bootstrap, topic, ["a"], client_id="us") == []
    assert ([fault.matched for fault in spared], met.matched) == ([0, 0, 0], 1)


def test_requests_are_counted_over_all_brokers_and_their_restarts(cluster: Cluster) -> None:
    names = [
        cluster.create_topic(f"counted-{broker}", replicas={0: [broker]})
        for broker in cluster.brokers
    ]
    fault = cluster.on_request("Produce").where(client_id="counter").nth(4).after().disconnect()
    for name in names:
        assert produce(cluster.bootstrap, name, ["a"], client_id="counter") == []
    cluster.restart(1)
    assert cluster.leader(names[0]) == 1
    assert fault.count == 0
    assert produce(cluster.bootstrap, names[0], ["b"], client_id="counter") == []
    assert [line.split(":")[0] for line in fault.requests] == ["broker 1"]
    assert fault.matched == 5


def test_followers_whose_fetches_are_lost_leave_the_isr_and_come_back(
    cluster: Cluster, topic: str
) -> None:
    leader = cluster.leader(topic)
    with cluster.on_request("Fetch").from_brokers().on(leader).drop() as fault:
        fault.wait()
        assert produce(cluster.bootstrap, topic, ["a"], acks="1") == []
        cluster.wait_for(
            lambda now: (topic, (leader,)) in [(each.topic, each.isr) for each in now.partitions],
            what="an in-sync set of the leader alone",
        )
    cluster.wait_for(under_replicated=0)
    assert cluster.leader(topic) == leader


def test_a_follower_on_the_other_side_leaves_the_isr_and_comes_back(cluster: Cluster) -> None:
    leader = cluster.controller()
    follower, other = (broker for broker in cluster.brokers if broker != leader)
    topic = cluster.topic(replicas={0: [leader, follower, other]})

    def isr(now: ClusterStatus) -> list[int]:
        return next(sorted(each.isr) for each in now.partitions if each.topic == topic)

    with cluster.isolate({follower}, [leader, other]) as cut:
        # The fetch that waited at the leader has been answered when the next one is cut off.
        cluster.wait_for(
            lambda _: any(": Fetch " in line for line in cut.faults[1].requests), what="a fetch"
        )
        assert produce(cluster.bootstrap, topic, ["a"], acks="1") == []
        cluster.wait_for(lambda now: isr(now) == sorted([leader, other]), what="a smaller ISR")
        assert produce(cluster.bootstrap, topic, ["b"]) == []
        assert cluster.status().brokers[follower - 1].registered
    cluster.wait_for(under_replicated=0)


@pytest.mark.parametrize("sides", [((), None), ((1, 2, 3), None), ((1,), (1, 2)), ((1,), ())])
def test_sides_that_cut_nothing_are_refused(cluster: Cluster, sides: tuple[Any, Any]) -> None:
    with pytest.raises(ValueError, match=r"isolate\(.*: two sides with other brokers expected"):
        cluster.isolate(*sides)


def test_one_partition_is_struck_and_the_others_go_on(cluster: Cluster) -> None:
    topic = cluster.topic(partitions=2)
    fault = cluster.on_request("Produce").where(topic=topic, partition=1)
    refused = fault.answer("TOPIC_AUTHORIZATION_FAILED")
    assert produce(cluster.bootstrap, topic, ["a"], partition=0) == []
    (error,) = produce(cluster.bootstrap, topic, ["b"], partition=1)
    assert (error.name(), refused.count) == ("TOPIC_AUTHORIZATION_FAILED", 1)
    assert values(cluster, topic) == [b"a"]


def test_a_follower_is_kept_from_one_partition(cluster: Cluster) -> None:
    """Its fetches name nothing: the partitions are those of its session."""
    topic = cluster.topic(partitions=2, replicas={0: [1, 2], 1: [1, 2]})
    fetches = cluster.on_request("Fetch").from_brokers().on(1)
    met = fetches.where(topic=topic, partition=1).watch()
    other = fetches.where(topic=topic, partition=2).watch()
    cluster.wait_for(lambda now: met.matched > 2, what="fetches of the partition")
    assert other.matched == 0


def test_a_response_of_the_tests_making_reaches_the_client(cluster: Cluster, topic: str) -> None:
    """A follower for the leader: the client hears it, tries it, and asks again."""
    leader = cluster.leader(topic)
    follower = next(broker for broker in cluster.brokers if broker != leader)
    partition = {"leader_id": follower, "replica_nodes": [1, 2, 3], "isr_nodes": [1, 2, 3]}
    wrong = cluster.on_request("Metadata").where(topic=topic).once().after()
    fault = wrong.answer(topics=[{"name": topic, "partitions": [partition]}])
    strayed = cluster.on_request("Produce").on(follower).where(topic=topic).watch()
    assert produce(cluster.bootstrap, topic, ["a"]) == []
    assert (fault.count, strayed.matched > 0) == (1, True)
    assert values(cluster, topic) == [b"a"]
