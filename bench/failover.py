"""From SIGKILL to the next acknowledged record, start-up, idle memory.

A failover is watched from outside by polling a survivor every few milliseconds: when it publishes
another leader, and when an acks=all record is acknowledged by it.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.rig import MIB, cluster, pids, pss_bytes, spread, table
from tidelog.core.errors import TidelogError
from tidelog.core.types import TopicPartition
from tidelog.local.cluster import LocalCluster
from tidelog.records.builder import NewRecord, build_batch
from tidelog.runtime.blocking import BlockingClient
from tidelog.testing import Cluster

_POLL_S = 0.002
_IDLE_S = 30
_TOPIC = "failover"


def run(rounds: int) -> list[str]:
    """The table of failovers, and that of start and idling."""
    leader: list[tuple[float, float]] = []
    both: list[tuple[float, float]] = []
    with cluster() as running:
        with BlockingClient(running.bootstrap) as client:
            client.create_topic(_TOPIC, 6, 3, {"min.insync.replicas": "2"})
            client.await_topic(_TOPIC, 3)
        for _ in range(rounds):
            leader.append(_kill(running, is_controller=False))
            both.append(_kill(running, is_controller=True))
    rows = [
        (
            name,
            spread([published for published, _ in times]),
            spread([acked for _, acked in times]),
            "<= 1,000",
        )
        for name, times in (("leader", leader), ("leader that is also the controller", both))
    ]
    starts, idle = _start_and_idle(rounds)
    return [
        table(
            f"SIGKILL of a broker ({rounds} runs), ms from the signal",
            rows,
            ("of", "new leader published", "next acknowledged record", "aim"),
        ),
        table(
            "Start and rest of three brokers",
            [
                ("exec to the first acknowledged record of RF 3, s", spread(starts, 2), "<= 2"),
                ("a test's cluster (tidelog.testing), s", spread(_kit_starts(rounds), 2), "<= 2"),
                (f"sum of PSS {_IDLE_S} s after start, MiB", f"{idle / MIB:.0f}", "<= 150"),
            ],
            ("", "", "aim"),
        ),
    ]


def _kill(running: LocalCluster, is_controller: bool) -> tuple[float, float]:
    """Milliseconds to the published leader and to the next acknowledged record."""
    controller = running.status().controller
    with BlockingClient(running.bootstrap) as client:
        led = {
            number: partition.leader
            for number, partition in client.metadata([_TOPIC]).topics[_TOPIC].partitions.items()
            if (partition.leader == controller) == is_controller
        }
    number, victim = next(iter(led.items()))
    survivors = [running.places()[one].address for one in running.broker_ids if one != victim]
    batch = bytes(build_batch([NewRecord(b"key", b"value", timestamp_ms=0)]))
    with BlockingClient(",".join(survivors), timeout_ms=30_000) as client:
        client.metadata([_TOPIC])
        begin = time.monotonic()
        running.kill(victim)
        while client.metadata([_TOPIC]).topics[_TOPIC].partitions[number].leader in (victim, -1):
            time.sleep(_POLL_S)
        published = time.monotonic()
        while True:
            try:
                client.produce(TopicPartition(_TOPIC, number), batch)
                break
            except TidelogError:
                time.sleep(_POLL_S)
        acked = time.monotonic()
    running.start(victim)
    running.await_full_isrs()
    with BlockingClient(running.bootstrap) as client:
        client.await_topic(_TOPIC, 3)
    return (published - begin) * 1e3, (acked - begin) * 1e3


def _start_and_idle(rounds: int) -> tuple[list[float], int]:
    starts = []
    idle = 0
    for number in range(rounds):
        with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as directory:
            begin = time.monotonic()
            with LocalCluster(str(Path(directory) / "cluster"), 3) as running:
                starts.append(time.monotonic() - begin)
                if number == 0:
                    time.sleep(_IDLE_S)
                    idle = pss_bytes(pids(running))
    return starts, idle


def _kit_starts(rounds: int) -> list[float]:
    """Seconds that a test waits for its cluster."""
    starts = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as directory:
            begin = time.monotonic()
            with Cluster(directory, 3):
                starts.append(time.monotonic() - begin)
    return starts
