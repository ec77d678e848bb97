"""The latest reading of the cluster, and the viewers of live pages, on the server's event loop.

The poller's thread publishes each new reading to the viewers. A viewer gets a document only if the
document has changed, and at most once a second. Viewers of one page share its document, and a
document that takes long is made more rarely, so that a large cluster does not cost a whole core.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Mapping
from typing import Final, NamedTuple

from tidelog.console.json_documents import json_text
from tidelog.console.poller import Poller
from tidelog.console.readings import ClusterReading
from tidelog.console.views.catalogue import page_document, viewed_partitions
from tidelog.console.views.tables import Document

#: Maximum number of live pages at a time, because every page costs CPU time with each reading.
MAX_VIEWERS: Final = 64
#: Shortest time in s between two documents of a live page.
_SPACING_S: Final = 1.0
#: Before a page's next document, the hub waits for this multiple of the processor time that the
#: last document took, but at most for `_MAX_REST_S`.
_REST: Final = 20
_MAX_REST_S: Final = 5.0
#: After this time in s without a changed document, the server sends a comment that keeps the
#: connection open.
_QUIET_S: Final = 15.0
#: Maximum time in s that a page waits for the first reading.
_FIRST_S: Final = 5.0


class _LiveDocument(NamedTuple):
    """A page's document as JSON, which all viewers of the page with the same parameters share."""

    #: The number of the reading from which the document was made.
    number: int
    #: `clock` has the two keys that change with every reading (`reading`, `time_ms`), and `text`
    #: has all other keys; each is the text of a JSON object.
    clock: str
    text: str
    #: The loop's time in s before which no newer document of the page is made.
    due_s: float


class Hub:
    """The distributor of the latest reading to all viewers."""

    def __init__(self) -> None:
        self.viewers = 0
        self.reading = ClusterReading()
        self._poller: Poller | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()
        self._ending = False
        self._live: dict[tuple[str, frozenset[tuple[str, str]]], _LiveDocument] = {}

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
            self._loop.call_soon_threadsafe(self._ended.set)
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

    async def _pause(self, time_s: float) -> None:
        """Wait for a time, or until all live pages end because the server stops."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, time_s)):
                await self._ended.wait()

    def _live_document(self, page: str, params: Mapping[str, str]) -> _LiveDocument:
        """Return the shared document of a page, made from the latest reading if it is due."""
        key = (page, frozenset(params.items()))
        now_s, known = asyncio.get_running_loop().time(), self._live.get(key)
        if known is not None and (known.number == self.reading.number or now_s < known.due_s):
            return known
        if len(self._live) >= MAX_VIEWERS:
            self._live.clear()
        used_s = time.thread_time()
        document = self.document(page, params)
        clock = json.dumps({key: document.pop(key) for key in ("reading", "time_ms")})
        text = json_text(document)
        used_s = time.thread_time() - used_s
        made = _LiveDocument(
            self.reading.number, clock, text, now_s + min(_MAX_REST_S, _REST * used_s)
        )
        self._live[key] = made
        return made

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
                document = self._live_document(page, params)
                if document.text != last:
                    last, sent_s = document.text, loop.time()
                    yield f"data: {document.clock[:-1]},{document.text[1:]}\n\n"
                    await self._pause(max(_SPACING_S, document.due_s - loop.time()))
                    continue
                if document.number != self.reading.number:
                    await self._pause(document.due_s - loop.time())
                    continue
                await self._next(_QUIET_S)
                # The comment is sent also if new readings came but left the document unchanged.
                if loop.time() - sent_s >= _QUIET_S:
                    sent_s = loop.time()
                    yield ": still here\n\n"
        finally:
            self.viewers -= 1
            self._poller.remove_viewer(viewed)
