"""An API as a connection sees it: its card, and a handler of its requests.

Handlers are bound to the rooms that they work with (`apis.support.context`) before they come here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tidelog.broker.server.requests import Card, Request
from tidelog.core.errors import ErrorCode

#: Returns the response, a `Pending`, or None for no response (DESIGN.md, rule 5).
Handler = Callable[[Request[Any]], Any]
#: Makes the response to a request that failed as a whole, None where it wants no response.
ErrorResponse = Callable[[Request[Any], ErrorCode], Any]


class Served(NamedTuple):
    """A card and its handler."""

    card: Card
    handle: Handler
