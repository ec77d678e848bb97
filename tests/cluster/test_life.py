"""A cluster's life through the command line: up, topics, status, faults, down, up again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.conftest import NewStore, tidelog
from tests.support.cluster.values import read_values, write_values

from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster
from tidelog.local.processes import ProcessIdentity


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[str]:
    path = str(tmp_path / "cluster")
    yield path
    if LocalCluster(path)._places is not None:
        LocalCluster.existing(path).down(timeout_s=5.0)


def done(*words: str) -> str:
    ended = tidelog(*words)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def shown(directory: str) -> dict[str, Any]:
    status: dict[str, Any] = json.loads(done("status", "--dir", directory, "-o", "json"))
    return status


def test_up_writes_the_bootstrap_address_last_and_leaves_a_cluster(directory: str) -> None:
    last = done("up", "-n", "3", "--dir", directory).splitlines()[-1]
    assert last.startswith("bootstrap: 127.0.0.1:")
    assert last == f"bootstrap: {LocalCluster.existing(directory).bootstrap}"

    status = shown(directory)
    assert [broker["id"] for broker in status["brokers"]] == [1, 2, 3]
    assert all(broker["alive"] for broker in status["brokers"])
    assert [broker["controller"] for broker in status["brokers"]].count(True) == 1
    for broker in status["brokers"]:
        process = ProcessIdentity.of(broker["pid"])
        assert process is not None
        assert process.is_alive


def test_up_tells_of_keys_that_have_no_effect(directory: str) -> None:
    ended = tidelog("up", "-n", "1", "-c", "num.partitons=3", "--dir", directory)
    assert ended.returncode == 0
    warning = "tidelog: num.partitons is not a known key: it has no effect; did you mean"
    assert ended.stderr.count(warning) == 1


def test_topics_are_created_described_and_deleted(directory: str) -> None:
    done("up", "-n", "3", "--dir", directory)
    done(
        *("topics", "create", "flights", "--partitions", "4", "--replication-factor", "3"),
        *("--config", "min.insync.replicas=2", "--dir", directory),
    )
    assert done("topics", "list", "--dir", directory).split() == ["flights"]

    (topic,) = json.loads(done("topics", "describe", "flights", "--dir", directory, "-o", "json"))
    assert len(topic["topic_id"]) == 22
    assert [each["partition"] for each in topic["partitions"]] == [0, 1, 2, 3]
    for each in topic["partitions"]:
        assert sorted(each["replicas"]) == sorted(each["isr"]) == [1, 2, 3]
        assert each["leader"] == each["replicas"][0]
        assert each["high_watermark"] == 0
    leaders = [each["leader"] for each in topic["partitions"]]
    assert max(leaders.count(broker) for broker in (1, 2, 3)) == 2, "leaders are spread"

    bootstrap = LocalCluster.existing(directory).bootstrap
    table = done("topics", "describe", "flights", "--bootstrap-server", bootstrap)
    assert topic["topic_id"] in table

    done("topics", "delete", "flights", "--dir", directory)
    assert done("topics", "list", "--dir", directory).split() == []


def test_a_cluster_that_was_taken_down_keeps_its_records_and_ports(directory: str) -> None:
    done("up", "-n", "3", "--dir", directory)
    cluster = LocalCluster.existing(directory)
    bootstrap = cluster.bootstrap
    done("topics", "create", "kept", "--replication-factor", "3", "--dir", directory)
    write_values(bootstrap, TopicPartition("kept", 0), [b"one", b"two", b"three"])
    processes = [cluster.process(number) for number in cluster.broker_ids]

    done("down", "--dir", directory)
    assert [process is not None and process.is_alive for process in processes] == [False] * 3
    down = tidelog("status", "--dir", directory, "-o", "json")
    assert down.returncode == 3
    assert [each["state"] for each in json.loads(down.stdout)["brokers"]] == ["stopped"] * 3

    last = done("up", "--dir", directory).splitlines()[-1]
    assert last == f"bootstrap: {bootstrap}"
    assert read_values(bootstrap, TopicPartition("kept", 0)) == [b"one", b"two", b"three"]


def test_up_starts_only_what_does_not_run(directory: str) -> None:
    done("up", "-n", "2", "--dir", directory)
    before = {broker["id"]: broker["pid"] for broker in shown(directory)["brokers"]}
    done("break", "kill", "2", "--dir", directory)
    states = {broker["id"]: broker["state"] for broker in shown(directory)["brokers"]}
    assert states == {1: "running", 2: "stopped"}
    done("up", "--dir", directory)
    after = {broker["id"]: broker["pid"] for broker in shown(directory)["brokers"]}
    assert after[1] == before[1]
    assert after[2] != before[2]


def test_commands_on_a_broker_that_does_not_run_fail(directory: str) -> None:
    done("up", "-n", "1", "--dir", directory)
    done("break", "pause", "1", "--dir", directory)
    status = tidelog("status", "--dir", directory, "--timeout", "1", "-o", "json")
    assert status.returncode == 3
    assert json.loads(status.stdout)["brokers"][0]["state"] == "paused"
    for told in ("broker 1 goes on\n", "broker 1 was not paused\n"):
        assert tidelog("break", "resume", "1", "--dir", directory).stderr == told
    done("break", "stop", "1", "--dir", directory)
    for verb in ("kill", "stop", "pause", "resume"):
        ended = tidelog("break", verb, "1", "--dir", directory)
        assert ended.returncode == 1
        assert "broker 1 does not run" in ended.stderr
    done("break", "restart", "1", "--dir", directory)
    assert shown(directory)["reached"] is True


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["topics", "describe", "nowhere"], "nowhere"),
        (["topics", "delete", "nowhere"], "nowhere"),
        (["topics", "create", "bad/name"], "bad/name"),
        (["topics", "create", ".."], ".."),
        (["topics", "create", "x" * 250], "249"),
        (["topics", "create", "t", "-c", "retention.ms=soon"], "retention.ms='soon'"),
        (["topics", "create", "t", "-c", "retention=1"], "retention"),
    ],
)
def test_what_a_broker_refuses_is_one_with_its_reason(
    one_broker: LocalCluster, words: list[str], message: str
) -> None:
    ended = tidelog(*words, "--dir", one_broker.directory, "--timeout", "8")
    assert ended.returncode == 1, ended.stderr
    assert ended.stdout == ""
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.rule("V21")
def test_more_replicas_than_live_brokers_is_refused_with_both_numbers(
    one_broker: LocalCluster,
) -> None:
    ended = tidelog(
        *("topics", "create", "t", "--replication-factor", "3", "--dir", one_broker.directory),
        *("--timeout", "8"),
    )
    assert ended.returncode == 1
    assert "INVALID_REPLICATION_FACTOR" in ended.stderr
    assert "3" in ended.stderr
    assert "1" in ended.stderr


def test_an_existing_topic_is_not_made_twice(one_broker: LocalCluster) -> None:
    done("topics", "create", "once", "--dir", one_broker.directory)
    ended = tidelog("topics", "create", "once", "--dir", one_broker.directory)
    assert ended.returncode == 1
    assert "TOPIC_ALREADY_EXISTS" in ended.stderr


@pytest.fixture(scope="module")
def one_broker(
    tmp_path_factory: pytest.TempPathFactory, new_store: NewStore
) -> Iterator[LocalCluster]:
    directory = str(tmp_path_factory.mktemp("one") / "cluster")
    with LocalCluster(directory, 1, store=new_store()) as cluster:
        yield cluster
