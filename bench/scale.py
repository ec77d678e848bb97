"""Ten thousand partitions on three brokers: made, one broker killed, started again, at rest.

Brokers are processes on the embedded store; all figures are seen from outside, by a client's
Metadata and by `/proc`. A kill is timed from the signal itself: detection is in it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.rig import MIB, cpu_seconds, pss_bytes, spread, table
from bench.systems import TIDELOG, Running
from tidelog.core.errors import TidelogError
from tidelog.runtime.blocking import BlockingClient

SIZES = (1_000, 10_000)
_PER_TOPIC = 1_000
_REPLICAS = 3
_POLL_S = 0.005
_IDLE_S = 20.0
_LIMIT_S = 120.0
_REQUEST_TIMEOUT_MS = 60_000


@dataclass
class _Figures:
    """Of one size, in seconds but where the name says otherwise."""

    made: list[float] = field(default_factory=list)
    in_sync: list[float] = field(default_factory=list)
    led: list[float] = field(default_factory=list)
    killed_back: list[float] = field(default_factory=list)
    stopped: list[float] = field(default_factory=list)
    clean_back: list[float] = field(default_factory=list)
    bare_mib: list[float] = field(default_factory=list)
    full_mib: list[float] = field(default_factory=list)
    idle_percent: list[float] = field(default_factory=list)


def run(rounds: int) -> list[str]:
    """The table; each round is a cluster of its own."""
    rows: list[tuple[str, ...]] = []
    for partitions in SIZES:
        figures = _Figures()
        for _ in range(rounds):
            _measure(partitions, figures)
        rows += _rows(partitions, figures)
    title = f"Many partitions, RF {_REPLICAS}, three brokers, embedded store ({rounds} runs)"
    return [table(title, rows, ("", "tidelog", "aim", "Kafka 3.9.2 (docs, another day)"))]


def _rows(partitions: int, figures: _Figures) -> list[tuple[str, ...]]:
    large = partitions == SIZES[-1]
    first = f"{partitions:,} partitions: "
    return [
        (f"{first}made, logs on disk, s", spread(figures.made, 2), "<= 10" if large else "",
         "40-60" if large else "10.3 (cold)"),
        ("to the full ISR seen by a client, s", spread(figures.in_sync, 2), "", ""),
        ("SIGKILL of a broker to all led again, seen by a client, s", spread(figures.led, 2),
         "<= 1.5" if large else "<= 0.3", "4.3 after the session's end" if large else "0.8"),
        ("its start after that to the full ISR, s", spread(figures.killed_back, 2),
         "<= 15" if large else "", "21.2" if large else ""),
        ("SIGTERM to its end, s", spread(figures.stopped, 2), "", ""),
        ("its start after that to the full ISR, s", spread(figures.clean_back, 2),
         "<= 8" if large else "", "17.7" if large else ""),
        ("PSS of a broker before, MiB", spread(figures.bare_mib), "", ""),
        ("PSS of a broker with them, MiB", spread(figures.full_mib),
         "60 more" if large else "", "670-775" if large else ""),
        ("CPU of a broker at rest, % of a core", spread(figures.idle_percent, 1), "", ""),
    ]  # fmt: skip


def _measure(partitions: int, figures: _Figures) -> None:
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as directory:
        cluster = TIDELOG.lay_out(Path(directory), {})
        cluster.up()
        try:
            _lifetime(cluster, partitions, figures)
        finally:
            cluster.down()


def _lifetime(cluster: Running, partitions: int, figures: _Figures) -> None:
    figures.bare_mib.append(_pss_mib(cluster))
    names = [f"many-{number}" for number in range(partitions // _PER_TOPIC)]
    with BlockingClient(cluster.bootstrap, timeout_ms=_REQUEST_TIMEOUT_MS) as client:
        begin = time.monotonic()
        for name in names:
            client.create_topic(name, _PER_TOPIC, _REPLICAS)
        figures.made.append(time.monotonic() - begin)
        _await_topics(client, names, _in_sync)
        figures.in_sync.append(time.monotonic() - begin)
        figures.full_mib.append(_pss_mib(cluster))
        before = cpu_seconds(cluster.pids())
        time.sleep(_IDLE_S)
        used = cpu_seconds(cluster.pids()) - before
        figures.idle_percent.append(used / _IDLE_S / len(cluster.pids()) * 100)
        controller = client.metadata([]).controller_id
    victim = next(one for one in (1, 2, 3) if one != controller)
    survivors = ",".join(cluster.address(one) for one in (1, 2, 3) if one != victim)
    with BlockingClient(survivors, timeout_ms=_REQUEST_TIMEOUT_MS) as client:
        client.metadata([])
        begin = time.monotonic()
        cluster.kill(victim)
        _await_topics(client, names, lambda leader, isr: leader not in (-1, victim))
        figures.led.append(time.monotonic() - begin)
        figures.killed_back.append(_back(cluster, client, victim, names))
        begin = time.monotonic()
        cluster.stop(victim)
        cluster.await_end(victim)
        figures.stopped.append(time.monotonic() - begin)
        figures.clean_back.append(_back(cluster, client, victim, names))


def _back(cluster: Running, client: BlockingClient, victim: int, names: list[str]) -> float:
    begin = time.monotonic()
    cluster.start(victim)
    _await_topics(client, names, _in_sync)
    return time.monotonic() - begin


def _in_sync(leader: int, isr: int) -> bool:
    return leader >= 0 and isr == _REPLICAS


def _await_topics(
    client: BlockingClient, names: list[str], is_right: Callable[[int, int], bool]
) -> None:
    """Wait until each partition of each topic is as it should be, by leader and size of the ISR."""
    limit = time.monotonic() + _LIMIT_S
    for name in names:
        while not _is_right(client, name, is_right):
            if time.monotonic() > limit:
                raise SystemExit(f"bench: topic {name} is not as it should be in {_LIMIT_S:.0f} s")
            time.sleep(_POLL_S)


def _is_right(client: BlockingClient, name: str, is_right: Callable[[int, int], bool]) -> bool:
    try:
        topic = client.metadata([name]).topics[name]
    except TidelogError:
        return False
    partitions = topic.partitions.values()
    return len(partitions) == _PER_TOPIC and all(
        is_right(partition.leader, len(partition.isr)) for partition in partitions
    )


def _pss_mib(cluster: Running) -> float:
    pids = cluster.pids()
    return pss_bytes(pids) / len(pids) / MIB
