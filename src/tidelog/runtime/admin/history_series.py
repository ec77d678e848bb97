"""The series that a broker's history keeps, and their values from two readings of the metrics.

A rate is the difference of a counter between two readings, divided by the time between the
readings. A quantile is computed from the observations between two readings, in the histogram's
unit.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from typing import Final

from tidelog.core.dataclass import dataclass
from tidelog.core.metrics import Metric, MetricKind, Metrics

#: Time in ns for which one slice of a reading may occupy the loop.
_SLICE_NS: Final = 2_000_000
_TOPICS: Final = "kafka_server_brokertopicmetrics_"
_REPLICAS: Final = "kafka_server_replicamanager_"

#: A sample's name and values of labels.
Key = tuple[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class KeptSeries:
    """A series: its name, and whether its values are rates, gauges or quantiles of a metric."""

    name: str
    kind: str
    metric: str
    labels: tuple[str, ...] = ()
    quantile: float = 0.0

    @property
    def key(self) -> Key:
        """Name and label values of the sample from which the series' values are computed."""
        return self.metric, self.labels


def _rate(name: str, metric: str, *labels: str) -> KeptSeries:
    return KeptSeries(name, "rate", metric, labels)


def _gauge(name: str, metric: str, *labels: str) -> KeptSeries:
    return KeptSeries(name, "gauge", metric, labels)


def _quantile(name: str, quantile: float, metric: str, *labels: str) -> KeptSeries:
    return KeptSeries(name, "quantile", metric, labels, quantile)


#: The main series of a broker. A new series goes to the end of this tuple.
SERIES: Final = (
    _rate("bytes_in_per_s", f"{_TOPICS}bytesin_total", ""),
    _rate("bytes_out_per_s", f"{_TOPICS}bytesout_total", ""),
    _rate("records_in_per_s", f"{_TOPICS}messagesin_total", ""),
    _rate("replication_bytes_in_per_s", f"{_TOPICS}replicationbytesin_total", ""),
    _rate("replication_bytes_out_per_s", f"{_TOPICS}replicationbytesout_total", ""),
    _rate("produce_requests_per_s", f"{_TOPICS}totalproducerequests_total", ""),
    _rate("fetch_requests_per_s", f"{_TOPICS}totalfetchrequests_total", ""),
    _rate("failed_produce_requests_per_s", f"{_TOPICS}failedproducerequests_total", ""),
    _rate("isr_shrinks_per_s", f"{_REPLICAS}isrshrinks_total"),
    _rate("isr_expands_per_s", f"{_REPLICAS}isrexpands_total"),
    _gauge("leaders", f"{_REPLICAS}leadercount"),
    _gauge("replicas", f"{_REPLICAS}partitioncount"),
    _gauge("under_replicated", f"{_REPLICAS}underreplicatedpartitions"),
    _gauge("under_min_isr", f"{_REPLICAS}underminisrpartitioncount"),
    _gauge("offline_replicas", f"{_REPLICAS}offlinereplicacount"),
    _gauge("reassigning", f"{_REPLICAS}reassigningpartitions"),
    _gauge("follower_max_lag_records", "kafka_server_replicafetchermanager_maxlag"),
    _gauge("is_controller", "kafka_controller_kafkacontroller_activecontrollercount"),
    _quantile("acknowledged_p50_ms", 0.5, "tidelog_produce_acknowledged_ms", "-1"),
    _quantile("acknowledged_p99_ms", 0.99, "tidelog_produce_acknowledged_ms", "-1"),
    _quantile("loop_turn_p99_ms", 0.99, "tidelog_loop_turn_ms"),
    _rate("cpu_cores", "process_cpu_seconds_total"),
    _gauge("memory_bytes", "process_resident_memory_bytes"),
    _gauge("open_files", "process_open_fds"),
)
_WANTED: Final = {each.metric for each in SERIES}


@dataclass(frozen=True, slots=True)
class Readings:
    """The samples of all kept series at one time: values, or the buckets of histograms."""

    time_ns: int
    values: Mapping[Key, float]
    buckets: Mapping[Key, tuple[tuple[float, ...], tuple[int, ...]]]


async def read(metrics: Metrics, declared: list[Metric], now_ns: Callable[[], int]) -> Readings:
    """Read the samples of all kept series in slices, between which the loop does other work."""
    values: dict[Key, float] = {}
    buckets: dict[Key, tuple[tuple[float, ...], tuple[int, ...]]] = {}
    began_ns = time.monotonic_ns()
    for number, (group, numbers, labels) in enumerate(metrics.readings()):
        for metric, value in zip(group, numbers, strict=True):
            if metric.name in _WANTED:
                values[metric.name, labels] = metric.shown(value)
        if number % 16 == 0 and time.monotonic_ns() - began_ns >= _SLICE_NS:
            await asyncio.sleep(0)
            began_ns = time.monotonic_ns()
    for metric in declared:
        if metric.name not in _WANTED:
            continue
        bounds = tuple(float(metric.shown(bound)) for bound in metric.bounds)
        for sample in metrics.samples(metric):
            if metric.kind is MetricKind.HISTOGRAM:
                buckets[metric.name, sample.labels] = (bounds, tuple(sample.buckets))
            else:
                values[metric.name, sample.labels] = metric.shown(sample.value)
    return Readings(now_ns(), values, buckets)


def values_of(before: Readings | None, now: Readings) -> list[float]:
    """Return the value of each series; NaN without a value, as for a rate without `before`."""
    return [_value(each, before, now) for each in SERIES]


def _value(series: KeptSeries, before: Readings | None, now: Readings) -> float:
    if series.kind == "gauge":
        return now.values.get(series.key, math.nan)
    if before is None or now.time_ns <= before.time_ns:
        return math.nan
    if series.kind == "rate":
        if series.key not in now.values:
            return math.nan
        grown = now.values[series.key] - before.values.get(series.key, 0.0)
        return max(0.0, grown) * 1e9 / (now.time_ns - before.time_ns)
    bounds, counts = now.buckets.get(series.key, ((), ()))
    _, earlier = before.buckets.get(series.key, ((), (0,) * len(counts)))
    return quantile(bounds, [a - b for a, b in zip(counts, earlier, strict=True)], series.quantile)


def quantile(bounds: tuple[float, ...], counts: list[int], share: float) -> float:
    """Return the value below which a share of the observations in buckets lies, by interpolation.

    NaN without observations. Observations above the last bound count as that bound.
    """
    total = sum(counts)
    if total == 0:
        return math.nan
    wanted, passed = share * total, 0
    for number, count in enumerate(counts[: len(bounds)]):
        if count and passed + count >= wanted:
            lower = bounds[number - 1] if number else 0.0
            return lower + (bounds[number] - lower) * (wanted - passed) / count
        passed += count
    return bounds[-1]
