"""RenewDelegationToken (key 39), versions 1 and 2: prolong a delegation token (KIP-48).

Version 2 is flexible.
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, binary, int16, int32, int64


@dataclass(slots=True)
class RenewDelegationTokenRequest:
    """The HMAC of a delegation token, and the period of its renewal."""

    hmac: bytes = binary("0+")
    renew_period_ms: int = int64("0+")


@dataclass(slots=True)
class RenewDelegationTokenResponse:
    """The time at which the renewed token expires, or -1 with an error."""

    error_code: int = int16("0+")
    expiry_timestamp_ms: int = int64("0+")
    throttle_time_ms: int = int32("0+")


API = Api(
    key=39,
    name="RenewDelegationToken",
    request=RenewDelegationTokenRequest,
    response=RenewDelegationTokenResponse,
    min_version=1,
    max_version=2,
    first_flexible_version=2,
)
