"""Doctor's facts come from brokers that may be silent, strange, or of Apache Kafka."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from tests.support.client.fake_cluster import FakeCluster
from tests.support.client.fake_coordinator import FakeCoordinator
from tests.support.client.fake_logs import FakeLogs, batch

from tidelog.core.errors import ErrorCode, TidelogError
from tidelog.core.types import TopicPartition
from tidelog.local.doctor.cluster_facts import ClusterFacts
from tidelog.local.doctor.cluster_survey import survey
from tidelog.wire.messages.describe_configs import DescribeConfigsResponse, DescribeConfigsResult
from tidelog.wire.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from tidelog.wire.messages.describe_replicas import (
    DescribedPartition,
    DescribedReplica,
    DescribedTopic,
    DescribeReplicasResponse,
)
from tidelog.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from tidelog.wire.messages.list_partition_reassignments import ListPartitionReassignmentsResponse
from tidelog.wire.registry import (
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    FIRST_OWN_KEY,
    LIST_GROUPS,
    LIST_PARTITION_REASSIGNMENTS,
)

TP = TopicPartition("t", 0)
BROKER = 4


def of_apache(cluster: FakeCluster) -> None:
    """Let the brokers serve what Apache's serve."""
    for broker in cluster.brokers:
        broker.served = {key: it for key, it in broker.served.items() if key < FIRST_OWN_KEY}
        broker.on(LIST_PARTITION_REASSIGNMENTS, lambda _: ListPartitionReassignmentsResponse())
        broker.on(LIST_GROUPS, lambda _: ListGroupsResponse())


@pytest.fixture
def logs() -> Iterator[FakeLogs]:
    made = FakeLogs()
    made.create("t", 1)
    made.append(TP, batch(0, b"a", b"b", b"c"))
    made.configs = {
        (BROKER, "1"): {"inter.broker.protocol.version": ("3.4", 5)},
        (2, "t"): {"min.insync.replicas": ("2", 5)},
    }
    of_apache(made)
    yield made
    made.close()


def look(logs: FakeLogs, watch_s: float = 0.0) -> ClusterFacts:
    return survey(logs.bootstrap, 5.0, watch_s)


def test_a_cluster_of_apache_degrades_to_a_sentence(logs: FakeLogs) -> None:
    found = look(logs)
    [broker] = found.brokers
    assert (broker.silence, broker.protocol_level) == ("", "3.4")
    assert broker.versions == logs[1].served and not broker.serves_own_apis
    assert (broker.clock_ahead_ms, found.described) == (None, {})
    assert found.minimums == {"t": 2}
    assert found.moves is not None and not found.moves.knows_queue
    assert found.unexamined == [
        "clocks and causes of lag: broker 1 does not serve tidelog's own APIs at this address (a"
        " broker of Apache Kafka, or not its inter-broker listener)"
    ]


def test_the_clock_of_a_leader_is_measured(logs: FakeLogs) -> None:
    logs[1].served[FIRST_OWN_KEY + 4] = (0, 0)

    def describe(_: object) -> DescribeReplicasResponse:
        replica = DescribedReplica(
            1, True, last_caught_up_ms=time.time_ns() // 1_000_000 + 3_600_000
        )
        partition = DescribedPartition(
            0, leader_id=1, is_led_here=True, isr=[1], replicas=[replica]
        )
        return DescribeReplicasResponse(
            topics=[DescribedTopic("t", bytes(16), partitions=[partition])]
        )

    logs[1].on(FIRST_OWN_KEY + 4, describe)
    found = look(logs)
    ahead, doubt = found.brokers[0].clock_ahead_ms, found.brokers[0].clock_doubt_ms
    assert ahead is not None and abs(ahead - 3_600_000) <= doubt + 1
    assert found.unexamined == []


def test_refusals_are_sentences(logs: FakeLogs) -> None:
    refused = DescribeConfigsResult(
        error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, resource_type=BROKER, resource_name="1"
    )
    logs[1].on(DESCRIBE_CONFIGS, lambda _: DescribeConfigsResponse(results=[refused]))
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    logs[1].on(LIST_GROUPS, lambda _: ListGroupsResponse(error_code=denied))
    found = look(logs)
    assert found.brokers[0].protocol_level is None
    for what in ("settings of broker 1: ", "settings of topics: ", "groups of broker 1: "):
        assert any(each.startswith(what) for each in found.unexamined), found.unexamined


def test_a_silent_broker_is_asked_once() -> None:
    cluster = FakeCluster(2)
    of_apache(cluster)
    cluster[1].on(DESCRIBE_CONFIGS, lambda _: DescribeConfigsResponse())
    cluster[2].close()
    found = survey(cluster[1].bootstrap, 5.0, 0.0)
    cluster.close()
    assert [bool(each.silence) for each in found.brokers] == [False, True]
    assert f"cannot connect to 127.0.0.1:{cluster[2].port}" in found.brokers[1].silence
    assert not any("broker 2" in each for each in found.unexamined)


def test_nothing_is_known_where_no_broker_answers() -> None:
    cluster = FakeCluster(1)
    cluster.close()
    with pytest.raises(TidelogError, match="no broker answers"):
        survey(cluster.bootstrap, 0.2, 0.0)


class TestGroups:
    @pytest.fixture
    def coordinator(self, logs: FakeLogs) -> FakeCoordinator:
        made = FakeCoordinator(logs)
        made.committed = {TP: 1}
        listed = ListGroupsResponse(groups=[ListedGroup("g", "consumer", "Stable")])
        logs[1].on(LIST_GROUPS, lambda _: listed)
        group = DescribedGroup(group_id="g", group_state="Stable", protocol_type="consumer")
        logs[1].on(DESCRIBE_GROUPS, lambda _: DescribeGroupsResponse(groups=[group]))
        return made

    def test_one_look_has_the_lag(self, logs: FakeLogs, coordinator: FakeCoordinator) -> None:
        [group] = look(logs).groups
        assert (group.group, group.coordinator, group.states) == ("g", 1, ("Stable", "Stable"))
        assert (group.lag, group.behind, group.has_advanced) == ({TP: 2}, [TP], False)

    def test_a_second_look_shows_progress(
        self, logs: FakeLogs, coordinator: FakeCoordinator
    ) -> None:
        looks = iter([1, 3])
        fetch = logs[1].handler(9)

        def commit_meanwhile(request: object) -> object:
            coordinator.committed = {TP: next(looks)}
            return fetch(request)

        logs[1].on(9, commit_meanwhile)
        found = look(logs, watch_s=0.01)
        [group] = found.groups
        assert (group.lag, group.has_advanced, found.watched_s) == ({TP: 0}, True, 0.01)
