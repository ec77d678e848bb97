"""Negotiation of API versions: the first request on every connection.

The client sends ApiVersions at version 3. A broker that does not know version 3 responds with error
35 (KIP-511), and the client retries with version 0.
"""

from __future__ import annotations

from typing import Final

from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.api_versions import ApiVersionsRequest

#: The versions of ApiVersions that the client tries in turn. Brokers since Kafka 2.4 know version
#: 3, and every broker knows version 0.
ASKED_VERSIONS: Final = (3, 0)


def api_versions_request(version: int, software_version: str) -> ApiVersionsRequest:
    """Return the first request on every connection."""
    if version < 3:
        return ApiVersionsRequest()
    return ApiVersionsRequest(
        client_software_name="tidelog", client_software_version=software_version
    )


def error_code(number: int) -> ErrorCode:
    """Return the ErrorCode with this number; UNKNOWN_SERVER_ERROR for an unknown number."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
