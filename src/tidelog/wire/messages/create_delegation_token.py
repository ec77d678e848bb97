"""CreateDelegationToken (key 38), versions 1 to 3: make a delegation token (KIP-48).

Version 2 is flexible, version 3 makes a token for another owner (KIP-373).
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, binary, int16, int32, int64, string


@dataclass(slots=True)
class CreatableRenewers:
    """A principal that may renew the delegation token."""

    principal_type: str = string("0+")
    principal_name: str = string("0+")


@dataclass(slots=True)
class CreateDelegationTokenRequest:
    """The request for a token; `max_lifetime_ms` -1 means the broker's own limit."""

    owner_principal_type: str | None = string("3+", nullable="3+")
    owner_principal_name: str | None = string("3+", nullable="3+")
    renewers: list[CreatableRenewers] = array(CreatableRenewers, "0+")
    max_lifetime_ms: int = int64("0+")


@dataclass(slots=True)
class CreateDelegationTokenResponse:
    """The new delegation token, with its times in ms, or -1 without a token."""

    error_code: int = int16("0+")
    principal_type: str = string("0+")
    principal_name: str = string("0+")
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp_ms: int = int64("0+")
    expiry_timestamp_ms: int = int64("0+")
    max_timestamp_ms: int = int64("0+")
    token_id: str = string("0+")
    hmac: bytes = binary("0+")
    throttle_time_ms: int = int32("0+")


API = Api(
    key=38,
    name="CreateDelegationToken",
    request=CreateDelegationTokenRequest,
    response=CreateDelegationTokenResponse,
    min_version=1,
    max_version=3,
    first_flexible_version=2,
)
