"""Calls of administration: whom they ask, what they repeat, what they raise; scripted brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.client.fake_cluster import CLOSE, FakeCluster

from tidelog.client.configs import BROKER, TOPIC, ConfigChange, ConfigResource, ConfigSynonym
from tidelog.client.upkeep import ElectionType
from tidelog.core.dynamic_config import ConfigOperation
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient
from tidelog.wire.messages.create_partitions import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from tidelog.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from tidelog.wire.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from tidelog.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from tidelog.wire.messages.elect_leaders import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from tidelog.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from tidelog.wire.registry import (
    CREATE_PARTITIONS,
    DELETE_RECORDS,
    DESCRIBE_CONFIGS,
    DESCRIBE_LOG_DIRS,
    ELECT_LEADERS,
    INCREMENTAL_ALTER_CONFIGS,
    METADATA,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOT_LEADER, NOT_CONTROLLER, INVALID_PARTITIONS = 6, 41, 37


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    fakes = FakeCluster(2)
    fakes.topics["t"] = [1, 2]
    yield fakes
    fakes.close()


@pytest.fixture
def client(cluster: FakeCluster) -> Iterator[BlockingClient]:
    with BlockingClient(cluster.bootstrap, timeout_ms=5_000) as blocking:
        yield blocking


def configs_answer(
    error: int = 0, message: str | None = None, resource: tuple[int, str] = (TOPIC, "t")
) -> DescribeConfigsResponse:
    entry = DescribeConfigsResourceResult(
        name="retention.ms",
        value="5",
        config_source=1,
        synonyms=[
            DescribeConfigsSynonym("retention.ms", "5", 1),
            DescribeConfigsSynonym("log.retention.ms", "9", 77),
        ],
    )
    secret = DescribeConfigsResourceResult(
        name="password", value=None, config_source=5, is_sensitive=True, read_only=True
    )
    configs = [] if error else [entry, secret]
    result = DescribeConfigsResult(error, message, *resource, configs)
    return DescribeConfigsResponse(results=[result])


class TestConfigs:
    def test_values_come_by_name_with_their_sources(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        cluster[1].on(DESCRIBE_CONFIGS, lambda _: configs_answer())
        secret, retention = client.describe_configs(ConfigResource(TOPIC, "t"), with_synonyms=True)
        assert (retention.name, retention.value, retention.source) == (
            "retention.ms",
            "5",
            "DYNAMIC_TOPIC_CONFIG",
        )
        assert retention.synonyms[1] == ConfigSynonym("log.retention.ms", "9", "UNKNOWN_77")
        assert (secret.sensitive, secret.read_only, secret.is_default) == (True, True, True)
        (asked,) = cluster[1].asked(DESCRIBE_CONFIGS)
        assert asked.include_synonyms
        assert asked.resources[0].configuration_keys is None

    def test_a_brokers_own_are_asked_of_that_broker(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        cluster[2].on(DESCRIBE_CONFIGS, lambda _: configs_answer(resource=(BROKER, "2")))
        client.describe_configs(ConfigResource(BROKER, "2"), ["retention.ms"])
        (asked,) = cluster[2].asked(DESCRIBE_CONFIGS)
        assert list(asked.resources[0].configuration_keys) == ["retention.ms"]
        assert cluster[1].asked(DESCRIBE_CONFIGS) == []

    def test_a_refusal_names_the_resource(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        refusal = configs_answer(42, "no such thing", (BROKER, ""))
        cluster[1].on(DESCRIBE_CONFIGS, lambda _: refusal)
        with pytest.raises(KafkaError, match="INVALID_REQUEST: all brokers: no such thing"):
            client.describe_configs(ConfigResource(BROKER, ""))

    def test_changes_name_their_keys_alone(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        done = AlterConfigsResourceResponse(0, None, TOPIC, "t")
        cluster[1].on(
            INCREMENTAL_ALTER_CONFIGS, lambda _: IncrementalAlterConfigsResponse(responses=[done])
        )
        changes = [
            ConfigChange(ConfigOperation.SET, "a", "1"),
            ConfigChange(ConfigOperation.DELETE, "b", None),
        ]
        client.alter_configs(ConfigResource(TOPIC, "t"), changes, validate_only=True)
        (asked,) = cluster[1].asked(INCREMENTAL_ALTER_CONFIGS)
        assert asked.validate_only
        (resource,) = asked.resources
        assert [(it.name, it.config_operation, it.value) for it in resource.configs] == [
            ("a", 0, "1"),
            ("b", 1, None),
        ]

    def test_an_answer_without_the_resource_is_no_success(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        cluster[1].on(INCREMENTAL_ALTER_CONFIGS, lambda _: IncrementalAlterConfigsResponse())
        with pytest.raises(KafkaError, match="did not answer for topic 't'"):
            client.alter_configs(ConfigResource(TOPIC, "t"), [])


def partitions_answer(error: int = 0, message: str | None = None) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(results=[CreatePartitionsTopicResult("t", error, message)])


class TestPartitions:
    def test_are_added_at_the_controller(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        cluster.controller_id = 2
        cluster[2].on(CREATE_PARTITIONS, lambda _: partitions_answer())
        client.add_partitions("t", 4, [[1, 2], [2, 1]])
        (asked,) = cluster[2].asked(CREATE_PARTITIONS)
        (topic,) = asked.topics
        assert topic.count == 4
        assert [list(each.broker_ids) for each in topic.assignments] == [[1, 2], [2, 1]]

    def test_what_our_own_lost_try_added_is_success(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        cluster[1].script(
            CREATE_PARTITIONS, CLOSE, partitions_answer(INVALID_PARTITIONS, "has 2 already")
        )
        client.add_partitions("t", 2)

    def test_the_same_answer_to_a_first_try_is_not(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        cluster[1].on(
            CREATE_PARTITIONS, lambda _: partitions_answer(INVALID_PARTITIONS, "has 2 already")
        )
        with pytest.raises(KafkaError, match="INVALID_PARTITIONS: has 2 already"):
            client.add_partitions("t", 2)

    def test_a_topic_is_looked_for_at_every_broker(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        assert client.brokers_knowing("t") == [1, 2]
        assert client.brokers_knowing("other") == []
        for broker in cluster.brokers:
            assert [it.allow_auto_topic_creation for it in broker.asked(METADATA)][-1:] == [False]


def elections(*codes: int, error: int = 0) -> ElectLeadersResponse:
    results = [PartitionResult(number, code, None) for number, code in enumerate(codes)]
    return ElectLeadersResponse(0, error, [ReplicaElectionResult("t", results)])


class TestElections:
    def test_every_partition_has_its_own_outcome(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        cluster[1].on(ELECT_LEADERS, lambda _: elections(0, 84, 80))
        found = client.elect_leaders(ElectionType.PREFERRED, [T0, T1])
        assert [(it.error, it.holds) for it in found.values()] == [
            (ErrorCode.NONE, True),
            (ErrorCode.ELECTION_NOT_NEEDED, True),
            (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, False),
        ]
        (asked,) = cluster[1].asked(ELECT_LEADERS)
        assert (asked.election_type, list(asked.topic_partitions[0].partitions)) == (0, [0, 1])

    @pytest.mark.parametrize("refusal", [elections(error=NOT_CONTROLLER), elections(41, 41)])
    def test_another_controller_is_asked_when_this_is_none(
        self, cluster: FakeCluster, client: BlockingClient, refusal: ElectLeadersResponse
    ) -> None:
        def step_down(_: object) -> ElectLeadersResponse:
            cluster.controller_id = 2
            return refusal

        cluster[1].on(ELECT_LEADERS, step_down)
        cluster[2].on(ELECT_LEADERS, lambda _: elections(0))
        found = client.elect_leaders(ElectionType.UNCLEAN, None)
        assert found[T0].error is ErrorCode.NONE
        assert cluster[2].asked(ELECT_LEADERS)[0].topic_partitions is None

    def test_the_reason_of_an_error_as_a_whole_is_that_of_its_partitions(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        refused = elections(31, error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        refused.replica_election_results[0].partition_result[0].error_message = "why"
        cluster[1].on(ELECT_LEADERS, lambda _: refused)
        with pytest.raises(KafkaError, match="why"):
            client.elect_leaders(ElectionType.PREFERRED, [T0])


def deleted(partition: int, low_watermark: int, error: int = 0) -> DeleteRecordsResponse:
    result = DeleteRecordsPartitionResult(partition, low_watermark, error)
    return DeleteRecordsResponse(topics=[DeleteRecordsTopicResult("t", [result])])


class TestDeletions:
    def test_each_leader_is_asked_until_it_has_answered(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        cluster[1].on(DELETE_RECORDS, lambda _: deleted(0, 5))
        cluster[2].script(DELETE_RECORDS, deleted(1, -1, NOT_LEADER), deleted(1, 7))
        assert client.delete_records({T0: 5, T1: 7}) == {T0: 5, T1: 7}
        assert len(cluster[1].asked(DELETE_RECORDS)) == 1

    def test_an_offset_that_is_not_there_yet_is_named(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        cluster[1].on(DELETE_RECORDS, lambda _: deleted(0, -1, 1))
        cluster[2].on(DELETE_RECORDS, lambda _: deleted(1, -1, NOT_LEADER))
        with pytest.raises(KafkaError, match="t-0: offset 50 is above the high watermark"):
            client.delete_records({T1: 1, T0: 50})

    def test_silence_is_no_success(self, cluster: FakeCluster, client: BlockingClient) -> None:
        cluster[1].on(DELETE_RECORDS, lambda _: DeleteRecordsResponse())
        with pytest.raises(KafkaError, match="no answer for t-0"):
            client.delete_records({T0: 1})


class TestLogDirectories:
    def test_are_told_with_errors_and_replicas_in_order(
        self, cluster: FakeCluster, client: BlockingClient
    ) -> None:
        topics = [
            DescribeLogDirsTopic("u", [DescribeLogDirsPartition(0, 10, 2)]),
            DescribeLogDirsTopic("t", [DescribeLogDirsPartition(3, 5, 0, True)]),
        ]
        well = DescribeLogDirsResult(0, "/a", topics, 1_000, 400)
        ill = DescribeLogDirsResult(56, "/b", [], -1, -1)
        cluster[2].on(DESCRIBE_LOG_DIRS, lambda _: DescribeLogDirsResponse(results=[well, ill]))
        first, second = client.describe_log_dirs(2)
        assert [str(each.tp) for each in first.replicas] == ["t-3", "u-0"]
        assert (first.size_bytes, first.usable_bytes, first.total_bytes) == (15, 400, 1_000)
        assert second.error is ErrorCode.KAFKA_STORAGE_ERROR

    def test_a_broker_that_is_not_there_is_named(self, cluster: FakeCluster) -> None:
        with (
            BlockingClient(cluster.bootstrap, timeout_ms=200) as client,
            pytest.raises(KafkaError, match="there is no live broker 7; live brokers are"),
        ):
            client.describe_log_dirs(7)
