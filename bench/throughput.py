"""Produce, consume and one-at-a-time latency against three brokers, interleaved, warm.

Several systems run at the same time and take turns; what the idle ones cost goes against all alike.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench.rig import (
    CLIENT_BYTES,
    CONSUMER_OPTIONS,
    LATENCY_OPTIONS,
    MIB,
    PRODUCER_OPTIONS,
    Driver,
    cpu_seconds,
    pss_bytes,
    spread,
    table,
    warm_pages,
)
from bench.systems import Running, System, started
from tidelog.runtime.blocking import BlockingClient

PARTITIONS = 6
RECORD_BYTES = 1024
_LATENCY_S = 3


@dataclass
class _Figure:
    """One line of the table, with what its runs measured."""

    name: str
    aim: str
    speeds: list[float] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)


class _Scene:
    """One running system, and its figures."""

    def __init__(self, driver: Driver, running: Running, run_bytes: int) -> None:
        self._driver = driver
        self._running = running
        self._run_bytes = run_bytes
        self.one_replica = _Figure("produce 1 KiB, RF 1, acks=1", ">= 600")
        self.replicated = _Figure("produce 1 KiB, RF 3, acks=all", ">= 270")
        self.consume = _Figure("consume 1 KiB", ">= 1,000")
        self.latencies: list[dict[str, float]] = []
        with BlockingClient(running.bootstrap) as client:
            _make_topic(client, "slow", 3)

    def figures(self) -> list[_Figure]:
        return [self.one_replica, self.replicated, self.consume]

    def round(self, number: int) -> None:
        """All figures once."""
        topic = f"t{number}"
        with BlockingClient(self._running.bootstrap) as client:
            _make_topic(client, f"{topic}-1", 1)
            self._produce(self.one_replica, f"{topic}-1", 1, acks=1)
            self._consume(f"{topic}-1")
            client.delete_topic(f"{topic}-1")
            _make_topic(client, f"{topic}-3", 3)
            self._produce(self.replicated, f"{topic}-3", 3, acks=-1)
            client.delete_topic(f"{topic}-3")
        self._wait_for_one_at_a_time()

    def forget(self) -> None:
        """What was measured so far was to warm up."""
        for figure in self.figures():
            figure.speeds.clear()
            figure.costs.clear()
        self.latencies.clear()

    def _wait_for_one_at_a_time(self) -> None:
        arguments = ("slow", PARTITIONS, RECORD_BYTES, _LATENCY_S, -1)
        self.latencies.append(self._run("latency", *arguments, options=LATENCY_OPTIONS))

    def _produce(self, figure: _Figure, topic: str, replicas: int, acks: int) -> None:
        warm_pages(self._driver.directory, self._run_bytes * replicas + CLIENT_BYTES)
        arguments = (topic, PARTITIONS, RECORD_BYTES, self._run_bytes, acks)
        self._note(figure, "produce", *arguments, options=PRODUCER_OPTIONS)

    def _consume(self, topic: str) -> None:
        time.sleep(0.2)  # the high watermark of the last batch; not measured
        warm_pages(self._driver.directory, self._run_bytes + CLIENT_BYTES)
        arguments = (topic, PARTITIONS, self._run_bytes)
        self._note(self.consume, "consume", *arguments, options=CONSUMER_OPTIONS)

    def _note(
        self, figure: _Figure, what: str, *arguments: object, options: Mapping[str, str]
    ) -> None:
        before = cpu_seconds(self._running.pids())
        result = self._run(what, *arguments, options=options)
        mib = result["bytes"] / MIB
        figure.speeds.append(mib / result["seconds"])
        figure.costs.append((cpu_seconds(self._running.pids()) - before) * 1e6 / mib)

    def _run(self, what: str, *arguments: object, options: Mapping[str, str]) -> dict[str, float]:
        return self._driver.run(what, self._running.bootstrap, *arguments, options=options)


def run(systems: Sequence[System], rounds: int, run_bytes: int) -> list[str]:
    """The tables of throughput and latency."""
    warm_up_rounds = max(system.warm_up_rounds for system in systems)
    with tempfile.TemporaryDirectory() as work, started(systems) as running:
        driver = Driver(work)
        scenes = [_Scene(driver, one, run_bytes) for one in running]
        for number in range(warm_up_rounds + rounds):
            for scene in scenes:
                if number == warm_up_rounds:
                    scene.forget()
                scene.round(number)
        rest_bytes = [pss_bytes(one.pids()) for one in running]
    names = [system.name for system in systems]
    lines = zip(*(scene.figures() for scene in scenes), strict=True)
    rows = []
    for line in lines:
        name, aim = line[0].name, line[0].aim
        rows.append((f"{name}, MiB/s", *(spread(one.speeds) for one in line), aim))
        rows.append(("its brokers' CPU µs per MiB", *(spread(one.costs) for one in line), ""))
    afterwards = (f"{each / MIB:,.0f}" for each in rest_bytes)
    rows.append(("sum of PSS of the three brokers afterwards, MiB", *afterwards, ""))
    quantiles = [
        (
            name,
            *(spread([one[f"{key}_ms"] for one in each.latencies], 3) for each in scenes),
            aim,
        )
        for name, key, aim in (
            ("p50", "p50", "<= 0.35"),
            ("p99", "p99", ""),
            ("p99.9", "p999", ""),
        )
    ]
    runs = f"{rounds} runs of {run_bytes // MIB} MiB, {warm_up_rounds} before to warm up"
    return [
        table(
            f"Throughput ({runs}, {PARTITIONS} partitions, interleaved, warm pages)",
            rows,
            ("", *names, "aim"),
        ),
        table(
            f"One record at a time, 1 KiB, RF 3, acks=all ({rounds} runs of {_LATENCY_S} s), ms",
            quantiles,
            ("", *names, "aim"),
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
