"""Several log directories: how soon others lead when one fails, how long a start with many takes.

A broker leads 2,000 partitions in two log directories; one fails (`tidelog break fail-log-dir`).
Timed is from the broker's own report of the error to the moment at which another broker's metadata
shows another leader for each partition of the directory. How long an idle disk stays unnoticed is
not in it: a checkpoint writes to each directory every five seconds. The start is of a broker alone,
with eight directories of 1,000 replicas each, after a clean end and after SIGKILL.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from bench.rig import spread, table
from tidelog.client.cluster import PartitionMetadata
from tidelog.client.upkeep import ElectionType
from tidelog.core.types import NO_LEADER
from tidelog.local import LocalCluster
from tidelog.runtime.blocking import BlockingClient
from tidelog.runtime.disk_faults import FAIL, DiskFault

Places = dict[int, tuple[int, ...]]
_TOPIC = "replicas"
_LED = 2_000
_LOG_DIRS = 8
_PER_LOG_DIR = 1_000
_BROKER = 1
_REPORT = "log directory failed"
_TIME = "%Y-%m-%d %H:%M:%S,%f"
_POLL_S = 0.005
_LIMIT_S = 180.0


def run(rounds: int) -> list[str]:
    """Return the tables."""
    led_ms = _failures(rounds)
    clean_s, unclean_s = _starts(rounds)
    replicas = _LOG_DIRS * _PER_LOG_DIR
    return [
        table(
            f"A log directory with {_LED // 2:,} leaders of {_LED:,} fails ({rounds} runs)",
            [("led by others, ms", spread(led_ms), "<= 1,000")],
            ("of", "tidelog", "aim"),
        ),
        table(
            f"Start with {_LOG_DIRS} log directories and {replicas:,} replicas ({rounds} runs)",
            [
                ("after a clean end, s", spread(clean_s, 2)),
                ("after SIGKILL, s", spread(unclean_s, 2)),
            ],
            ("of", "tidelog"),
        ),
    ]


@contextmanager
def _cluster(brokers: int, log_dirs: int, places: Places) -> Iterator[LocalCluster]:
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as directory:
        cluster = LocalCluster(f"{directory}/cluster", brokers, log_dirs=log_dirs)
        cluster.up()
        try:
            with BlockingClient(cluster.bootstrap, timeout_ms=120_000) as client:
                client.create_topic(_TOPIC, assignment=places)
                _await(client, places, lambda each: len(each.isr) == len(places[0]))
            yield cluster
        finally:
            cluster.down(timeout_s=_LIMIT_S)


def _failures(rounds: int) -> list[float]:
    """Let a directory of the leader fail again and again; return the times in ms."""
    places: Places = {number: (_BROKER, 2 + number % 2) for number in range(_LED)}
    times: list[float] = []
    with _cluster(3, 2, places) as cluster:
        other = cluster.places()[2].address
        with BlockingClient(other, timeout_ms=60_000) as client:
            for number in range(rounds):
                path = cluster.log_dirs(_BROKER)[number % 2]
                gone = [
                    int(each.name.removeprefix(f"{_TOPIC}-"))
                    for each in Path(path).glob(f"{_TOPIC}-*")
                    if each.name.removeprefix(f"{_TOPIC}-").isdecimal()
                ]
                seen = len(_reports(cluster))
                cluster.break_log_dir(_BROKER, path, DiskFault(FAIL))
                _await(client, gone, lambda each: each.leader not in (_BROKER, NO_LEADER))
                shown_s = time.time()
                times.append((shown_s - _reports(cluster)[seen]) * 1e3)
                cluster.break_log_dir(_BROKER, path, None)
                cluster.restart(_BROKER)
                _await(client, places, lambda each: len(each.isr) == 2)
                client.elect_leaders(ElectionType.PREFERRED, None)
                _await(client, places, lambda each: each.leader == _BROKER)
    return times


def _reports(cluster: LocalCluster) -> list[float]:
    """Return when the broker reported failed directories, in seconds since 1970."""
    with open(cluster.places()[_BROKER].log_path, encoding="utf-8") as file:
        lines = [line for line in file if f"CRITICAL [broker {_BROKER}] {_REPORT}" in line]
    return [datetime.strptime(line[1:24], _TIME).timestamp() for line in lines]


def _await(
    client: BlockingClient,
    partitions: Collection[int],
    holds: Callable[[PartitionMetadata], bool],
) -> None:
    """Poll metadata until every partition is as wanted."""
    deadline = time.monotonic() + _LIMIT_S
    while True:
        topic = client.metadata([_TOPIC]).topics.get(_TOPIC)
        found = {} if topic is None else topic.partitions
        if all(each in found and holds(found[each]) for each in partitions):
            return
        assert time.monotonic() < deadline, f"{_TOPIC} is not as wanted after {_LIMIT_S:.0f} s"
        time.sleep(_POLL_S)


def _starts(rounds: int) -> tuple[list[float], list[float]]:
    """Return how long starts take after clean ends and after SIGKILL, in seconds."""
    clean: list[float] = []
    unclean: list[float] = []
    places: Places = dict.fromkeys(range(_LOG_DIRS * _PER_LOG_DIR), (_BROKER,))
    with _cluster(1, _LOG_DIRS, places) as cluster:
        for _ in range(rounds):
            for times, end in ((clean, cluster.stop), (unclean, cluster.kill)):
                end(_BROKER)
                begin = time.monotonic()
                cluster.start(_BROKER, _LIMIT_S)
                times.append(time.monotonic() - begin)
    return clean, unclean
