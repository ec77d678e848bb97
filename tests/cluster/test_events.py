"""What happens to real brokers, as `tidelog events tail` tells it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from tests.cluster.conftest import MakeCluster, tidelog

from tidelog.client.configs import TOPIC, ConfigChange, ConfigResource
from tidelog.core.dynamic_config import ConfigOperation
from tidelog.core.errors import TidelogError
from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster
from tidelog.records.builder import NewRecord, build_batch
from tidelog.runtime.blocking import BlockingClient

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
    create(cluster, "t", 6)
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


def acknowledge(client: BlockingClient, partition: TopicPartition, batch: bytes) -> None:
    """Produce until a leader has taken it, acks=all."""
    limit_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            client.produce(partition, batch)
            return
        except TidelogError as error:
            assert time.monotonic() < limit_s, error


def create(cluster: LocalCluster, name: str, partitions: int) -> None:
    words = ("--partitions", str(partitions), "--replication-factor", "3")
    made = tidelog("topics", "create", name, *words, "-b", cluster.bootstrap)
    assert made.returncode == 0, made.stderr


def test_the_budget_of_a_failover_is_told_from_the_death_to_the_first_record(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(3, cluster_events_enable="true")
    create(cluster, "t", 6)
    [election] = until(cluster, "controller_election", 1)
    victim = next(one for one in (1, 2, 3) if one != election["controller"])
    begin_ms = time.monotonic_ns() // 1_000_000
    cluster.kill(victim)
    [failover] = until(cluster, "failover", 1)
    with BlockingClient(cluster.bootstrap) as client:
        for partition in range(6):
            batch = bytes(build_batch([NewRecord(b"key", b"value", timestamp_ms=0)]))
            acknowledge(client, TopicPartition("t", partition), batch)
    whole_ms = time.monotonic_ns() // 1_000_000 - begin_ms
    assert (failover["cause"], failover["brokers"]) == ("death", [victim])
    assert failover["detection_ms"] >= 0, "the controller followed what the victim led"
    moved = {
        (one["topic"], one["partition"], one["leader_epoch"]): one["leader"]
        for one in failover["sample"]
        if one["topic"] == "t"
    }
    assert moved
    limit_s = time.monotonic() + PATIENCE_S
    while True:
        told = {
            (one["topic"], one["partition"], one["leader_epoch"]): one
            for one in events(cluster, "takeover")
        }
        if told.keys() >= moved.keys():
            break
        assert time.monotonic() < limit_s, f"{moved.keys() - told.keys()} are not told"
    for name, leader in moved.items():
        takeover = told[name]
        assert (takeover["leader"], takeover["told_by"]) == (leader, leader)
        assert takeover["ended_by"] == "all_seen"
        phases = takeover["phases_ms"]
        [follower] = takeover["followers"]
        assert follower["follower"] not in (leader, victim)
        assert 0 <= phases["connect"] <= phases["first_fetch"] == follower["fetched_ms"]
        assert 0 <= phases["acknowledge"] <= whole_ms


def test_shutdowns_and_changes_of_the_isr_are_told_with_their_causes(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(3, cluster_events_enable="true")
    create(cluster, "t", 6)
    [election] = until(cluster, "controller_election", 1)
    leaving = next(one for one in (1, 2, 3) if one != election["controller"])
    cluster.stop(leaving)
    [shutdown] = until(cluster, "shutdown", 1)
    assert shutdown["broker"] == leaving
    failovers = until(cluster, "failover", 1)
    assert {(one["cause"], *one["brokers"]) for one in failovers} == {("shutdown", leaving)}
    assert sum(one["partitions"] for one in failovers) >= 2
    assert events(cluster, "session_loss") == []
    cluster.start(leaving)
    back = [one for one in until(cluster, "registration", 1) if one["broker"] == leaving]
    assert back[-1]["previous_broker_epoch"] == shutdown["broker_epoch"]
    wanted = {"member_leaving", "caught_up"}
    limit_s = time.monotonic() + PATIENCE_S
    while not wanted <= {one["cause"] for one in events(cluster, "isr_change")}:
        assert time.monotonic() < limit_s, events(cluster, "isr_change")
    causes = {one["cause"] for one in events(cluster, "leader_change")}
    assert {"created", "leader_leaving"} <= causes


def test_an_unclean_election_tells_which_offsets_are_at_risk(make_cluster: MakeCluster) -> None:
    """Broker 2 has 50 of 80 records when broker 1, the last in sync, is killed."""
    cluster = make_cluster(3, cluster_events_enable="true")
    tp = TopicPartition("t", 0)
    with BlockingClient(cluster.bootstrap, timeout_ms=60_000) as client:
        client.create_topic("t", assignment={0: (1, 2)})
        client.await_topic("t", 2)
        assert client.produce(tp, build_batch([NewRecord(None, b"v", 1_000)] * 50)) == 0
        until(cluster, "first_fetch", 1)
        cluster.kill(2)
        assert client.produce(tp, build_batch([NewRecord(None, b"v", 2_000)] * 30)) == 50
        cluster.kill(1)
        cluster.start(2)
        change = ConfigChange(ConfigOperation.SET, "unclean.leader.election.enable", "true")
        client.alter_configs(ConfigResource(TOPIC, "t"), [change])
        [told] = until(cluster, "unclean_election", 1)
        assert (told["told_by"], told["leader"], told["partition"]) == (2, 2, 0)
        assert (told["log_end_offset"], told["told_high_watermark"]) == (50, -1), "it restarted"
        assert told["latest_timestamp_ms"] == 1_000
        assert told["latest_epoch"] < told["leader_epoch"]
        [change_told] = [
            one
            for one in events(cluster, "leader_change")
            if one["topic"] == "t" and one["leader_epoch"] == told["leader_epoch"]
        ]
        assert (change_told["cause"], change_told["previous_isr"]) == ("unclean", [1])
        text = tidelog(
            "events", "tail", "-e", "--kind", "unclean_election", "-b", cluster.bootstrap
        )
        assert "t-0 leader 2 epoch" in text.stdout and "lost: from 50 on" in text.stdout
        log = Path(cluster.places()[2].log_path).read_text(encoding="utf-8")
        assert "unclean election: broker 2 leads t-0 from outside the ISR" in log
        assert client.produce(tp, build_batch([NewRecord(None, b"w", 3_000)])) == 50
        cluster.start(1)
        cluster.await_full_isrs()
        assert client.list_offsets({tp: -1})[tp].offset == 51, "the 30 are gone on broker 1, too"


def test_a_cluster_without_events_says_how_to_have_them(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(1)
    ended = tidelog("events", "tail", "-e", "-b", cluster.bootstrap)
    assert ended.returncode == 1
    assert "cluster.events.enable=true" in ended.stderr and "Traceback" not in ended.stderr
    wrong = tidelog("events", "tail", "--kind", "leaderchange", "-b", cluster.bootstrap)
    assert wrong.returncode == 2 and "leader_change" in wrong.stderr
