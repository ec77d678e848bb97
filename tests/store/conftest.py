"""Fixtures of the store's contract suite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cluster.zookeepers import start_server
from tests.support.store.clusters import Cluster, SimCluster, SqliteCluster, ZookeeperCluster

from tidelog.local.zookeeper import LocalZookeeper


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalZookeeper]:
    """One real server for all tests; each has a chroot of its own there."""
    server = start_server(tmp_path_factory.mktemp("zookeeper"))
    yield server
    server.stop()


@pytest.fixture(params=["sim", "sqlite", "zookeeper"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """An empty store of each kind."""
    if request.param == "sqlite":
        yield SqliteCluster(tmp_path / "store")
    elif request.param == "zookeeper":
        yield ZookeeperCluster(request.getfixturevalue("zookeeper").address)
    else:
        simulated = SimCluster()
        yield simulated
        simulated.close()
