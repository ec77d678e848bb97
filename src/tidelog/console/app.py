"""The web application: routes, and the checks and headers of every request.

Routes are thin: a page's document comes from `hub`, and a change is made by `actions`. All data is
JSON. Every page address returns the same HTML file, whose scripts build the page from the data.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import tidelog
from tidelog.console.actions import ACTIONS
from tidelog.console.assets import Asset, load_assets
from tidelog.console.hub import MAX_VIEWERS, Hub
from tidelog.console.json_documents import json_text
from tidelog.console.lookups import LOOKUPS
from tidelog.console.poller import Poller
from tidelog.console.security import HEADERS, RequestAccess
from tidelog.console.views.catalogue import PAGES
from tidelog.console.views.tables import BadQuery, Document
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import TidelogError
from tidelog.runtime.blocking import BlockingClient
from tidelog.runtime.schema_registry import SchemaRegistry

#: Addresses of pages; the server responds to each with the same file.
ADDRESSES: Final = (*PAGES, *LOOKUPS)
_SHELL: Final = "index.html"
#: Maximum number of concurrent lookups and changes; each may wait ASK_MS for a broker.
MAX_ASKS: Final = 4
ASK_MS: Final = 10_000
#: Maximum size in bytes of the body of a change.
MAX_BODY_BYTES: Final = 1 << 20

#: A function that makes a poller, which publishes its readings to the given function.
MakePoller = Callable[[Callable[..., None]], Poller]


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """Settings that the console's command has chosen."""

    bootstrap: str
    access: RequestAccess
    #: The registry of the schemas of records; None if there is none.
    registry: SchemaRegistry | None = None


class ConsoleApp:
    """The routes of one console."""

    def __init__(self, settings: ConsoleSettings, make_poller: MakePoller) -> None:
        self._settings = settings
        self._make_poller = make_poller
        self._assets = load_assets()
        self._asks = asyncio.Semaphore(MAX_ASKS)
        self.hub = Hub()

    def asgi(self) -> ASGIApp:
        """Return the application, with the checks of every request around it."""
        routes = [
            Route("/", self._shell),
            *(Route(f"/{name}", self._shell) for name in ADDRESSES),
            Route("/static/{path:path}", self._asset),
            Route("/api/session", self._session),
            Route("/api/view/{page}", self._view),
            Route("/api/live/{page}", self._live),
            Route("/api/lookup/{name}", self._lookup),
            Route("/api/actions/{name}", self._act, methods=["POST"]),
        ]
        app = Starlette(
            routes=routes,
            lifespan=self._lifespan,
            exception_handlers={404: _not_found, BadQuery: _bad_query, TidelogError: _failed},
        )
        return Guard(app, self._settings.access)

    @contextlib.asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        poller = self._make_poller(self.hub.publish)
        self.hub.use(poller)
        self.hub.start()
        poller.start()
        try:
            yield
        finally:
            self.hub.end()
            poller.close()

    async def _shell(self, request: Request) -> Response:
        return _served(self._assets[_SHELL], request)

    async def _asset(self, request: Request) -> Response:
        asset = self._assets.get(request.path_params["path"])
        if asset is None:
            return _error(404, "the console has no such file")
        return _served(asset, request)

    async def _session(self, _request: Request) -> Response:
        return JSONResponse(
            {
                "bootstrap": self._settings.bootstrap,
                "version": tidelog.__version__,
                "allows_changes": self._settings.access.token is not None,
            }
        )

    async def _view(self, request: Request) -> Response:
        page, params = _page(request)
        return _document(await self.hub.first_document(page, params))

    async def _lookup(self, request: Request) -> Response:
        lookup = LOOKUPS.get(request.path_params["name"])
        if lookup is None:
            return _error(404, f"the console looks up {', '.join(LOOKUPS)} only")
        params, registry = request.query_params, self._settings.registry
        return _document(await self._asked(lambda client: lookup(client, params, registry)))

    async def _act(self, request: Request) -> Response:
        action = ACTIONS.get(request.path_params["name"])
        if action is None:
            return _error(404, f"the console can {', '.join(ACTIONS)} only")
        content = b""
        async for chunk in request.stream():
            content += chunk
            if len(content) > MAX_BODY_BYTES:
                return _error(413, f"a change has at most {MAX_BODY_BYTES} bytes")
        try:
            body = json.loads(content)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise BadQuery("a change must be a JSON object")
        return _document(await self._asked(lambda client: action(client, body)))

    async def _asked(self, ask: Callable[[BlockingClient], Document]) -> Document:
        """Return the result of `ask`, called in a thread with a client of its own."""

        def run() -> Document:
            with BlockingClient(self._settings.bootstrap, "tidelog-console", ASK_MS) as client:
                return ask(client)

        async with self._asks:
            return await run_in_threadpool(run)

    async def _live(self, request: Request) -> Response:
        page, params = _page(request)
        if self.hub.viewers >= MAX_VIEWERS:
            return _error(503, f"{MAX_VIEWERS} live pages are open: close some")
        # Check the query before the stream starts, so that a bad query gets an error response.
        await self.hub.first_document(page, params)
        return StreamingResponse(
            self.hub.live(page, params),
            media_type="text/event-stream",
            headers={"cache-control": "no-store", "x-accel-buffering": "no"},
        )


class Guard:
    """A middleware that checks every request, and adds the security headers to every response."""

    def __init__(self, app: ASGIApp, access: RequestAccess) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refusal = self._access.refusal(scope["method"], Request(scope).headers)
        if refusal is not None:
            response = _error(refusal.status, refusal.reason)
            await response(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)


def _page(request: Request) -> tuple[str, Mapping[str, str]]:
    page = request.path_params["page"]
    if page not in PAGES:
        raise BadQuery(f"there is no page {page!r}: {', '.join(PAGES)} expected")
    return page, request.query_params


def _served(asset: Asset, request: Request) -> Response:
    headers = {"etag": asset.tag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == asset.tag:
        return Response(status_code=304, headers=headers)
    return Response(asset.content, media_type=asset.content_type, headers=headers)


def _document(document: Document) -> Response:
    return Response(json_text(document), media_type="application/json")


def _error(status: int, reason: str) -> JSONResponse:
    return JSONResponse({"error": reason}, status)


async def _bad_query(_request: Request, error: Exception) -> Response:
    return _error(400, str(error))


async def _failed(_request: Request, error: Exception) -> Response:
    return _error(502, str(error))


async def _not_found(request: Request, _error_: Exception) -> Response:
    return _error(404, f"the console has no address {request.url.path}")
