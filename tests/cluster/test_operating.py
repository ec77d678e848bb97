"""What an operator of real brokers reads: health, throttles, freezes, failed directories."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.conftest import MakeCluster, eventually, tidelog

from tidelog.local import LocalCluster
from tidelog.runtime.blocking import BlockingClient

LEADERS, FOLLOWERS = (f"{side}.replication.throttled.replicas" for side in ("leader", "follower"))
RATE = "leader.replication.throttled.rate"


@pytest.fixture
def cluster(make_cluster: MakeCluster) -> LocalCluster:
    made = make_cluster(3, name="tidelog-cluster")
    with BlockingClient(made.bootstrap) as client:
        client.create_topic("flights", 6, 2)
        client.await_topic("flights", 2)
    return made


def said(cluster: LocalCluster, *words: str, code: int = 0) -> tuple[str, str]:
    """What a command wrote to standard output and to standard error."""
    done = tidelog(*words, "--dir", cluster.directory)
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


def findings(cluster: LocalCluster) -> dict[str, dict[str, Any]]:
    """What health finds, by kind; its exit code is that of the worst."""
    done = tidelog("health", "-o", "json", "--dir", cluster.directory)
    document = json.loads(done.stdout)
    assert done.returncode == document["exit_code"]
    assert (done.returncode == 0) is all(each["level"] == "notice" for each in document["findings"])
    return {each["kind"]: each for each in document["findings"]}


def test_throttles_of_kafkas_tools_are_shown_and_removed(cluster: LocalCluster) -> None:
    said(cluster, "configs", "alter", "--broker", "2", "--config", f"{RATE}=4096")
    said(cluster, "configs", "alter", "--brokers", "--config", f"{RATE}=8192")
    lists = ["--config", f"{LEADERS}=0:1,0:2", "--config", f"{FOLLOWERS}=0:3"]
    said(cluster, "configs", "alter", "--topic", "flights", *lists)
    _, errors = said(cluster, "reassign", "list")
    for text in (f"{RATE}=4.0 KiB/s of broker 2", f"{RATE}=8.0 KiB/s of all brokers", LEADERS):
        assert f"configured throttle: {text}" in errors
    left = findings(cluster)["throttles_left"]
    assert left["level"] == "notice"
    assert left["next"].startswith("tidelog reassign cancel --throttles")
    said(cluster, "reassign", "cancel", "--throttles")
    assert "throttles_left" not in findings(cluster)
    _, errors = said(cluster, "reassign", "cancel", "--throttles")
    assert "no throttle is configured" in errors


def test_a_freeze_is_one_line_and_health_shows_it(cluster: LocalCluster) -> None:
    said(cluster, "reassign", "freeze")
    assert findings(cluster)["frozen"]["level"] == "notice"
    printed, errors = said(cluster, "brokers", "decommission", "1", code=1)
    assert printed == ""
    [line] = errors.splitlines()
    assert line.startswith("tidelog: reassignments are frozen: none begins before")
    with BlockingClient(cluster.bootstrap) as client:
        before = client.metadata(["flights"]).topics["flights"].partitions[0].replicas
    [other] = {1, 2, 3} - set(before)
    entry = {"topic": "flights", "partition": 0, "replicas": [before[0], other]}
    moves = {"version": 1, "partitions": [entry]}
    said(cluster, "reassign", "queue", "--json", json.dumps(moves))
    assert findings(cluster)["queued_moves"]["partitions"] == ["flights-0"]
    said(cluster, "reassign", "unfreeze")
    eventually(lambda: findings(cluster) == {}, "nothing frozen or queued")


def test_the_limits_of_the_queue_change_while_brokers_run(cluster: LocalCluster) -> None:
    key = "reassignment.max.concurrent.partitions"
    said(cluster, "configs", "alter", "--brokers", "--config", f"{key}=7")
    for broker_id in cluster.broker_ids:
        words = ("configs", "describe", "--broker", str(broker_id), "--key", key, "-o", "json")
        assert json.loads(said(cluster, *words)[0])["configs"][0]["value"] == "7"


def test_metrics_of_every_broker_are_shown(cluster: LocalCluster) -> None:
    cluster.kill(2)
    eventually(lambda: "unled" in findings(cluster) or bool(findings(cluster)), "2 is missed")
    cluster.start(2)
    name = "tidelog_controller_isr_shrinks_total"
    words = ("metrics", name, "tidelog_controller_failover_ms", "-o", "json")
    shown = json.loads(said(cluster, *words)[0])
    assert {(each["metric"], each["kind"]) for each in shown} >= {(name, "counter")}, shown
    all_of_one = json.loads(said(cluster, "metrics", "--broker", "2", "-o", "json")[0])
    assert {each["broker"] for each in all_of_one} == {2}
    assert "tidelog_cluster_events_dropped_total" in {each["metric"] for each in all_of_one}
    table, _ = said(cluster, "metrics", name)
    assert "replicas that left an ISR" in table and "cause=session" in table
    _, errors = said(cluster, "metrics", "made_up", code=1)
    assert "made_up" in errors


def test_a_plan_is_one_line_of_json(cluster: LocalCluster) -> None:
    words = ("brokers", "decommission", "3", "--dry-run", "-o", "json", "--compact")
    printed, _ = said(cluster, *words)
    assert printed.count("\n") == 1
    assert json.loads(printed)["version"] == 1


@pytest.fixture
def two_directories(tmp_path: Path) -> Iterator[LocalCluster]:
    made = LocalCluster(str(tmp_path / "tidelog-cluster"), 3, log_dirs=2)
    made.up()
    yield made
    made.down(timeout_s=5.0)


def test_a_failed_directory_names_its_replicas(two_directories: LocalCluster) -> None:
    cluster = two_directories
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic("flights", 6, 3)
        client.await_topic("flights", 3)
        held = {
            each.tp
            for directory in client.describe_log_dirs(1)
            if directory.path == cluster.log_dirs(1)[0]
            for each in directory.replicas
        }
    said(cluster, "break", "fail-log-dir", "1", "0")

    def names_them() -> bool:
        found = findings(cluster).get("log_dir_failed")
        return found is not None and found["partitions"] == [str(tp) for tp in sorted(held)]

    eventually(names_them, "the finding with the replicas")
    printed, errors = said(cluster, "log-dirs", "describe", "--broker", "1")
    assert f"{len(held)} offline" in printed
    assert "offline, last known" in errors
    printed, _ = said(cluster, "log-dirs", "describe", "--broker", "1", "-o", "json")
    [failed] = [each for each in json.loads(printed) if each["error"]]
    assert failed["replicas"] == []
    assert {(each["topic"], each["partition"]) for each in failed["last_known"]} == held
    # A broker that starts without the directory does not know: the controller does.
    data = Path(cluster.log_dirs(1)[0])
    cluster.stop(1)
    cluster.start(1)
    eventually(names_them, f"the finding after a restart without {data}")


def test_status_shows_brokers_without_their_metadata_store(cluster: LocalCluster) -> None:
    """Dead brokers go on leading then: the command does not wait for each of them in turn."""
    printed, _ = said(cluster, "status", "-o", "json")
    remote = tidelog("status", "-b", cluster.bootstrap, "-o", "json")
    assert [each["state"] for each in json.loads(remote.stdout)["brokers"]] == ["up"] * 3
    assert json.loads(printed)["partitions"] == json.loads(remote.stdout)["partitions"]
