"""Kafka's command line tools that measure and that verify."""

from __future__ import annotations

import json
import subprocess

import pytest
from tests.clients.matrix.driver import eventually
from tests.clients.matrix.harness import ClientHarness
from tests.support.clients.kafka_tools import PATIENCE_S, Tools


def test_kafka_producer_perf_test_and_kafka_consumer_perf_test(
    tools: Tools, server: tuple[str, str], harness: ClientHarness
) -> None:
    topic = harness.make_topic(2)
    size = ("--topic", topic, "--num-records", "20000", "--record-size", "100")
    to = ("--throughput", "-1", "--producer-props", f"bootstrap.servers={server[1]}", "acks=all")
    assert "20000 records sent" in tools.run("kafka-producer-perf-test", *size, *to)
    assert harness.end(topic, 0) + harness.end(topic, 1) == 20000
    words = ("--topic", topic, "--messages", "20000", "--timeout", "20000")
    head, figures = tools.run("kafka-consumer-perf-test", *server, *words).splitlines()[-2:]
    of = dict(zip(head.split(", "), figures.split(", "), strict=True))
    assert of["data.consumed.in.nMsg"] == "20000"


def test_kafka_e2e_latency(tools: Tools, server: tuple[str, str], harness: ClientHarness) -> None:
    topic = harness.make_topic()
    words = (server[1], topic, "10", "all", "100")
    assert "Avg latency" in tools.run("kafka-e2e-latency", *words)
    assert harness.end(topic) == 10


def test_kafka_verifiable_producer_and_kafka_verifiable_consumer(
    tools: Tools, server: tuple[str, str], harness: ClientHarness
) -> None:
    topic, group = harness.make_topic(), harness.name()
    words: tuple[str, ...] = ("--topic", topic, "--max-messages", "20")
    told = tools.run("kafka-verifiable-producer", *server, *words)
    said = [json.loads(line) for line in told.splitlines()]
    acked = [one["offset"] for one in said if one["name"] == "producer_send_success"]
    assert acked == list(range(20))
    words = ("--topic", topic, "--group-id", group, "--max-messages", "20")
    words = (*words, "--reset-policy", "earliest", "--group-protocol", "classic")
    if tools.version.startswith("3."):
        words = words[:-2]
    told = tools.run("kafka-verifiable-consumer", *server, *words)
    said = [json.loads(line) for line in told.splitlines()]
    assert sum(one["count"] for one in said if one["name"] == "records_consumed") == 20
    commits = [one for one in said if one["name"] == "offsets_committed"]
    assert commits[-1]["success"] is True
    assert commits[-1]["offsets"] == [{"topic": topic, "partition": 0, "offset": 20}]


def test_kafka_replica_verification(
    tools: Tools, server: tuple[str, str], harness: ClientHarness
) -> None:
    """It reads all replicas side by side, as a follower would, until it is ended."""
    if not tools.version.startswith("3."):
        pytest.skip("it sends Fetch 18 whatever a broker advertises; Kafka 3.9's refuse that too")
    topic = harness.make_topic()
    harness.fill(topic, 0, 100)
    words = ("--broker-list", server[1], "--topics-include", topic, "--report-interval-ms", "500")
    tool = subprocess.Popen(
        tools.words("kafka-replica-verification", *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    told: list[str] = []
    try:
        assert tool.stdout is not None
        lines = iter(tool.stdout.readline, "")

        def is_done() -> bool:
            told.append(next(lines))
            return "max lag is 0" in told[-1]

        eventually(is_done, lambda: told)
    finally:
        tool.kill()
        tool.communicate(timeout=PATIENCE_S)
    assert f"max lag is 0 for partition {topic}-0" in told[-1]
    assert "at offset 100" in told[-1]


def test_kafka_features(tools: Tools, server: tuple[str, str]) -> None:
    """There are none: brokers that keep metadata as Kafka did with ZooKeeper finalise nothing."""
    assert "FinalizedVersionLevel" not in tools.run("kafka-features", *server, "describe")
