"""DescribeDelegationToken (key 41), versions 1 to 3: delegation tokens by owner (KIP-48).

Version 2 is flexible, version 3 returns the principal that requested the token (KIP-373).
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, binary, int16, int32, int64, string


@dataclass(slots=True)
class DescribeDelegationTokenOwner:
    """An owner whose delegation tokens are listed."""

    principal_type: str = string("0+")
    principal_name: str = string("0+")


@dataclass(slots=True)
class DescribeDelegationTokenRequest:
    """The owners whose tokens are described; null `owners` mean all tokens."""

    owners: list[DescribeDelegationTokenOwner] | None = array(
        DescribeDelegationTokenOwner, "0+", nullable="0+"
    )


@dataclass(slots=True)
class DescribedDelegationTokenRenewer:
    """A principal that may renew the described token."""

    principal_type: str = string("0+")
    principal_name: str = string("0+")


@dataclass(slots=True)
class DescribedDelegationToken:
    """One delegation token, with its times in ms."""

    principal_type: str = string("0+")
    principal_name: str = string("0+")
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp: int = int64("0+")
    expiry_timestamp: int = int64("0+")
    max_timestamp: int = int64("0+")
    token_id: str = string("0+")
    hmac: bytes = binary("0+")
    renewers: list[DescribedDelegationTokenRenewer] = array(DescribedDelegationTokenRenewer, "0+")


@dataclass(slots=True)
class DescribeDelegationTokenResponse:
    """The described delegation tokens."""

    error_code: int = int16("0+")
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken, "0+")
    throttle_time_ms: int = int32("0+")


API = Api(
    key=41,
    name="DescribeDelegationToken",
    request=DescribeDelegationTokenRequest,
    response=DescribeDelegationTokenResponse,
    min_version=1,
    max_version=3,
    first_flexible_version=2,
)
