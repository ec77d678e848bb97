"""The latest reading of the cluster, and the viewers of live pages, on the server's event loop.

The poller's thread publishes each new reading to the viewers. A viewer gets a document only if the
document has changed, and at most once a second.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Final

from tidelog.console.json_documents import json_text
from tidelog.console.poller import Poller
from tidelog.console.readings import ClusterReading
from tidelog.console.views.catalogue import page_document, viewed_partitions
from tidelog.console.views.tables import Document

#: Maximum number of live pages at a time, because every page costs CPU time with each reading.
MAX_VIEWERS: Final = 64
#: Shortest time in s between two documents of a live page.
_SPACING_S: Final = 1.0
#: After this time in s without a changed document, the server sends a comment that keeps the
#: connection open.
_QUIET_S: Final = 15.0
#: Maximum time in s that a page waits for the first reading.
_FIRST_S: Final = 5.0


class Hub:
    """The distributor of the latest reading to all viewers."""

    def __init__(self) -> None:
        self.viewers = 0
        self.reading = ClusterReading()
        self._poller: Poller | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()
        self._ending = False

    def use(self, poller: Poller) -> None:
        """Use the samples of `poller`, and report viewers to `poller`."""
        self._poller = poller

    def start(self) -> None:
        """Accept readings from now on; pass them to the running event loop."""
        self._loop = asyncio.get_running_loop()

    def publish(self, reading: ClusterReading) -> None:
        """Make a reading the latest one; the poller's thread calls this method."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._take, reading)

    def _take(self, reading: ClusterReading) -> None:
        self.reading = reading
        self._changed.set()
        self._changed = asyncio.Event()

    def end(self) -> None:
        """End all live pages, because the server stops; a signal handler may call this method."""
        self._ending = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._changed.set)

    def document(self, page: str, params: Mapping[str, str]) -> Document:
        """Return the document of a page from the latest reading. Raises BadQuery."""
        assert self._poller is not None, "the server starts the poller first"
        return page_document(page, self.reading, self._poller.samples, params)

    async def first_document(self, page: str, params: Mapping[str, str]) -> Document:
        """Return the document of a page; wait for the first reading if there is none yet."""
        if self.reading.metadata is None and not self.reading.problems:
            await self._next(_FIRST_S)
        return self.document(page, params)

    async def _next(self, timeout_s: float) -> bool:
        """Wait for the next reading; return False if none came in time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def live(self, page: str, params: Mapping[str, str]) -> AsyncIterator[str]:
        """Yield server-sent events: the page's document now, and again whenever it has changed."""
        assert self._poller is not None, "the server starts the poller first"
        viewed = viewed_partitions(page, self.reading, params)
        self._poller.add_viewer(viewed)
        self.viewers += 1
        loop = asyncio.get_running_loop()
        try:
            last, sent_s = "", loop.time()
            while not self._ending:
                document = self.document(page, params)
                clock = {key: document.pop(key) for key in ("reading", "time_ms")}
                text = json_text(document)
                if text != last:
                    last, sent_s = text, loop.time()
                    yield f"data: {json.dumps(clock)[:-1]},{text[1:]}\n\n"
                    await asyncio.sleep(_SPACING_S)
                    continue
                await self._next(_QUIET_S)
                # Also if new readings left the document unchanged.
                if loop.time() - sent_s >= _QUIET_S:
                    sent_s = loop.time()
                    yield ": still here\n\n"
        finally:
            self.viewers -= 1
            self._poller.remove_viewer(viewed)
