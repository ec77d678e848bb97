"""What happens to real brokers, as `tidelog events tail` tells it."""

from __future__ import annotations

import json
import time
from typing import Any

from tests.cluster.conftest import MakeCluster, tidelog

from tidelog.local import LocalCluster

PATIENCE_S = 60.0


def events(cluster: LocalCluster, *kinds: str) -> list[dict[str, Any]]:
    """What was told so far."""
    words = [word for kind in kinds for word in ("--kind", kind)]
    ended = tidelog("events", "tail", "-e", "-J", *words, "-b", cluster.bootstrap)
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def until(cluster: LocalCluster, kind: str, count: int) -> list[dict[str, Any]]:
    """The events of a kind, once there are so many."""
    limit_s = time.monotonic() + PATIENCE_S
    while len(found := events(cluster, kind)) < count:
        assert time.monotonic() < limit_s, f"{len(found)} of {count} {kind} came"
    return found


def test_a_killed_broker_and_a_killed_controller_are_told_with_their_times(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(3, cluster_events_enable="true")
    made = tidelog(
        "topics",
        "create",
        "t",
        "--partitions",
        "6",
        "--replication-factor",
        "3",
        "-b",
        cluster.bootstrap,
    )
    assert made.returncode == 0, made.stderr
    [election] = until(cluster, "controller_election", 1)
    controller = election["controller"]
    victim = next(one for one in (1, 2, 3) if one != controller)
    cluster.kill(victim)
    [first] = until(cluster, "failover", 1)
    assert (first["brokers"], first["told_by"]) == ([victim], controller)
    assert first["partitions"] >= 6 and first["unanswered"] == 0
    assert all(ms >= 0 for ms in first["phases_ms"].values())
    [loss] = events(cluster, "session_loss")
    assert loss["broker"] == victim
    cluster.kill(controller)
    _, second = until(cluster, "failover", 2)
    assert second["brokers"] == [controller]
    changes = events(cluster, "leader_change")
    names = [(one["topic"], one["partition"], one["leader_epoch"]) for one in changes]
    assert len(dict.fromkeys(names)) == len(names), "at most once an epoch"
    assert {one["cause"] for one in changes} >= {"created", "leader_gone"}


def test_a_cluster_without_events_says_how_to_have_them(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(1)
    ended = tidelog("events", "tail", "-e", "-b", cluster.bootstrap)
    assert ended.returncode == 1
    assert "cluster.events.enable=true" in ended.stderr and "Traceback" not in ended.stderr
    wrong = tidelog("events", "tail", "--kind", "leaderchange", "-b", cluster.bootstrap)
    assert wrong.returncode == 2 and "leader_change" in wrong.stderr
