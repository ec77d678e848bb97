"""Kafka's command line tools for groups: what they show of living members, and what they reset."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer
from tests.clients.matrix.driver import eventually
from tests.clients.matrix.harness import ClientHarness
from tests.support.clients.kafka_tools import Tools

TOOL = "kafka-consumer-groups"


def rows(told: str) -> list[list[str]]:
    """The words of each line that a tool printed."""
    return [line.split() for line in told.splitlines() if line.strip()]


def said(told: str) -> str:
    """What a tool printed, a blank between words: 3.9's begin a table on the line of its head."""
    return " ".join(told.split())


def test_a_living_group_as_kafka_consumer_groups_shows_it(
    tools: Tools, server: tuple[str, str], harness: ClientHarness
) -> None:
    topic, group = harness.make_topic(2), harness.name()
    harness.fill(topic, 1, 10)
    consumer = Consumer(
        {
            "bootstrap.servers": harness.cluster.bootstrap,
            "group.id": group,
            "client.id": "who-reads",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic])
        eventually(lambda: consumer.poll(0.1) is not None, lambda: "no record was read")
        consumer.commit(asynchronous=False)
        of_group = (TOOL, *server, "--group", group, "--describe")
        [member] = [
            row for row in rows(tools.run(*of_group, "--members", "--verbose")) if group in row
        ]
        assert "who-reads" in member
        ends = {word.removeprefix(topic) for word in member}  # 3.9's leaves the topic out
        assert ends & {"(0,1)", ":0,1"}
        [state] = [row for row in rows(tools.run(*of_group, "--state")) if group in row]
        assert "range" in state
        assert "Stable" in state
        offsets = rows(tools.run(*of_group, "--offsets"))
        assert [topic, "1", "1", "10", "9"] in [row[1:6] for row in offsets]
        stable = tools.run(TOOL, *server, "--list", "--state", "stable")
        assert [group, "Stable"] in [row[:1] + row[-1:] for row in rows(stable)]
        in_use = tools.run(TOOL, *server, "--delete", "--group", group, fails=None)
        assert "GroupNotEmptyException" in in_use
    finally:
        consumer.close()


@pytest.mark.parametrize(
    ("wanted", "offset"),
    [
        (("--to-earliest",), "0"),
        (("--to-latest",), "100"),
        (("--shift-by", "-7"), "43"),
        (("--to-datetime", "1970-01-01T00:16:40.250"), "25"),
        (("--by-duration", "PT0S"), "100"),
        (("--to-current",), "50"),
    ],
    ids=lambda value: value[0].strip("-") if isinstance(value, tuple) else None,
)
def test_offsets_are_reset_by_kafka_consumer_groups(
    tools: Tools,
    server: tuple[str, str],
    harness: ClientHarness,
    wanted: tuple[str, ...],
    offset: str,
) -> None:
    topic, group = harness.make_topic(), harness.name()
    harness.fill(topic, 0, 100)
    of_group = (TOOL, *server, "--group", group, "--reset-offsets", "--topic", topic)
    tools.run(*of_group, "--to-offset", "50", "--execute")
    told = tools.run(*of_group, *wanted, "--dry-run")
    assert said(told).endswith(f"{group} {topic} 0 {offset}")


def test_offsets_are_exported_taken_from_a_file_and_deleted(
    tools: Tools, server: tuple[str, str], harness: ClientHarness, tmp_path: Path
) -> None:
    topic, group = harness.make_topic(), harness.name()
    harness.fill(topic, 0, 100)
    of_group = (TOOL, *server, "--group", group)
    reset = (*of_group, "--reset-offsets")
    to_offset = ("--topic", topic, "--to-offset", "42")
    exported = tools.run(*reset, *to_offset, "--export", "--dry-run")
    assert f'"{topic}",0,42' in exported.replace(f"{topic},0,42", f'"{topic}",0,42')
    path = tmp_path / "offsets.csv"
    path.write_text(f"{topic},0,17\n", encoding="utf-8")
    tools.run(*reset, "--from-file", str(path), "--execute")
    described = rows(tools.run(*of_group, "--describe"))
    assert [topic, "0", "17", "100", "83"] in [row[1:6] for row in described]
    told = tools.run(*of_group, "--delete-offsets", "--topic", topic)
    assert said(told).endswith(f"{topic} 0 Successful")
    assert topic not in tools.run(*of_group, "--describe", fails=None)


def test_kafka_groups(tools: Tools, server: tuple[str, str], harness: ClientHarness) -> None:
    if tools.version.startswith("3."):
        pytest.skip("kafka-groups came with Kafka 4")
    topic, group = harness.make_topic(), harness.name()
    harness.fill(topic, 0, 1)
    reset = ("--reset-offsets", "--topic", topic, "--to-latest", "--execute")
    tools.run(TOOL, *server, "--group", group, *reset)
    told = rows(tools.run("kafka-groups", *server, "--list"))
    assert [group, "Classic"] in [row[:2] for row in told]


def test_kafka_streams_application_reset(
    tools: Tools, server: tuple[str, str], harness: ClientHarness
) -> None:
    topic, group = harness.make_topic(), harness.name()
    harness.fill(topic, 0, 5)
    reset = ("--reset-offsets", "--topic", topic, "--to-latest", "--execute")
    tools.run(TOOL, *server, "--group", group, *reset)
    words = ("--application-id", group, "--input-topics", topic, "--force")
    assert f"Topic: {topic} Partition: 0 Offset: 0" in tools.run(
        "kafka-streams-application-reset", *server, *words
    )
    described = rows(tools.run(TOOL, *server, "--group", group, "--describe"))
    assert [topic, "0", "0"] in [row[1:4] for row in described]
