"""The numbers that a broker keeps of itself, read by tidelog's own API DescribeMetrics.

Brokers serve it on the listener between brokers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.client.retries import Patience
from tidelog.client.routing import ClusterRouter, ask
from tidelog.client.steps import Operation
from tidelog.client.versions import error_code
from tidelog.core.errors import KafkaError
from tidelog.wire.messages.describe_metrics import DescribeMetricsRequest, DescribeMetricsResponse
from tidelog.wire.registry import DESCRIBE_METRICS


@dataclass(frozen=True, slots=True)
class DescribedSample:
    """A number of a metric, by the values of its labels.

    `value` of a histogram is the sum of its observations; `buckets` has how many were at most each
    upper bound and above the one before (the last bound is None: all larger ones).
    """

    metric: str
    kind: str
    labels: dict[str, str]
    value: int
    buckets: list[tuple[int | None, int]]
    meaning: str


def broker_metrics(
    router: ClusterRouter, broker_id: int, names: Sequence[str] | None = None
) -> Operation[list[DescribedSample]]:
    """Return the numbers of a broker, of the metrics named (None: all), sorted by name and labels.

    Raises KafkaError for a broker that is not tidelog's, or not in the cluster.
    """

    def attempt(patience: Patience) -> Operation[list[DescribedSample]]:
        node = yield from router.broker(broker_id, patience)
        message = DescribeMetricsRequest(names)
        response = yield from ask(
            node, DESCRIBE_METRICS, message, patience, DescribeMetricsResponse
        )
        if response.error_code:
            raise KafkaError(error_code(response.error_code), f"at {node.address}")
        return [
            DescribedSample(
                metric.name,
                metric.kind,
                dict(zip(metric.labels, sample.labels, strict=True)),
                sample.value,
                list(zip([*metric.bounds, None], sample.buckets, strict=False)),
                metric.meaning,
            )
            for metric in response.metrics
            for sample in metric.samples
        ]

    return router.repeat(f"reading the metrics of broker {broker_id}", attempt)
