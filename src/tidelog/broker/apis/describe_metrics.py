"""DescribeMetrics (key 20008), version 0: the metrics of this broker.

Metrics that have one series per partition are in the response only if the request names these
metrics.

This API is tidelog's own; brokers serve and advertise it on the inter-broker listener only (G5).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.controller import metrics as of_controllers
from tidelog.broker.coordinators import metrics as of_coordinators
from tidelog.broker.events import metrics as of_events
from tidelog.broker.membership import metrics as of_membership
from tidelog.broker.replicas import metrics as of_replicas
from tidelog.broker.server import metrics as of_server
from tidelog.broker.server.requests import Card, Pending, Request
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
METRICS: Final[tuple[Metric, ...]] = tuple(
    declared(of_controllers, of_coordinators, of_events, of_membership, of_replicas, of_server)
)


#: Number of groups of metric values that the broker reads in a row. Then it pauses, to serve other
#: requests.
_READINGS_PER_TURN: Final = 100


def handle(context: ApiContext, request: Request[DescribeMetricsRequest]) -> Pending:
    """Return the current values of the requested metrics."""
    return context.dispatcher.answer_from(_answer(context, request.message.names), request)


async def _answer(context: ApiContext, names: Sequence[str] | None) -> DescribeMetricsResponse:
    services = context.services
    described = {
        each: DescribedMetric(
            name=each.name,
            kind=each.kind.value,
            meaning=each.meaning,
            labels=each.labels,
            bounds=each.bounds,
            samples=[
                MetricSample(sample.labels, sample.value, sample.buckets)
                for sample in services.metrics.samples(each)
            ],
            scale=each.scale,
        )
        for each in METRICS
        if (not each.is_wide if names is None else each.name in names)
    }
    for number, (metrics, values, labels) in enumerate(services.metrics.readings(), 1):
        for metric, value in zip(metrics, values, strict=True):
            if metric in described:
                described[metric].samples.append(MetricSample(labels, value, ()))
        if number % _READINGS_PER_TURN == 0:
            await services.tasks.sleep(0)
    return DescribeMetricsResponse(metrics=list(described.values()))
