"""Live pages: what a viewer gets while readings come without a change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace

import pytest
from tests.unit.console.test_requests import console

from tidelog.console import hub
from tidelog.console.views.tables import Document


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


def test_viewers_of_one_page_share_its_document_and_a_costly_one_is_made_more_rarely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    live_hub = console().hub
    made: list[str] = []
    used_s = iter(range(100))
    document = live_hub.document
    monkeypatch.setattr(time, "thread_time", lambda: next(used_s))

    def counted(page: str, params: Mapping[str, str]) -> Document:
        made.append(page)
        return document(page, params)

    async def watch() -> None:
        views = [live_hub.live("topics", {}) for _ in range(3)]
        texts = {await anext(view) for view in views}
        assert len(texts) == 1 and made == ["topics"]
        # A newer reading is not shown before the costly document is due again.
        live_hub.reading = replace(live_hub.reading, number=live_hub.reading.number + 1)
        late = live_hub.live("topics", {})
        assert await anext(late) in texts and made == ["topics"]
        other = live_hub.live("topics", {"find": "x"})
        await anext(other)
        assert made == ["topics", "topics"], "other parameters, another document"
        waiting = [asyncio.ensure_future(anext(view, None)) for view in views]
        await asyncio.sleep(0)
        live_hub.end()
        assert await asyncio.gather(*waiting) == [None] * 3, "the pause ends with the server"
        for view in (late, other):
            assert await anext(view, None) is None

    monkeypatch.setattr(live_hub, "document", counted)

    async def started() -> None:
        live_hub.start()
        await watch()

    asyncio.run(started())
    assert live_hub.viewers == 0
