"""The error response of an API whose response has one error for the whole request.

An API that reports errors per topic, partition or entry has an `error_response` of its own in its
module. Source: the getErrorResponse of Kafka's requests.
"""

from __future__ import annotations

from typing import Any

from tidelog.broker.server.requests import Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.registry import API


def error_response(request: Request[Any], error: ErrorCode, message: str | None = None) -> Any:
    """Return a response that gives `error`, and `message` where it has room."""
    response = API[request.header.api_key].response(error_code=error)
    if message is not None and hasattr(response, "error_message"):
        response.error_message = message
    return response
