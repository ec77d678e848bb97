"""Real brokers on a metadata store that was put back from an older copy (E8)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cluster.values import read_values, write_values
from tests.support.cluster.zookeepers import require_zookeeper

from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster
from tidelog.runtime.blocking import BlockingClient

FLIGHTS = TopicPartition("flights", 0)
_COPY = (
    "import sqlite3, sys; source, target = map(sqlite3.connect, sys.argv[1:]);"
    " source.backup(target); target.close(); source.close()"
)


@pytest.fixture(params=["embedded", "zookeeper"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalCluster]:
    """Three brokers with a topic of one partition."""
    if request.param == "zookeeper":
        require_zookeeper()
    made = LocalCluster(
        str(tmp_path / "cluster"),
        3,
        store=request.param,
        config={"auto.leader.rebalance.enable": "false"},
        end_with_program=True,
    )
    with made:
        with BlockingClient(made.bootstrap, timeout_ms=60_000) as client:
            client.create_topic("flights", 1, 3)
            client.await_topic("flights", 3)
        yield made


def copy_store(cluster: LocalCluster, target: Path) -> None:
    """Copy the store as it is, while brokers run and nothing is written to it."""
    if cluster.zookeeper is not None:
        shutil.copytree(Path(cluster.directory) / "zookeeper" / "data", target)
        return
    target.mkdir()
    source = Path(cluster.directory) / "metadata" / "metadata.db"
    # Another process: closing a descriptor of the database drops SQLite's locks of this one.
    command = [sys.executable, "-c", _COPY, str(source), str(target / "metadata.db")]
    subprocess.run(command, check=True)


def put_back(cluster: LocalCluster, copy: Path) -> None:
    """Put the copy in the place of the store; nothing runs."""
    name = "metadata" if cluster.zookeeper is None else "zookeeper/data"
    place = Path(cluster.directory) / name
    shutil.rmtree(place)
    shutil.copytree(copy, place)


def log_of(cluster: LocalCluster, broker_id: int) -> str:
    return Path(cluster.places()[broker_id].log_path).read_text()


def values(name: str, count: int) -> list[bytes]:
    return [f"{name}-{number}".encode() for number in range(count)]


@pytest.mark.rule("E8")
def test_an_older_store_loses_no_acknowledged_record(cluster: LocalCluster, tmp_path: Path) -> None:
    """The broker that stopped before the last records are written is in sync in the copy."""
    early, late = values("early", 100), values("late", 50)
    write_values(cluster.bootstrap, FLIGHTS, early)
    cluster.await_full_isrs()
    # The first replica: where all are proven, it leads.
    stale = next(each.leader for each in cluster.status().partitions if each.topic == "flights")
    copy = tmp_path / "copy"
    copy_store(cluster, copy)
    cluster.stop(stale)
    write_values(cluster.bootstrap, FLIGHTS, late)
    cluster.down()
    put_back(cluster, copy)
    cluster.up(timeout_s=90.0)
    cluster.await_full_isrs(timeout_s=90.0)
    assert read_values(cluster.bootstrap, FLIGHTS) == early + late
    logs = [log_of(cluster, each) for each in cluster.broker_ids]
    assert all("older than this broker's log directories" in log for log in logs)
    assert any("the metadata store went back, as broker" in log for log in logs)
    more = values("more", 10)
    write_values(cluster.bootstrap, FLIGHTS, more)
    assert read_values(cluster.bootstrap, FLIGHTS) == early + late + more
