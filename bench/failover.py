"""From SIGKILL to the next acknowledged record, its phases, start-up, idle memory.

A failover is watched from outside by polling a survivor every few milliseconds: when it publishes
another leader, and when an acks=all record is acknowledged by it. Its phases (V80) are what our
brokers tell of it in `__cluster_events`, on a cluster of their own; detection is from the kill, by
the clock of this machine.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.rig import MIB, cpu_seconds, pss_bytes, spread, table
from bench.systems import BROKERS, TIDELOG, Running, System, started
from tidelog.client.upkeep import ElectionType
from tidelog.core.errors import TidelogError
from tidelog.core.types import TopicPartition
from tidelog.records.builder import NewRecord, build_batch
from tidelog.runtime.blocking import BlockingClient

_POLL_S = 0.002
_IDLE_S = 30
_TOPIC = "failover"
_PARTITIONS = 6
_LIMIT_S = 60.0
#: Phases as the events name them, and what they are called here.
_CONTROLLER = {
    "read": "what changed is read",
    "decide": "decided",
    "write": "durable",
    "command": "commands queued",
    "lead": "every new leader has answered",
}
_LEADER = {
    "connect": "followers connected",
    "truncate": "followers truncated",
    "first_fetch": "first fetch",
    "acknowledge": "first record acknowledged",
}


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
                client.create_topic(_TOPIC, _PARTITIONS, 3, {"min.insync.replicas": "2"})
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
            f"Phases of a failover of tidelog ({rounds} runs), ms",
            _phases(rounds),
            ("", "median", "runs with it"),
        ),
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
        _acknowledged(client, TopicPartition(_TOPIC, number), batch)
        acked = time.monotonic()
    running.start(victim)
    with BlockingClient(running.bootstrap) as client:
        client.await_topic(_TOPIC, 3)
    return (published - begin) * 1e3, (acked - begin) * 1e3


def _phases(rounds: int) -> list[tuple[str, ...]]:
    """The latency budget of failovers, each phase in its order; the slowest partition counts."""
    times: dict[str, list[float]] = {}
    with started([TIDELOG], cluster_events_enable="true") as [running]:
        with BlockingClient(running.bootstrap) as client:
            client.create_topic(_TOPIC, _PARTITIONS, 3, {"min.insync.replicas": "2"})
            client.await_topic(_TOPIC, 3)
        for _ in range(rounds):
            for name, ms in _budget(running).items():
                times.setdefault(name, []).append(ms)
    return [
        (name, spread(found) if found else "none", str(len(found)))
        for name, found in ((name, times.get(name, [])) for name in _phase_names())
    ]


def _phase_names() -> list[str]:
    controller = [f"controller: {name}" for name in _CONTROLLER.values()]
    leaders = [f"leaders, since their roles: {name}" for name in _LEADER.values()]
    return ["store: SIGKILL to its notice", "seen by the controller before that", *controller,
            *leaders]  # fmt: skip


def _budget(running: Running) -> dict[str, float]:
    """Kill the broker that leads most and is not the controller; what was told of it, in ms."""
    with BlockingClient(running.bootstrap) as client:
        found = client.metadata([_TOPIC])
        leaders = [one.leader for one in found.topics[_TOPIC].partitions.values()]
        victim = statistics.mode([one for one in leaders if one != found.controller_id])
        led = [number for number in range(_PARTITIONS) if leaders[number] == victim]
        already = len(_events(running, "failover"))
        batch = bytes(build_batch([NewRecord(b"key", b"value", timestamp_ms=0)]))
        killed_ms = time.time() * 1e3
        running.kill(victim)
        for number in led:
            _acknowledged(client, TopicPartition(_TOPIC, number), batch)
    [failover] = _await_events(running, "failover", lambda told: len(told) > already)[already:]
    moved = {
        (one["partition"], one["leader_epoch"])
        for one in failover["sample"]
        if one["topic"] == _TOPIC and one["partition"] in led
    }

    def of_moved(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            one
            for one in told
            if one["topic"] == _TOPIC and (one["partition"], one["leader_epoch"]) in moved
        ]

    takeovers = of_moved(
        _await_events(running, "takeover", lambda told: len(of_moved(told)) == len(moved))
    )
    phases = failover["phases_ms"]
    noticed_ms = failover["time_ms"] - sum(phases.values())
    budget = {"store: SIGKILL to its notice": noticed_ms - killed_ms}
    if failover["detection_ms"] >= 0:
        budget["seen by the controller before that"] = failover["detection_ms"]
    budget.update({f"controller: {name}": phases[key] for key, name in _CONTROLLER.items()})
    for key, name in _LEADER.items():
        ends = [one["phases_ms"][key] for one in takeovers if one["phases_ms"][key] >= 0]
        if ends:
            budget[f"leaders, since their roles: {name}"] = max(ends)
    running.start(victim)
    with BlockingClient(running.bootstrap) as client:
        client.await_topic(_TOPIC, 3)
        client.elect_leaders(ElectionType.PREFERRED, None)
    return budget


def _events(running: Running, kind: str) -> list[dict[str, Any]]:
    words = ("events", "tail", "-e", "-J", "--kind", kind, "-b", running.bootstrap)
    told = subprocess.run(
        [sys.executable, "-m", "tidelog", *words], capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in told.stdout.splitlines()]


def _await_events(
    running: Running, kind: str, is_enough: Callable[[list[dict[str, Any]]], bool]
) -> list[dict[str, Any]]:
    limit_s = time.monotonic() + _LIMIT_S
    while not is_enough(told := _events(running, kind)):
        if time.monotonic() > limit_s:
            raise SystemExit(f"bench: {len(told)} events {kind} in {_LIMIT_S:.0f} s")
    return told


def _acknowledged(client: BlockingClient, partition: TopicPartition, batch: bytes) -> None:
    while True:
        try:
            client.produce(partition, batch)
            return
        except TidelogError:
            time.sleep(_POLL_S)


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
    return [
        (
            "exec to the first acknowledged record of RF 3, s",
            *(spread(times, 2) for times in starts),
            "<= 2",
        ),
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
