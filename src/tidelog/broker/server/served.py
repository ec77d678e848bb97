"""An API that a broker serves: its description (`Card`), and a handler of its requests.

Handlers are already bound to the parts of the broker that they use (`apis.support.context`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tidelog.broker.server.requests import Card, Request
from tidelog.core.errors import ErrorCode

#: A function that returns the response, a `Pending`, or None for no response (DESIGN.md, rule 5).
Handler = Callable[[Request[Any]], Any]
#: Makes the response to a request that failed as a whole, None for a request without a response.
ErrorResponse = Callable[[Request[Any], ErrorCode], Any]


class Served(NamedTuple):
    """A served API: its description (`Card`), and the handler of its requests."""

    card: Card
    handle: Handler
