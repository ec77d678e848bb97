"""The metrics of a broker's process: its identity, loop, processor time, memory and disk bytes.

Most of these metrics are read from `/proc` at each scrape. In Kafka, two metrics report the idle
shares of the network threads and of the request handler threads. A tidelog broker has one loop
instead of both thread pools, so both metrics report the share of time in which the loop waits.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from typing import Final

import tidelog
from tidelog.broker.services import Identity
from tidelog.core.metrics import (
    LATENCY_BOUNDS_US,
    US_PER_MS,
    Metric,
    MetricReading,
    Metrics,
    counter,
    declared_in,
    gauge,
    histogram,
    reading,
)
from tidelog.runtime.turns import TurnSelector

_MS_PER_S: Final = 1_000
#: Minimum time in ns over which the loop's share of waiting is measured.
_WINDOW_NS: Final = 60_000_000_000

IDLE: Final = tuple(
    gauge(name, "share of the last minutes in which the broker's loop waited, 0 to 1", scale=1_000)
    for name in (
        "kafka_network_socketserver_networkprocessoravgidle_percent",
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    )
)
LOOP_TURN_MS: Final = histogram(
    "tidelog_loop_turn_ms",
    "time of one turn of the broker's loop, for which all other work waits",
    bounds=LATENCY_BOUNDS_US,
    scale=US_PER_MS,
)
CPU: Final = counter("process_cpu_seconds_total", "processor time of the process", scale=_MS_PER_S)
MEMORY: Final = gauge("process_resident_memory_bytes", "memory of the process that is resident")
DESCRIPTORS: Final = gauge("process_open_fds", "open file descriptors")
MAX_DESCRIPTORS: Final = gauge("process_max_fds", "limit of open file descriptors")
STARTED: Final = gauge(
    "process_start_time_seconds", "start of the process, seconds since 1970", scale=_MS_PER_S
)
DISK_READ: Final = gauge(
    "kafka_server_kafkaserver_linux_disk_read_bytes", "bytes that the process read from disks"
)
DISK_WRITTEN: Final = gauge(
    "kafka_server_kafkaserver_linux_disk_write_bytes", "bytes that the process wrote to disks"
)
#: The metric whose labels name the broker that runs in this process. Readers of an admin port check
#: with this metric that the port belongs to the broker, and to the cluster, that they expect.
INFO: Final = gauge(
    "tidelog_broker_info",
    "1; the labels are the broker's cluster, its id and its version",
    "cluster_id",
    "node_id",
    "version",
)
#: All metrics of this module.
PROCESS_METRICS: Final[tuple[Metric, ...]] = tuple(
    declared_in(
        INFO, IDLE, LOOP_TURN_MS, CPU, MEMORY, DESCRIPTORS, MAX_DESCRIPTORS, STARTED, DISK_READ,
        DISK_WRITTEN,
    )
)  # fmt: skip


class ProcessReadings:
    """The readings of this process, and of its loop."""

    def __init__(self, metrics: Metrics, identity: Identity, turns: TurnSelector) -> None:
        self._identity = identity
        self._turns = turns
        self._started_ms = time.time_ns() // 1_000_000
        #: (time, time spent waiting) in ns, at two earlier scrapes.
        self._before = self._since = (time.monotonic_ns(), turns.waited_ns)
        turns.measure(metrics.sample(LOOP_TURN_MS))
        metrics.collect(self.readings)

    def readings(self) -> Iterator[MetricReading]:
        """Read the metrics of the process, and of its loop."""
        known = self._identity
        yield reading(INFO, 1, known.cluster_id, known.broker_id, tidelog.__version__)
        idle = self._idle_thousandths()
        yield MetricReading(IDLE, (idle, idle))
        usage = resource.getrusage(resource.RUSAGE_SELF)
        yield reading(CPU, round((usage.ru_utime + usage.ru_stime) * _MS_PER_S))
        yield reading(MEMORY, _resident_bytes())
        yield reading(DESCRIPTORS, len(os.listdir("/proc/self/fd")))
        yield reading(MAX_DESCRIPTORS, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        yield reading(STARTED, self._started_ms)
        for metric, value in zip((DISK_READ, DISK_WRITTEN), _disk_bytes(), strict=False):
            yield reading(metric, value)

    def _idle_thousandths(self) -> int:
        now = (time.monotonic_ns(), self._turns.waited_ns)
        if now[0] - self._since[0] >= _WINDOW_NS:
            self._before, self._since = self._since, now
        passed_ns = max(1, now[0] - self._before[0])
        return min(1_000, (now[1] - self._before[1]) * 1_000 // passed_ns)


def _resident_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def _disk_bytes() -> tuple[int, ...]:
    """Return the bytes read and written; empty if the kernel or a container hides these numbers."""
    try:
        with open("/proc/self/io", "rb") as file:
            found = dict(line.split(b":") for line in file.read().splitlines())
    except OSError:
        return ()
    return int(found[b"read_bytes"]), int(found[b"write_bytes"])
