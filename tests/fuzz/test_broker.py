"""A real broker under a thousand connections of hostile bytes lives, stays small, serves others."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fuzz.hostile import HostileBytes
from tests.support import draws
from tests.support.cluster.raw_connections import (
    MIB,
    RawConnection,
    ask,
    await_true,
    descriptors,
    memory_bytes,
    pid_of,
)
from tests.support.cluster.values import read_values, write_values

from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster
from tidelog.runtime.blocking import BlockingClient
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest
from tidelog.wire.registry import FIND_COORDINATOR, INIT_PRODUCER_ID

ABUSED = TopicPartition("abused", 0)
WITNESS = TopicPartition("witness", 0)
SEED = f"{draws.SEED} hostile bytes"
WARM_UP, CONNECTIONS = 100, 1_000 * draws.FACTOR
GROWTH_BYTES = 20 * MIB


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One broker; topics are made on demand only, so that nothing grows by right."""
    directory = str(tmp_path_factory.mktemp("fuzz") / "cluster")
    made = LocalCluster(directory, 1, config={"auto.create.topics.enable": "false"})
    try:
        made.up()
        yield made
    finally:
        made.down(timeout_s=5.0)


def make_topic(cluster: LocalCluster, topic: str) -> bytes:
    with BlockingClient(cluster.bootstrap) as client:
        made = client.create_topic(topic, 1, 1)
        client.await_topic(topic)
    return made


def abuse(cluster: LocalCluster, draw: random.Random, hostile: HostileBytes, count: int) -> None:
    """So many connections, one after the other; each must get answers or be closed."""
    for number in range(count):
        stream = hostile.kinds[number % len(hostile.kinds)]()
        with RawConnection(cluster) as connection:
            if draw.random() < 0.2:
                cut = len(stream) // 2
                connection.send(stream[:cut])
                stream = stream[cut:]
            connection.send(stream)
            if draw.random() < 0.1:
                connection.reset()
            else:
                connection.end()
                connection.until_closed()


def test_a_thousand_hostile_connections_leave_memory_and_descriptors_as_they_were(
    cluster: LocalCluster,
) -> None:
    draw = random.Random(SEED)
    hostile = HostileBytes(draw, ABUSED.topic, make_topic(cluster, ABUSED.topic))
    make_topic(cluster, WITNESS.topic)
    assert write_values(cluster.bootstrap, WITNESS, [b"before"]) == 0
    pid = pid_of(cluster)
    # The broker's own connections for producer ids are made once, and stay.
    ask(cluster, INIT_PRODUCER_ID, 4, InitProducerIdRequest(None))
    # So are the logs of the offsets topic, which the first question for a coordinator makes.
    question = FindCoordinatorRequest(key="g")
    await_true(lambda: ask(cluster, FIND_COORDINATOR, 2, question).error_code == 0, "a coordinator")
    abuse(cluster, draw, hostile, WARM_UP)
    memory_before, open_before = memory_bytes(cluster), descriptors(cluster)
    abuse(cluster, draw, hostile, CONNECTIONS)
    assert pid_of(cluster) == pid, f"seed {SEED!r}"
    assert memory_bytes(cluster) - memory_before < GROWTH_BYTES, f"seed {SEED!r}"
    await_true(lambda: descriptors(cluster) <= open_before, "the descriptors' return")
    assert write_values(cluster.bootstrap, WITNESS, [b"after"]) == 1
    assert read_values(cluster.bootstrap, WITNESS) == [b"before", b"after"]
    log = Path(cluster.places()[1].log_path).read_text(encoding="utf-8", errors="replace")
    assert "unexpected error" not in log, f"seed {SEED!r}"
