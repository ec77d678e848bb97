"""One module per API key, named as in `wire/messages`; each opens with its card.

The registry of what a broker serves: ApiVersions and the dispatch of requests are derived from the
cards, so that an API is served exactly as its card says.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.broker.server.requests import Card, Request

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker


Handler = Callable[["Broker", Request], Any]


class Served(NamedTuple):
    """A card and its handler."""

    card: Card
    handle: Handler


def handlers() -> dict[int, Served]:
    """Every API served, by key, in ascending order: one for each module of this package."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.ispkg)
    modules: list[Any] = [importlib.import_module(f"{__name__}.{name}") for name in names]
    served = {module.CARD.api_key: Served(module.CARD, module.handle) for module in modules}
    if len(served) != len(modules):
        raise AssertionError("two modules of broker/apis serve the same API key")
    return dict(sorted(served.items()))
