"""Numbers that a broker keeps of itself, under the names that dashboards use.

A package declares its metrics in a module `metrics` beside the code that counts them, each with
kind, meaning and the names of its labels; `declared` lists those of modules. Labels are few and
bounded (brokers of the cluster, phases of failovers). Finished labels are dropped, so that nothing
grows. Reads no clock and writes nothing: other modules publish the numbers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import ModuleType
from typing import Final


class MetricKind(StrEnum):
    """What a metric's number does (Prometheus' types)."""

    #: Grows only, from 0 at the start of the broker.
    COUNTER = "counter"
    #: A state that changes both ways.
    GAUGE = "gauge"
    #: How often an observation was at most so large, by bounds; their number and their sum.
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """A declared metric: `labels` are names; `bounds` are upper ones of a histogram's buckets."""

    name: str
    kind: MetricKind
    meaning: str
    labels: tuple[str, ...] = ()
    bounds: tuple[int, ...] = ()


def counter(name: str, meaning: str, *labels: str) -> Metric:
    """Declare a counter; its name ends in `_total`."""
    return Metric(name, MetricKind.COUNTER, meaning, labels)


def gauge(name: str, meaning: str, *labels: str) -> Metric:
    """Declare a gauge."""
    return Metric(name, MetricKind.GAUGE, meaning, labels)


def histogram(name: str, meaning: str, *labels: str, bounds: tuple[int, ...]) -> Metric:
    """Declare a histogram with these rising bounds; the last bucket has what is larger."""
    return Metric(name, MetricKind.HISTOGRAM, meaning, labels, bounds)


def declared(*modules: ModuleType) -> list[Metric]:
    """Return the metrics that these modules declare, in the order of their names."""
    found = [
        each for module in modules for each in vars(module).values() if isinstance(each, Metric)
    ]
    return sorted(found, key=lambda metric: metric.name)


#: Durations from a loop's turn to a long outage.
BOUNDS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000)


@dataclass(slots=True)
class Sample:
    """A metric's number for one set of label values.

    `value` of a histogram is the sum of its observations; `buckets` has how many fell into each.
    """

    labels: tuple[str, ...]
    value: int = 0
    buckets: list[int] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Observations of a histogram."""
        return sum(self.buckets)


class Metrics:
    """The numbers of one broker."""

    def __init__(self) -> None:
        self._samples: dict[tuple[Metric, tuple[object, ...]], Sample] = {}

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
        """Remove a metric's number; harmless where it has none."""
        self._samples.pop((metric, labels), None)

    def sample(self, metric: Metric, *labels: object) -> Sample:
        """Return the sample, a new one of 0 where nothing was counted.

        Raises ValueError where the values do not fit the names of the labels.
        """
        found = self._samples.get((metric, labels))
        if found is None:
            if len(labels) != len(metric.labels):
                raise ValueError(f"{metric.name} has the labels {metric.labels}, not {labels}")
            buckets = [0] * (len(metric.bounds) + 1) if metric.kind is MetricKind.HISTOGRAM else []
            found = Sample(tuple(str(each) for each in labels), 0, buckets)
            self._samples[metric, labels] = found
        return found

    def value(self, metric: Metric, *labels: object) -> int:
        """Return the number, 0 where nothing was counted."""
        found = self._samples.get((metric, labels))
        return 0 if found is None else found.value

    def samples(self, metric: Metric) -> Sequence[Sample]:
        """Return the samples of a metric, in the order of their labels.

        A counter without labels always has one.
        """
        if metric.kind is MetricKind.COUNTER and not metric.labels:
            return [self.sample(metric)]
        found = [sample for (each, _), sample in self._samples.items() if each is metric]
        return sorted(found, key=lambda sample: sample.labels)
