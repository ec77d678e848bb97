"""Administration by other projects' clients: configurations, partitions, leaders, directories.

librdkafka's and kafka-python's admin clients against three brokers. Leaders stay where they are
unless they are asked to move.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pytest
from confluent_kafka import (
    ElectionType,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from kafka.admin import ConfigResource as PythonConfigResource
from kafka.admin import KafkaAdminClient
from tests.cluster.conftest import NewStore
from tests.support.cluster.raw_connections import ask

from tidelog.local import LocalCluster
from tidelog.runtime.blocking import BlockingClient
from tidelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidelog.wire.registry import INCREMENTAL_ALTER_CONFIGS

PATIENCE_S = 30.0
OPERATIONS = {
    "set": AlterConfigOpType.SET,
    "delete": AlterConfigOpType.DELETE,
    "append": AlterConfigOpType.APPEND,
    "subtract": AlterConfigOpType.SUBTRACT,
}


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, new_store: NewStore
) -> Iterator[LocalCluster]:
    """Three brokers that are up; a test that stops one starts it again."""
    directory = str(tmp_path_factory.mktemp("administration") / "cluster")
    config = {"auto.leader.rebalance.enable": "false", "log.retention.hours": "2"}
    made = LocalCluster(directory, 3, config=config, store=new_store())
    try:
        made.up()
        yield made
    finally:
        made.down(timeout_s=5.0)


@pytest.fixture(scope="module")
def admin(cluster: LocalCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


@pytest.fixture
def python(cluster: LocalCluster) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    yield client
    client.close()


@pytest.fixture
def topic(admin: AdminClient, request: pytest.FixtureRequest) -> str:
    """A topic of two partitions on all brokers."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    admin.create_topics([NewTopic(name, 2, 3)])[name].result()
    return name


def eventually(holds: Callable[[], bool], what: str) -> None:
    """Ask until it holds: brokers take over a change a moment after it was answered."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.02)


def alter(
    admin: AdminClient, kind: ResourceType, name: str, validate_only: bool = False, **keys: Any
) -> None:
    """Change settings; a value is text to be set, or (operation, value)."""
    entries = []
    for key, value in keys.items():
        operation, text = value if isinstance(value, tuple) else ("set", value)
        entries.append(
            ConfigEntry(key.replace("_", "."), text, incremental_operation=OPERATIONS[operation])
        )
    resource = ConfigResource(kind, name, incremental_configs=entries)
    admin.incremental_alter_configs([resource], validate_only=validate_only)[resource].result()


def refusal(do: Callable[[], Any]) -> KafkaError:
    with pytest.raises(KafkaException) as caught:
        do()
    error = caught.value.args[0]
    assert isinstance(error, KafkaError)
    return error


def knows(address: str, topic: str) -> bool:
    """Whether the broker at an address lists a topic in its own Metadata."""
    listed = AdminClient({"bootstrap.servers": address}).list_topics(timeout=10)
    return topic in listed.topics


def described(admin: AdminClient, kind: ResourceType, name: str) -> Mapping[str, ConfigEntry]:
    resource = ConfigResource(kind, name)
    found: Mapping[str, ConfigEntry] = admin.describe_configs([resource])[resource].result()
    return found


def source_of(entry: ConfigEntry) -> int:
    """Where a setting comes from, by the protocol's number; the library's types promise an enum."""
    source: Any = entry.source
    return int(source)


def produced(cluster: LocalCluster, topic: str, value: bytes, **settings: Any) -> str:
    """Write one record to partition 0; the error's name, empty for none."""
    outcome: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": "all",
            "message.timeout.ms": 10_000,
            "message.max.bytes": 5_000_000,
            "retries": 0,
            **settings,
        }
    )
    producer.produce(
        topic,
        value,
        partition=0,
        on_delivery=lambda error, _: outcome.append("" if error is None else error.name()),
    )
    assert producer.flush(PATIENCE_S) == 0
    return outcome[0]


