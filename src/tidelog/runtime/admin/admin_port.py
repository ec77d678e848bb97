"""The admin port of one broker: `/metrics`, `/history`, `/healthz`, `/readyz`, and further routes.

The port opens before the broker recovers its logs, so that an operator can distinguish a long
recovery from a dead process. Concurrent scrapes share one text, because each text costs time of the
event loop.
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import Final

from tidelog.broker.apis.describe_metrics import METRICS
from tidelog.broker.broker import Broker
from tidelog.core.errors import ConfigError
from tidelog.core.metrics import declared_in
from tidelog.core.types import Endpoint
from tidelog.runtime.admin.exposition import content_type, metrics_text
from tidelog.runtime.admin.history import History
from tidelog.runtime.admin.http_messages import BadRequest, HttpRequest, HttpResponse
from tidelog.runtime.admin.http_server import HttpServer
from tidelog.runtime.admin.probes import Readiness, healthz
from tidelog.runtime.admin.process_readings import PROCESS_METRICS, ProcessReadings
from tidelog.runtime.admin.routes import Routes
from tidelog.runtime.turns import TurnSelector

#: The metrics of `/metrics`, in the order of their names.
PUBLISHED: Final = tuple(declared_in(METRICS, PROCESS_METRICS))
_NAMES: Final = frozenset(each.name for each in PUBLISHED)
_LOG: Final = logging.getLogger("tidelog.admin")


class AdminPort:
    """The open admin port of a broker."""

    def __init__(self, broker: Broker, turns: TurnSelector) -> None:
        self._broker = broker
        services = broker.services
        self._process = ProcessReadings(services.metrics, services.identity, turns)
        self.readiness = Readiness(broker)
        #: The running tasks that make the text of `/metrics`, by format and requested metric names.
        self._making: dict[tuple[str, frozenset[str] | None], asyncio.Task[list[bytes]]] = {}
        self._turn = asyncio.Lock()
        self.routes = Routes()
        self.routes.add("GET", "/metrics", self._metrics)
        self.routes.add("GET", "/healthz", healthz)
        self.routes.add("GET", "/readyz", self.readiness.readyz)
        path = services.config.admin_history_path
        self.history = History(services.metrics, PUBLISHED, services.identity, path)
        self.routes.add("GET", "/history", self.history.respond)
        self.server = HttpServer(self.routes, _LOG)

    async def open(self, endpoint: Endpoint) -> None:
        """Listen on the address in `admin.listener`; raise ConfigError if listening fails."""
        try:
            await self.server.listen(endpoint.host, endpoint.port)
        except OSError as error:
            raise ConfigError(
                f"admin.listener: cannot listen on {endpoint.host}:{endpoint.port}:"
                f" {error.strerror}; an address of this machine with a free port expected"
            ) from error
        self.history.start()
        _LOG.info("admin port on http://%s:%d", endpoint.host, self.server.port)

    def started(self) -> None:
        """Note that the broker has recovered its logs, and has registered."""
        self.readiness.has_started = True

    async def close(self) -> None:
        """Close the port, and end the requests in progress."""
        await self.server.close()
        await self.history.close()
        for task in list(self._making.values()):
            task.cancel()
        await asyncio.gather(*self._making.values(), return_exceptions=True)

    async def _metrics(self, request: HttpRequest) -> HttpResponse:
        form, names = content_type(request.headers), _names(request)
        making = self._making.get((form, names))
        if making is None:
            text = self._text(form, names)
            making = self._making[form, names] = asyncio.get_running_loop().create_task(text)
            making.add_done_callback(lambda _: self._making.pop((form, names)))
        # If a client disconnects, the task must still make the text, because other clients may
        # await it.
        return HttpResponse(HTTPStatus.OK, await asyncio.shield(making), form)

    async def _text(self, form: str, names: frozenset[str] | None) -> list[bytes]:
        """Wait until no other text is being made; then make this text and return it in pieces.

        Clients that request different metrics get different texts. If several texts were made at
        the same time, each turn of the loop would last as long as a slice of every text.
        """
        services = self._broker.services
        async with self._turn:
            return await metrics_text(
                services.metrics,
                PUBLISHED,
                form,
                has_newer_names=services.config.metrics_newer_names_enable,
                names=names,
            )


def _names(request: HttpRequest) -> frozenset[str] | None:
    """Return the metrics that a request names with `names=A,B`; None for all metrics."""
    asked = request.query.get("names")
    if asked is None:
        return None
    wanted = frozenset(asked.split(","))
    unknown = sorted(wanted - _NAMES)
    if unknown:
        raise BadRequest(
            HTTPStatus.BAD_REQUEST,
            f"names={unknown[0][:80]!r}: no metric has this name; docs/reference/metrics.md lists"
            " all metrics",
        )
    return wanted
