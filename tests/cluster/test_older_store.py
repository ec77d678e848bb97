"""Real brokers on a metadata store that was put back from an older copy (E8)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.conftest import eventually, tidelog
from tests.cluster.test_bad_input import refusal
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


def store_of(cluster: LocalCluster) -> Path:
    name = "metadata" if cluster.zookeeper is None else "zookeeper/data"
    return Path(cluster.directory) / name


def copy_store(cluster: LocalCluster, target: Path) -> None:
    """Copy the store as it is, while brokers run and nothing is written to it."""
    if cluster.zookeeper is not None:
        shutil.copytree(store_of(cluster), target)
        return
    target.mkdir()
    source = store_of(cluster) / "metadata.db"
    # Another process: closing a descriptor of the database drops SQLite's locks of this one.
    command = [sys.executable, "-c", _COPY, str(source), str(target / "metadata.db")]
    subprocess.run(command, check=True)


def put_back(cluster: LocalCluster, copy: Path) -> None:
    """Put the copy in the place of the store; nothing runs."""
    place = store_of(cluster)
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


@pytest.mark.rule("S6")
def test_a_backup_that_was_taken_while_brokers_ran_is_brought_back(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """An import of it is an older store, too: records acknowledged since then stay (E8)."""
    early, late, file = values("early", 20), values("late", 20), str(tmp_path / "backup.jsonl")
    write_values(cluster.bootstrap, FLIGHTS, early)
    cluster.await_full_isrs()
    saved = tidelog("store", "backup", cluster.directory, file)
    assert saved.returncode == 0, saved.stderr
    stale = next(each.leader for each in cluster.status().partitions if each.topic == "flights")
    cluster.stop(stale)
    write_values(cluster.bootstrap, FLIGHTS, late)
    cluster.down()
    shutil.rmtree(store_of(cluster))
    loaded = tidelog("store", "import", file, cluster.directory)
    assert loaded.returncode == 0, loaded.stderr
    cluster.up(timeout_s=90.0)
    cluster.await_full_isrs(timeout_s=90.0)
    assert read_values(cluster.bootstrap, FLIGHTS) == early + late
    health = tidelog("health", "--dir", cluster.directory)
    assert health.returncode == 1 and "the metadata store went back" in health.stdout
    accepted = tidelog("store", "accept", cluster.directory)
    assert accepted.returncode == 0 and "accepted" in accepted.stdout, accepted.stderr
    healthy = lambda: tidelog("health", "--dir", cluster.directory).returncode == 0  # noqa: E731
    eventually(healthy, "health without the mark")


@pytest.mark.rule("E8")
def test_a_broker_begins_no_cluster_where_its_directory_is_of_another(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """An empty store stays empty, so that the cluster can be imported there."""
    cluster.stop(1)
    place, empty = cluster.places()[1], tmp_path / "empty"
    cluster_id = cluster.status().cluster_id
    message = refusal(place.properties_path, "--override", f"metadata.store=embedded:{empty}")
    assert f"belongs to cluster {cluster_id}" in message
    assert f"there is no cluster in embedded:{empty}, and none is created" in message
    assert "tidelog store import" in message
    file = str(tmp_path / "export.jsonl")
    cluster.down()
    assert tidelog("store", "export", cluster.directory, file).returncode == 0
    loaded = tidelog("store", "import", file, f"embedded:{empty}")
    assert loaded.returncode == 0, loaded.stderr
