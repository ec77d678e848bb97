"""AlterUserScramCredentials (key 51), version 0: set and remove SCRAM credentials (KIP-554).

The request carries salted and hashed credentials. Version 0 is flexible.
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.wire.schema import Api, array, binary, int8, int16, int32, string


@dataclass(slots=True)
class ScramCredentialDeletion:
    """A SCRAM credential to remove."""

    name: str = string("0+")
    mechanism: int = int8("0+")


@dataclass(slots=True)
class ScramCredentialUpsertion:
    """A SCRAM credential to set."""

    name: str = string("0+")
    mechanism: int = int8("0+")
    iterations: int = int32("0+")
    salt: bytes = binary("0+")
    salted_password: bytes = binary("0+")


@dataclass(slots=True)
class AlterUserScramCredentialsRequest:
    """The request to remove and to set SCRAM credentials."""

    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion, "0+")
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion, "0+")


@dataclass(slots=True)
class AlterUserScramCredentialsResult:
    """The outcome of the changes of one user's SCRAM credentials."""

    user: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", None, nullable="0+")


@dataclass(slots=True)
class AlterUserScramCredentialsResponse:
    """The outcomes of SCRAM credential changes, one per user."""

    throttle_time_ms: int = int32("0+")
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult, "0+")


API = Api(
    key=51,
    name="AlterUserScramCredentials",
    request=AlterUserScramCredentialsRequest,
    response=AlterUserScramCredentialsResponse,
    min_version=0,
    max_version=0,
    first_flexible_version=0,
)