def leaders(admin: AdminClient, topic: str) -> dict[int, int]:
    found = admin.list_topics(topic, timeout=PATIENCE_S).topics[topic]
    return {number: one.leader for number, one in found.partitions.items()}


def alter_all_brokers(cluster: LocalCluster, key: str, value: str | None) -> None:
    """Set or unset a default of all brokers: neither client names that resource, Java's does."""
    change = AlterableConfig(key, 0 if value is not None else 1, value)
    message = IncrementalAlterConfigsRequest(resources=[AlterConfigsResource(4, "", [change])])
    [told] = ask(cluster, INCREMENTAL_ALTER_CONFIGS, 1, message).responses
    assert (told.error_code, told.error_message) == (0, None)


class TestTopics:
    def test_a_setting_shows_with_its_source_and_what_lies_below(
        self, admin: AdminClient, topic: str
    ) -> None:
        alter(admin, ResourceType.TOPIC, topic, retention_ms="5000")
        entry = described(admin, ResourceType.TOPIC, topic)["retention.ms"]
        assert (entry.value, source_of(entry), entry.is_read_only) == ("5000", 1, False)
        below = [(one.name, one.value, source_of(one)) for one in entry.synonyms.values()]
        assert below == [("retention.ms", "5000", 1)], "a coarser key of the broker is no synonym"

        alter(admin, ResourceType.TOPIC, topic, retention_ms=("delete", None))
        entry = described(admin, ResourceType.TOPIC, topic)["retention.ms"]
        assert (entry.value, source_of(entry)) == ("7200000", 5)
        assert source_of(described(admin, ResourceType.TOPIC, topic)["flush.ms"]) == 5

    def test_lists_grow_and_shrink(self, admin: AdminClient, topic: str) -> None:
        alter(admin, ResourceType.TOPIC, topic, cleanup_policy=("append", "compact"))
        policy = described(admin, ResourceType.TOPIC, topic)["cleanup.policy"]
        assert policy.value == "delete,compact"
        alter(admin, ResourceType.TOPIC, topic, cleanup_policy=("subtract", "delete"))
        assert described(admin, ResourceType.TOPIC, topic)["cleanup.policy"].value == "compact"

    def test_checking_only_changes_nothing(self, admin: AdminClient, topic: str) -> None:
        alter(admin, ResourceType.TOPIC, topic, validate_only=True, retention_ms="5000")
        assert source_of(described(admin, ResourceType.TOPIC, topic)["retention.ms"]) == 5
        error = refusal(
            lambda: alter(admin, ResourceType.TOPIC, topic, validate_only=True, flush_ms="soon")
        )
        assert error.code() == KafkaError.INVALID_CONFIG

    @pytest.mark.parametrize(
        ("key", "value", "words"),
        [
            ("retention_ms", "soon", "retention.ms='soon' is not valid: an integer"),
            ("retention_mz", "1", "did you mean retention.ms?"),
            ("retention_ms", ("append", "1"), "is no list"),
        ],
    )
    def test_a_bad_setting_says_what_would_be_right(
        self, admin: AdminClient, topic: str, key: str, value: Any, words: str
    ) -> None:
        error = refusal(lambda: alter(admin, ResourceType.TOPIC, topic, **{key: value}))
        assert error.code() == KafkaError.INVALID_CONFIG
        assert words in error.str()

    def test_a_topic_that_is_not_there(self, admin: AdminClient) -> None:
        for question in (
            lambda: alter(admin, ResourceType.TOPIC, "nobody", retention_ms="5"),
            lambda: described(admin, ResourceType.TOPIC, "nobody"),
        ):
            assert refusal(question).code() == KafkaError.UNKNOWN_TOPIC_OR_PART

    def test_the_whole_configuration_is_replaced(
        self, admin: AdminClient, topic: str, python: KafkaAdminClient
    ) -> None:
        alter(admin, ResourceType.TOPIC, topic, retention_ms="5000", flush_ms="7")
        python.alter_configs(
            [PythonConfigResource("topic", topic, {"segment.ms": "9000"})], incremental=False
        )
        found = described(admin, ResourceType.TOPIC, topic)
        mine = {name: one.value for name, one in found.items() if source_of(one) == 1}
        assert mine["segment.ms"] == "9000"

    def test_leaders_take_a_new_limit_over_while_they_lead(
        self, admin: AdminClient, cluster: LocalCluster, topic: str
    ) -> None:
        big = b"x" * 20_000
        assert produced(cluster, topic, big) == ""
        alter(admin, ResourceType.TOPIC, topic, max_message_bytes="10000")
        eventually(
            lambda: produced(cluster, topic, big) == "MSG_SIZE_TOO_LARGE", "the smaller limit"
        )
        alter(admin, ResourceType.TOPIC, topic, max_message_bytes=("delete", None))
        eventually(lambda: produced(cluster, topic, big) == "", "the greater limit")


