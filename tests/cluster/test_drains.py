"""Drains and balancing of log directories, with real processes (D12, D15).

A producer with acks=all and a consumer go on meanwhile, and a broker is killed in the middle.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.conftest import eventually, tidelog
from tests.cluster.test_directory_moves import (
    CONFIG,
    MOVED,
    TP,
    Reader,
    Stream,
    futures,
    present,
    set_rate,
)
from tests.support.cluster.values import read_values, write_values

from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster
from tidelog.runtime.blocking import BlockingClient

PARTITIONS = 6


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    made = LocalCluster(str(tmp_path / "cluster"), 3, config=CONFIG, log_dirs=2)
    try:
        made.up()
        with BlockingClient(made.bootstrap, timeout_ms=60_000) as client:
            assignment = {number: [1, 2, 3] for number in range(PARTITIONS)}
            client.create_topic(TP.topic, -1, -1, assignment=assignment)
            client.await_topic(TP.topic, min_isr=3)
        yield made
    finally:
        made.down(timeout_s=5.0)


def held(directory: Path) -> list[str]:
    """The replicas in a directory, those on their way among them."""
    return sorted(name for name in os.listdir(directory) if name.startswith(f"{TP.topic}-"))


@pytest.mark.rule("D12")
def test_a_directory_is_drained_under_load_and_over_kill_9(cluster: LocalCluster) -> None:
    before = [b"%0512d" % number for number in range(2_000)]
    for start in range(0, len(before), 500):
        write_values(cluster.bootstrap, TP, before[start : start + 500])
    for number in range(1, PARTITIONS):
        write_values(cluster.bootstrap, TopicPartition(TP.topic, number), before[:200])
    drained = present(cluster)
    words = (str(drained), "--broker", str(MOVED), "-b", cluster.bootstrap)
    stream, reader = Stream(cluster.bootstrap), Reader(cluster.bootstrap)
    with BlockingClient(cluster.bootstrap, timeout_ms=60_000) as client:
        set_rate(client, "50000")
        begun = tidelog("log-dirs", "drain", *words)
        assert begun.returncode == 0, begun.stderr
        eventually(lambda: len(futures(client)) > 0, "a future replica")
        cluster.kill(MOVED)
        cluster.restart(MOVED)
        eventually(lambda: len(futures(client)) > 0, "a move that goes on")
        assert present(cluster) == drained
        set_rate(client, None)
        waited = tidelog("log-dirs", "drain", *words, "--wait")
        assert waited.returncode == 0, waited.stderr
        assert f"{drained} of broker {MOVED} has no replica any more" in waited.stderr
        assert present(cluster) != drained
        client.create_topic("later", 4, 3)
        client.await_topic("later", min_isr=3)
        assert not any(name.startswith("later-") for name in os.listdir(drained))
        client.await_topic(TP.topic, min_isr=3)
        eventually(lambda: held(drained) == [], "no copy is left behind")
    described = tidelog("log-dirs", "describe", "--broker", str(MOVED), *words[-2:])
    assert "drained" in described.stdout
    sent = stream.stop()
    assert read_values(cluster.bootstrap, TP) == [*before, *sent]
    assert reader.finish(len(before) + len(sent)) == [*before, *sent]


@pytest.fixture
def volumes(tmp_path: Path) -> Iterator[list[Path]]:
    """Two small volumes."""
    made = [tmp_path / "a", tmp_path / "b"]
    mounted = []
    try:
        for path in made:
            path.mkdir()
            words = ["mount", "-t", "tmpfs", "-o", "size=64m", "none", str(path)]
            if subprocess.run(words, capture_output=True, check=False).returncode != 0:
                pytest.skip("needs root to mount a volume")
            mounted.append(path)
        yield made
    finally:
        for path in mounted:
            subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.mark.rule("D15")
def test_volumes_are_balanced_by_command_and_by_themselves(
    tmp_path: Path, volumes: list[Path]
) -> None:
    first, second = volumes
    config = {
        "log.dirs": f"{first},{second}",
        "default.replication.factor": "1",
        "offsets.topic.replication.factor": "1",
        "min.insync.replicas": "1",
        "log.dir.reserve.bytes": "0",
        "log.segment.delete.delay.ms": "0",
        "log.dir.balance.check.interval.seconds": "1",
    }
    cluster = LocalCluster(str(tmp_path / "cluster"), 1, config=config)
    try:
        cluster.up()
        on = ("--broker", "1", "-b", cluster.bootstrap)
        assert tidelog("log-dirs", "cordon", str(second), *on).returncode == 0
        with BlockingClient(cluster.bootstrap, timeout_ms=60_000) as client:
            client.create_topic(TP.topic, PARTITIONS, 1)
            client.await_topic(TP.topic, min_isr=1)
            values = [os.urandom(500_000) for _ in range(4)]
            for number in range(PARTITIONS):
                for value in values:
                    write_values(cluster.bootstrap, TopicPartition(TP.topic, number), [value])
            assert len(held(first)) == PARTITIONS
            assert tidelog("log-dirs", "uncordon", str(second), *on).returncode == 0
            planned = tidelog("log-dirs", "balance", "--dry-run", "-o", "json", *on)
            rows = json.loads(planned.stdout)
            assert {each["result"] for each in rows} == {"would_move"} and 0 < len(rows) < 4
            assert all("full and" in each["reason"] for each in rows) and held(second) == []
            done = tidelog("log-dirs", "balance", "--wait", *on)
            assert done.returncode == 0, done.stderr
            eventually(
                lambda: len(held(first)) == PARTITIONS - len(rows), "the moved ones are gone"
            )
            assert len(held(second)) == len(rows)
            again = tidelog("log-dirs", "balance", *on)
            assert "nothing is to be moved" in again.stderr
            # By itself, once a drain has made the volumes uneven again.
            drained = tidelog("log-dirs", "drain", str(second), "--wait", *on)
            assert drained.returncode == 0, drained.stderr
            set_rate(client, "100000000")
            enabled = tidelog("configs", "alter", "-c", "log.dir.balance.enable=true", *on)
            assert enabled.returncode == 0, enabled.stderr
            assert tidelog("log-dirs", "uncordon", str(second), *on).returncode == 0
            eventually(lambda: len(held(second)) == len(rows), "balance")
            for number in range(PARTITIONS):
                assert read_values(cluster.bootstrap, TopicPartition(TP.topic, number)) == values
    finally:
        cluster.down(timeout_s=5.0)
