"""From SIGKILL to the next acknowledged record, start-up, idle memory.

A failover is watched from outside by polling a survivor every few milliseconds: when it publishes
another leader, and when an acks=all record is acknowledged by it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.rig import MIB, cpu_seconds, pss_bytes, spread, table
from bench.systems import BROKERS, TIDELOG, Running, System, started
from tidelog.core.errors import TidelogError
from tidelog.core.types import TopicPartition
from tidelog.records.builder import NewRecord, build_batch
from tidelog.runtime.blocking import BlockingClient
from tidelog.testing import Cluster

_POLL_S = 0.002
_IDLE_S = 30
_TOPIC = "failover"


@dataclass
class _Figures:
    """What the rounds measured of one system: published leader and next acknowledgement, ms."""

    leader: list[tuple[float, float]] = field(default_factory=list)
    both: list[tuple[float, float]] = field(default_factory=list)


def run(systems: Sequence[System], rounds: int) -> list[str]:
    """The table of failovers, and that of start and idling."""
    measured = [_Figures() for _ in systems]
    with started(systems) as running:
        for one in running:
            with BlockingClient(one.bootstrap) as client:
                client.create_topic(_TOPIC, 6, 3, {"min.insync.replicas": "2"})
                client.await_topic(_TOPIC, 3)
        for _ in range(rounds):
            for one, figures in zip(running, measured, strict=True):
                figures.leader.append(_kill(one, is_controller=False))
                if one.tells_controller:
                    figures.both.append(_kill(one, is_controller=True))
    kinds = [("leader", [one.leader for one in measured])]
    kinds.append(("leader that is also the controller", [one.both for one in measured]))
    rows = []
    for name, times in kinds:
        for what, place in (("new leader published", 0), ("next acknowledged record", 1)):
            told = (spread([each[place] for each in one]) if one else "" for one in times)
            rows.append((f"{name}: {what}", *told, "<= 1,000" if place else ""))
    names = [system.name for system in systems]
    return [
        table(f"SIGKILL of a broker ({rounds} runs), ms", rows, ("of", *names, "aim")),
        table(
            "Start and rest of three brokers", _start_and_rest(systems, rounds), ("", *names, "aim")
        ),
    ]


def _kill(running: Running, is_controller: bool) -> tuple[float, float]:
    """Milliseconds to the published leader and to the next acknowledged record."""
    with BlockingClient(running.bootstrap) as client:
        found = client.metadata([_TOPIC])
    led = {
        number: partition.leader
        for number, partition in found.topics[_TOPIC].partitions.items()
        if (partition.leader == found.controller_id) == is_controller
        or not running.tells_controller
    }
    number, victim = next(iter(led.items()))
    survivors = [running.address(one) for one in range(1, BROKERS + 1) if one != victim]
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
    with BlockingClient(running.bootstrap) as client:
        client.await_topic(_TOPIC, 3)
    return (published - begin) * 1e3, (acked - begin) * 1e3


def _start_and_rest(systems: Sequence[System], rounds: int) -> list[tuple[str, ...]]:
    starts: list[list[float]] = [[] for _ in systems]
    for _ in range(rounds):
        for system, times in zip(systems, starts, strict=True):
            with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as directory:
                cluster = system.lay_out(Path(directory), {})
                try:
                    begin = time.monotonic()
                    cluster.up()
                    times.append(time.monotonic() - begin)
                finally:
                    cluster.down()
    with started(systems) as running:
        time.sleep(_IDLE_S)
        before = [cpu_seconds(one.pids()) for one in running]
        time.sleep(_IDLE_S)
        rest_bytes = [pss_bytes(one.pids()) for one in running]
        cpu_s = [cpu_seconds(one.pids()) - was for one, was in zip(running, before, strict=True)]
    kit = [spread(_kit_starts(rounds), 2) if system is TIDELOG else "" for system in systems]
    return [
        (
            "exec to the first acknowledged record of RF 3, s",
            *(spread(times, 2) for times in starts),
            "<= 2",
        ),
        ("a test's cluster (tidelog.testing), s", *kit, "<= 2"),
        (
            f"sum of PSS {2 * _IDLE_S} s after start, MiB",
            *(f"{each / MIB:,.0f}" for each in rest_bytes),
            "<= 150",
        ),
        (
            "CPU of three idle brokers, % of a core",
            *(f"{each / _IDLE_S * 100:.1f}" for each in cpu_s),
            "",
        ),
    ]


def _kit_starts(rounds: int) -> list[float]:
    """Seconds that a test waits for its cluster."""
    starts = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as directory:
            begin = time.monotonic()
            with Cluster(directory, 3):
                starts.append(time.monotonic() - begin)
    return starts