class TestBrokers:
    def test_a_broker_tells_what_it_was_started_with(
        self, admin: AdminClient, cluster: LocalCluster
    ) -> None:
        found = described(admin, ResourceType.BROKER, "2")
        assert (found["broker.id"].value, source_of(found["broker.id"])) == ("2", 4)
        assert found["broker.id"].is_read_only
        assert found["listeners"].value == f"PLAINTEXT://{cluster.places()[2].address}"
        assert found["log.retention.hours"].value == "2"
        assert not found["log.retention.ms"].is_read_only

    def test_a_setting_of_all_brokers_holds_until_it_is_unset(
        self, admin: AdminClient, cluster: LocalCluster, topic: str
    ) -> None:
        big = b"x" * 20_000
        alter_all_brokers(cluster, "message.max.bytes", "10000")
        eventually(
            lambda: produced(cluster, topic, big) == "MSG_SIZE_TOO_LARGE", "the smaller limit"
        )
        entry = described(admin, ResourceType.TOPIC, topic)["max.message.bytes"]
        assert (entry.value, source_of(entry)) == ("10000", 3)
        for broker_id in ("1", "2", "3"):
            entry = described(admin, ResourceType.BROKER, broker_id)["message.max.bytes"]
            assert (entry.value, source_of(entry)) == ("10000", 3)
        alter_all_brokers(cluster, "message.max.bytes", None)
        eventually(lambda: produced(cluster, topic, big) == "", "the greater limit")

    def test_a_setting_of_one_broker_is_its_own(self, admin: AdminClient) -> None:
        alter(admin, ResourceType.BROKER, "3", log_retention_ms="777")
        entry = described(admin, ResourceType.BROKER, "3")["log.retention.ms"]
        assert (entry.value, source_of(entry)) == ("777", 2)
        assert described(admin, ResourceType.BROKER, "1")["log.retention.ms"].value == "7200000"
        alter(admin, ResourceType.BROKER, "3", log_retention_ms=("delete", None))

    @pytest.mark.parametrize(
        ("key", "words"),
        [
            ("num_partitions", "read-only while the broker runs"),
            ("zookeeper_connect", "read-only while the broker runs"),
        ],
    )
    def test_a_key_that_cannot_be_set_says_why(
        self, admin: AdminClient, key: str, words: str
    ) -> None:
        error = refusal(lambda: alter(admin, ResourceType.BROKER, "1", False, **{key: "1"}))
        assert error.code() == KafkaError.INVALID_REQUEST
        assert key.replace("_", ".") in error.str() and words in error.str()

    def test_settings_that_no_node_of_the_store_holds_are_refused(
        self, admin: AdminClient, topic: str
    ) -> None:
        policy = ",".join(["delete"] * 144_000)
        error = refusal(lambda: alter(admin, ResourceType.TOPIC, topic, cleanup_policy=policy))
        assert error.code() == KafkaError.INVALID_CONFIG
        assert "bytes in a node, at most 1000000 are allowed" in error.str()
        assert f"/config/topics/{topic}" in error.str()


