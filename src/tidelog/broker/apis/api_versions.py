"""ApiVersions (key 18), versions 0 to 4: the versions of every API that the broker serves.

The response has the version range of every API that the broker serves. On the inter-broker
listener, a client with tidelog's software name also gets tidelog's own APIs (G5); no other client
does. Some clients fail at unknown keys, and others guess the broker's version from all keys that
they see. Brokers send each other requests without asking for versions first.

If a request's version is newer than the served versions, the connection responds with version 0,
UNSUPPORTED_VERSION and the ranges (KIP-511). From version 3 on, software name and version must
match Kafka's pattern, else the error is INVALID_REQUEST.
"""

from __future__ import annotations

import re

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

CARD = Card(api_key=18, min_version=0, max_version=4)

#: Software names of tidelog's client, and of programs that are built on it and named after it.
_OURS = re.compile(r"tidelog(-.*)?")
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(context: ApiContext, request: Request[ApiVersionsRequest]) -> ApiVersionsResponse:
    """Return the version range of every API served."""
    message = request.message
    error = ErrorCode.NONE
    if request.header.api_version >= 3 and not (
        _SOFTWARE.fullmatch(message.client_software_name)
        and _SOFTWARE.fullmatch(message.client_software_version)
    ):
        error = ErrorCode.INVALID_REQUEST
    own = request.connection.serves_own and _OURS.fullmatch(message.client_software_name)
    return ApiVersionsResponse(
        error_code=error, api_keys=context.dispatcher.advertised_versions(include_own=bool(own))
    )
