"""DescribeMetrics (key 20008), version 0: the metrics of the receiving broker.

Only tidelog has this flexible API (G5); Kafka's brokers publish metrics by Java's management
extensions.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, int16, int32, int64, string


@dataclass(slots=True)
class DescribeMetricsRequest:
    """The names of the metrics to describe; null means all metrics."""

    names: Sequence[str] | None = array("string", "0+", None, nullable="0+")


@dataclass(slots=True)
class MetricSample:
    """A number of a metric with its label values, in the order of the label names.

    A histogram's `value` is the sum of its observations, and `buckets` counts the observations in
    each bucket.
    """

    labels: Sequence[str] = array("string", "0+")
    value: int = int64("0+")
    buckets: Sequence[int] = array("int64", "0+")


@dataclass(slots=True)
class DescribedMetric:
    """A metric; `kind` is counter, gauge or histogram.

    `bounds` are the upper bounds of a histogram's buckets; the last bucket has no bound. Values and
    bounds are integers in parts of the metric's unit; one unit has `scale` parts. A metric that has
    counted nothing may have no samples.
    """

    name: str = string("0+")
    kind: str = string("0+")
    meaning: str = string("0+")
    labels: Sequence[str] = array("string", "0+")
    bounds: Sequence[int] = array("int64", "0+")
    samples: list[MetricSample] = array(MetricSample, "0+")
    scale: int = int32("0+", 1, tag=0)


@dataclass(slots=True)
class DescribeMetricsResponse:
    """The described metrics, sorted by name; unknown names are left out."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    metrics: list[DescribedMetric] = array(DescribedMetric, "0+")


API = Api(
    key=20_008,
    name="DescribeMetrics",
    request=DescribeMetricsRequest,
    response=DescribeMetricsResponse,
    min_version=0,
    max_version=0,
    first_flexible_version=0,
)
