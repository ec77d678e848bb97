"""The registry of the APIs that a broker serves; each API has a module or a row in `refused`.

Modules are named after API keys, as in `wire/messages`, so this text does not list them. Each
module opens with its API's `Card`, the description of the API. The broker derives ApiVersions and
the dispatch of requests from the `Card` of each API.

`support` has the parts that API modules share. `support.errors` derives the responses to requests
that fail as a whole. If the derived error responses do not suit an API, its module defines its own
`error_response()`.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache, partial
from typing import Any

from tidelog.broker.apis.refused import REFUSED
from tidelog.broker.apis.support import errors
from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Request
from tidelog.broker.server.served import Served
from tidelog.core.errors import ErrorCode


@cache
def modules() -> dict[int, Any]:
    """Return the API modules by API key; the APIs in `refused` have no module."""
    names = [module.name for module in pkgutil.iter_modules(__path__) if not module.ispkg]
    found = [importlib.import_module(f"{__name__}.{name}") for name in names if name != "refused"]
    by_key = {module.CARD.api_key: module for module in found}
    if len({*by_key, *REFUSED}) != len(found) + len(REFUSED):
        raise AssertionError("two modules of broker/apis, or rows of `refused`, serve one API key")
    return by_key


def cards() -> dict[int, Card]:
    """Return the `Card` (the description) of every API served, by key, in ascending order."""
    refused = {key: served.card for key, served in REFUSED.items()}
    own = {key: module.CARD for key, module in modules().items()}
    return dict(sorted((refused | own).items()))


def handlers(context: ApiContext) -> dict[int, Served]:
    """Return the `Card` and the handler of every API served, by key, in ascending order."""
    own = {
        key: Served(module.CARD, partial(module.handle, context))
        for key, module in modules().items()
    }
    return dict(sorted((REFUSED | own).items()))


def error_response(request: Request[Any], error: ErrorCode, message: str | None = None) -> Any:
    """Return a response in which every part of the request gets `error`.

    Returns None for a Produce with acks=0, which gets no response.
    """
    module = modules().get(request.header.api_key)
    own = getattr(module, "error_response", errors.error_response)
    return own(request, error, message)
