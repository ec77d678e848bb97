"""AlterUserScramCredentials (key 51), version 0: refused.

All listeners are PLAINTEXT, so no SCRAM mechanism is enabled. Setting a credential fails with
UNSUPPORTED_SASL_MECHANISM. Removing a credential fails with RESOURCE_NOT_FOUND, as in Kafka.
"""

from __future__ import annotations

from tidelog.broker.apis.refused import NO_LOGIN, PLAINTEXT_LISTENER
from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.apis.support.errors import error_entries
from tidelog.broker.server.requests import Card, Request
from tidelog.core.authorization import ALTER_CLUSTER
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

CARD = Card(api_key=51, min_version=0, max_version=0, refused=NO_LOGIN, rights=(ALTER_CLUSTER,))


def handle(
    context: ApiContext, request: Request[AlterUserScramCredentialsRequest]
) -> AlterUserScramCredentialsResponse:
    """Return one error for each user."""
    message = request.message
    outcomes = {
        deletion.name: (
            ErrorCode.RESOURCE_NOT_FOUND,
            f"user {deletion.name!r} has no SCRAM credentials",
        )
        for deletion in message.deletions
    }
    for upsertion in message.upsertions:
        outcomes[upsertion.name] = (ErrorCode.UNSUPPORTED_SASL_MECHANISM, PLAINTEXT_LISTENER)
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(name, error, text)
            for name, (error, text) in outcomes.items()
        ]
    )


def error_response(
    request: Request[AlterUserScramCredentialsRequest], error: ErrorCode, message: str | None = None
) -> AlterUserScramCredentialsResponse:
    """Return `error` once for each user."""
    names = [deletion.name for deletion in request.message.deletions]
    names += [upsertion.name for upsertion in request.message.upsertions]
    return AlterUserScramCredentialsResponse(
        results=error_entries(request, list(dict.fromkeys(names)), error, message)
    )
