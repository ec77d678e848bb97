"""`python -m tests.tidy.metrics_page` writes docs/reference/metrics.md from the declarations."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tidelog.broker.apis.describe_metrics import METRICS
from tidelog.core.metrics import MetricKind

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "reference" / "metrics.md"

_HEAD: Final = """# Metrics

A broker keeps these numbers of itself. Its [admin port](../guide/observing.md) has them on
`/metrics`. `tidelog metrics` prints them, of all brokers or of one; it asks on the listener between
brokers. Counters begin at 0 when the broker starts. A label names what a number is of. A metric
whose name begins with `kafka_` counts what Kafka's of that name counts. This file is made by
`python -m tests.tidy.metrics_page`.

| metric | kind | labels | meaning |
|---|---|---|---|
"""


def text() -> str:
    """Return the page."""
    rows = [
        f"| `{each.name}` | {each.kind} | {', '.join(each.labels)} | {each.meaning} |\n"
        for each in METRICS
    ]
    bounds = {each.bounds for each in METRICS if each.kind is MetricKind.HISTOGRAM}
    shown = [", ".join(f"{bound:,}" for bound in each) for each in bounds]
    return f"{_HEAD}{''.join(rows)}\nUpper bounds of the histograms' buckets: {'; '.join(shown)}.\n"


if __name__ == "__main__":
    PAGE.write_text(text())
