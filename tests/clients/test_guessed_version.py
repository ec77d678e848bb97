"""Clients that guess a broker's release from its API versions take ours for Kafka 3.9."""

from __future__ import annotations

import pytest
from kafka import KafkaAdminClient
from kafka.protocol.api_key import ApiKey
from tests.clients.matrix.worker import Program
from tests.support.clients import franz_program
from tests.support.clients.absent import Absent


def test_kafka_python_guesses_3_9_and_knows_every_key(bootstrap: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        # It raises at a key that it does not know.
        assert ApiKey.Fetch in admin.api_versions()
        assert admin._manager.broker_version == (3, 9)
    finally:
        admin.close()


def test_the_prober_of_franz_go_guesses_3_9(bootstrap: str) -> None:
    """At least: Metadata 13, AlterPartitionReassignments 1 and DescribeTopicPartitions are newer
    than what Kafka 3.9 serves in ZooKeeper mode."""
    try:
        words = [str(franz_program.program())]
    except Absent as absent:
        pytest.skip(str(absent))
    program = Program(words, franz_program.HERE, franz_program.CACHE / "franz-guess.log")
    try:
        program.ask("open", bootstrap=bootstrap)
        assert program.ask("version_guess") == "at least v3.9"
    finally:
        program.close()