class TestPartitions:
    def test_new_partitions_can_be_written_to_when_the_answer_is_there(
        self, admin: AdminClient, cluster: LocalCluster, topic: str
    ) -> None:
        admin.create_partitions([NewPartitions(topic, 6)])[topic].result()
        with BlockingClient(cluster.bootstrap) as client:
            made = client.await_topic(topic, min_isr=3)
        assert sorted(made.partitions) == list(range(6))
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        errors: list[Any] = []
        for number in range(6):
            producer.produce(
                topic, b"v", partition=number, on_delivery=lambda error, _: errors.append(error)
            )
        assert producer.flush(PATIENCE_S) == 0
        assert errors == [None] * 6

    def test_replicas_may_be_chosen(self, python: KafkaAdminClient, topic: str) -> None:
        python.create_partitions({topic: {"count": 3, "assignments": [[3, 1, 2]]}})
        [told] = python.describe_topic_partitions([topic])["topics"]
        assert list(told["partitions"][2]["replica_nodes"]) == [3, 1, 2]

    @pytest.mark.parametrize(
        ("count", "replicas", "code"),
        [
            (2, None, KafkaError.INVALID_PARTITIONS),
            (1, None, KafkaError.INVALID_PARTITIONS),
            (3, [[1, 2, 9]], KafkaError.INVALID_REPLICA_ASSIGNMENT),
            (3, [[1, 1, 2]], KafkaError.INVALID_REPLICA_ASSIGNMENT),
            (3, [[1]], KafkaError.INVALID_REPLICA_ASSIGNMENT),
        ],
    )
    def test_what_cannot_be_is_refused(
        self, admin: AdminClient, topic: str, count: int, replicas: Any, code: int
    ) -> None:
        wanted = NewPartitions(topic, count, replicas) if replicas else NewPartitions(topic, count)
        error = refusal(admin.create_partitions([wanted])[topic].result)
        assert error.code() == code

    def test_checking_only_adds_nothing(self, admin: AdminClient, topic: str) -> None:
        wanted = NewPartitions(topic, 3)
        admin.create_partitions([wanted], validate_only=True)[topic].result()
        assert sorted(leaders(admin, topic)) == [0, 1]


class TestLeaders:
    def test_leadership_goes_back_on_request_and_the_minimum_is_lowered_meanwhile(
        self, admin: AdminClient, cluster: LocalCluster, topic: str
    ) -> None:
        alter(admin, ResourceType.TOPIC, topic, min_insync_replicas="3")
        preferred = leaders(admin, topic)[0]
        cluster.kill(preferred)
        eventually(lambda: leaders(admin, topic)[0] not in (preferred, -1), "another leader")
        eventually(lambda: produced(cluster, topic, b"v") == "NOT_ENOUGH_REPLICAS", "the refusal")
        alter(admin, ResourceType.TOPIC, topic, min_insync_replicas="2")
        eventually(lambda: produced(cluster, topic, b"v") == "", "the lower minimum")

        wanted = TopicPartition(topic, 0)
        [(_, error)] = admin.elect_leaders(ElectionType.PREFERRED, [wanted]).result().items()
        assert error.code() == KafkaError.PREFERRED_LEADER_NOT_AVAILABLE
        cluster.restart(preferred)
        with BlockingClient(cluster.bootstrap) as client:
            client.await_topic(topic, min_isr=3)
        assert leaders(admin, topic)[0] != preferred
        [(_, error)] = admin.elect_leaders(ElectionType.PREFERRED, [wanted]).result().items()
        assert error is None
        assert leaders(admin, topic)[0] == preferred
        [(_, error)] = admin.elect_leaders(ElectionType.PREFERRED, [wanted]).result().items()
        assert error.code() == KafkaError.ELECTION_NOT_NEEDED

    def test_kafka_python_may_ask_for_all_of_them(
        self, python: KafkaAdminClient, topic: str
    ) -> None:
        told = python.elect_leaders(0, [topic], raise_errors=False)
        assert "84" in str(told) or "ElectionNotNeeded" in str(told)


