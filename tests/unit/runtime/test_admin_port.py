"""The admin port of a broker: what requests for its metrics cost the broker's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.broker.services import Identity
from tidelog.core.metrics import PAUSE, MetricReading, Metrics
from tidelog.runtime.admin import exposition
from tidelog.runtime.admin.admin_port import AdminPort
from tidelog.runtime.admin.http_messages import HttpRequest
from tidelog.runtime.turns import TurnSelector


def test_texts_of_different_metrics_are_made_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each text may occupy the loop for some milliseconds a turn, so two at a time may not."""
    monkeypatch.setattr(exposition, "_SLICE_NS", 0)  # each step ends a slice
    metrics = Metrics()
    running, most, texts = 0, 0, 0

    def readings() -> Iterator[MetricReading]:
        nonlocal running, most, texts
        running, texts = running + 1, texts + 1
        most = max(most, running)
        for _ in range(5):
            yield PAUSE
        running -= 1

    metrics.collect(readings)
    config = SimpleNamespace(admin_history_path="", metrics_newer_names_enable=False)
    services = SimpleNamespace(metrics=metrics, config=config, identity=Identity(1))
    broker: Any = SimpleNamespace(services=services)

    async def run() -> None:
        port = AdminPort(broker, TurnSelector())
        names = ("process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds")
        requests = [HttpRequest("GET", "/metrics", {"names": name}, {}) for name in names]
        found = await asyncio.gather(*map(port._metrics, (*requests, *requests)))
        for name, response in zip((*names, *names), found, strict=True):
            assert f"\n{name} ".encode() in b"".join(response.parts)

    asyncio.run(run())
    assert (most, texts) == (1, 3)
