"""Log directories taken out of use by an operator, with real processes (D12, KIP-1066)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.conftest import eventually
from tests.support.cli import run

from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.local import LocalCluster
from tidelog.runtime.blocking import BlockingClient

BROKER = 1


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    made = LocalCluster(str(tmp_path / "cluster"), 2, log_dirs=2)
    try:
        made.up()
        yield made
    finally:
        made.down(timeout_s=5.0)


def data(cluster: LocalCluster, number: int) -> Path:
    return Path(cluster.places()[BROKER].directory) / f"data-{number}"


def held(directory: Path, topic: str) -> int:
    """How many partitions of a topic are in a directory."""
    return sum(name.rpartition("-")[0] == topic for name in os.listdir(directory))


def create(cluster: LocalCluster, topic: str) -> None:
    with BlockingClient(cluster.bootstrap, timeout_ms=60_000) as client:
        client.create_topic(topic, 6, 2)
        client.await_topic(topic, min_isr=2)


def cordoned(cluster: LocalCluster) -> list[str]:
    with BlockingClient(cluster.bootstrap) as client:
        return [each.path for each in client.describe_log_dirs(BROKER) if each.is_cordoned]


@pytest.mark.rule("D12")
def test_cordons_outlive_a_restart_and_a_bad_directory_is_given_up(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def command(name: str, path: Path) -> int:
        words = ("log-dirs", name, str(path), "--broker", str(BROKER), "-b", cluster.bootstrap)
        return run(monkeypatch, *words)

    first, second = data(cluster, 0), data(cluster, 1)
    create(cluster, "before")
    assert held(first, "before") == held(second, "before") == 3, "by bytes, on one volume"
    assert command("cordon", first) == 0
    eventually(lambda: cordoned(cluster) == [str(first)], "the cordon is in force")
    create(cluster, "cordoned")
    assert (held(first, "cordoned"), held(second, "cordoned")) == (0, 6)
    cluster.restart(BROKER)
    create(cluster, "restarted")
    assert (held(first, "restarted"), held(second, "restarted")) == (0, 6)
    assert cordoned(cluster) == [str(first)]
    words = ("log-dirs", "move", "--broker", str(BROKER), "--topic-partition", "restarted-0")
    assert run(monkeypatch, *words, "--to", str(first), "-b", cluster.bootstrap) == 1
    assert held(first, "restarted") == 0, "nor by a move"
    assert command("uncordon", first) == 0
    eventually(lambda: cordoned(cluster) == [], "the cordon is over")
    create(cluster, "uncordoned")
    assert held(first, "uncordoned") == 6, "it holds less"

    assert command("mark-bad", first) == 0
    with BlockingClient(cluster.bootstrap, timeout_ms=60_000) as client:
        eventually(
            lambda: all(
                each.leader == 2
                for each in client.metadata(["uncordoned"]).topics["uncordoned"].partitions.values()
            ),
            "the other broker leads",
        )
        shown = {each.path: each.error for each in client.describe_log_dirs(BROKER)}
        assert shown == {
            str(first): ErrorCode.KAFKA_STORAGE_ERROR,
            str(second): ErrorCode.NONE,
        }
        with pytest.raises(KafkaError, match="the last good log directory of broker 1"):
            client.mark_log_dirs_bad(BROKER, [str(second)])
