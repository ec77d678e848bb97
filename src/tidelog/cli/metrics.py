"""`tidelog metrics`: the numbers that brokers keep of themselves.

A histogram takes one line: how many observations there were, their mean, and the bound that 99 of
100 did not exceed. JSON has its buckets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import typer

from tidelog.cli.completion import broker_ids
from tidelog.cli.documents import prints
from tidelog.cli.names import NotFoundError, broker_named
from tidelog.cli.output import print_table
from tidelog.cli.target import ClusterOptions
from tidelog.client.metrics import DescribedSample

_PERCENTILE = 99


@dataclass(frozen=True, slots=True)
class MetricBucket:
    """The observations of a histogram up to a bound and above the one before; null: all larger."""

    upper_bound: int | None
    count: int


@dataclass(frozen=True, slots=True)
class BrokerMetric:
    """A number that a broker keeps of itself; `kind` is counter, gauge or histogram.

    `value` of a histogram is the sum of its observations.
    """

    broker: int
    metric: str
    kind: str
    labels: dict[str, str]
    value: int
    buckets: list[MetricBucket]
    meaning: str


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(epilog="Example: tidelog metrics --broker 1 tidelog_controller_isr_shrinks_total")(
        metrics
    )


@prints(list[BrokerMetric])
def metrics(
    cluster: ClusterOptions,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="METRIC...", help="Names of metrics [all].")
    ] = None,
    broker: Annotated[
        int | None, typer.Option("--broker", help="The broker [all].", autocompletion=broker_ids)
    ] = None,
) -> None:
    """Show the numbers that brokers keep of themselves.

    A metric that has counted nothing yet has no line, unless it is a counter without labels. The
    request goes to the listener between brokers.
    """
    with cluster.client() as client:
        if broker is not None:
            broker_named(client, broker)
        brokers = sorted(client.metadata([]).brokers) if broker is None else [broker]
        found = {each: client.broker_metrics(each, names) for each in brokers}
    known = {sample.metric for samples in found.values() for sample in samples}
    missing = [name for name in names or [] if name not in known]
    if missing and not known:
        raise NotFoundError(f"no broker has counted {', '.join(missing)}, or has such a metric")
    if cluster.printed([_document(each, sample) for each in found for sample in found[each]]):
        return
    print_table(
        ("broker", "metric", "labels", "value", "meaning"),
        (
            (each, sample.metric, _labels(sample), _value(sample), sample.meaning)
            for each, samples in found.items()
            for sample in samples
        ),
    )


def _labels(sample: DescribedSample) -> str:
    return " ".join(f"{name}={value}" for name, value in sample.labels.items())


def _value(sample: DescribedSample) -> str:
    """Return the number, or what a histogram shows of itself."""
    if not sample.buckets:
        return str(sample.value)
    count = sum(each for _, each in sample.buckets)
    bound = _bound_of_most(sample.buckets, count)
    most = f"<= {bound}" if bound is not None else f"> {sample.buckets[-2][0]}"
    return f"{count}, mean {sample.value / count:.1f}, p{_PERCENTILE} {most}"


def _bound_of_most(buckets: Iterable[tuple[int | None, int]], count: int) -> int | None:
    """Return the upper bound of the bucket that has the percentile; None for the last one."""
    below = 0
    for bound, each in buckets:
        below += each
        if below * 100 >= count * _PERCENTILE:
            return bound
    return None


def _document(broker: int, sample: DescribedSample) -> BrokerMetric:
    return BrokerMetric(
        broker=broker,
        metric=sample.metric,
        kind=sample.kind,
        labels=sample.labels,
        value=sample.value,
        buckets=[MetricBucket(bound, count) for bound, count in sample.buckets],
        meaning=sample.meaning,
    )
