"""The history of a broker's main metrics: read every ten seconds, kept in memory and in a file.

`/history` on the admin port returns the history as JSON. A separate thread replaces the file,
`admin.history.path`, once a minute and when the broker stops. A disk that hangs thus blocks only
this thread.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Final

from tidelog.broker.services import Identity
from tidelog.core.metrics import Metric, Metrics
from tidelog.runtime.admin.history_ring import FINE_S, HistoryError, HistoryRing
from tidelog.runtime.admin.history_series import SERIES, Readings, read, values_of
from tidelog.runtime.admin.http_messages import BadRequest, HttpRequest, HttpResponse

_LOG: Final = logging.getLogger("tidelog.admin")
_JSON: Final = "application/json"
_WRITES_S: Final = 60
#: Seconds before `until` at which the response to a request without `since` begins.
_DEFAULT_S: Final = 3_600
#: How long a stopping broker waits for the last write of the file.
_LAST_WRITE_S: Final = 2.0


class History:
    """The history of the main metrics of one broker's process."""

    def __init__(
        self,
        metrics: Metrics,
        declared: Sequence[Metric],
        identity: Identity,
        path: str,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """Keep the history in the file at `path`; an empty path keeps it in memory only."""
        self._metrics = metrics
        self._declared = list(declared)
        self._identity = identity
        self._path = path
        self._now_ns = now_ns
        self.ring = HistoryRing([each.name for each in SERIES])
        self._before: Readings | None = None
        self._writing: threading.Thread | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Load the file that an earlier process wrote, and start the periodic readings."""
        if self._path:
            self._load()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop the periodic readings, and write the history to its file."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self.write()
        if self._writing is not None:
            await asyncio.to_thread(self._writing.join, _LAST_WRITE_S)

    async def _run(self) -> None:
        written_s = self._now_ns() // 1_000_000_000
        while True:
            try:
                await self.look()
            except Exception:  # log the error, and continue with the next reading
                _LOG.exception("the history of metrics has no values of now")
            now_s = self._now_ns() / 1e9
            if now_s - written_s >= _WRITES_S:
                written_s = int(now_s)
                self.write()
            await asyncio.sleep(FINE_S - now_s % FINE_S)

    async def look(self) -> None:
        """Read the metrics once, and put their values into the history."""
        now = await read(self._metrics, self._declared, self._now_ns)
        self.ring.put(now.time_ns // 1_000_000_000, values_of(self._before, now))
        self._before = now

    def _load(self) -> None:
        try:
            with open(self._path, "rb") as file:
                self.ring.take(file.read())
        except FileNotFoundError:
            return
        except (OSError, HistoryError) as error:
            _LOG.warning("%s: no history of metrics is taken over: %s", self._path, error)

    def write(self) -> None:
        """Replace the history's file in a thread, unless an earlier write has not ended yet."""
        if not self._path or (self._writing is not None and self._writing.is_alive()):
            return
        data = self.ring.to_bytes()
        # The thread is a daemon, so a write that hangs does not keep the process from ending.
        self._writing = threading.Thread(target=self._replace, args=(data,), daemon=True)
        self._writing.start()

    def _replace(self, data: bytes) -> None:
        beside = f"{self._path}.new"
        try:
            with open(beside, "wb") as file:
                file.write(data)
            os.replace(beside, self._path)
        except OSError as error:
            _LOG.warning("%s: the history of metrics is not written: %s", self._path, error)

    async def respond(self, request: HttpRequest) -> HttpResponse:
        """Respond to `/history?series=NAME,NAME&since=SECONDS&until=SECONDS`.

        The response names the broker and its cluster, whose id is empty before the broker has
        opened its session with the metadata store.
        """
        now_s = self._now_ns() // 1_000_000_000
        until_s = _seconds(request, "until", now_s)
        since_s = _seconds(request, "since", until_s - _DEFAULT_S)
        names = self.ring.names
        asked = request.query.get("series", "")
        wanted = list(dict.fromkeys(asked.split(","))) if asked else list(names)
        unknown = [each for each in wanted if each not in names]
        if unknown:
            raise BadRequest(
                HTTPStatus.BAD_REQUEST, f"series {unknown[0]!r}: of {', '.join(names)} expected"
            )
        step_s, rows = self.ring.rows(since_s, until_s)
        times = json.dumps([time_s for time_s, _ in rows])
        cluster_id = json.dumps(self._identity.cluster_id)
        parts = [
            f'{{"cluster_id": {cluster_id}, "node_id": {self._identity.broker_id},'
            f' "step_s": {step_s}, "times": {times}, "series": {{'
        ]
        for number, name in enumerate(wanted):
            column = names.index(name)
            values = json.dumps([_shown(row[column]) for _, row in rows])
            parts.append(f"{', ' if number else ''}{json.dumps(name)}: {values}")
            await asyncio.sleep(0)  # without pauses, a day of all series would block the loop
        parts.append("}}")
        return HttpResponse(HTTPStatus.OK, [each.encode() for each in parts], _JSON)


def _seconds(request: HttpRequest, name: str, default: int) -> int:
    text = request.query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()) or len(text) > 12:
        raise BadRequest(
            HTTPStatus.BAD_REQUEST, f"{name}={text[:40]!r}: seconds since 1970 expected"
        )
    return int(text)


def _shown(value: float) -> float | None:
    """Return a value for JSON: None for NaN, which JSON cannot express."""
    return None if math.isnan(value) else float(f"{value:.6g}")
