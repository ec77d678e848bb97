"""AlterUserScramCredentials (key 51), version 0: refused.

Listeners are PLAINTEXT, so no SCRAM mechanism is enabled. The error for a credential to set is
UNSUPPORTED_SASL_MECHANISM. For a credential to remove it is RESOURCE_NOT_FOUND, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.apis.support.unserved import PLAINTEXT_LISTENER
from tidelog.broker.server.requests import Card, Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from tidelog.broker.apis.support.context import ApiContext

CARD = Card(
    api_key=51,
    min_version=0,
    max_version=0,
    refused="no authentication: listeners are PLAINTEXT",
)


def handle(
    context: ApiContext, request: Request[AlterUserScramCredentialsRequest]
) -> AlterUserScramCredentialsResponse:
    """Refuse each user once."""
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
    """Return the response that gives `error` to everything that was asked for."""
    names = [deletion.name for deletion in request.message.deletions]
    names += [upsertion.name for upsertion in request.message.upsertions]
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(name, error, message) for name in dict.fromkeys(names)
        ]
    )
