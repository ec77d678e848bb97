"""DescribeUserScramCredentials (key 50), version 0: no user has SCRAM credentials.

Each user gets RESOURCE_NOT_FOUND, or DUPLICATE_RESOURCE if the request names the user twice. A
Kafka broker without credentials responds in the same way.
"""

from __future__ import annotations

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Request
from tidelog.core.authorization import DESCRIBE_CLUSTER
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

CARD = Card(api_key=50, min_version=0, max_version=0, rights=(DESCRIBE_CLUSTER,))


def handle(
    context: ApiContext, request: Request[DescribeUserScramCredentialsRequest]
) -> DescribeUserScramCredentialsResponse:
    """Return one result for each user in the request; no result if it asks for all users."""
    message = request.message
    names = [user.name for user in message.users or ()]
    return DescribeUserScramCredentialsResponse(
        results=[_missing(name, names.count(name)) for name in dict.fromkeys(names)]
    )


def _missing(name: str, times: int) -> DescribeUserScramCredentialsResult:
    if not name:
        error, message = ErrorCode.RESOURCE_NOT_FOUND, "the name of a user is empty"
    elif times > 1:
        error, message = ErrorCode.DUPLICATE_RESOURCE, f"user {name!r} is named {times} times"
    else:
        error, message = ErrorCode.RESOURCE_NOT_FOUND, f"user {name!r} has no SCRAM credentials"
    return DescribeUserScramCredentialsResult(name, error, message)
