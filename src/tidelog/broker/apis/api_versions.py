"""ApiVersions (key 18), versions 0 to 4: the version range of every API that the broker serves.

The response lists tidelog's own APIs only for clients with tidelog's software name on the
inter-broker listener (G5). Other clients might fail at the unknown keys, or derive a wrong broker
version from them. Brokers send each other requests without asking for versions first.

If a request's version is newer than the served versions, the broker responds in version 0 with
UNSUPPORTED_VERSION and the served ranges (KIP-511). From version 3 on, the broker responds
INVALID_REQUEST if the client's software name or version does not match Kafka's pattern.
"""

from __future__ import annotations

import re

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

CARD = Card(api_key=18, min_version=0, max_version=4)

#: The client software names of tidelog's programs: `tidelog`, perhaps with a suffix.
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
