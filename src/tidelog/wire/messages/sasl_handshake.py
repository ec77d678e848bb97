"""SaslHandshake (key 17), versions 0 and 1: the SASL mechanism that a client wants to use.

From version 1 on, the client sends its tokens by SaslAuthenticate after the handshake. No version
is flexible.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import NEVER_FLEXIBLE, Api, array, int16, string


@dataclass(slots=True)
class SaslHandshakeRequest:
    """The SASL mechanism that the client chose."""

    mechanism: str = string("0+")


@dataclass(slots=True)
class SaslHandshakeResponse:
    """The outcome, with the SASL mechanisms that the broker has enabled."""

    error_code: int = int16("0+")
    mechanisms: Sequence[str] = array("string", "0+")


API = Api(
    key=17,
    name="SaslHandshake",
    request=SaslHandshakeRequest,
    response=SaslHandshakeResponse,
    min_version=0,
    max_version=1,
    first_flexible_version=NEVER_FLEXIBLE,
)
