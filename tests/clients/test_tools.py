"""Kafka's own command line tools, of 3.9 and 4, against our brokers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.clients.matrix.harness import ClientHarness
from tests.support.clients.kafka_tools import Tools
from tests.support.cluster.values import read_values, write_values

from tidelog.broker.apis import cards
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster
from tidelog.runtime.blocking import BlockingClient

NUMBERS = "".join(f"{number}\n" for number in range(100))


def test_kafka_topics(tools: Tools, server: tuple[str, str], harness: ClientHarness) -> None:
    topic = harness.name()
    words = ("--create", "--topic", topic, "--partitions", "2", "--replication-factor", "3")
    tools.run("kafka-topics", *server, *words, "--config", "retention.ms=86400000")
    assert "already exists" in tools.run("kafka-topics", *server, *words, fails=True)
    told = tools.run("kafka-topics", *server, "--describe", "--topic", topic)
    assert "PartitionCount: 2" in told
    assert "ReplicationFactor: 3" in told
    assert "retention.ms=86400000" in told
    tools.run("kafka-topics", *server, "--alter", "--topic", topic, "--partitions", "4")
    assert topic in tools.run("kafka-topics", *server, "--list").split()
    tools.run("kafka-topics", *server, "--delete", "--topic", topic)
    assert topic not in tools.run("kafka-topics", *server, "--list").split()


def test_kafka_configs(tools: Tools, server: tuple[str, str], harness: ClientHarness) -> None:
    topic = harness.make_topic()
    of_topic = ("--entity-type", "topics", "--entity-name", topic)
    change = ("--alter", "--add-config", "retention.ms=1234567")
    tools.run("kafka-configs", *server, *of_topic, *change)
    told = tools.run("kafka-configs", *server, *of_topic, "--describe")
    assert "retention.ms=1234567" in told
    assert "min.insync.replicas=2" in told
    tools.run("kafka-configs", *server, *of_topic, "--alter", "--delete-config", "retention.ms")
    told = tools.run("kafka-configs", *server, *of_topic, "--describe")
    assert "retention.ms" not in told
    of_broker = ("--entity-type", "brokers", "--entity-name", "1", "--describe", "--all")
    assert "log.dirs=" in tools.run("kafka-configs", *server, *of_broker)


def test_kafka_tools_see_the_codec_of_the_topic_and_set_throttles(
    tools: Tools, server: tuple[str, str], harness: ClientHarness
) -> None:
    topic = harness.name()
    words = ("--create", "--topic", topic, "--partitions", "1", "--replication-factor", "3")
    codec = ("--config", "compression.type=zstd", "--config", "compression.zstd.level=9")
    throttles = ("--config", "leader.replication.throttled.replicas=*")
    tools.run("kafka-topics", *server, *words, *codec, *throttles)
    sent = ("--topic", topic, "--compression-codec", "gzip")
    tools.run("kafka-console-producer", *server, *sent, sent=NUMBERS)
    read = ("--topic", topic, "--from-beginning", "--max-messages", "100")
    assert tools.run("kafka-console-consumer", *server, *read) == NUMBERS
    files = sorted(Path(harness.cluster.directory).glob(f"**/{topic}-0/*.log"))
    assert len(files) == 3
    lines = tools.run("kafka-dump-log", "--files", str(files[0])).splitlines()
    batches = [line for line in lines if line.startswith("baseOffset")]
    assert batches and all("compresscodec: zstd" in line.lower() for line in batches)

    of_broker = ("--entity-type", "brokers", "--entity-name", "1")
    rate = "leader.replication.throttled.rate=1000000"
    tools.run("kafka-configs", *server, *of_broker, "--alter", "--add-config", rate)
    assert rate in tools.run("kafka-configs", *server, *of_broker, "--describe")
    name = rate.partition("=")[0]
    tools.run("kafka-configs", *server, *of_broker, "--alter", "--delete-config", name)


def test_the_consoles_and_kafka_consumer_groups(
    tools: Tools, server: tuple[str, str], harness: ClientHarness
) -> None:
    topic, group = harness.make_topic(), harness.name()
    tools.run("kafka-console-producer", *server, "--topic", topic, sent=NUMBERS)
    words = ("--topic", topic, "--group", group, "--from-beginning", "--max-messages", "100")
    assert tools.run("kafka-console-consumer", *server, *words) == NUMBERS

    of_group = ("--group", group)
    assert group in tools.run("kafka-consumer-groups", *server, "--list").split()
    told = tools.run("kafka-consumer-groups", *server, "--describe", *of_group)
    assert [topic, "0", "100", "100", "0"] in [line.split()[1:6] for line in told.splitlines()]
    assert "Empty" in tools.run(
        "kafka-consumer-groups", *server, "--describe", *of_group, "--state"
    )
    reset = ("--reset-offsets", "--topic", topic, "--to-offset", "42", "--execute")
    tools.run("kafka-consumer-groups", *server, *of_group, *reset)
    told = tools.run("kafka-consumer-groups", *server, "--describe", *of_group)
    assert [topic, "0", "42", "100", "58"] in [line.split()[1:6] for line in told.splitlines()]
    tools.run("kafka-consumer-groups", *server, "--delete", *of_group)
    assert group not in tools.run("kafka-consumer-groups", *server, "--list").split()


def test_kafka_get_offsets_and_kafka_delete_records(
    tools: Tools, server: tuple[str, str], harness: ClientHarness, tmp_path: Path
) -> None:
    topic = harness.make_topic()
    harness.fill(topic, 0, 100)
    asked = ("--topic", topic)
    assert tools.run("kafka-get-offsets", *server, *asked) == f"{topic}:0:100\n"
    wanted = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 40}]}
    path = tmp_path / "offsets.json"
    path.write_text(json.dumps(wanted))
    told = tools.run("kafka-delete-records", *server, "--offset-json-file", str(path))
    assert "low_watermark: 40" in told
    assert tools.run("kafka-get-offsets", *server, *asked, "--time", "-2") == f"{topic}:0:40\n"


def test_kafka_log_dirs(tools: Tools, server: tuple[str, str], harness: ClientHarness) -> None:
    topic = harness.make_topic()
    harness.fill(topic, 0, 100)
    told = tools.run("kafka-log-dirs", *server, "--describe", "--topic-list", topic)
    [line] = [line for line in told.splitlines() if line.startswith("{")]
    found = {
        broker["broker"]: [
            (partition["partition"], partition["size"] > 100)
            for directory in broker["logDirs"]
            for partition in directory["partitions"]
        ]
        for broker in json.loads(line)["brokers"]
    }
    assert found == {number: [(f"{topic}-0", True)] for number in harness.cluster.broker_ids}


def test_kafka_leader_election(
    tools: Tools, server: tuple[str, str], harness: ClientHarness
) -> None:
    topic = harness.make_topic()
    preferred = harness.leader(topic, 0)
    with harness.killed(preferred):
        harness.await_leader_other_than(topic, preferred)
    words = ("--election-type", "preferred", "--topic", topic, "--partition", "0")
    told = tools.run("kafka-leader-election", *server, *words)
    assert "Successfully completed leader election (PREFERRED)" in told
    assert harness.leader(topic, 0) == preferred


def test_kafka_cluster_and_kafka_broker_api_versions(
    tools: Tools, server: tuple[str, str], harness: ClientHarness
) -> None:
    assert "Cluster ID: " in tools.run("kafka-cluster", "cluster-id", *server)
    told = tools.run("kafka-broker-api-versions", *server)
    produce = cards()[0]
    assert told.count("Produce(0): ") == len(harness.cluster.broker_ids)
    assert f"Produce(0): {produce.first_advertised_version} to {produce.max_version}" in told


def test_kafka_reassign_partitions(
    tools: Tools, server: tuple[str, str], harness: ClientHarness, tmp_path: Path
) -> None:
    topic = harness.make_topic()
    harness.fill(topic, 0, 100)
    wanted = [{"topic": topic, "partition": 0, "replicas": [3, 2], "log_dirs": ["any", "any"]}]
    path = tmp_path / "moves.json"
    path.write_text(json.dumps({"version": 1, "partitions": wanted}))
    asked = ("--reassignment-json-file", str(path))
    told = tools.run("kafka-reassign-partitions", *server, *asked, "--execute")
    assert f"Successfully started partition reassignment for {topic}-0" in told
    assert "Current partition replica assignment" in told, "for a way back"
    throttled = ("--execute", "--additional", "--throttle", "50000000")
    told = tools.run("kafka-reassign-partitions", *server, *asked, *throttled)
    assert "The inter-broker throttle limit was set to 50000000 B/s" in told
    rates = [f"{side}.replication.throttled.rate=50000000" for side in ("leader", "follower")]
    of_broker = ("--entity-type", "brokers", "--entity-name", "3", "--describe")
    told = tools.run("kafka-configs", *server, *of_broker)
    assert all(rate in told for rate in rates)
    of_topic = ("--entity-type", "topics", "--entity-name", topic, "--describe")
    assert "leader.replication.throttled.replicas=0:" in tools.run(
        "kafka-configs", *server, *of_topic
    )
    verify = (*asked, "--verify")
    for _ in range(60):
        told = tools.run("kafka-reassign-partitions", *server, *verify, fails=None)
        if "still in progress" not in told:
            break
    assert f"Reassignment of partition {topic}-0 is completed." in told
    assert f"Clearing topic-level throttles on topic {topic}" in told
    told = tools.run("kafka-configs", *server, *of_broker)
    assert not any(rate in told for rate in rates)
    assert "throttled.replicas=0:" not in tools.run("kafka-configs", *server, *of_topic)
    told = tools.run("kafka-topics", *server, "--describe", "--topic", topic)
    assert "Replicas: 3,2" in told
    told = tools.run("kafka-reassign-partitions", *server, "--list")
    assert topic not in told


@pytest.mark.rule("D11")
def test_kafka_reassign_partitions_moves_a_replica_to_another_log_directory(
    tools: Tools, tmp_path: Path
) -> None:
    """With a throttle of its own; kafka-log-dirs shows the future replica meanwhile."""
    topic, broker = "flights", 1
    config = {"replica.fetch.max.bytes": "20000"}
    with LocalCluster(str(tmp_path / "cluster"), 1, config=config, log_dirs=2) as cluster:
        at = ("--bootstrap-server", cluster.bootstrap)
        with BlockingClient(cluster.bootstrap) as client:
            client.create_topic(topic, 1, 1)
            client.await_topic(topic, min_isr=1)
        values = [b"%0512d" % number for number in range(1_000)]
        for start in range(0, len(values), 50):
            write_values(cluster.bootstrap, TopicPartition(topic, 0), values[start : start + 50])
        paths = [f"{cluster.places()[broker].directory}/data-{number}" for number in (0, 1)]
        here = next(path for path in paths if Path(path, f"{topic}-0").is_dir())
        [there] = [path for path in paths if path != here]
        entry = {"topic": topic, "partition": 0, "replicas": [broker], "log_dirs": [there]}
        path = tmp_path / "moves.json"
        path.write_text(json.dumps({"version": 1, "partitions": [entry]}))
        asked = ("--reassignment-json-file", str(path))
        slow = ("--replica-alter-log-dirs-throttle", "1000")
        told = tools.run("kafka-reassign-partitions", *at, *asked, "--execute", *slow)
        assert f"for replica {topic}-0 with broker {broker}" in told
        assert "replica-alter-dir throttle limit was set to 1000 B/s" in told
        told = tools.run("kafka-log-dirs", *at, "--describe", "--topic-list", topic)
        assert '"isFuture":true' in told and '"isFuture":false' in told
        told = tools.run("kafka-reassign-partitions", *at, *asked, "--verify", fails=None)
        assert "is still in progress" in told
        fast = ("--replica-alter-log-dirs-throttle", "100000000", "--additional")
        tools.run("kafka-reassign-partitions", *at, *asked, "--execute", *fast)
        for _ in range(60):
            told = tools.run("kafka-reassign-partitions", *at, *asked, "--verify", fails=None)
            if "still in progress" not in told:
                break
        assert f"Reassignment of replica {topic}-0-{broker} completed successfully." in told
        assert "Clearing broker-level throttles" in told
        assert Path(there, f"{topic}-0").is_dir()
        assert read_values(cluster.bootstrap, TopicPartition(topic, 0)) == values


def test_kafka_reassign_partitions_beside_a_pending_move_and_takes_it_back(
    tools: Tools, server: tuple[str, str], harness: ClientHarness, tmp_path: Path
) -> None:
    """One partition waits for a broker that is gone; the tool sees, adds to and cancels it."""
    topic = harness.name()
    pending, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with BlockingClient(harness.cluster.bootstrap) as client:
        controller = client.metadata([]).controller_id
        first, second, gone = sorted((1, 2, 3), key=lambda each: each != controller)
        client.create_topic(topic, assignment=dict.fromkeys((0, 1), (first, second)))
        client.await_topic(topic, 2)
    harness.fill(topic, 0, 100)

    def file(name: str, tp: TopicPartition, *replicas: int) -> tuple[str, str]:
        entry = {"topic": topic, "partition": tp.partition, "replicas": replicas}
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"version": 1, "partitions": [entry]}))
        return "--reassignment-json-file", str(path)

    path = tmp_path / "topics.json"
    path.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    words = ("--topics-to-move-json-file", str(path), "--broker-list", f"{second},{gone}")
    told = tools.run("kafka-reassign-partitions", *server, *words, "--generate")
    current, proposed = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
    assert [each["replicas"] for each in current["partitions"]] == [[first, second]] * 2
    assert all(
        sorted(each["replicas"]) == sorted((second, gone)) for each in proposed["partitions"]
    )

    harness.cluster.pause(gone)
    with BlockingClient(harness.cluster.places()[first].address) as client:
        assert client.reassign({pending: (gone, first)})[pending].error is ErrorCode.NONE
    with harness.killed(gone):
        told = tools.run("kafka-reassign-partitions", *server, "--list")
        assert (
            f"{topic}-0: replicas: {gone},{first},{second}. adding: {gone}. removing: {second}."
            in told
        )
        order = file("order", other, second, first)
        told = tools.run("kafka-reassign-partitions", *server, *order, "--execute", fails=True)
        assert "there is an existing" in told.lower()
        told = tools.run("kafka-reassign-partitions", *server, *order, "--execute", "--additional")
        assert f"Successfully started partition reassignment for {topic}-1" in told
        told = tools.run("kafka-reassign-partitions", *server, *order, "--verify", fails=None)
        assert f"Reassignment of partition {topic}-1 is completed." in told
        back = file("back", pending, gone, first)
        # It would wait for the broker that is gone, to clear throttles there.
        words = (*back, "--cancel", "--preserve-throttles")
        told = tools.run("kafka-reassign-partitions", *server, *words)
        assert f"Successfully cancelled partition reassignment for: {topic}-0" in told
        told = tools.run("kafka-topics", *server, "--describe", "--topic", topic)
        assert f"Replicas: {first},{second}" in told and f"Replicas: {second},{first}" in told
    assert harness.end(topic) == 100
