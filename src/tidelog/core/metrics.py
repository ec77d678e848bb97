"""The metrics of a broker, under the names that dashboards use.

A package declares its metrics in a module `metrics` beside the code that counts them. A declaration
has a kind, a meaning and names of labels; `declared` collects the declarations of modules. Most
metrics are counted when their events happen. Collectors read other metrics from the state of the
broker, only when the metrics are published. The values of labels are few and bounded (brokers of
the cluster, phases of failovers). Samples with outdated labels are dropped, so that the number of
samples stays bounded. This module reads no clock and does no I/O: other modules publish the
metrics.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from enum import StrEnum
from types import ModuleType
from typing import Final, NamedTuple

from tidelog.core.dataclass import dataclass


class MetricKind(StrEnum):
    """Kinds of metrics (Prometheus' types)."""

    #: A counter's number only grows, from 0 at the start of the broker.
    COUNTER = "counter"
    #: A gauge's number may rise and fall.
    GAUGE = "gauge"
    #: A histogram has the number of observations in each bucket of sizes, and the sum of all
    #: observations.
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """A declared metric. `labels` are names of labels; `bounds` are the upper bounds of buckets.

    Values and bounds are integers that count parts of the metric's unit, and `scale` parts are one
    unit. A metric in milliseconds with the scale 1,000 thus counts microseconds.
    """

    name: str
    kind: MetricKind
    meaning: str
    labels: tuple[str, ...] = ()
    bounds: tuple[int, ...] = ()
    scale: int = 1

    def shown(self, value: int) -> int | float:
        """Return a value or a bound in the metric's unit."""
        return value if self.scale == 1 else value / self.scale

    @property
    def is_wide(self) -> bool:
        """Whether the metric has samples for each partition, and thus very many samples."""
        return any(each in ("partition", "partition_id") for each in self.labels)


def counter(name: str, meaning: str, *labels: str, scale: int = 1) -> Metric:
    """Declare a counter, whose name must end in `_total`."""
    return Metric(name, MetricKind.COUNTER, meaning, labels, (), scale)


def gauge(name: str, meaning: str, *labels: str, scale: int = 1) -> Metric:
    """Declare a gauge."""
    return Metric(name, MetricKind.GAUGE, meaning, labels, (), scale)


def histogram(
    name: str, meaning: str, *labels: str, bounds: tuple[int, ...], scale: int = 1
) -> Metric:
    """Declare a histogram with rising bounds; the last bucket counts all larger observations."""
    return Metric(name, MetricKind.HISTOGRAM, meaning, labels, bounds, scale)


def declared(*modules: ModuleType) -> list[Metric]:
    """Return the metrics that the modules declare, sorted by name."""
    return declared_in(*(value for module in modules for value in vars(module).values()))


def declared_in(*constants: object) -> list[Metric]:
    """Return the metrics in these constants, tuples and dictionaries, sorted by name."""
    found: list[Metric] = []
    for value in constants:
        if isinstance(value, Metric):
            found.append(value)
        elif isinstance(value, tuple | dict):
            members = value.values() if isinstance(value, dict) else value
            found.extend(each for each in members if isinstance(each, Metric))
    return sorted(found, key=lambda metric: metric.name)


#: Bounds for durations, from a turn of the loop to a long outage.
BOUNDS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000)
#: Bounds in microseconds for latencies of requests, from a turn of the loop to a timeout.
LATENCY_BOUNDS_US: Final = (
    50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000, 2_000_000, 5_000_000, 30_000_000,
)  # fmt: skip
#: Microseconds of a millisecond: the scale of metrics in milliseconds that count microseconds.
US_PER_MS: Final = 1_000


@dataclass(slots=True)
class Sample:
    """The value of a metric for one combination of label values.

    A histogram's `value` is the sum of its observations, and `buckets` counts the observations in
    each bucket.
    """

    labels: tuple[str, ...]
    value: int = 0
    buckets: list[int] = field(default_factory=list)

    @property
    def count(self) -> int:
        """The number of observations of a histogram."""
        return sum(self.buckets)


class MetricReading(NamedTuple):
    """Numbers that a collector has read from the state of the broker.

    All metrics of a reading have the same label names and the same label values. A reading without
    metrics only lets the broker do other work.
    """

    metrics: tuple[Metric, ...]
    values: tuple[int, ...]
    labels: tuple[str, ...] = ()


def reading(metric: Metric, value: int, *labels: object) -> MetricReading:
    """Return a reading of a metric with one number."""
    return MetricReading((metric,), (value,), tuple(str(each) for each in labels))


#: An empty reading, with which a collector lets the broker do other work before the next reading.
PAUSE: Final = MetricReading((), ())
#: A function that reads metrics from the state of the broker. The state may change between two
#: readings, so the function must iterate over a copy of any container of the broker.
Collector = Callable[[], Iterator[MetricReading]]


class Metrics:
    """The values of the metrics of one broker."""

    def __init__(self) -> None:
        self._samples: dict[Metric, dict[tuple[object, ...], Sample]] = {}
        self._collectors: list[Collector] = []

    def add(self, metric: Metric, count: int = 1, *labels: object) -> None:
        """Add to a counter."""
        self.sample(metric, *labels).value += count

    def put(self, metric: Metric, value: int, *labels: object) -> None:
        """Set a gauge."""
        self.sample(metric, *labels).value = value

    def observe(self, metric: Metric, value: int, *labels: object) -> None:
        """Count an observation in a histogram."""
        sample = self.sample(metric, *labels)
        sample.value += value
        sample.buckets[bisect_left(metric.bounds, value)] += 1

    def drop(self, metric: Metric, *labels: object) -> None:
        """Remove the sample of these label values, if there is one."""
        found = self._samples.get(metric)
        if found is not None:
            found.pop(labels, None)

    def sample(self, metric: Metric, *labels: object) -> Sample:
        """Return the sample of these label values, after creating it with 0 if there is none.

        Raises ValueError if the number of label values differs from the number of label names.
        """
        found = self._samples.get(metric)
        if found is None:
            found = self._samples[metric] = {}
        sample = found.get(labels)
        if sample is None:
            if len(labels) != len(metric.labels):
                raise ValueError(f"{metric.name} has the labels {metric.labels}, not {labels}")
            buckets = [0] * (len(metric.bounds) + 1) if metric.kind is MetricKind.HISTOGRAM else []
            sample = found[labels] = Sample(tuple(str(each) for each in labels), 0, buckets)
        return sample

    def value(self, metric: Metric, *labels: object) -> int:
        """Return the metric's value for these label values, or 0 if there is no sample."""
        found = self._samples.get(metric, {}).get(labels)
        return 0 if found is None else found.value

    def samples(self, metric: Metric) -> Sequence[Sample]:
        """Return the samples of a metric, sorted by label values.

        A counter without labels always has a sample.
        """
        if metric.kind is MetricKind.COUNTER and not metric.labels:
            return [self.sample(metric)]
        found = self._samples.get(metric, {}).values()
        return sorted(found, key=lambda sample: sample.labels)

    def collect(self, collector: Collector) -> None:
        """Let `collector` read its metrics whenever the metrics are published."""
        self._collectors.append(collector)

    def readings(self) -> Iterator[MetricReading]:
        """Read the collected metrics; the broker may continue its work between two readings."""
        for collector in self._collectors:
            yield from collector()
