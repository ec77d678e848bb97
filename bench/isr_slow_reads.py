"""60 s of slow leader reads: ISR changes, produce errors and latency, pending reads off and on.

Three real brokers; the leader of a partition runs on a preloaded disk whose reads of segments take
1.5 s each (`tests/support/cluster/slow_reads.c`), longer than `replica.lag.time.max.ms`. A client
sends 200 records a second with acks=all and without retries, so that each refusal is seen. Both
runs are drawn into docs/slow-leader-reads.svg.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from bench.controller import beat
from bench.rig import table
from tidelog.core.types import TopicPartition
from tidelog.local.cluster import LocalCluster
from tidelog.metadata import layout
from tidelog.runtime.blocking import BlockingClient
from tidelog.runtime.stores.sqlite import SqliteStore

PLOT = Path(__file__).resolve().parents[1] / "docs" / "slow-leader-reads.svg"
KEY = "follower.fetch.pending.reads.insync.enable"
SLOW_S = 60.0
QUIET_S = 5.0
_READ_MS = 1_500
_LAG_MS = 1_000
_PER_S = 200
_LED = TopicPartition("slow", 0)
_LEADER, _OTHERS = 2, (3, 1)
_PATIENCE_S = 60.0
_LOOK_S = 0.05


@dataclass(slots=True)
class Run:
    """One run: times are seconds since its first record."""

    enabled: bool
    #: Acknowledged records: (sent, latency in ms).
    acknowledged: list[tuple[float, float]] = field(default_factory=list)
    #: Rejected records: (sent, error).
    rejected: list[tuple[float, str]] = field(default_factory=list)
    #: (time, members of the ISR), where it changed.
    isr: list[tuple[float, int]] = field(default_factory=list)
    isr_changes: int = 0
    slow_reads: int = 0

    def row(self) -> tuple[str, ...]:
        """The run in the table."""
        latencies = sorted(ms for _, ms in self.acknowledged)
        total = len(self.acknowledged) + len(self.rejected)
        p99 = f"{latencies[len(latencies) * 99 // 100]:,.0f}" if latencies else "-"
        median = f"{latencies[len(latencies) // 2]:,.0f}" if latencies else "-"
        return (
            "on" if self.enabled else "off",
            f"{self.isr_changes:,}",
            f"{len(self.rejected):,} of {total:,}",
            median,
            p99,
            f"{self.slow_reads:,}",
        )


def run(slow_s: float = SLOW_S, plot: Path = PLOT) -> list[str]:
    """The table of both runs; draws them, too."""
    runs = [_measure(enabled, slow_s) for enabled in (False, True)]
    plot.write_text(drawing(runs, slow_s), encoding="utf-8")
    rows: list[tuple[Any, ...]] = [each.row() for each in runs]
    head = ("pending reads", "ISR changes", "produce errors", "p50, ms", "p99, ms", "slow reads")
    return [table(f"{slow_s:.0f} s of slow leader reads ({_READ_MS} ms each)", rows, head)]


def _measure(enabled: bool, slow_s: float) -> Run:
    from tests.support.cluster.slow_reads import SlowReads, compiled

    config = {
        KEY: str(enabled).lower(),
        "replica.lag.time.max.ms": str(_LAG_MS),
        "replica.fetch.wait.max.ms": "300",
        "metadata.session.timeout.ms": "900",
    }
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as directory:
        library = compiled(Path(directory))
        if library is None:
            raise SystemExit("bench: a C compiler (cc) is needed for a slow disk")
        cluster = LocalCluster(f"{directory}/cluster", 3, config=config)
        cluster.up()
        try:
            data = f"{cluster.places()[_LEADER].directory}/data"
            reads = SlowReads(library, data, Path(directory) / "slow")
            cluster.stop(_LEADER)
            cluster.start(_LEADER, environment=reads.environment)
            with BlockingClient(cluster.bootstrap) as client:
                client.create_topic(
                    _LED.topic,
                    configs={"min.insync.replicas": "2"},
                    assignment={0: (_LEADER, *_OTHERS)},
                )
                client.await_topic(_LED.topic, min_isr=3)
            return _load(cluster, reads, Run(enabled), slow_s)
        finally:
            cluster.down(timeout_s=_PATIENCE_S)


def _load(cluster: LocalCluster, reads: Any, result: Run, slow_s: float) -> Run:
    before = asyncio.run(_version(f"{cluster.directory}/metadata"))
    began = time.monotonic()
    over = threading.Event()
    looks = threading.Thread(target=_look, args=(cluster, result, began, over))
    looks.start()
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": "all",
            "retries": 0,
            # Few requests wait for the slow reads, fewer than a connection may have in flight.
            "linger.ms": 100,
            "delivery.timeout.ms": int(_PATIENCE_S * 1e3),
            "log_level": 0,
        }
    )
    try:
        number, end_s = 0, QUIET_S + slow_s + QUIET_S
        is_slow = False
        while (now_s := time.monotonic() - began) < end_s:
            wants_slow = QUIET_S <= now_s < QUIET_S + slow_s
            if wants_slow != is_slow:
                is_slow = wants_slow
                reads.begin(_READ_MS) if is_slow else reads.end()
            while number / _PER_S <= now_s:
                _send(producer, result, began)
                number += 1
            producer.poll(0.002)
        left = producer.flush(_PATIENCE_S)
        if left:
            raise SystemExit(f"bench: {left} records have no outcome")
    finally:
        reads.end()
        over.set()
        looks.join()
    result.isr_changes = asyncio.run(_version(f"{cluster.directory}/metadata")) - before
    result.slow_reads = reads.done
    return result


def _send(producer: Producer, result: Run, began: float) -> None:
    sent = time.monotonic()

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            result.rejected.append((sent - began, str(error.name())))
        else:
            result.acknowledged.append((sent - began, (time.monotonic() - sent) * 1e3))

    producer.produce(_LED.topic, bytes(1_000), partition=0, on_delivery=delivered)


def _look(cluster: LocalCluster, result: Run, began: float, over: threading.Event) -> None:
    """Note each size of the ISR, as metadata shows it."""
    with BlockingClient(cluster.bootstrap, timeout_ms=60_000) as client:
        while not over.wait(_LOOK_S):
            size = len(client.metadata([_LED.topic]).topics[_LED.topic].partitions[0].isr)
            if not result.isr or result.isr[-1][1] != size:
                result.isr.append((time.monotonic() - began, size))


async def _version(directory: str) -> int:
    """The partition epoch: each ISR change raises it by one."""
    loop = asyncio.get_running_loop()
    store = SqliteStore(directory, loop, session_timeout_ms=60_000)
    await store.open()
    beating = loop.create_task(beat((store,)))
    node = await store.get(layout.partition_state_path(_LED))
    beating.cancel()
    await store.close()
    if node is None:
        raise SystemExit("bench: the partition has no state")
    return node.stat.version


# The plot

_WIDTH, _PANEL, _LEFT, _TOP, _GAP = 860, 150, 70, 40, 46
_BUCKET_S = 0.5
_MAX_MS = 10_000.0


def drawing(runs: list[Run], slow_s: float) -> str:
    """Both runs as SVG: the latency of acknowledged records, errors, and the ISR over time."""
    end_s = slow_s + 2 * QUIET_S
    height = _TOP + len(runs) * (_PANEL + _GAP) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{_LEFT}" y="20" font-size="14">{slow_s:.0f} s of leader reads of {_READ_MS} ms'
        f" each: largest latency per {_BUCKET_S} s (blue), produce errors (red), ISR (grey)</text>",
    ]
    for number, each in enumerate(runs):
        parts += _panel(each, _TOP + number * (_PANEL + _GAP), end_s, slow_s)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(each: Run, top: int, end_s: float, slow_s: float) -> list[str]:
    inner = _WIDTH - _LEFT - 60

    def across(at_s: float) -> float:
        return round(_LEFT + inner * at_s / end_s, 1)

    def up(ms: float) -> float:
        return round(top + _PANEL * (1 - min(ms, _MAX_MS) / _MAX_MS), 1)

    bottom, right = top + _PANEL, _LEFT + inner
    slow_from, slow_to = across(QUIET_S), across(QUIET_S + slow_s)
    parts = [
        f'<rect x="{slow_from}" y="{top}" width="{slow_to - slow_from:.1f}" height="{_PANEL}" '
        'fill="#f4f1e6"/>',
        f'<path d="M{_LEFT} {top}V{bottom}H{right}V{top}" fill="none" stroke="black"/>',
        f'<text x="{_LEFT}" y="{top - 6}">pending reads {"on" if each.enabled else "off"}: '
        f"{each.isr_changes} ISR changes, {len(each.rejected)} produce errors</text>",
        f'<text x="{_LEFT - 6}" y="{top + 10}" text-anchor="end">{_MAX_MS / 1e3:.0f} s</text>',
        f'<text x="{_LEFT - 6}" y="{bottom}" text-anchor="end">0</text>',
        f'<text x="{right}" y="{bottom + 16}" text-anchor="end">{end_s:.0f} s</text>',
    ]
    parts += [
        f'<text x="{right + 6}" y="{bottom - size * _PANEL / 4 + 4}">ISR {size}</text>'
        for size in (1, 2, 3)
    ]
    steps = [*each.isr, (end_s, each.isr[-1][1])] if each.isr else []
    line = "".join(
        f"H{across(at)}V{bottom - size * _PANEL / 4}" for at, size in steps if at <= end_s
    )
    if steps:
        start = bottom - steps[0][1] * _PANEL / 4
        parts.append(f'<path d="M{_LEFT} {start}{line}" fill="none" stroke="#888" />')
    worst: dict[int, float] = {}
    for at, ms in each.acknowledged:
        bucket = int(at / _BUCKET_S)
        worst[bucket] = max(worst.get(bucket, 0.0), ms)
    points = " ".join(f"{across(b * _BUCKET_S)},{up(ms)}" for b, ms in sorted(worst.items()))
    parts.append(f'<polyline points="{points}" fill="none" stroke="#1f77b4" stroke-width="1.5"/>')
    parts += [
        f'<path d="M{across(bucket * _BUCKET_S)} {bottom}v-8" stroke="#d62728" stroke-width="2"/>'
        for bucket in sorted(dict.fromkeys(int(at / _BUCKET_S) for at, _ in each.rejected))
    ]
    return parts
