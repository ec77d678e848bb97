"""The choice of a request's handler, and the response to a request whose handler failed.

`broker.broker` fills the table of APIs (`apis.handlers`); connections look up the handlers of
requests in it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from tidelog.broker.server.requests import Pending, Request
from tidelog.broker.server.served import ErrorResponse, Handler, Served
from tidelog.broker.server.steps import Step
from tidelog.core.errors import ErrorCode, TidelogError
from tidelog.core.tasks import Tasks
from tidelog.wire.messages.api_versions import ApiVersion
from tidelog.wire.registry import API, FIRST_OWN_KEY, GET_REPLICA_LOG_INFO


class Dispatcher:
    """The table in which one broker finds the handler of a request, by API key."""

    def __init__(
        self,
        tasks: Tasks,
        error_response: ErrorResponse,
        unexpected: Callable[[str, BaseException], None],
    ) -> None:
        """`unexpected` logs a defect of tidelog, with the place where it occurred."""
        self._tasks = tasks
        self.error_response = error_response
        self.unexpected = unexpected
        self._served: dict[int, Served] = {}
        #: The served APIs by key; with the step of `observe` around their handlers, if there is
        #: one.
        self._entries: dict[int, Served] = {}
        #: Whether the broker is stopping and removing the parts that its handlers use.
        self.is_stopping = False

    def serve(self, served: dict[int, Served], steps: Iterable[Step] = ()) -> None:
        """Set the APIs and the steps around their handlers; call this before the first request."""
        self._served = self._entries = dict(served)
        for step in steps:
            self.put_around(step)

    def put_around(self, step: Step) -> None:
        """Put a step around every handler and its earlier steps; call this before any request."""
        self._served = {key: step(entry) for key, entry in self._served.items()}
        self._entries = self._served

    def observe(self, step: Step | None) -> None:
        """Put a step around every handler until the next call, or remove it with None.

        A request that has begun keeps the steps with which it began.
        """
        served = self._served
        self._entries = served if step is None else {key: step(it) for key, it in served.items()}

    def withhold(self, api_keys: Iterable[int]) -> None:
        """Stop serving these APIs, for tests of a broker that must behave like a Kafka broker."""
        for api_key in api_keys:
            del self._served[api_key]
        self._entries = self._served

    def handler(self, api_key: int, version: int) -> Handler | None:
        """Return the handler of an API, None if the version is not served."""
        entry = self._entries.get(api_key)
        if entry is None or not entry.card.min_version <= version <= entry.card.max_version:
            return None
        return entry.handle

    def is_inter_broker(self, api_key: int) -> bool:
        """Whether only brokers send requests of the API."""
        entry = self._served.get(api_key)
        return entry is not None and entry.card.inter_broker

    def advertised_versions(self, *, include_own: bool) -> list[ApiVersion]:
        """Return the ranges of the ApiVersions response, derived from the served APIs.

        The response lists tidelog's own APIs only if `include_own` is set, for clients that know
        these APIs (G5). The same holds for Kafka's GetReplicaLogInfo: Kafka with ZooKeeper lacks
        this API, and kafka-python fails if the response names it.
        """
        return [
            ApiVersion(key, entry.card.first_advertised_version, entry.card.max_version)
            for key, entry in self._served.items()
            if include_own or (key < FIRST_OWN_KEY and key != GET_REPLICA_LOG_INFO)
        ]

    def answer_from(self, coroutine: Coroutine[Any, Any, Any], request: Request[Any]) -> Pending:
        """Run an async handler; the Pending is completed with its return value.

        If the handler raises an error, `request_failed` makes the response, as for handlers that
        are not async; a broken invariant halts the broker.
        """
        pending = Pending()

        async def run() -> None:
            try:
                answer = await coroutine
            except AssertionError:
                raise
            except Exception as error:
                answer = self.request_failed(request, error)
            pending.complete(answer)

        self._tasks.spawn(API[request.header.api_key].name, run())
        return pending

    def request_failed(self, request: Request[Any], error: Exception) -> Any:
        """Return UNKNOWN_SERVER_ERROR for a request whose handler raised an unforeseen error.

        A failed request does not affect other requests (DESIGN.md, rule 9).
        """
        header = request.header
        if not (self.is_stopping and isinstance(error, TidelogError)):
            self.unexpected(
                f"{API[header.api_key].name} version {header.api_version} of client "
                f"{header.client_id!r} at {request.connection.peer}",
                error,
            )
        return self.error_response(request, ErrorCode.UNKNOWN_SERVER_ERROR)
