"""Responses to administrators while the metadata store is unreachable.

A controller that cannot reach its store makes no decision, so an administrator's request would time
out without a reason. Once the store has been unreachable for a session timeout, or for three
quarters of the request's timeout, the broker responds REQUEST_TIMED_OUT and names the store. The
request stays queued after REQUEST_TIMED_OUT: a controller whose session outlives the outage carries
out the request.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tidelog.broker.server.requests import Pending, Request
from tidelog.broker.services import Services
from tidelog.core.errors import ErrorCode
from tidelog.metadata.store import SessionEvent

#: Timeout in milliseconds for requests without a timeout field.
DEFAULT_TIMEOUT_MS = 30_000


class StoreTrouble:
    """The responses of one broker that explain an outage of the metadata store to clients."""

    def __init__(
        self, services: Services, error_response: Callable[[Request[Any], ErrorCode, str], Any]
    ) -> None:
        """`error_response` makes the response from an error and a message."""
        self._services = services
        self._error_response = error_response
        self._since_ms: int | None = None
        services.store.on_session(self._session_event)

    def text(self) -> str | None:
        """Return a sentence about the unreachable store; None while the store responds."""
        if self._since_ms is None:
            return None
        services = self._services
        return (
            f"the metadata store {services.config.metadata_store} has not answered broker"
            f" {services.broker_id} for {self._away_ms():,} ms: it has no quorum, or the"
            " broker cannot reach it; nothing can be changed until it is back"
        )

    def watch(
        self,
        request: Request[Any],
        ask: Callable[[Callable[[], Any]], Pending | Any],
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> Pending | Any:
        """Call `ask` and return its response.

        The argument of `ask` is a function that makes a NOT_CONTROLLER response.
        A client that waits `timeout_ms` gets a response in time even if the store is unreachable.
        """
        answer = ask(partial(self._not_controller, request))
        if isinstance(answer, Pending):
            self._look_later(request, answer, timeout_ms * 3 // 4)
        return answer

    def guard(
        self,
        request: Request[Any],
        ask: Callable[[Callable[[], Any]], Pending | Any],
        timeout_ms: int,
    ) -> Pending | Any:
        """Return the response of `ask`, or a refusal if the store was unreachable for too long.

        This method is for requests that a controller can answer without access to its store. The
        broker refuses the request once the store has been unreachable for a session timeout, or for
        three quarters of the client's timeout.
        """
        limit_ms = min(self._services.store.session_timeout_ms, timeout_ms * 3 // 4)
        text = self.text() if self._away_ms() >= limit_ms else None
        if text is None:
            return ask(partial(self._not_controller, request))
        return self._error_response(request, ErrorCode.REQUEST_TIMED_OUT, text)

    def _session_event(self, event: SessionEvent) -> None:
        if event is SessionEvent.CONNECTED:
            self._since_ms = None
        elif self._since_ms is None:
            self._since_ms = self._services.clock.monotonic_ms()

    def _away_ms(self) -> int:
        now_ms = self._services.clock.monotonic_ms()
        return 0 if self._since_ms is None else now_ms - self._since_ms

    def _not_controller(self, request: Request[Any]) -> Any:
        text = self.text() or "this broker is not the controller"
        return self._error_response(request, ErrorCode.NOT_CONTROLLER, text)

    def _look_later(self, request: Request[Any], pending: Pending, left_ms: int) -> None:
        step_ms = max(0, min(left_ms, self._services.store.session_timeout_ms))
        look = partial(self._look, request, pending, left_ms - step_ms)
        self._services.timers.after(step_ms, look)

    def _look(self, request: Request[Any], pending: Pending, left_ms: int) -> None:
        if pending.done:
            return
        text = self.text()
        if text is not None:
            pending.complete(self._error_response(request, ErrorCode.REQUEST_TIMED_OUT, text))
        elif left_ms > 0:
            self._look_later(request, pending, left_ms)
