"""Replicas move between the log directories of their brokers, with real processes (D11).

A producer with acks=all and a consumer go on meanwhile, and a broker is killed in the middle.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka import TopicPartition as Assigned
from tests.cluster.conftest import eventually, tidelog
from tests.support.cluster.values import read_values, write_values

from tidelog.client.configs import BROKER, ConfigChange, ConfigResource
from tidelog.core.dynamic_config import ConfigOperation
from tidelog.core.errors import ErrorCode
from tidelog.core.throttle_keys import DIRECTORY_MOVE_RATE
from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster
from tidelog.runtime.blocking import BlockingClient

TP = TopicPartition("flights", 0)
MOVED = 1
CONFIG = {
    "min.insync.replicas": "2",
    "log.segment.bytes": "300000",
    "log.segment.delete.delay.ms": "0",
    "replica.fetch.max.bytes": "20000",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    made = LocalCluster(str(tmp_path / "cluster"), 3, config=CONFIG, log_dirs=2)
    try:
        made.up()
        with BlockingClient(made.bootstrap, timeout_ms=60_000) as client:
            client.create_topic(TP.topic, -1, -1, assignment={0: [1, 2, 3]})
            client.await_topic(TP.topic, min_isr=3)
        yield made
    finally:
        made.down(timeout_s=5.0)


class Stream:
    """A producer with acks=all that sends 0, 1, 2, … until it is stopped, on a thread."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: list[bytes] = []
        self.failures: list[KafkaError] = []
        self._stops = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all"}
        )
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def _send(self) -> None:
        sent = 0
        while not self._stops.wait(0.01):
            for _ in range(20):
                value = b"%d" % sent
                self._producer.produce(TP.topic, value, partition=0, on_delivery=self._delivered)
                sent += 1
            self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        value = message.value()
        if error is not None:
            self.failures.append(error)
        elif value is not None:
            self.acknowledged.append(value)

    def stop(self) -> list[bytes]:
        """Return what was acknowledged, in order."""
        self._stops.set()
        self._thread.join()
        assert self._producer.flush(60.0) == 0 and self.failures == []
        return self.acknowledged


class Reader:
    """A consumer that reads everything from the beginning, on a thread."""

    def __init__(self, bootstrap: str) -> None:
        self.values: list[bytes] = []
        self._wanted: int | None = None
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False}
        )
        self._consumer.assign([Assigned(TP.topic, 0, 0)])
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while self._wanted is None or len(self.values) < self._wanted:
            message = self._consumer.poll(0.5)
            if message is not None and message.error() is None:
                self.values.append(message.value() or b"")

    def finish(self, count: int) -> list[bytes]:
        """Return the first values when so many were read."""
        self._wanted = count
        self._thread.join(60.0)
        assert not self._thread.is_alive(), f"{len(self.values)} of {count} were read"
        return self.values


def disks(cluster: LocalCluster, broker: int = MOVED) -> list[Path]:
    return [Path(cluster.places()[broker].directory) / f"data-{number}" for number in (0, 1)]


def present(cluster: LocalCluster, broker: int = MOVED) -> Path:
    """The log directory that a broker has the replica in."""
    [found] = [each for each in disks(cluster, broker) if (each / str(TP)).is_dir()]
    return found


def other(cluster: LocalCluster, broker: int = MOVED) -> Path:
    [found] = [each for each in disks(cluster, broker) if each != present(cluster, broker)]
    return found


def futures(client: BlockingClient, broker: int = MOVED) -> list[int]:
    """The lags of a broker's future replicas."""
    return [
        replica.offset_lag
        for directory in client.describe_log_dirs(broker)
        for replica in directory.replicas
        if replica.future
    ]


def set_rate(client: BlockingClient, rate: str | None) -> None:
    operation = ConfigOperation.DELETE if rate is None else ConfigOperation.SET
    change = ConfigChange(operation, DIRECTORY_MOVE_RATE, rate)
    client.alter_configs(ConfigResource(BROKER, str(MOVED)), [change])


def names(cluster: LocalCluster, broker: int = MOVED) -> list[str]:
    """The directories of the topic's replicas in all log directories of a broker."""
    return sorted(
        f"{each.name}/{name}"
        for each in disks(cluster, broker)
        for name in os.listdir(each)
        if name.startswith(f"{TP.topic}-")
    )


@pytest.mark.rule("D11")
def test_a_leader_moves_under_load_and_goes_on_after_kill_9(cluster: LocalCluster) -> None:
    before = [b"%0512d" % number for number in range(3_000)]
    for start in range(0, len(before), 500):
        write_values(cluster.bootstrap, TP, before[start : start + 500])
    stream, reader = Stream(cluster.bootstrap), Reader(cluster.bootstrap)
    target = other(cluster)
    with BlockingClient(cluster.bootstrap, timeout_ms=60_000) as client:
        set_rate(client, "100000")
        assert client.move_replicas(MOVED, {TP: str(target)}) == {TP: ErrorCode.NONE}
        eventually(
            lambda: any((target / name).is_dir() and lag > 0 for name in os.listdir(target)
                        if name.endswith("-future") for lag in futures(client)),
            "a future replica",
        )  # fmt: skip
        cluster.kill(MOVED)
        cluster.restart(MOVED)
        eventually(lambda: len(futures(client)) == 1, "the future replica after the restart")
        assert present(cluster) != target
        set_rate(client, None)
        eventually(lambda: futures(client) == [], "the end of the move")
        assert present(cluster) == target
        client.await_topic(TP.topic, min_isr=3)
        eventually(lambda: names(cluster) == [f"{target.name}/{TP}"], "no other copy")
    sent = stream.stop()
    assert read_values(cluster.bootstrap, TP) == [*before, *sent]
    assert reader.finish(len(before) + len(sent)) == [*before, *sent]


@pytest.mark.rule("D11")
def test_replicas_move_by_command_and_by_a_reassignment_file(cluster: LocalCluster) -> None:
    values = [b"%d" % number for number in range(500)]
    write_values(cluster.bootstrap, TP, values)
    words = ("-b", cluster.bootstrap)
    follower, target = 2, other(cluster, 2)
    moved = tidelog(
        "log-dirs", "move", "--broker", "2", "--topic-partition", str(TP), "--to", str(target),
        "--wait", "-o", "json", *words,
    )  # fmt: skip
    assert moved.returncode == 0, moved.stderr
    [row] = json.loads(moved.stdout)
    assert row["result"] == "done" and present(cluster, follower) == target
    refused = tidelog(
        "log-dirs",
        "move",
        "--broker",
        "2",
        "--topic-partition",
        str(TP),
        "--to",
        "/nowhere",
        *words,
    )
    assert refused.returncode == 1 and "has no log directory '/nowhere'" in refused.stderr
    places = [str(other(cluster, broker)) for broker in (1, 2, 3)]
    entry = {"topic": TP.topic, "partition": 0, "replicas": [1, 2, 3], "log_dirs": places}
    file = json.dumps({"version": 1, "partitions": [entry]})
    executed = tidelog("reassign", "execute", "--json", file, "--wait", *words)
    assert executed.returncode == 0, executed.stderr
    assert [str(present(cluster, broker)) for broker in (1, 2, 3)] == places
    assert read_values(cluster.bootstrap, TP) == values
    described = tidelog("log-dirs", "describe", "--replicas", *words)
    assert described.returncode == 0 and "yes" not in described.stdout
