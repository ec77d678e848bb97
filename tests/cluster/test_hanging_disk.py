"""A disk that never answers a write: its broker is not alive, and the others take over.

The disk is a shim that is preloaded into one broker (`hang_writes.c`). While a broker's disk is
quick it writes on its loop, which then stands still; after a slow write a thread does it, and the
loop goes on. Both must end the broker (DESIGN.md, rules 3 and 4).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from tests.cluster.conftest import MakeCluster
from tests.support.cluster.hanging_writes import HangingWrites, compiled
from tests.support.cluster.values import read_values, write_values

from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster
from tidelog.records.builder import NewRecord, build_batch
from tidelog.runtime.blocking import BlockingClient
from tidelog.runtime.lanes import SLOW_CALL_NS
from tidelog.runtime.main import EXIT_HALTED

SESSION_TIMEOUT_MS = 2_000
PATIENCE_S = 30.0
TOPIC = "t"
LED, FOLLOWED = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)

#: Writes one byte to a file with each call that a broker's writes end in.
WRITER = """
import os, sys
descriptor = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
print("ready", flush=True)
sys.stdin.readline()
{call}
print("written", flush=True)
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = compiled(tmp_path_factory.mktemp("shim"))
    if library is None:
        pytest.skip("needs a C compiler (cc) for a disk that hangs")
    return library


@pytest.fixture
def make_disk(shim: Path, tmp_path: Path) -> Iterator[Callable[[str], HangingWrites]]:
    made: list[HangingWrites] = []

    def make(directory: str) -> HangingWrites:
        made.append(HangingWrites(shim, directory, tmp_path / "hang"))
        return made[-1]

    yield make
    for disk in made:
        disk.end()


@pytest.mark.parametrize(
    "call", ["os.pwritev(descriptor, [b'x'], 0)", "os.pwrite(descriptor, b'x', 0)"]
)
def test_the_shim_hangs_writes_below_its_directory_alone(
    make_disk: Callable[[str], HangingWrites], tmp_path: Path, call: str
) -> None:
    (tmp_path / "sick").mkdir()
    disk = make_disk(f"{tmp_path}/sick")
    disk.begin()
    sick, sound = (
        subprocess.Popen(
            [sys.executable, "-c", WRITER.format(call=call), str(tmp_path / name)],
            env={**os.environ, **disk.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("sick/file", "sound")
    )
    for process in (sick, sound):
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.stdin.write("go\n")
        process.stdin.flush()
    try:
        assert [*sound.communicate(timeout=PATIENCE_S)] == ["written\n", None]
        with pytest.raises(subprocess.TimeoutExpired):
            sick.wait(timeout=0.5)
        assert (tmp_path / "sick" / "file").read_bytes() == b""
        disk.end()
        assert [*sick.communicate(timeout=PATIENCE_S)] == ["written\n", None]
        assert (tmp_path / "sick" / "file").read_bytes() == b"x"
    finally:
        for process in (sick, sound):
            process.kill()
            process.communicate()


class Scene:
    """Three brokers, one of them on a disk that can hang: it leads LED and follows FOLLOWED."""

    def __init__(self, cluster: LocalCluster, make_disk: Callable[[str], HangingWrites]) -> None:
        self.cluster = cluster
        self.sick = 2
        place = cluster.places()[self.sick]
        self.disk = make_disk(f"{place.directory}/data")
        cluster.stop(self.sick)
        cluster.start(self.sick, environment=self.disk.environment)
        with BlockingClient(cluster.bootstrap) as client:
            assignment = {LED.partition: [2, 3, 1], FOLLOWED.partition: [3, 1, 2]}
            configs = {"min.insync.replicas": "2"}
            client.create_topic(TOPIC, configs=configs, assignment=assignment)
            client.await_topic(TOPIC, min_isr=3)
        self.process = cluster._children[self.sick]

    def leaders(self) -> list[int]:
        with BlockingClient(self.cluster.bootstrap) as client:
            partitions = client.metadata([TOPIC]).topics[TOPIC].partitions
        return [partitions[number].leader for number in sorted(partitions)]

    def end_of_log(self) -> str:
        return self.cluster.places()[self.sick].last_lines(5)

    def check_takeover(self) -> None:
        """With a hanging disk: production goes on, the broker ends itself, others lead."""
        assert self.leaders() == [2, 3]
        produce(self.cluster.bootstrap, [b"during 1", b"during 2"])
        assert self.process.wait(PATIENCE_S) == EXIT_HALTED, self.end_of_log()
        assert 2 not in self.leaders()
        produce(self.cluster.bootstrap, [b"without"])

    def check_return(self, before: list[bytes]) -> None:
        """On a sound disk the broker comes back with everything that was acknowledged."""
        self.disk.end()
        self.cluster.start(self.sick)
        self.cluster.await_full_isrs()
        expected = [*before, b"during 1", b"during 2", b"without"]
        assert read_values(self.cluster.bootstrap, LED) == expected
        assert read_values(self.cluster.bootstrap, FOLLOWED) == expected


def produce(bootstrap: str, values: list[bytes]) -> None:
    """Write values to both partitions, idempotently and with acks=all; all must succeed."""
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "socket.timeout.ms": 10_000}
    )
    for value in values:
        for tp in (LED, FOLLOWED):
            producer.produce(tp.topic, value, partition=tp.partition, on_delivery=delivered)
    assert producer.flush(PATIENCE_S) == 0
    assert not failures


@pytest.fixture
def scene(make_cluster: MakeCluster, make_disk: Callable[[str], HangingWrites]) -> Scene:
    cluster = make_cluster(3, metadata_session_timeout_ms=str(SESSION_TIMEOUT_MS))
    return Scene(cluster, make_disk)


def test_a_broker_whose_loop_hangs_in_a_write_loses_its_leaderships_and_ends(scene: Scene) -> None:
    produce(scene.cluster.bootstrap, [b"before"])
    scene.disk.begin()
    scene.check_takeover()
    # A machine that is busy may have made the disk look slow: then it is the thread that hangs.
    halts = ("the event loop has not turned for", "has not answered for")
    assert any(words in scene.end_of_log() for words in halts)
    scene.check_return([b"before"])


def test_a_broker_whose_disk_thread_hangs_in_a_write_loses_its_leaderships_and_ends(
    scene: Scene,
) -> None:
    scene.disk.begin()
    with BlockingClient(scene.cluster.bootstrap) as client:
        client.produce(FOLLOWED, build_batch([NewRecord(None, b"before")]), acks=1)
    time.sleep(10 * SLOW_CALL_NS / 1e9)  # so long the follower's write hangs: its lane is slow now
    scene.disk.end()
    write_values(scene.cluster.bootstrap, LED, [b"before"])
    scene.disk.begin()
    scene.check_takeover()
    assert f"a write in {scene.disk.directory} has not answered for" in scene.end_of_log()
    scene.check_return([b"before"])
