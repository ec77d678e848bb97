"""Live pages: what a viewer gets while readings come without a change."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.unit.console.test_requests import console

from tidelog.console import hub


def test_a_connection_is_kept_open_while_unchanged_readings_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    live_hub = console().hub
    monkeypatch.setattr(hub, "_SPACING_S", 0.0)
    monkeypatch.setattr(hub, "_QUIET_S", 0.0)

    async def next_reading(_timeout_s: float) -> bool:
        live_hub.reading = replace(live_hub.reading, number=live_hub.reading.number + 1)
        return True

    async def events() -> list[str]:
        live = live_hub.live("topics", {})
        found = [await anext(live), await anext(live)]
        live_hub.reading = replace(live_hub.reading, metadata=None)
        found.append(await anext(live))
        assert live_hub.viewers == 1
        live_hub.end()
        assert [each async for each in live] == []
        return found

    monkeypatch.setattr(live_hub, "_next", next_reading)
    first, comment, changed = asyncio.run(events())
    assert first.startswith("data: {") and '"total":1' in first
    assert comment == ": still here\n\n"
    assert changed.startswith("data: {") and '"total":0' in changed
    assert live_hub.viewers == 0
