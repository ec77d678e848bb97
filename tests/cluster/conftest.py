"""Real brokers: clusters of processes that every test takes down again."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.cluster.zookeepers import require_zookeeper

from tidelog.local import LocalCluster
from tidelog.local.ports import free_ports
from tidelog.local.zookeeper import LocalZookeeper
from tidelog.runtime.stores.zookeeper_chroot import create_chroot
from tidelog.runtime.stores.zookeeper_servers import parse_servers

MakeCluster = Callable[..., LocalCluster]
#: Returns `store` of a new cluster.
NewStore = Callable[[], str]

#: The whole suite on another store: TIDELOG_TEST_STORE=zookeeper. Processes inherit it.
TEST_STORE = os.environ.get("TIDELOG_TEST_STORE", "embedded")
os.environ["TIDELOG_STORE"] = TEST_STORE


@pytest.fixture(autouse=True, scope="session")
def new_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NewStore]:
    """On ZooKeeper: a chroot for each cluster, of one server for all.

    A test that starts a cluster with the command line has a server of its own. Every test of the
    suite is skipped, with the reason, where its store cannot run.
    """
    if TEST_STORE != "zookeeper":
        yield lambda: TEST_STORE
        return
    require_zookeeper()
    server = LocalZookeeper(
        str(tmp_path_factory.mktemp("zookeeper")), free_ports(1)[0], end_with_program=True
    )
    server.start()
    numbers = itertools.count(1)

    def new() -> str:
        store = f"zookeeper://{server.address}/{next(numbers)}"
        asyncio.run(create_chroot(parse_servers(store)))
        return store

    yield new
    server.stop()


@pytest.fixture
def make_cluster(tmp_path: Path, new_store: NewStore) -> Iterator[MakeCluster]:
    """Clusters that are up, and are taken down after the test whatever happened to them."""
    made: list[LocalCluster] = []

    def make(brokers: int = 3, name: str = "cluster", **config: str) -> LocalCluster:
        keys = {key.replace("_", "."): value for key, value in config.items()}
        cluster = LocalCluster(str(tmp_path / name), brokers, config=keys, store=new_store())
        made.append(cluster)
        cluster.up()
        return cluster

    yield make
    for cluster in made:
        cluster.down(timeout_s=5.0)


def tidelog(*words: str, timeout_s: float = 90.0) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "tidelog", *words],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def eventually(holds: Callable[[], bool], what: str, patience_s: float = 40.0) -> None:
    """Wait until it holds; what is asked for is told where it does not come."""
    deadline = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.05)
