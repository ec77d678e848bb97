"""The first start of a cluster: a port that a person chose, JSON for programs, a failed start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.cli import check

from tidelog.cli import documents
from tidelog.local import LocalCluster
from tidelog.local.health import Health
from tidelog.local.ports import free_ports
from tidelog.local.processes import ProcessIdentity

PATIENCE_S = 120.0


def tidelog(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run(
        [sys.executable, "-m", "tidelog", *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == code, ended.stderr
    assert "Traceback" not in ended.stderr
    return ended


@pytest.fixture
def directory(tmp_path: Path) -> Any:
    place = str(tmp_path / "cluster")
    yield place
    LocalCluster.existing(place).down(timeout_s=5.0)


def test_up_says_where_everything_is(directory: str) -> None:
    (port,) = free_ports(1)
    words = ("up", "--dir", directory, "-n", "1", "--port", str(port), "-o", "json")
    document = json.loads(tidelog(*words).stdout)
    check(document, documents.ClusterStarted)
    (broker,) = document["brokers"]
    assert document["bootstrap"] == broker["address"] == f"127.0.0.1:{port}"
    identity = ProcessIdentity.of(broker["pid"])
    assert identity is not None and identity.is_alive
    assert os.path.isfile(broker["config"]) and os.path.isfile(broker["log"])
    assert json.loads(tidelog(*words).stdout) == document
    assert tidelog("health", "--dir", directory).stdout.startswith("healthy: 1 of 1 brokers")
    tidelog("break", "kill", "1", "--dir", directory)
    found = json.loads(tidelog("health", "--dir", directory, "-o", "json", code=3).stdout)
    check(found, Health)
    assert (found["level"], found["exit_code"]) == ("unreachable", 3)
    assert found["findings"][0]["next"] == f"tidelog up --dir {directory}"
    remote = tidelog("health", "-b", document["bootstrap"], "--timeout", "0.2", code=3)
    assert remote.stdout.startswith(f"unreachable: {document['bootstrap']}\n")
    absent = tidelog("health", "--dir", f"{directory}-absent", code=3)
    assert "holds no cluster" in absent.stderr


def test_a_failed_first_start_does_not_refuse_the_next(directory: str) -> None:
    wrong = ("--store", "zookeeper://127.0.0.1:1", "-c", "zookeeper.connection.timeout.ms=200")
    told = tidelog("up", "--dir", directory, "-n", "2", *wrong, code=1).stderr
    assert "no ZooKeeper server of 127.0.0.1:1 could be reached within 200 ms" in told
    tidelog("up", "--dir", directory, "-n", "1")
    assert LocalCluster.existing(directory).broker_ids == (1,)
