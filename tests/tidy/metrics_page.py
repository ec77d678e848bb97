"""`python -m tests.tidy.metrics_page` writes docs/reference/metrics.md from the declarations."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tidelog.core.metrics import MetricKind
from tidelog.runtime.admin.admin_port import PUBLISHED as METRICS

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "reference" / "metrics.md"

_HEAD: Final = """# Metrics

A broker keeps these numbers of itself. Its [admin port](../guide/observing.md) has them on
`/metrics`. `tidelog metrics` prints them, of all brokers or of one; it asks on the listener between
brokers; it does not have the process's own. Metrics with a number for each partition are long, so
it prints them if they are named. Counters begin at 0 when the broker starts. A label names what a
number is of. A metric whose name begins with `kafka_` counts what Kafka's or kafka_exporter's of
that name counts, and `kminion_` what kminion's does. This file is made by
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
    bounds = dict.fromkeys(
        ", ".join(f"{each.shown(bound):,}" for bound in each.bounds)
        for each in METRICS
        if each.kind is MetricKind.HISTOGRAM
    )
    shown = "; or ".join(bounds)
    return f"{_HEAD}{''.join(rows)}\nUpper bounds of the histograms' buckets: {shown}.\n"


if __name__ == "__main__":
    PAGE.write_text(text())
