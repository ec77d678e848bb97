"""A leader whose reads are slow: real brokers, one of them on a slow disk (F5, F7, F11).

The followers' sessions outlive every lag limit, so that the leader alone decides who is in sync.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cluster.conftest import MakeCluster, eventually
from tests.support.cluster.slow_reads import SlowReads, compiled

from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster
from tidelog.log.segment_reads import RECENT_BYTES
from tidelog.records.builder import NewRecord, build_batch
from tidelog.runtime.blocking import BlockingClient

TOPIC = "t"
LED = TopicPartition(TOPIC, 0)
LEADER = 2
LAG_MS = 1_000
#: A read that outlives the lag limit by far, and not the socket timeout.
READ_MS = 2_000
#: A read that does not end within a test.
HUNG_MS = 600_000

READER = """
import os, sys
descriptor = os.open(sys.argv[1], os.O_RDONLY)
try:
    print(os.preadv(descriptor, [bytearray(1)], 0, os.RWF_NOWAIT))
except BlockingIOError:
    print("would wait")
print(os.pread(descriptor, 1, 0))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = compiled(tmp_path_factory.mktemp("shim"))
    if found is None:
        pytest.skip("needs a C compiler (cc) for a disk whose reads are slow")
    return found


class Scene:
    """Three brokers; 2 leads a partition, and its reads can be slow. A producer never stops."""

    def __init__(self, cluster: LocalCluster, library: Path, flag: Path) -> None:
        self.cluster = cluster
        self.reads = SlowReads(library, f"{cluster.places()[LEADER].directory}/data", flag)
        cluster.stop(LEADER)
        cluster.start(LEADER, environment=self.reads.environment)
        with BlockingClient(cluster.bootstrap) as client:
            # The follower that is ended or paused must not take the controller with it.
            controller = client.metadata([]).controller_id
            self.follower = next(each for each in (1, 3) if each != controller)
            self.other = 4 - self.follower
            client.create_topic(TOPIC, assignment={0: [LEADER, self.other, self.follower]})
            client.await_topic(TOPIC, min_isr=3)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._produce)
        self._thread.start()

    def _produce(self) -> None:
        """Batches that no leader keeps in memory, and no more of them than one response holds."""
        with BlockingClient(self.cluster.bootstrap) as client:
            while not self._over.wait(0.4):
                client.produce(LED, build_batch([NewRecord(None, bytes(2 * RECENT_BYTES))]), acks=1)

    def close(self) -> None:
        self.reads.end()
        self._over.set()
        self._thread.join()

    def isr(self) -> list[int]:
        with BlockingClient(self.cluster.bootstrap) as client:
            return sorted(client.metadata([TOPIC]).topics[TOPIC].partitions[0].isr)

    def leader(self) -> int:
        with BlockingClient(self.cluster.bootstrap) as client:
            return client.metadata([TOPIC]).topics[TOPIC].partitions[0].leader

    def reads_hang(self) -> None:
        """Let reads hang, and wait until the fetches of both followers do."""
        self.reads.begin(HUNG_MS)
        eventually(lambda: self.reads.begun > self.reads.done, "a hanging read")


@pytest.fixture
def make_scene(
    make_cluster: MakeCluster, library: Path, tmp_path: Path
) -> Iterator[Callable[..., Scene]]:
    made: list[Scene] = []

    def make(**config: str) -> Scene:
        keys = {
            "replica_lag_time_max_ms": str(LAG_MS),
            "replica_fetch_wait_max_ms": "300",
            "metadata_session_timeout_ms": "60000",
            **config,
        }
        made.append(Scene(make_cluster(3, **keys), library, tmp_path / "slow"))
        return made[-1]

    yield make
    for scene in made:
        scene.close()


def test_the_shim_slows_reads_of_segments_below_its_directory_alone(
    library: Path, tmp_path: Path
) -> None:
    (tmp_path / "slow").mkdir()
    reads = SlowReads(library, f"{tmp_path}/slow", tmp_path / "flag")
    reads.begin(20)
    told = {}
    for name in ("slow/1.log", "slow/1.index", "1.log"):
        (tmp_path / name).write_bytes(b"x")
        before = reads.done
        run = subprocess.run(
            [sys.executable, "-c", READER, str(tmp_path / name)],
            env={**os.environ, **reads.environment},
            capture_output=True,
            text=True,
            check=True,
        )
        told[name] = [*run.stdout.split("\n")[:2], str(reads.done - before)]
    assert told == {
        "slow/1.log": ["would wait", "b'x'", "1"],
        "slow/1.index": ["1", "b'x'", "0"],
        "1.log": ["1", "b'x'", "0"],
    }


@pytest.mark.rule("F5")
def test_followers_of_a_slow_leader_stay_with_pending_reads(
    make_scene: Callable[..., Scene],
) -> None:
    scene = make_scene(follower_fetch_pending_reads_insync_enable="true")
    scene.reads.begin(READ_MS)

    def served() -> bool:
        assert scene.isr() == [1, 2, 3]
        return scene.reads.done >= 4

    eventually(served, "four slow reads")


@pytest.mark.rule("F5")
def test_followers_of_a_slow_leader_leave_without_pending_reads(
    make_scene: Callable[..., Scene],
) -> None:
    scene = make_scene()
    scene.reads.begin(READ_MS)
    eventually(lambda: scene.isr() != [1, 2, 3], "a smaller ISR")
    scene.reads.end()
    eventually(lambda: scene.isr() == [1, 2, 3], "the whole ISR")


@pytest.mark.rule("F7")
def test_a_killed_follower_leaves_while_the_read_for_it_hangs(
    make_scene: Callable[..., Scene],
) -> None:
    scene = make_scene(follower_fetch_pending_reads_insync_enable="true")
    scene.reads_hang()
    scene.cluster.kill(scene.follower)
    eventually(lambda: scene.follower not in scene.isr(), "an ISR without the dead follower")
    assert scene.other in scene.isr(), "the other one waits for the leader"
    assert scene.reads.done == 0


@pytest.mark.rule("F7")
def test_a_stopped_follower_leaves_while_the_read_for_it_hangs(
    make_scene: Callable[..., Scene],
) -> None:
    """Its connection stays open: the age of its request counts."""
    scene = make_scene(
        follower_fetch_pending_reads_insync_enable="true", replica_socket_timeout_ms="3000"
    )
    scene.reads_hang()
    scene.cluster.pause(scene.follower)
    eventually(lambda: scene.follower not in scene.isr(), "an ISR without the stopped follower")
    assert scene.reads.done == 0
    scene.cluster.resume(scene.follower)


@pytest.mark.rule("F11")
def test_a_leader_whose_reads_hang_hands_its_leadership_over(
    make_scene: Callable[..., Scene],
) -> None:
    scene = make_scene(
        follower_fetch_pending_reads_insync_enable="true",
        leader_relinquish_on_slow_reads_enable="true",
    )
    scene.reads_hang()
    eventually(lambda: scene.leader() == scene.other, "another leader")
    assert scene.reads.done == 0
    assert LEADER in scene.isr()
    # What the former leader has and the followers lack is truncated: acks=1 promises no more.
    scene.reads.end()
    eventually(lambda: scene.isr() == [1, 2, 3], "the whole ISR")
