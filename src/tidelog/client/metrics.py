"""Metrics of a broker, read by DescribeMetrics, an API that only tidelog has.

Brokers serve DescribeMetrics only on the inter-broker listener.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.client.retries import Patience
from tidelog.client.routing import ClusterRouter, ask
from tidelog.client.steps import Operation
from tidelog.core.dataclass import dataclass
from tidelog.wire.messages.describe_metrics import DescribeMetricsRequest, DescribeMetricsResponse
from tidelog.wire.registry import DESCRIBE_METRICS


@dataclass(frozen=True, slots=True)
class MetricBucket:
    """A histogram's observations from the previous bound to `upper_bound`; None means no bound."""

    upper_bound: float | None
    count: int


@dataclass(frozen=True, slots=True)
class BrokerMetric:
    """A metric of a broker; `kind` is counter, gauge or histogram.

    `value` of a histogram is the sum of its observations.
    """

    broker: int
    metric: str
    kind: str
    labels: dict[str, str]
    value: float
    buckets: list[MetricBucket]
    meaning: str


def broker_metrics(
    router: ClusterRouter, broker_id: int, names: Sequence[str] | None = None
) -> Operation[list[BrokerMetric]]:
    """Return a broker's metrics of these names (None for all), sorted by name and labels.

    Raises KafkaError for a broker that does not run tidelog, or is not in the cluster.
    """

    def attempt(patience: Patience) -> Operation[list[BrokerMetric]]:
        node = yield from router.broker(broker_id, patience)
        message = DescribeMetricsRequest(names)
        response = yield from ask(
            node, DESCRIBE_METRICS, message, patience, DescribeMetricsResponse
        )
        return [
            BrokerMetric(
                broker_id,
                metric.name,
                metric.kind,
                dict(zip(metric.labels, sample.labels, strict=True)),
                _shown(sample.value, metric.scale),
                [
                    MetricBucket(None if bound is None else _shown(bound, metric.scale), count)
                    for bound, count in zip(
                        (*metric.bounds, None), sample.buckets, strict=bool(sample.buckets)
                    )
                ],
                metric.meaning,
            )
            for metric in response.metrics
            for sample in metric.samples
        ]

    return router.repeat(f"reading the metrics of broker {broker_id}", attempt)


def _shown(value: int, scale: int) -> float:
    """Return `value` / `scale` in the metric's unit; a whole number if the scale is 1."""
    return value if scale == 1 else value / scale
