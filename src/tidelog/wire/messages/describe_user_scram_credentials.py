"""DescribeUserScramCredentials (key 50), version 0: SCRAM credentials of users (KIP-554).

Version 0 is flexible.
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, int8, int16, int32, string


@dataclass(slots=True)
class UserName:
    """A user whose SCRAM credentials are described."""

    name: str = string("0+")


@dataclass(slots=True)
class DescribeUserScramCredentialsRequest:
    """The users to describe; null or empty `users` mean all users."""

    users: list[UserName] | None = array(UserName, "0+", nullable="0+")


@dataclass(slots=True)
class CredentialInfo:
    """The mechanism and the iterations of a SCRAM credential."""

    mechanism: int = int8("0+")
    iterations: int = int32("0+")


@dataclass(slots=True)
class DescribeUserScramCredentialsResult:
    """The SCRAM credentials of one user."""

    user: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", None, nullable="0+")
    credential_infos: list[CredentialInfo] = array(CredentialInfo, "0+")


@dataclass(slots=True)
class DescribeUserScramCredentialsResponse:
    """The described SCRAM credentials, one result per user."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", None, nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = array(
        DescribeUserScramCredentialsResult, "0+"
    )


API = Api(
    key=50,
    name="DescribeUserScramCredentials",
    request=DescribeUserScramCredentialsRequest,
    response=DescribeUserScramCredentialsResponse,
    min_version=0,
    max_version=0,
    first_flexible_version=0,
)
