"""Negotiates API versions: what a broker answers to ApiVersions against what this package speaks.

ApiVersions itself is asked at our highest version; an older broker answers error 35 with a body of
version 0, which holds its ranges (KIP-511).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidelog.client.steps import Address
from tidelog.core.errors import ErrorCode, KafkaError, ProtocolError
from tidelog.wire.codec import decode_response
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.registry import API, API_VERSIONS

#: The version at which ApiVersions is asked.
ASKED_VERSION: Final = API[API_VERSIONS].max_version


def api_versions_request(software_version: str) -> ApiVersionsRequest:
    """The first request on every connection."""
    return ApiVersionsRequest(
        client_software_name="tidelog", client_software_version=software_version
    )


def decode_api_versions(frame: memoryview) -> tuple[int, ApiVersionsResponse]:
    """Correlation id and answer, whichever version the broker chose. Raises ProtocolError."""
    refused = (
        len(frame) >= 6
        and int.from_bytes(frame[4:6], "big", signed=True) == ErrorCode.UNSUPPORTED_VERSION
    )
    correlation_id, message = decode_response(API_VERSIONS, 0 if refused else ASKED_VERSION, frame)
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
        """Reads the answer; KafkaError for an error other than UNSUPPORTED_VERSION."""
        if response.error_code not in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION):
            raise KafkaError(
                error_code(response.error_code), f"{address} refused to tell its API versions"
            )
        return cls(
            address,
            {each.api_key: (each.min_version, each.max_version) for each in response.api_keys},
        )

    def choose(self, api_key: int, max_version: int) -> int:
        """The highest version that both speak, at most `max_version`.

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
    """The named error; UNKNOWN_SERVER_ERROR for a number that this package does not know."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