class TestInternalTopics:
    def test_clients_neither_write_to_nor_delete_them(
        self, admin: AdminClient, cluster: LocalCluster, python: KafkaAdminClient
    ) -> None:
        name = "__consumer_offsets"
        refused = produced(cluster, name, b"v")
        assert refused in ("TOPIC_EXCEPTION", "_UNKNOWN_TOPIC")
        with BlockingClient(cluster.bootstrap) as client:
            made = client.await_topic(name, min_isr=3)
        assert len(made.partitions) == 50
        assert produced(cluster, name, b"v") == "TOPIC_EXCEPTION"
        # Any broker is asked: all of them must have heard of the topic.
        for address in cluster.bootstrap.split(","):
            eventually(partial(knows, address, name), f"{address} knows {name}")
        found = described(admin, ResourceType.TOPIC, name)
        assert found["cleanup.policy"].value == "compact"
        assert found["segment.bytes"].value == str(100 << 20)
        error = refusal(admin.delete_topics([name])[name].result)
        assert error.code() == KafkaError.TOPIC_EXCEPTION
        error = refusal(admin.create_partitions([NewPartitions(name, 60)])[name].result)
        assert error.code() == KafkaError.TOPIC_EXCEPTION
        [told] = python.describe_topics([name])
        assert told["is_internal"]


class TestDescriptions:
    def test_log_directories_with_their_replicas(
        self, cluster: LocalCluster, python: KafkaAdminClient, topic: str
    ) -> None:
        assert produced(cluster, topic, b"x" * 1_000) == ""
        told = python.describe_log_dirs([topic])
        assert [one["broker"] for one in told] == [1, 2, 3]
        for one in told:
            [directory] = one["log_dirs"]
            assert directory["log_dir"] == f"{cluster.places()[one['broker']].directory}/data"
            assert 0 < directory["usable_bytes"] <= directory["total_bytes"]
            [described_topic] = directory["topics"]
            sizes = {
                part["partition_index"]: part["partition_size"]
                for part in described_topic["partitions"]
            }
            assert sizes[0] > 1_000 and sizes[1] == 0

    def test_partitions_page_by_page(self, python: KafkaAdminClient, topic: str) -> None:
        first = python.describe_topic_partitions([topic], response_partition_limit=1)
        assert [part["partition_index"] for part in first["topics"][0]["partitions"]] == [0]
        cursor = first["next_cursor"]
        assert (cursor["topic_name"], cursor["partition_index"]) == (topic, 1)
        second = python.describe_topic_partitions([topic], cursor=cursor)
        assert [part["partition_index"] for part in second["topics"][0]["partitions"]] == [1]
        assert second["next_cursor"] is None


def test_settings_outlive_the_brokers(
    admin: AdminClient, cluster: LocalCluster, topic: str
) -> None:
    alter(admin, ResourceType.TOPIC, topic, max_message_bytes="10000")
    alter(admin, ResourceType.BROKER, "1", log_retention_ms="777")
    for broker_id in cluster.broker_ids:
        cluster.kill(broker_id)
    for broker_id in cluster.broker_ids:
        cluster.restart(broker_id)
    with BlockingClient(cluster.bootstrap) as client:
        client.await_topic(topic, min_isr=3)
    assert produced(cluster, topic, b"x" * 20_000) == "MSG_SIZE_TOO_LARGE"
    entry = described(admin, ResourceType.BROKER, "1")["log.retention.ms"]
    assert (entry.value, source_of(entry)) == ("777", 2)
