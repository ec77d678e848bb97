"""SaslAuthenticate (key 36), versions 0 to 2: a token of a SASL exchange.

Version 1 returns the session's lifetime (KIP-368), version 2 is flexible.
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, binary, int16, int64, string


@dataclass(slots=True)
class SaslAuthenticateRequest:
    """The client's token of a SASL authentication."""

    auth_bytes: bytes = binary("0+")


@dataclass(slots=True)
class SaslAuthenticateResponse:
    """The broker's token of a SASL authentication; a session lifetime of 0 has no end."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", None, nullable="0+")
    auth_bytes: bytes = binary("0+")
    session_lifetime_ms: int = int64("1+", ignorable=True)


API = Api(
    key=36,
    name="SaslAuthenticate",
    request=SaslAuthenticateRequest,
    response=SaslAuthenticateResponse,
    min_version=0,
    max_version=2,
    first_flexible_version=2,
)
