"""One module per API key, named as in `wire/messages`; each opens with its card.

This package is the registry of the APIs that a broker serves. ApiVersions and the dispatch of
requests are derived from the cards, so that an API is served exactly as its card says. A module
whose API reports errors per entry has its own `error_response`; the others share `support.errors`.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from tidelog.broker.apis.support import errors
from tidelog.broker.server.requests import Card, Request
from tidelog.broker.server.served import Served
from tidelog.core.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.broker.apis.support.context import ApiContext


@cache
def modules() -> dict[int, Any]:
    """Return the module of every API served, by key, in ascending order."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.ispkg)
    found: list[Any] = [importlib.import_module(f"{__name__}.{name}") for name in names]
    by_key = {module.CARD.api_key: module for module in found}
    if len(by_key) != len(found):
        raise AssertionError("two modules of broker/apis serve the same API key")
    return dict(sorted(by_key.items()))


def cards() -> dict[int, Card]:
    """Return the card of every API served, by key."""
    return {key: module.CARD for key, module in modules().items()}


def handlers(context: ApiContext) -> dict[int, Served]:
    """Return every API served, by key: its card, and its handler of requests."""
    return {
        key: Served(module.CARD, partial(module.handle, context))
        for key, module in modules().items()
    }


def error_response(request: Request[Any], error: ErrorCode, message: str | None = None) -> Any:
    """Return the response that gives `error` to every part of a request.

    None for a Produce that wants no response.
    """
    module = modules().get(request.header.api_key)
    own = getattr(module, "error_response", errors.error_response)
    return own(request, error, message)
