"""Produce, consume and one-at-a-time latency against three brokers, interleaved, warm."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, field

from bench.rig import (
    CONSUMER_OPTIONS,
    LATENCY_OPTIONS,
    MIB,
    PRODUCER_OPTIONS,
    Driver,
    cluster,
    cpu_seconds,
    pids,
    spread,
    table,
    warm_pages,
)
from tidelog.local.cluster import LocalCluster
from tidelog.runtime.blocking import BlockingClient

PARTITIONS = 6
RECORD_BYTES = 1024
#: What the client may queue, beside the records themselves.
_CLIENT_BYTES = 256 * MIB


@dataclass
class _Variant:
    """One line of the table, with what its runs measured."""

    name: str
    replicas: int
    acks: int
    aim: str
    speeds: list[float] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)


def run(rounds: int, run_bytes: int) -> list[str]:
    """The tables of throughput and latency."""
    variants = [
        _Variant("produce 1 KiB, RF 1, acks=1", 1, 1, ">= 600"),
        _Variant("produce 1 KiB, RF 3, acks=all", 3, -1, ">= 270"),
    ]
    consume = _Variant("consume 1 KiB", 1, 0, ">= 1,000")
    latencies: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as work, cluster() as running:
        driver = Driver(work)
        with BlockingClient(running.bootstrap) as client:
            client.create_topic("slow", PARTITIONS, 3, {"min.insync.replicas": "2"})
            client.await_topic("slow", 3)
            for number in range(rounds + 1):
                counted = number > 0  # the first round warms connections, pages and caches
                for variant in variants:
                    topic = f"t{number}-{variant.replicas}"
                    _make_topic(client, topic, variant.replicas)
                    _produce(driver, running, variant, topic, run_bytes, counted)
                    if variant.replicas == 1:
                        _consume(driver, running, consume, topic, run_bytes, counted)
                latency = driver.run(
                    "latency",
                    running.bootstrap,
                    "slow",
                    PARTITIONS,
                    RECORD_BYTES,
                    3,
                    -1,
                    options=LATENCY_OPTIONS,
                )
                if counted:
                    latencies.append(latency)
    rows = [
        (one.name, spread(one.speeds), spread(one.costs), one.aim) for one in [*variants, consume]
    ]
    quantiles = [
        (name, spread([one[f"{key}_ms"] for one in latencies], 3), aim)
        for name, key, aim in (
            ("p50", "p50", "<= 0.35"),
            ("p99", "p99", ""),
            ("p99.9", "p999", ""),
        )
    ]
    runs = f"{rounds} runs of {run_bytes // MIB} MiB, {PARTITIONS} partitions"
    return [
        table(
            f"Throughput ({runs}, interleaved, warm)",
            rows,
            ("", "MiB/s", "brokers' CPU µs per MiB", "aim"),
        ),
        table(
            f"One record at a time, 1 KiB, RF 3, acks=all ({rounds} runs of 3 s)",
            quantiles,
            ("", "ms", "aim"),
        ),
        f"Client: librdkafka; producer {PRODUCER_OPTIONS}, consumer {CONSUMER_OPTIONS}, "
        f"latency {LATENCY_OPTIONS}.\n",
    ]


def _make_topic(client: BlockingClient, topic: str, replicas: int) -> None:
    if replicas == 1:
        client.create_topic(topic, assignment={number: [1] for number in range(PARTITIONS)})
    else:
        client.create_topic(topic, PARTITIONS, replicas, {"min.insync.replicas": "2"})
    client.await_topic(topic, replicas)


def _produce(
    driver: Driver,
    running: LocalCluster,
    variant: _Variant,
    topic: str,
    run_bytes: int,
    counted: bool,
) -> None:
    warm_pages(driver.directory, run_bytes * variant.replicas + _CLIENT_BYTES)
    before = cpu_seconds(pids(running))
    result = driver.run(
        "produce",
        running.bootstrap,
        topic,
        PARTITIONS,
        RECORD_BYTES,
        run_bytes,
        variant.acks,
        options=PRODUCER_OPTIONS,
    )
    if counted:
        mib = result["bytes"] / MIB
        variant.speeds.append(mib / result["seconds"])
        variant.costs.append((cpu_seconds(pids(running)) - before) * 1e6 / mib)


def _consume(
    driver: Driver,
    running: LocalCluster,
    variant: _Variant,
    topic: str,
    run_bytes: int,
    counted: bool,
) -> None:
    time.sleep(0.2)  # the high watermark of the last batch; not measured
    warm_pages(driver.directory, run_bytes + _CLIENT_BYTES)
    before = cpu_seconds(pids(running))
    result = driver.run(
        "consume", running.bootstrap, topic, PARTITIONS, run_bytes, options=CONSUMER_OPTIONS
    )
    if counted:
        mib = result["bytes"] / MIB
        variant.speeds.append(mib / result["seconds"])
        variant.costs.append((cpu_seconds(pids(running)) - before) * 1e6 / mib)
