"""Controlled shutdown: how soon others lead, and what reading every state again would cost (A14).

A broker that leads 500 of 1,500 partitions is told to stop. Seen from outside, by polling a
survivor: when nothing is led by it any more; told by itself: how long the controller took to move
all, take it out of the ISRs and tell everybody; and when its process has ended. Beside it, on the
embedded store alone: writing 500 states in one batch and one by one, as they are in memory and with
each read again before.
"""

from __future__ import annotations

import asyncio
import re
import signal
import tempfile
import time
from pathlib import Path

from bench.rig import spread, table
from tidelog.client.upkeep import ElectionType
from tidelog.core.types import PartitionState, TopicPartition
from tidelog.local.cluster import LocalCluster
from tidelog.metadata import layout
from tidelog.metadata.store import Create, Op, SetData
from tidelog.runtime.blocking import BlockingClient
from tidelog.runtime.stores.sqlite import SqliteStore

_TOPIC = "shutdown"
_PARTITIONS = 1_500
_MOVED = 500
_BROKERS = 3
_POLL_S = 0.002
_LIMIT_S = 180.0
_HANDED_OVER = re.compile(r"leaderships transferred in (\d+) ms")


def run(rounds: int) -> list[str]:
    """The table of shutdowns, and that of the store."""
    seen, told, ended = [], [], []
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as directory:
        cluster = LocalCluster(f"{directory}/cluster", _BROKERS)
        cluster.up()
        try:
            with BlockingClient(cluster.bootstrap, timeout_ms=60_000) as client:
                client.create_topic(_TOPIC, _PARTITIONS, _BROKERS, {"min.insync.replicas": "2"})
                client.await_topic(_TOPIC, _BROKERS)
            for number in range(rounds):
                one = _stop(cluster, number % _BROKERS + 1)
                for times, value in zip((seen, told, ended), one, strict=True):
                    times.append(value)
        finally:
            cluster.down(timeout_s=_LIMIT_S)
    rows = [
        ("leads no partition any more, seen by a client, ms", spread(seen), "<= 300"),
        ("all leaderships moved and all brokers informed, by its own log, ms", spread(told), ""),
        ("its process has ended, ms", spread(ended), ""),
    ]
    title = f"Controlled shutdown of a broker that leads {_MOVED} of {_PARTITIONS:,} partitions"
    return [table(title, rows, ("of", "tidelog", "aim")), _reading_again(rounds)]


def _stop(cluster: LocalCluster, stopped: int) -> tuple[float, float, float]:
    survivor = cluster.places()[stopped % _BROKERS + 1]
    log = Path(cluster.places()[stopped].log_path)
    process = cluster.process(stopped)
    assert process is not None
    with BlockingClient(survivor.address, timeout_ms=60_000) as client:
        led = client.metadata([_TOPIC]).topics[_TOPIC].partitions.values()
        assert sum(one.leader == stopped for one in led) == _MOVED
        begin = time.monotonic()
        process.send(signal.SIGTERM)
        while any(
            one.leader in (stopped, -1)
            for one in client.metadata([_TOPIC]).topics[_TOPIC].partitions.values()
        ):
            time.sleep(_POLL_S)
        moved = time.monotonic()
    assert process.await_end(_LIMIT_S)
    end = time.monotonic()
    told_ms = float(_HANDED_OVER.findall(log.read_text(encoding="utf-8"))[-1])
    cluster.start(stopped, _LIMIT_S)
    cluster.await_full_isrs(_LIMIT_S)
    with BlockingClient(cluster.bootstrap, timeout_ms=60_000) as client:
        client.elect_leaders(ElectionType.PREFERRED, None)
    return (moved - begin) * 1e3, told_ms, (end - begin) * 1e3


def _reading_again(rounds: int) -> str:
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as directory:
        times = asyncio.run(_states(directory, rounds))
    rows = [
        (how, spread(times[how, False]), spread(times[how, True])) for how in ("batched", "each")
    ]
    title = f"{_MOVED} states written to the embedded store, ms"
    return table(title, rows, ("how", "as in memory", "read again first"))


async def _states(directory: str, rounds: int) -> dict[tuple[str, bool], list[float]]:
    store = SqliteStore(f"{directory}/store", asyncio.get_running_loop(), session_timeout_ms=60_000)
    await store.open()
    state = PartitionState(1, 0, (1, 2, 3), 1, isr_epochs=(1, 2, 3))
    data = layout.encode_partition_state(state)
    names = [TopicPartition("t", number) for number in range(_MOVED)]
    paths = [layout.partition_state_path(one) for one in names]
    ops: list[Op] = [Create("/brokers", b""), Create("/brokers/topics", b"")]
    ops += [Create(layout.topic_path("t"), b""), Create(layout.topic_partitions_path("t"), b"")]
    for name, path in zip(names, paths, strict=True):
        ops += [Create(layout.partition_path(name), b""), Create(path, data)]
    for first in range(0, len(ops), 1_000):
        await store.transact(ops[first : first + 1_000])
    version = 0
    times: dict[tuple[str, bool], list[float]] = {}
    for _ in range(rounds):
        for is_read in (False, True):
            begin = time.monotonic()
            if is_read:
                await store.get_many(paths)
            await store.transact([SetData(path, data, version) for path in paths])
            version += 1
            times.setdefault(("batched", is_read), []).append((time.monotonic() - begin) * 1e3)
            begin = time.monotonic()
            for path in paths:
                if is_read:
                    await store.get(path)
                await store.transact([SetData(path, data, version)])
            version += 1
            times.setdefault(("each", is_read), []).append((time.monotonic() - begin) * 1e3)
    await store.close()
    return times
