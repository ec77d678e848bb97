"""ExpireDelegationToken (key 40), versions 1 and 2: end a delegation token (KIP-48).

Version 2 is flexible.
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, binary, int16, int32, int64


@dataclass(slots=True)
class ExpireDelegationTokenRequest:
    """The HMAC of a token and its new period; a negative period expires it at once."""

    hmac: bytes = binary("0+")
    expiry_time_period_ms: int = int64("0+")


@dataclass(slots=True)
class ExpireDelegationTokenResponse:
    """The time at which the delegation token expires, or -1 with an error."""

    error_code: int = int16("0+")
    expiry_timestamp_ms: int = int64("0+")
    throttle_time_ms: int = int32("0+")


API = Api(
    key=40,
    name="ExpireDelegationToken",
    request=ExpireDelegationTokenRequest,
    response=ExpireDelegationTokenResponse,
    min_version=1,
    max_version=2,
    first_flexible_version=2,
)
