"""Moves between the log directories of a broker: their speed, cost and effect on a producer.

Six partitions with all their records in one directory move to the other one. Timed is from the
request to the moment at which the broker lists no future replica any more; by then the copies are
synced and have taken their places. Beside it stands a plain copy of the same files with a sync of
each, in turns, without a check of what is read. Then they move back beside a producer that writes
to another topic, a record at a time, with acks=all; there again under a throttle; and back by a
drain, which moves the replicas of that producer, too.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.rig import (
    LATENCY_OPTIONS,
    MIB,
    PRODUCER_OPTIONS,
    Driver,
    cpu_seconds,
    spread,
    table,
    warm_pages,
)
from tidelog.client.configs import BROKER, ConfigChange, ConfigResource
from tidelog.core.dynamic_config import ConfigOperation
from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster
from tidelog.runtime.blocking import BlockingClient

_BROKER = 1
_BROKERS = 3
_PARTITIONS = [TopicPartition("moved", number) for number in range(6)]
_RECORD_BYTES = 1024
_LATENCY_S = 3
_THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"
_THROTTLE_MIB = 32
_DRAINING = "draining.log.dirs"
_POLL_S = 0.01
_LIMIT_S = 600.0


@dataclass
class _Figures:
    """What the rounds measured."""

    speed: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    copy_speed: list[float] = field(default_factory=list)
    quiet_p99_ms: list[float] = field(default_factory=list)
    moving_p99_ms: list[float] = field(default_factory=list)
    throttled: list[float] = field(default_factory=list)
    throttled_p99_ms: list[float] = field(default_factory=list)
    drain_speed: list[float] = field(default_factory=list)
    drain_p99_ms: list[float] = field(default_factory=list)


def run(rounds: int, volume_bytes: int) -> list[str]:
    """Return the table."""
    figures = _Figures()
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as directory:
        driver = Driver(directory)
        cluster = LocalCluster(f"{directory}/cluster", _BROKERS, log_dirs=2)
        cluster.up()
        try:
            moves = _Moves(cluster, driver, volume_bytes)
            moves.fill(directory)
            for _ in range(rounds):
                moves.round(figures, directory)
        finally:
            cluster.down(timeout_s=_LIMIT_S)
    rows = [
        ("move, MiB/s", spread(figures.speed)),
        ("broker's CPU, us/MiB", spread(figures.cpu_us)),
        ("plain copy of the files, with syncs, MiB/s", spread(figures.copy_speed)),
        (f"move under a throttle of {_THROTTLE_MIB} MiB/s, MiB/s", spread(figures.throttled, 1)),
        ("one record at a time before, p99 ms", spread(figures.quiet_p99_ms, 2)),
        ("during the move, p99 ms", spread(figures.moving_p99_ms, 2)),
        ("during the throttled move, p99 ms", spread(figures.throttled_p99_ms, 2)),
        ("drain, MiB/s", spread(figures.drain_speed)),
        ("during the drain, p99 ms", spread(figures.drain_p99_ms, 2)),
    ]
    title = f"{volume_bytes // MIB:,} MiB move between two log directories ({rounds} runs)"
    return [table(title, rows, ("of", "tidelog"))]


class _Moves:
    """The cluster of the measurements."""

    def __init__(self, cluster: LocalCluster, driver: Driver, volume_bytes: int) -> None:
        self._cluster = cluster
        self._driver = driver
        self._mib = volume_bytes / MIB
        self._first, self._second = map(Path, cluster.log_dirs(_BROKER))

    def fill(self, directory: str) -> None:
        """Make the topics, all replicas of the broker in its first directory, and the records."""
        with BlockingClient(self._cluster.bootstrap, timeout_ms=60_000) as client:
            places = dict.fromkeys(range(len(_PARTITIONS)), (_BROKER, 2))
            client.create_topic("moved", assignment=places)
            client.create_topic("slow", assignment=dict.fromkeys(range(_BROKERS), (_BROKER, 2, 3)))
            client.await_topic("moved", min_isr=2)
            client.await_topic("slow", min_isr=3)
        self._move(self._first)
        volume_bytes = int(self._mib * MIB)
        warm_pages(directory, volume_bytes * 3)
        arguments = ("moved", len(_PARTITIONS), _RECORD_BYTES, volume_bytes, -1)
        self._driver.run("produce", self._cluster.bootstrap, *arguments, options=PRODUCER_OPTIONS)

    def round(self, figures: _Figures, directory: str) -> None:
        """Move there, back beside a producer, there under a throttle, and back by a drain."""
        pid = self._cluster.process(_BROKER)
        assert pid is not None
        before_s = cpu_seconds([pid.pid])
        figures.speed.append(self._mib / self._move(self._second))
        figures.cpu_us.append((cpu_seconds([pid.pid]) - before_s) / self._mib * 1e6)
        figures.copy_speed.append(self._copied(directory))
        figures.quiet_p99_ms.append(self._p99_ms())
        moving_ms, _ = self._beside(lambda: self._move(self._first))
        figures.moving_p99_ms.append(moving_ms)
        self._set(_THROTTLE, str(_THROTTLE_MIB * MIB))
        throttled_ms, seconds = self._beside(lambda: self._move(self._second))
        figures.throttled.append(self._mib / seconds)
        figures.throttled_p99_ms.append(throttled_ms)
        self._set(_THROTTLE, None)
        drain_ms, seconds = self._beside(self._drain)
        figures.drain_speed.append(self._mib / seconds)
        figures.drain_p99_ms.append(drain_ms)
        self._set(_DRAINING, None)
        with BlockingClient(self._cluster.bootstrap, timeout_ms=60_000) as client:
            while any(each.is_draining for each in client.describe_log_dirs(_BROKER)):
                time.sleep(_POLL_S)  # the setting is on its way

    def _move(self, target: Path) -> float:
        """Move every partition there; return the seconds until no future replica is left."""
        begin = time.monotonic()
        with BlockingClient(self._cluster.bootstrap, timeout_ms=60_000) as client:
            asked = client.move_replicas(_BROKER, dict.fromkeys(_PARTITIONS, str(target)))
            refused = {each: error for each, error in asked.items() if error}
            if refused:
                raise SystemExit(f"bench: moves were refused: {refused}")
            while not self._all_in(client, target):
                if time.monotonic() - begin > _LIMIT_S:
                    raise SystemExit(f"bench: moves are not over in {_LIMIT_S:.0f} s")
                time.sleep(_POLL_S)
        return time.monotonic() - begin

    def _all_in(self, client: BlockingClient, target: Path) -> bool:
        for each in client.describe_log_dirs(_BROKER, _PARTITIONS):
            found = [replica for replica in each.replicas if not replica.future]
            if each.path == str(target):
                return len(found) == len(_PARTITIONS)
        return False

    def _drain(self) -> float:
        """Drain the second directory; return the seconds until no replica is in it."""
        begin = time.monotonic()
        self._set(_DRAINING, str(self._second))
        with BlockingClient(self._cluster.bootstrap, timeout_ms=60_000) as client:
            while any(
                each.replicas
                for each in client.describe_log_dirs(_BROKER)
                if each.path == str(self._second)
            ):
                if time.monotonic() - begin > _LIMIT_S:
                    raise SystemExit(f"bench: the drain is not over in {_LIMIT_S:.0f} s")
                time.sleep(_POLL_S)
        return time.monotonic() - begin

    def _beside(self, move: Callable[[], float]) -> tuple[float, float]:
        """Move beside a producer; return its p99 in ms, and how long the move took in seconds."""
        seconds: list[float] = []
        mover = threading.Thread(target=lambda: seconds.append(move()))
        mover.start()
        p99_ms = self._p99_ms()
        mover.join()
        return p99_ms, seconds[0]

    def _p99_ms(self) -> float:
        arguments = ("slow", _BROKERS, _RECORD_BYTES, _LATENCY_S, -1)
        result = self._driver.run(
            "latency", self._cluster.bootstrap, *arguments, options=LATENCY_OPTIONS
        )
        return result["p99_ms"]

    def _copied(self, directory: str) -> float:
        """Copy the files of the partitions once, and remove the copies; return MiB/s."""
        target = Path(directory) / "copies"
        begin = time.monotonic()
        for each in _PARTITIONS:
            name = f"{each.topic}-{each.partition}"
            (target / name).mkdir(parents=True)
            for source in (self._second / name).iterdir():
                copy = target / name / source.name
                shutil.copyfile(source, copy)
                with copy.open("rb") as file:
                    os.fsync(file.fileno())
        seconds = time.monotonic() - begin
        shutil.rmtree(target)
        return self._mib / seconds

    def _set(self, key: str, value: str | None) -> None:
        resource = ConfigResource(BROKER, str(_BROKER))
        with BlockingClient(self._cluster.bootstrap, timeout_ms=60_000) as client:
            operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
            client.alter_configs(resource, [ConfigChange(operation, key, value)])
