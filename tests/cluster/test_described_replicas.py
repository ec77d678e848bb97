"""`tidelog topics describe --replicas` and why there is no leader, with real processes (E4, E6)."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tidelog.local import LocalCluster
from tidelog.runtime.blocking import BlockingClient

PATIENCE_S = 60.0


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = str(tmp_path_factory.mktemp("described") / "cluster")
    made = LocalCluster(directory, 3, config={"leader.recovery.wait.ms": "500"})
    try:
        made.up()
        yield made
    finally:
        made.down(timeout_s=5.0)


def shown(cluster: LocalCluster, *words: str) -> str:
    command = [sys.executable, "-m", "tidelog", "topics", "describe", "flights", *words]
    ended = subprocess.run(
        [*command, "-b", cluster.bootstrap], capture_output=True, timeout=PATIENCE_S, check=True
    )
    return ended.stdout.decode()


def partition(cluster: LocalCluster) -> dict[str, Any]:
    [topic] = json.loads(shown(cluster, "--replicas", "-o", "json"))
    found: dict[str, Any] = topic["partitions"][0]
    return found


def eventually(
    cluster: LocalCluster, holds: Callable[[dict[str, Any]], bool], what: str
) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = partition(cluster)
        if holds(found):
            return found
    raise AssertionError(f"{what}: {found}")


def out(found: dict[str, Any]) -> dict[int, str]:
    return {
        each["broker"]: each["out_cause"]
        for each in found["replica_progress"]
        if each["out_cause"] is not None
    }


def test_every_broker_says_why_a_replica_is_out_and_who_is_awaited(cluster: LocalCluster) -> None:
    with BlockingClient(cluster.bootstrap, timeout_ms=60_000) as client:
        client.create_topic(
            "flights", -1, -1, {"min.insync.replicas": "2"}, assignment={0: [1, 2, 3]}
        )
        client.await_topic("flights", min_isr=3)
    whole = eventually(
        cluster, lambda it: it["leader"] == 1 and not out(it), "all replicas are in sync"
    )
    assert [each["lag_records"] for each in whole["replica_progress"]] == [0, 0, 0]
    assert (whole["elr"], whole["no_leader"]) == ([], None)

    cluster.kill(3)
    # What a command shows comes from several brokers: one may learn of a change after another.
    eventually(
        cluster,
        lambda it: (out(it), it["isr"], it["elr"]) == ({3: "session"}, [1, 2], []),
        "3 is out",
    )
    assert "its broker's session ended, since 20" in shown(cluster, "--replicas")

    cluster.kill(2)
    eventually(cluster, lambda it: (it["isr"], it["elr"]) == ([1], [2]), "2 is out")

    cluster.kill(1)
    cluster.start(3)
    awaiting = eventually(
        cluster,
        lambda it: (
            (it["no_leader"] is not None, it["leader"], it["last_known_elr"]) == (True, -1, [1])
        ),
        "there is no leader",
    )
    assert awaiting["quorum"] == 2
    assert awaiting["no_leader"].startswith("no leader: awaiting broker 1 (not registered)")
    assert "broker 3" not in awaiting["no_leader"], "it is no member, and does not help"
    assert "partition 0: no leader: awaiting broker 1" in shown(cluster)

    cluster.start(1)
    cluster.start(2)
    eventually(cluster, lambda it: it["leader"] > 0 and not out(it), "it recovers")
