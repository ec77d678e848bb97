"""Log directories of simulated clusters, taken at moments of a run and written to real files.

Until the first power loss every directory is healthy: brokers run, are killed, and move replicas.
Disks that a fault has damaged are left out with their run.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tidelog.sim.disk import StoredFile
from tidelog.sim.loop import NS_PER_MS
from tidelog.sim.run import SeedRun

#: Content of each file by path, by log directory (node, path).
Disks = dict[tuple[int, str], dict[str, StoredFile]]


class Moment(NamedTuple):
    """The disks of all brokers at one time of a run."""

    at_ms: int
    disks: Disks


def moments(seed: int, profile: str, every_ms: int) -> list[Moment]:
    """Run a seed and return the disks of all brokers from time to time, before any power loss."""
    taken: list[Moment] = []
    next_ms = every_ms

    def listen(_: str) -> None:
        nonlocal next_ms
        now_ms = run.simulator.now_ns // NS_PER_MS
        disks = run.simulator.disks
        is_healthy = not any(disk.is_damaged or disk.is_failed for disk in disks.values())
        if now_ms >= next_ms and is_healthy and not run.cluster.lossy_crashes:
            next_ms = now_ms + every_ms
            taken.append(Moment(now_ms, {key: disk.contents() for key, disk in disks.items()}))

    run = SeedRun(seed, profile)
    run.simulator.trace.listener = listen
    run.run()
    return taken


def written(moment: Moment, root: Path) -> Iterator[str]:
    """Write the log directories that have an owner; yield their paths."""
    for (node, directory), content in moment.disks.items():
        top = root / f"node-{node}"
        for path, stored in content.items():
            target = top / path.removeprefix("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(stored.data)
        path = f"{top}{directory}"
        if (Path(path) / "meta.properties").exists():
            yield path
