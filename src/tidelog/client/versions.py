"""Negotiation of API versions: a broker's ApiVersions response against this package's versions.

The client sends ApiVersions at version 3. A broker that does not know it responds with error 35
(KIP-511), and gets version 0.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from tidelog.client.steps import Address
from tidelog.core.errors import ErrorCode, KafkaError, ProtocolError
from tidelog.wire.codec import decode_response
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.registry import API, API_VERSIONS

_ID_AND_ERROR: Final = struct.Struct(">ih")
#: The versions of ApiVersions requests, one after the other. Brokers since 2.4 know 3, and 4 adds
#: nothing that is used here; every broker knows 0.
ASKED_VERSIONS: Final = (3, 0)


def api_versions_request(version: int, software_version: str) -> ApiVersionsRequest:
    """Return the first request on every connection."""
    if version < 3:
        return ApiVersionsRequest()
    return ApiVersionsRequest(
        client_software_name="tidelog", client_software_version=software_version
    )


def decode_api_versions(version: int, frame: memoryview) -> tuple[int, ApiVersionsResponse | None]:
    """Return correlation id and response, None where the broker does not know `version`.

    Such a response has a body of version 0 with only the range of ApiVersions. It is not needed:
    the client sends version 0 next. Raises ProtocolError.
    """
    if len(frame) >= 6:
        correlation_id, code = _ID_AND_ERROR.unpack_from(frame)
        if version and code == ErrorCode.UNSUPPORTED_VERSION:
            return correlation_id, None
    correlation_id, message = decode_response(API_VERSIONS, version, frame)
    if not isinstance(message, ApiVersionsResponse):
        raise ProtocolError("the answer to ApiVersions is another message")
    return correlation_id, message


@dataclass(frozen=True, slots=True)
class ServedVersions:
    """The version ranges of one broker by API key."""

    address: Address
    ranges: dict[int, tuple[int, int]]

    @classmethod
    def from_response(cls, address: Address, response: ApiVersionsResponse) -> ServedVersions:
        """Return the ranges of a response; raise KafkaError when it is an error."""
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(
                error_code(response.error_code), f"{address} rejected the ApiVersions request"
            )
        return cls(
            address,
            {each.api_key: (each.min_version, each.max_version) for each in response.api_keys},
        )

    def choose(self, api_key: int, max_version: int) -> int:
        """Return the highest version that both sides know, at most `max_version`.

        Raises KafkaError UNSUPPORTED_VERSION naming both ranges when there is none.
        """
        ours = API[api_key]
        served = self.ranges.get(api_key)
        if served is None:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, f"{self.address} does not serve {ours.name}"
            )
        low = max(ours.min_version, served[0])
        high = min(ours.max_version, served[1], max_version)
        if low > high:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{self.address} serves {ours.name} {served[0]} to {served[1]}; this client needs"
                f" {ours.min_version} to {min(ours.max_version, max_version)}",
            )
        return high


def error_code(number: int) -> ErrorCode:
    """Return the named error; UNKNOWN_SERVER_ERROR for a number that this package does not know."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
