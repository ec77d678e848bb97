"""`tidelog doctor` on a running cluster, on one that has lost a broker, and on none."""

from __future__ import annotations

import json
from typing import Any

from tests.cluster.conftest import MakeCluster, eventually, tidelog
from tests.support.cli import check

from tidelog.client.groups import FetchedOffset
from tidelog.core.types import TopicPartition
from tidelog.local.doctor.diagnosis import Diagnosis
from tidelog.records.builder import NewRecord, build_batch
from tidelog.runtime.blocking import BlockingClient


def diagnosed(directory: str, code: int, *words: str) -> Any:
    ended = tidelog("doctor", "--dir", directory, "--watch", "0", "-o", "json", *words)
    assert ended.returncode == code, ended.stderr
    found = json.loads(ended.stdout)
    check(found, Diagnosis)
    return found


def test_a_cluster_is_examined_before_and_after_the_loss_of_a_broker(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(brokers=2)
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic("t", 1, 2, {"min.insync.replicas": "2"})
        client.produce(TopicPartition("t", 0), build_batch([NewRecord(None, b"a", 0)]))
        client.commit("g", {TopicPartition("t", 0): FetchedOffset(0)})
    found = diagnosed(cluster.directory, 0)
    kinds = [each["kind"] for each in found["findings"]]
    assert sorted({*kinds}) == ["group_without_members", "min_isr_needs_all"]
    assert found["unexamined"] == [], "the clocks of both brokers were read"
    cluster.kill(2)
    # On ZooKeeper the session of a killed broker ends later.
    health = ("health", "--dir", cluster.directory)
    eventually(lambda: tidelog(*health).returncode == 2, "the loss is noticed")
    broken = diagnosed(cluster.directory, 2)
    [why] = [each for each in broken["findings"] if each["kind"] == "out_of_sync"][:1]
    assert "the session of" in why["message"] or "its broker's session ended" in why["message"]
    assert why["next"] == f"tidelog up --dir {cluster.directory}"
    shown = tidelog("doctor", "--dir", cluster.directory, "--watch", "0")
    assert shown.stdout.startswith(f"unavailable: cluster {cluster.bootstrap}; ")
    cluster.kill(1)
    gone = diagnosed(cluster.directory, 3)
    assert [each["kind"] for each in gone["findings"]] == ["not_reached"]
