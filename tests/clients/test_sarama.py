"""Sarama as exporters and operators' tools use it: they are built on it, and read what it reads.

kafka_exporter, Burrow and kafkactl are such programs. Each test compares what Sarama reads with
what tidelog's own client reads, or looks at what a change by Sarama has done.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from tests.clients.conftest import MakeTopic
from tests.support.clients.absent import Absent
from tests.support.clients.franz_program import HERE, program

from tidelog.core.types import TopicPartition
from tidelog.records.builder import NewRecord, build_batch
from tidelog.runtime.blocking import BlockingClient

pytestmark = pytest.mark.soak

_LIMIT_S = 60
GROUP = "sarama-group"
#: Asks the program of Sarama; returns the document that it prints.
Ask = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def ask(request: pytest.FixtureRequest) -> Ask:
    """Sarama, with the addresses of the cluster."""
    cluster = request.getfixturevalue("cluster")
    try:
        built = program(HERE.parent / "sarama")
    except Absent as absent:
        pytest.skip(f"Sarama: {absent}")

    def asked(op: str, **fields: object) -> dict[str, Any]:
        ended = subprocess.run(
            [str(built), cluster.bootstrap],
            input=json.dumps({"op": op, **fields}),
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        found: dict[str, Any] = json.loads(ended.stdout)
        return found

    return asked


@pytest.fixture
def filled(make_topic: MakeTopic, bootstrap: str) -> str:
    """A topic of three partitions with 1, 2 and 3 records."""
    topic = make_topic(3)
    with BlockingClient(bootstrap) as client:
        for number in range(3):
            records = [NewRecord(None, b"x", 1_000)] * (number + 1)
            client.produce(TopicPartition(topic, number), build_batch(records))
    return topic


def test_an_exporter_reads_brokers_offsets_lag_and_sizes(
    ask: Ask, filled: str, bootstrap: str
) -> None:
    ask("reset", topic=filled, group=GROUP, offsets={0: 1, 1: 0})
    found = ask("read", topic=filled, group=GROUP)
    with BlockingClient(bootstrap) as client:
        metadata = client.metadata([filled])
        dirs = [each for broker in metadata.brokers for each in client.describe_log_dirs(broker)]
    assert found["brokers"] == sorted(metadata.brokers)
    assert found["controller"] == metadata.controller_id
    for number, each in enumerate(found["partitions"]):
        ours = metadata.topics[filled].partitions[number]
        assert (each["Leader"], each["Replicas"]) == (ours.leader, list(ours.replicas))
        assert sorted(each["ISR"]) == sorted(ours.isr)
        assert (each["Oldest"], each["Newest"]) == (0, number + 1)
    assert [each["Committed"] for each in found["partitions"]] == [1, 0, -1]
    assert GROUP in found["groups"] and (found["state"], found["members"]) == ("Empty", 0)
    sizes = {
        str(each.broker_id): sum(
            replica.size_bytes for replica in each.replicas if replica.tp.topic == filled
        )
        for each in dirs
    }
    assert found["sizes"] == sizes and all(sizes.values())


def test_records_are_deleted_and_configurations_changed(
    ask: Ask, filled: str, bootstrap: str
) -> None:
    ask("delete_records", topic=filled, offsets={2: 2})
    ask("alter_configs", topic=filled, configs={"retention.ms": "60000000000"})
    found = ask("read", topic=filled, group=GROUP)
    assert [each["Oldest"] for each in found["partitions"]] == [0, 0, 2]
    assert found["configs"] == {"min.insync.replicas": "2", "retention.ms": "60000000000"}


def test_a_partition_is_moved(ask: Ask, filled: str) -> None:
    before = ask("read", topic=filled, group=GROUP)["partitions"]
    targets = [each["Replicas"][1:] + each["Replicas"][:1] for each in before]
    ask("move", topic=filled, targets=targets)
    after = ask("read", topic=filled, group=GROUP)["partitions"]
    assert [each["Replicas"] for each in after] == targets
