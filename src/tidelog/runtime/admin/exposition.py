"""The text of a broker's metrics, in the format of Prometheus or OpenMetrics.

The event loop owns the broker's state, so the text is made on the loop, in slices. Between two
slices the loop does the broker's work, so that even metrics of 10,000 partitions delay no request
by more than a few milliseconds. `prometheus_client` makes such a text in one piece, and takes three
times as long (docs/adr/0074).
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Final

from tidelog.core.metrics import Metric, MetricKind, Metrics, Sample

PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
#: Time in ns for which one slice may occupy the loop.
_SLICE_NS: Final = 3_000_000
#: Number of readings or lines after which the work checks how long its slice has lasted.
_STEP: Final = 16
#: Number of lines of the page that are joined in one step.
_PIECE_LINES: Final = 1000
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

#: The lines of each metric that has samples, without the metric's name at their beginning.
_Lines = dict[Metric, list[str]]


def content_type(headers: Mapping[str, str]) -> str:
    """Return the format for a client: OpenMetrics if the client accepts it, else Prometheus."""
    return (
        OPENMETRICS if "application/openmetrics-text" in headers.get("accept", "") else PROMETHEUS
    )


#: Endings of metric names, and the endings that Strimzi's own reporter uses instead.
_NEWER_ENDINGS: Final = (
    ("networkprocessoravgidle_percent", "networkprocessoravgidlepercent"),
    ("requesthandleravgidle_percent", "requesthandleravgidlepercent_total"),
)
#: Prefixes of the counters to whose names Strimzi's own reporter adds `persec` before `_total`.
_RATES: Final = (
    "kafka_server_brokertopicmetrics_",
    "kafka_network_requestmetrics_",
    "kafka_server_replicamanager_",
    "kafka_controller_controllerstats_",
)


def newer_name(name: str) -> str | None:
    """Return the name that Strimzi's own reporter gives to a metric of Kafka, if it differs."""
    for older, newer in _NEWER_ENDINGS:
        if name.endswith(older):
            return name.removesuffix(older) + newer
    if name.startswith(_RATES) and name.endswith("_total"):
        return f"{name.removesuffix('_total')}persec_total"
    return None


async def metrics_text(
    metrics: Metrics,
    declared: Sequence[Metric],
    form: str = PROMETHEUS,
    *,
    has_newer_names: bool = False,
    names: frozenset[str] | None = None,
) -> list[bytes]:
    """Return the text in pieces; between the slices the loop does other work.

    With `has_newer_names`, metrics also appear under the names of Strimzi's own reporter. With
    `names`, the text has the metrics of these names only.
    """
    pieces: list[bytes] = []
    begin_ns = time.monotonic_ns()
    for _ in _steps(metrics, declared, form, pieces, has_newer_names, names):
        if time.monotonic_ns() - begin_ns >= _SLICE_NS:
            await asyncio.sleep(0)
            begin_ns = time.monotonic_ns()
    return pieces


def _steps(
    metrics: Metrics,
    declared: Sequence[Metric],
    form: str,
    pieces: list[bytes],
    has_newer_names: bool = False,
    names: frozenset[str] | None = None,
) -> Iterator[None]:
    """Make the text; yield after each small step."""
    lines: _Lines = {}
    #: For each group of metrics that a collector reads together: the position of each wanted metric
    #: in the group, the list of its lines, and its scale.
    lists: dict[tuple[Metric, ...], list[tuple[int, list[str], int]]] = {}
    last_names: tuple[str, ...] = ()
    last_labels: tuple[str, ...] = ()
    text = ""
    for number, (group, values, labels) in enumerate(metrics.readings()):
        if number % _STEP == 0 or not group:
            yield
        places = lists.get(group)
        if places is None:
            places = lists[group] = [
                (position, lines.setdefault(metric, []), metric.scale)
                for position, metric in enumerate(group)
                if names is None or metric.name in names
            ]
        if not places:
            continue
        # Successive readings often have the same labels, whose text is made only once.
        if labels is not last_labels or group[0].labels != last_names:
            last_labels, last_names = labels, group[0].labels
            text = _label_text(last_names, labels)
        for position, found, scale in places:
            value = values[position]
            found.append(f"{text} {value if scale == 1 else value / scale}\n")
    for metric in declared:
        if names is not None and metric.name not in names:
            continue
        found = lines.pop(metric, [])
        # If a collector has read the metric, its default sample with the value 0 is left out.
        for number, sample in enumerate(() if found else metrics.samples(metric)):
            found.extend(_sample_lines(metric, sample))
            if number % _STEP == 0:
                yield
        if not found:
            continue
        newer = newer_name(metric.name) if has_newer_names else None
        for name in (metric.name,) if newer is None else (metric.name, newer):
            pieces.append(_head(dataclasses.replace(metric, name=name), form).encode())
            for begin in range(0, len(found), _PIECE_LINES):
                text = name + name.join(found[begin : begin + _PIECE_LINES])
                pieces.append(text.encode("utf-8", "replace"))
                yield
    assert not lines, f"undeclared metrics were read: {[each.name for each in lines]}"
    if form == OPENMETRICS:
        pieces.append(b"# EOF\n")


def _head(metric: Metric, form: str) -> str:
    """Return the lines before a metric's samples.

    In OpenMetrics, the name of a counter in these lines lacks the ending `_total`.
    """
    is_shorter = form == OPENMETRICS and metric.kind is MetricKind.COUNTER
    name = metric.name.removesuffix("_total") if is_shorter else metric.name
    meaning = metric.meaning.translate(_ESCAPES) if form == OPENMETRICS else metric.meaning
    return f"# HELP {name} {meaning}\n# TYPE {name} {metric.kind.value}\n"


def _label_text(names: Sequence[str], values: Sequence[str]) -> str:
    pairs = [
        f'{name}="{value.translate(_ESCAPES)}"' for name, value in zip(names, values, strict=True)
    ]
    return "{" + ",".join(pairs) + "}" if pairs else ""


@cache
def _bucket_endings(metric: Metric) -> list[str]:
    """Return the text between the labels and the count in the line of each bucket."""
    bounds = [*(str(float(metric.shown(bound))) for bound in metric.bounds), "+Inf"]
    return [f'le="{bound}"}} ' for bound in bounds]


def _sample_lines(metric: Metric, sample: Sample) -> Iterator[str]:
    """Return the lines of a sample without the metric's name at their beginning."""
    if metric.kind is not MetricKind.HISTOGRAM:
        value = metric.shown(sample.value)
        yield f"{_label_text(metric.labels, sample.labels)} {value}\n"
        return
    count = 0
    labels = _label_text(metric.labels, sample.labels)
    beginning = f"_bucket{labels[:-1]}{',' if labels else '{'}"
    for ending, inside in zip(_bucket_endings(metric), sample.buckets, strict=True):
        count += inside
        yield f"{beginning}{ending}{count}\n"
    yield f"_sum{labels} {metric.shown(sample.value)}\n"
    yield f"_count{labels} {count}\n"
