"""Clients of other projects, all against one cluster of three brokers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.clients import thorough
from tests.clients.matrix.harness import ClientHarness
from tests.support.clients.absent import Absent
from tests.support.clients.jars import KAFKA
from tests.support.clients.kafka_tools import Tools

from tidelog.local import LocalCluster
from tidelog.runtime.blocking import BlockingClient
from tidelog.testing import Cluster

#: More than one, so that a topic that was made on its own shows where its count came from.
NUM_PARTITIONS = 2
MakeTopic = Callable[..., str]


@pytest.fixture(scope="session")
def cluster(tidelog_cluster_factory: Callable[..., Cluster]) -> LocalCluster:
    """Three brokers that are up, and in sync when a test begins."""
    config = {
        "num.partitions": NUM_PARTITIONS,
        "log.cleaner.backoff.ms": 200,
        # Clients elect leaders here. The controller would do it too, five minutes after its start.
        "auto.leader.rebalance.enable": "false",
    }
    return tidelog_cluster_factory(brokers=3, config=config).local


@pytest.fixture
def bootstrap(cluster: LocalCluster) -> str:
    """Addresses of all brokers."""
    return cluster.bootstrap


@pytest.fixture
def make_topic(bootstrap: str, request: pytest.FixtureRequest) -> MakeTopic:
    """Makes the topic of a test: three replicas, two of which must be in sync."""
    words = f"{request.node.path.stem}.{request.node.name}"
    name = "".join(letter if letter.isalnum() or letter == "." else "-" for letter in words)

    def make(partitions: int = 1, **config: str) -> str:
        keys = {"min.insync.replicas": "2"}
        keys |= {key.replace("_", "."): value for key, value in config.items()}
        with BlockingClient(bootstrap) as client:
            client.create_topic(name, partitions, 3, keys)
            client.await_topic(name, min_isr=3)
        return name

    return make


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    """A topic of one partition."""
    return make_topic()


@pytest.fixture(scope="module", params=KAFKA if thorough.IS_WANTED else KAFKA[:1])
def tools(request: pytest.FixtureRequest) -> Tools:
    """Kafka's command line tools, of one version."""
    try:
        return Tools(request.param)
    except Absent as absent:
        pytest.skip(f"Kafka's tools {request.param}: {absent}")


@pytest.fixture
def server(bootstrap: str) -> tuple[str, str]:
    """The option that all of them take."""
    return "--bootstrap-server", bootstrap


@pytest.fixture
def harness(cluster: LocalCluster, request: pytest.FixtureRequest) -> ClientHarness:
    """Names and topics of a test of tools."""
    name = "".join(letter if letter.isalnum() else "-" for letter in f"tools-{request.node.name}")
    return ClientHarness(cluster, None, name)
