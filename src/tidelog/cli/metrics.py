"""`tidelog metrics`: the metrics of brokers.

A histogram takes one line: the number of observations, their mean, and an upper bound of the 99th
percentile. JSON shows the buckets of a histogram.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from tidelog.cli.completion import broker_ids
from tidelog.cli.documents import prints
from tidelog.cli.names import NotFoundError, broker_named
from tidelog.cli.output import print_rows
from tidelog.cli.target import ClusterOptions
from tidelog.client.metrics import BrokerMetric, MetricBucket

_PERCENTILE = 99


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
    """Show the metrics that brokers keep about themselves.

    A metric that has counted nothing yet has no line, unless it is a counter without labels.
    Metrics with a number for each partition are shown only if they are named.
    Brokers serve this command's request only on the inter-broker listener.
    """
    with cluster.client() as client:
        if broker is not None:
            broker_named(client, broker)
        brokers = sorted(client.metadata([]).brokers) if broker is None else [broker]
        rows = [row for each in brokers for row in client.broker_metrics(each, names)]
    known = {row.metric for row in rows}
    missing = [name for name in names or [] if name not in known]
    if missing and not known:
        raise NotFoundError(f"no broker has counted {', '.join(missing)}, or has such a metric")
    columns = ("broker", "metric", ("labels", _labels), ("value", _value), "meaning")
    print_rows(rows, columns, cluster.output)


def _labels(sample: BrokerMetric) -> str:
    return " ".join(f"{name}={value}" for name, value in sample.labels.items())


def _value(sample: BrokerMetric) -> str:
    """Return the number, or the summary of a histogram, as text."""
    if not sample.buckets:
        return str(sample.value)
    count = sum(each.count for each in sample.buckets)
    bound = _bound_of_most(sample.buckets, count)
    most = f"<= {bound}" if bound is not None else f"> {sample.buckets[-2].upper_bound}"
    return f"{count}, mean {sample.value / count:.1f}, p{_PERCENTILE} {most}"


def _bound_of_most(buckets: Iterable[MetricBucket], count: int) -> float | None:
    """Return the upper bound of the bucket with the 99th percentile; None for the last bucket."""
    below = 0
    for each in buckets:
        below += each.count
        if below * 100 >= count * _PERCENTILE:
            return each.upper_bound
    return None
