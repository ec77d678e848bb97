"""Steps around handlers: what happens to every request before, and to every response after.

`Dispatcher.put_around` puts a step around every handler, the last one outermost. A request stops
before its handler where a right is missing or a test wants it. Throttle times, counts and a log of
requests need the response, whenever it comes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidelog.broker.server.requests import Card, Pending, Request
from tidelog.broker.server.served import Served

#: Returns the same API with a step around its handler.
Step = Callable[[Served], Served]

#: Returns the response instead of the handler's, a `Pending` too; `GO_ON` for the handler's own.
Before = Callable[[Card, Request[Any]], Any]
#: Gets the response (None: there is none) and returns the one to send.
After = Callable[[Card, Request[Any], Any], Any]


class _GoOn:
    """The class of `GO_ON`, which is no response: None is one."""


GO_ON = _GoOn()


def before(check: Before) -> Step:
    """Return the step that asks `check` before each request begins.

    A response of `check` skips the handler and the inner steps. The outer steps handle it like any
    other response.
    """

    def around(served: Served) -> Served:
        card, handle = served

        def begin(request: Request[Any]) -> Any:
            response = check(card, request)
            return handle(request) if response is GO_ON else response

        return Served(card, begin)

    return around


def after(finish: After) -> Step:
    """Return the step that gives each response to `finish`, once, when it is there.

    A request whose connection is lost first has no response.
    """

    def around(served: Served) -> Served:
        card, handle = served

        def begin(request: Request[Any]) -> Any:
            return then(handle(request), lambda response: finish(card, request, response))

        return Served(card, begin)

    return around


def then(response: Any, finish: Callable[[Any], Any]) -> Any:
    """Return what `finish` makes of a response, which may be a `Pending`, as may what it makes."""
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
    """Return an API; if only brokers may ask it, a request proves that its connection is one's."""
    return before(_prove)(served) if served.card.inter_broker else served


def _prove(_: Card, request: Request[Any]) -> Any:
    if not request.connection.is_broker:
        request.connection.prove_broker()
    return GO_ON
