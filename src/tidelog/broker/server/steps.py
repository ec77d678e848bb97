"""Steps around handlers: functions that get each request first, or each response last.

`Dispatcher.put_around` puts a step around every handler; the step that was put last is the
outermost. A step before the handler can respond in place of the handler, for example to a request
without the necessary rights. A step after the handler gets the response, even if the response is
completed later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.broker.server.served import Served

#: A function that puts a step around the handler of an API, and returns the API.
Step = Callable[[Served], Served]

#: A function that returns a response (or a `Pending`) instead of the handler's, or `GO_ON` to call
#: the handler.
Before = Callable[[Card, Request[Any]], Any]
#: A function that gets the handler's response (None if there is none) and returns the response to
#: send.
After = Callable[[Card, Request[Any], Any], Any]


class _GoOn:
    """The class of `GO_ON`, which must differ from every response, None included."""


GO_ON = _GoOn()


def before(check: Before) -> Step:
    """Return the step that calls `check` before each request begins.

    If `check` returns a response, the handler and the inner steps are skipped. Outer steps handle a
    response from `check` like a response from the handler.
    """

    def around(served: Served) -> Served:
        card, handle = served

        def begin(request: Request[Any]) -> Any:
            response = check(card, request)
            return handle(request) if response is GO_ON else response

        return Served(card, begin)

    return around


def after(finish: After) -> Step:
    """Return the step that passes each response to `finish`, once, when the response is complete.

    If the connection is lost before the response is complete, the request has no response and
    `finish` is not called.
    """

    def around(served: Served) -> Served:
        card, handle = served

        def begin(request: Request[Any]) -> Any:
            return then(handle(request), lambda response: finish(card, request, response))

        return Served(card, begin)

    return around


def then(response: Any, finish: Callable[[Any], Any]) -> Any:
    """Return `finish(response)`; for a `Pending`, return a new `Pending` for the result."""
    if type(response) is not Pending:
        return finish(response)
    outer = Pending()
    outer.on_cancel(response.cancel)

    def finished(message: Any) -> None:
        result = finish(message)
        if type(result) is Pending:
            outer.on_cancel(result.cancel)
            result.deliver_to(outer.complete)
        else:
            outer.complete(result)

    response.deliver_to(finished)
    return outer


def proving_broker(served: Served) -> Served:
    """Return the API; if only brokers use it, each request marks its connection as a broker's."""
    return before(_prove)(served) if served.card.inter_broker else served


def _prove(_: Card, request: Request[Any]) -> Any:
    if not request.connection.is_broker:
        request.connection.prove_broker()
    return GO_ON
