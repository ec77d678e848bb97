"""DescribeMetrics (key 20008), version 0: the metrics of this broker.

This API is tidelog's own, served and advertised on the inter-broker listener only (G5).
"""

from __future__ import annotations

from typing import Final

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.controller import metrics as of_controllers
from tidelog.broker.events import metrics as of_events
from tidelog.broker.replicas import metrics as of_replicas
from tidelog.broker.server.requests import Card, Request
from tidelog.core.authorization import DESCRIBE_CLUSTER
from tidelog.core.metrics import Metric, declared
from tidelog.wire.messages.describe_metrics import (
    DescribedMetric,
    DescribeMetricsRequest,
    DescribeMetricsResponse,
    MetricSample,
)

CARD = Card(api_key=20_008, min_version=0, max_version=0, rights=(DESCRIBE_CLUSTER,))

#: All metrics of a broker, in the order of their names.
METRICS: Final[tuple[Metric, ...]] = tuple(declared(of_controllers, of_events, of_replicas))


def handle(
    context: ApiContext, request: Request[DescribeMetricsRequest]
) -> DescribeMetricsResponse:
    """Return the current values of the requested metrics."""
    names = request.message.names
    wanted = None if names is None else frozenset(names)
    metrics = context.services.metrics
    return DescribeMetricsResponse(
        metrics=[
            DescribedMetric(
                name=each.name,
                kind=each.kind.value,
                meaning=each.meaning,
                labels=each.labels,
                bounds=each.bounds,
                samples=[
                    MetricSample(sample.labels, sample.value, sample.buckets)
                    for sample in metrics.samples(each)
                ],
            )
            for each in METRICS
            if wanted is None or each.name in wanted
        ]
    )
