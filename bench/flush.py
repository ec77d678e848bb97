"""The cost of `flush.before.ack` at 1, 10 and 100 producers, on two disks (V69).

Each producer has one record of 1 KiB in flight, with acks=all at RF 3. One cluster has the disk as
it is. On the other one each fsync takes at least 10 ms: `slow_syncs.c` is preloaded into its
brokers. Short runs without and with the setting follow each other, so that a busy machine slows
both alike. The latencies are those of single records.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.members import Channel, frame_of
from bench.rig import spread, table
from tidelog.core.types import TopicPartition
from tidelog.local.cluster import LocalCluster
from tidelog.records.builder import NewRecord, build_batch
from tidelog.runtime.blocking import BlockingClient
from tidelog.wire.codec import decode_response
from tidelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

PRODUCERS = (1, 10, 100)
PARTITIONS = (1, 6)
_BROKERS = 3
_RECORD_BYTES = 1024
_SYNC_MS = 10
_RUN_S = 2.0
_PRODUCE, _VERSION = 0, 9
_SETTINGS = ("false", "true")


@dataclass
class _Figure:
    """Runs of one combination: records per second, and quantiles of the latency in ms."""

    rates: list[float] = field(default_factory=list)
    medians: list[float] = field(default_factory=list)
    tails: list[float] = field(default_factory=list)

    def cells(self) -> tuple[str, str, str]:
        return spread(self.rates), spread(self.medians, 1), spread(self.tails, 1)


class _Disk:
    """A cluster on one kind of disk, with a topic for each number of partitions and setting."""

    def __init__(self, name: str, cluster: LocalCluster, environment: dict[str, str]) -> None:
        self.name = name
        self._cluster = cluster
        cluster.up()
        if environment:
            for broker_id in cluster.broker_ids:
                cluster.stop(broker_id)
            for broker_id in cluster.broker_ids:
                cluster.start(broker_id, environment=environment)
            cluster.await_writable()
        with BlockingClient(cluster.bootstrap, timeout_ms=60_000) as client:
            for partitions, setting in itertools.product(PARTITIONS, _SETTINGS):
                topic = _topic(partitions, setting)
                configs = {"min.insync.replicas": "2", "flush.before.ack": setting}
                client.create_topic(topic, partitions, _BROKERS, configs)
                client.await_topic(topic, _BROKERS)

    def run(self, producers: int, partitions: int, setting: str) -> tuple[float, list[float]]:
        """Return records per second and the latencies in ms of one run."""
        topic = _topic(partitions, setting)
        with BlockingClient(self._cluster.bootstrap, timeout_ms=60_000) as client:
            found = client.metadata([topic]).topics[topic].partitions
        places = self._cluster.places()
        targets = [
            (TopicPartition(topic, number), places[found[number].leader].address)
            for number in sorted(found)
        ]
        return asyncio.run(_produce([targets[n % len(targets)] for n in range(producers)]))


def run(rounds: int) -> list[str]:
    """Return one table for each number of partitions."""
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidelog-bench-")))
        library = work / "slow_syncs.so"
        source = Path(__file__).with_name("slow_syncs.c")
        subprocess.run(
            ["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True
        )
        slow = {"LD_PRELOAD": str(library), "TIDELOG_SYNC_US": str(_SYNC_MS * 1000)}
        disks: list[_Disk] = []
        plain: dict[str, str] = {}
        for name, environment in (("as it is", plain), (f"{_SYNC_MS} ms", slow)):
            cluster = LocalCluster(str(work / f"cluster-{len(disks)}"), _BROKERS)
            stack.callback(cluster.down)
            disks.append(_Disk(name, cluster, environment))
        figures: dict[tuple[str, int, int, str], _Figure] = {}
        combinations = list(itertools.product(PARTITIONS, PRODUCERS, disks, _SETTINGS))
        for number in range(rounds + 1):
            for partitions, producers, disk, setting in combinations:
                rate, latencies = disk.run(producers, partitions, setting)
                if number:  # the first round is to warm up
                    key = (disk.name, partitions, producers, setting)
                    _note(figures.setdefault(key, _Figure()), rate, latencies)
        return [_table(rounds, partitions, disks, figures) for partitions in PARTITIONS]


def _note(figure: _Figure, rate: float, latencies: Sequence[float]) -> None:
    figure.rates.append(rate)
    figure.medians.append(statistics.median(latencies))
    figure.tails.append(sorted(latencies)[int(len(latencies) * 0.99)])


def _table(
    rounds: int,
    partitions: int,
    disks: Sequence[_Disk],
    figures: dict[tuple[str, int, int, str], _Figure],
) -> str:
    rows = [
        (
            disk.name,
            producers,
            *(
                cell
                for pair in zip(
                    *(
                        figures[disk.name, partitions, producers, setting].cells()
                        for setting in _SETTINGS
                    ),
                    strict=True,
                )
                for cell in pair
            ),
        )
        for disk, producers in itertools.product(disks, PRODUCERS)
    ]
    what = "1 partition" if partitions == 1 else f"{partitions} partitions"
    head = (
        "fsync", "producers", "records/s off", "on", "p50 ms off", "on", "p99 ms off", "on",
    )  # fmt: skip
    return table(f"flush.before.ack, {what}, RF 3, acks=all ({rounds} rounds)", rows, head)


def _topic(partitions: int, setting: str) -> str:
    return f"flush-{partitions}-{setting}"


async def _produce(targets: Sequence[tuple[TopicPartition, str]]) -> tuple[float, list[float]]:
    """Let one producer write to each target, one record after the other, for a while."""
    channels = [await Channel.open(address) for _, address in targets]
    latencies: list[float] = []
    begin = time.perf_counter()
    end = begin + _RUN_S

    async def write(channel: Channel, partition: TopicPartition) -> None:
        frame = _frame(partition)
        while (sent := time.perf_counter()) < end:
            answer = await channel.answer(frame)
            latencies.append((time.perf_counter() - sent) * 1e3)
            _check(answer)

    await asyncio.gather(
        *(write(channel, target[0]) for channel, target in zip(channels, targets, strict=True))
    )
    took_s = time.perf_counter() - begin
    for channel in channels:
        channel.close()
    return len(latencies) / took_s, latencies


def _frame(partition: TopicPartition) -> bytes:
    batch = build_batch([NewRecord(None, bytes(_RECORD_BYTES))])
    data = PartitionProduceData(index=partition.partition, records=memoryview(batch))
    request = ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(partition.topic, [data])]
    )
    return frame_of(_PRODUCE, _VERSION, request)


def _check(answer: bytes) -> None:
    response: ProduceResponse = decode_response(_PRODUCE, _VERSION, memoryview(answer))[1]
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                raise SystemExit(f"bench: produce failed with error {partition.error_code}")
