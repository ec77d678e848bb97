"""The text of a broker's metrics, in the format of Prometheus or OpenMetrics.

The event loop owns the broker's state, so the text is made on the loop, in slices. Between two
slices the loop does the broker's work, so that even metrics of 10,000 partitions delay no request
by more than a few milliseconds. `prometheus_client` makes such a text in one piece, and takes three
times as long (docs/adr/0074).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tidelog.core.metrics import Metric, MetricKind, Metrics, Sample

PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
#: Time of the loop that one slice may take.
_SLICE_NS: Final = 3_000_000
#: Number of readings or lines between two checks of the time.
_STEP: Final = 16
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

#: The lines of each metric that has samples.
_Lines = dict[Metric, list[str]]


def content_type(headers: Mapping[str, str]) -> str:
    """Return the format for a client: Prometheus' format unless it names OpenMetrics."""
    return (
        OPENMETRICS if "application/openmetrics-text" in headers.get("accept", "") else PROMETHEUS
    )


async def metrics_text(
    metrics: Metrics, declared: Sequence[Metric], form: str = PROMETHEUS
) -> list[bytes]:
    """Return the text in pieces; between the slices the loop does other work."""
    pieces: list[bytes] = []
    begin_ns = time.monotonic_ns()
    for _ in _steps(metrics, declared, form, pieces):
        if time.monotonic_ns() - begin_ns >= _SLICE_NS:
            await asyncio.sleep(0)
            begin_ns = time.monotonic_ns()
    return pieces


def _steps(
    metrics: Metrics, declared: Sequence[Metric], form: str, pieces: list[bytes]
) -> Iterator[None]:
    """Make the text; yield after each small step."""
    lines: _Lines = {}
    for number, (group, values, labels) in enumerate(metrics.readings()):
        text = _label_text(group[0].labels, labels) if labels else ""
        for metric, value in zip(group, values, strict=True):
            found = lines.get(metric)
            if found is None:
                found = lines[metric] = []
            shown = value if metric.scale == 1 else value / metric.scale
            found.append(f"{metric.name}{text} {shown}\n")
        if number % _STEP == 0 or not group:
            yield
    for metric in declared:
        found = lines.pop(metric, [])
        for number, sample in enumerate(metrics.samples(metric)):
            found.extend(_sample_lines(metric, sample))
            if number % _STEP == 0:
                yield
        if found:
            pieces.append(_head(metric, form).encode())
        for begin in range(0, len(found), 1000):
            pieces.append("".join(found[begin : begin + 1000]).encode("utf-8", "replace"))
            yield
    assert not lines, f"undeclared metrics were read: {[each.name for each in lines]}"
    if form == OPENMETRICS:
        pieces.append(b"# EOF\n")


def _head(metric: Metric, form: str) -> str:
    """Return the lines before a metric's samples; names of OpenMetrics families lack `_total`."""
    name = metric.name.removesuffix("_total") if form == OPENMETRICS else metric.name
    meaning = metric.meaning.translate(_ESCAPES) if form == OPENMETRICS else metric.meaning
    return f"# HELP {name} {meaning}\n# TYPE {name} {metric.kind.value}\n"


def _label_text(names: Sequence[str], values: Sequence[str], *more: str) -> str:
    pairs = [
        f'{name}="{value.translate(_ESCAPES)}"' for name, value in zip(names, values, strict=True)
    ]
    return "{" + ",".join([*pairs, *more]) + "}" if pairs or more else ""


def _sample_lines(metric: Metric, sample: Sample) -> Iterator[str]:
    if metric.kind is not MetricKind.HISTOGRAM:
        value = metric.shown(sample.value)
        yield f"{metric.name}{_label_text(metric.labels, sample.labels)} {value}\n"
        return
    count = 0
    for bound, inside in zip((*metric.bounds, None), sample.buckets, strict=True):
        count += inside
        text = "+Inf" if bound is None else str(float(metric.shown(bound)))
        labels = _label_text(metric.labels, sample.labels, f'le="{text}"')
        yield f"{metric.name}_bucket{labels} {count}\n"
    labels = _label_text(metric.labels, sample.labels)
    yield f"{metric.name}_sum{labels} {metric.shown(sample.value)}\n"
    yield f"{metric.name}_count{labels} {count}\n"
