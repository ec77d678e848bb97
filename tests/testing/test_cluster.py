"""The kit's cluster against real brokers: break them, wait for them, describe them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.cluster.values import read_values, write_values
from tests.support.cluster.zookeepers import require_zookeeper

from tidelog.core.types import TopicPartition
from tidelog.local import ClusterStatus, LocalClusterError
from tidelog.local.ports import free_ports
from tidelog.testing import Cluster, WaitTimeout


def test_a_leader_that_is_killed_is_followed_by_another(tidelog_cluster_module: Cluster) -> None:
    cluster = tidelog_cluster_module
    topic = cluster.create_topic("killed", config={"min.insync.replicas": 2})
    first = cluster.leader(topic)
    cluster.kill(first)
    second = cluster.leader(topic)
    assert second != first
    cluster.wait_for(running=2, under_replicated=1, leaderless=0)
    assert f"{first} stopped" in cluster.describe()
    cluster.start(first)
    cluster.wait_for(running=3, under_replicated=0)


def test_a_killed_broker_counts_at_once(tidelog_cluster_module: Cluster) -> None:
    cluster = tidelog_cluster_module
    cluster.create_topic("counts-at-once")
    cluster.kill(2)
    with pytest.raises(WaitTimeout, match="not under_replicated=0; last seen:\n.*2 stopped"):
        cluster.wait_for(under_replicated=0, timeout=0.0)


def test_a_shared_cluster_begins_every_test_whole(tidelog_cluster_module: Cluster) -> None:
    """The test before left a broker dead."""
    cluster = tidelog_cluster_module
    assert cluster.wait_for(under_replicated=0, timeout=0.0).reached
    cluster.pause(1)
    cluster.on_request("Produce").drop()
    cluster.reset()
    states = [broker.state for broker in cluster.status().brokers]
    assert (states, cluster.faults) == (["running"] * 3, ())


def test_a_stopped_broker_comes_back_with_its_records(tidelog_cluster_module: Cluster) -> None:
    cluster = tidelog_cluster_module
    topic = cluster.create_topic("stopped", replicas={0: [3]})
    tp = TopicPartition(topic, 0)
    write_values(cluster.bootstrap, tp, [b"kept"])
    cluster.stop(3)
    cluster.wait_for(leaderless=1)
    cluster.restart(3)
    assert cluster.leader(topic) == 3
    assert read_values(cluster.bootstrap, tp) == [b"kept"]


def test_a_paused_broker_is_restarted_too(tidelog_cluster_module: Cluster) -> None:
    cluster = tidelog_cluster_module
    cluster.pause(2)
    cluster.restart(2)
    assert [broker.state for broker in cluster.status().brokers] == ["running"] * 3


def test_a_controller_that_is_killed_is_followed_by_another(
    tidelog_cluster_module: Cluster,
) -> None:
    first = tidelog_cluster_module.controller()
    tidelog_cluster_module.kill(first)
    second = tidelog_cluster_module.controller()
    assert second != first
    assert tidelog_cluster_module.wait_for(controller=second).controller == second


def test_any_condition_may_be_waited_for(tidelog_cluster_module: Cluster) -> None:
    cluster = tidelog_cluster_module

    def three_partitions(status: ClusterStatus) -> bool:
        return sum(each.topic == "any" for each in status.partitions) == 3

    with pytest.raises(WaitTimeout, match="after 0 s not three_partitions; last seen"):
        cluster.wait_for(three_partitions, timeout=0)
    cluster.create_topic("any", partitions=3)
    assert cluster.wait_for(three_partitions).leaderless == 0
    cluster.delete_topic("any")
    cluster.wait_for(lambda now: not three_partitions(now), what="no topic 'any'")


def test_what_was_waited_for_has_high_watermarks(tidelog_cluster_module: Cluster) -> None:
    cluster = tidelog_cluster_module
    tp = TopicPartition(cluster.create_topic("marks"), 0)

    def mark(status: ClusterStatus) -> int | None:
        return next(each for each in status.partitions if each.topic == "marks").high_watermark

    assert mark(cluster.wait_for(under_replicated=0, leaderless=0)) == 0
    write_values(cluster.bootstrap, tp, [b"one", b"two"])
    assert mark(cluster.wait_for(lambda now: mark(now) == 2, what="two records")) == 2


def test_a_leader_that_does_not_run_is_none(tidelog_cluster_module: Cluster) -> None:
    cluster = tidelog_cluster_module
    cluster.create_topic("led", partitions=6)
    for number in (1, 2):  # a topic of another test is on broker 3 alone
        cluster.kill(number)
        now = cluster.wait_for(leaderless=0)
        leaders = {each.leader for each in now.partitions if each.topic == "led"}
        assert leaders and number not in leaders
        cluster.start(number)
        cluster.wait_for(under_replicated=0, leaderless=0)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda cluster: cluster.kill(4), "no broker 4: this cluster has 1, 2, 3"),
        (lambda cluster: cluster.on_request("Fetch").on(0).drop(), "no broker 0"),
        (lambda cluster: cluster.start(9), "no broker 9"),
    ],
)
def test_a_broker_that_there_is_not_is_named(
    tidelog_cluster_module: Cluster, wrong: Callable[[Cluster], None], told: str
) -> None:
    with pytest.raises(LocalClusterError, match=told):
        wrong(tidelog_cluster_module)


def test_waiting_for_nothing_is_refused(tidelog_cluster_module: Cluster) -> None:
    with pytest.raises(ValueError, match="say what for"):
        tidelog_cluster_module.wait_for()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"under_replicatd": 0}, "no condition 'under_replicatd'.*did you mean under_replicated"),
        ({"leaders": 3}, "no condition 'leaders'.*expected"),
        ({"running": 4}, "running=4.* can never hold: this cluster has 3 brokers"),
        ({"leaderless": -1}, "leaderless=-1.* can never hold: 0 or more"),
        ({"controller": 7}, "no broker 7"),
    ],
)
def test_a_condition_that_can_never_hold_is_refused_at_once(
    tidelog_cluster_module: Cluster, wrong: dict[str, Any], told: str
) -> None:
    with pytest.raises((TypeError, ValueError, LocalClusterError), match=told):
        tidelog_cluster_module.wait_for(**wrong)


def test_a_cluster_without_a_fixture_names_a_fault_without_an_action(tmp_path: Path) -> None:
    cluster = Cluster(str(tmp_path), 1)
    with pytest.raises(ValueError, match="names no action"), cluster:
        cluster.on_request("Produce").nth(3)
    assert cluster.local.process(1) is None


def test_a_report_is_small_and_tells_what_happened(tidelog_cluster_module: Cluster) -> None:
    cluster = tidelog_cluster_module
    cluster.create_topic("many", partitions=40)
    cluster.on_request("Produce").nth(3).drop()
    cluster.kill(1)
    report = cluster.report()
    assert "1 stopped" in report
    assert "and " in report
    assert "fault: <on_request('Produce').nth(3).drop(): 0 of 0 requests>" in report
    assert "many-0: leader" in report
    assert len(report) < 14_000


@pytest.mark.tidelog(brokers=1, log_dirs=2, config={"num.partitions": 4})
def test_markers_say_what_cluster_it_is(tidelog_cluster: Cluster, kafka_bootstrap: str) -> None:
    cluster = tidelog_cluster
    assert (cluster.brokers, cluster.bootstrap) == ((1,), kafka_bootstrap)
    assert cluster.address(1) == kafka_bootstrap
    broker = f"{cluster.directory}/broker-1"
    assert sorted(name for name in os.listdir(broker) if name.startswith("data")) == [
        "data-0",
        "data-1",
    ]
    assert "num.partitions=4" in Path(f"{broker}/server.properties").read_text()
    assert "tidelog.test.interception.directory is set" in cluster.log(1)


@pytest.mark.parametrize("tidelog_cluster", [1, {"brokers": 2}], indirect=True)
def test_parameters_say_what_cluster_it_is(
    tidelog_cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    asked = request.node.callspec.params["tidelog_cluster"]
    assert len(tidelog_cluster.brokers) == (asked if isinstance(asked, int) else asked["brokers"])


def test_a_cluster_that_cannot_be_says_why(
    tidelog_cluster_factory: Callable[..., Cluster],
) -> None:
    with pytest.raises(LocalClusterError, match="num.partitions='none' is not valid"):
        tidelog_cluster_factory(brokers=1, config={"num.partitions": "none"})
    with pytest.raises(LocalClusterError, match="zookeeper://host:port"):
        tidelog_cluster_factory(brokers=1, store="zookeeper:127.0.0.1:2181")


def test_a_cluster_may_have_a_zookeeper_of_its_own(
    tidelog_cluster_factory: Callable[..., Cluster],
) -> None:
    require_zookeeper()
    cluster = tidelog_cluster_factory(brokers=1, store="zookeeper")
    server = cluster.local.zookeeper
    assert server is not None and server.process is not None
    cluster.close()
    assert server.process is None


def test_addresses_are_a_text_and_a_list(tidelog_cluster_module: Cluster) -> None:
    cluster = tidelog_cluster_module
    assert cluster.bootstrap_servers == [cluster.address(broker) for broker in (1, 2, 3)]
    assert ",".join(cluster.bootstrap_servers) == cluster.bootstrap


def test_a_broker_whose_session_expired_registers_again(tmp_path: Path) -> None:
    with Cluster(str(tmp_path), 2, config={"metadata.session.timeout.ms": 2000}) as cluster:
        topic = cluster.create_topic("expired", replicas={0: [2, 1]})
        before = cluster.log(2).count("registered as broker 2")
        cluster.expire_session(2)
        cluster.wait_for(under_replicated=0, running=2)
        assert cluster.leader(topic) == 1
        assert cluster.log(2).count("registered as broker 2") == before + 1
        assert [each.state for each in cluster.status().brokers] == ["running"] * 2


@pytest.mark.parametrize("wanted", ["a.b/c"])
def test_topics_have_unique_names(tidelog_cluster_module: Cluster, wanted: str) -> None:
    cluster = tidelog_cluster_module
    made = [cluster.topic(wanted, partitions=2), cluster.topic(wanted), cluster.topic()]
    assert len(dict.fromkeys(made)) == 3
    assert made[0].startswith("a-b-c-")
    assert made[2].startswith("test_topics_have_unique_names-a-b-c-")
    now = cluster.status()
    assert [sum(each.topic == name for each in now.partitions) for name in made] == [2, 1, 1]


def test_a_port_is_the_first_brokers(tmp_path: Path) -> None:
    first, *_ = free_ports(1)
    for number in range(2):  # the port is free again at once
        with Cluster(str(tmp_path / str(number)), 1, port=first) as cluster:
            assert cluster.bootstrap == f"127.0.0.1:{first}"
            with pytest.raises(LocalClusterError, match=rf"port={first}: .*another worker"):
                Cluster(str(tmp_path / f"other-{number}"), 1, port=first)
