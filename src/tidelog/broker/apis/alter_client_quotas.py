"""AlterClientQuotas (key 49), versions 0 and 1: refused.

Brokers enforce no quotas. Clients show UNSUPPORTED_VERSION with the broker's message and do not
retry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.apis.support.unserved import NO_QUOTAS
from tidelog.broker.server.requests import Card, Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryResult,
)

if TYPE_CHECKING:
    from tidelog.broker.apis.support.context import ApiContext

CARD = Card(api_key=49, min_version=0, max_version=1, refused="no quotas")


def handle(
    context: ApiContext, request: Request[AlterClientQuotasRequest]
) -> AlterClientQuotasResponse:
    """Refuse each entity."""
    return error_response(request, ErrorCode.UNSUPPORTED_VERSION, NO_QUOTAS)


def error_response(
    request: Request[AlterClientQuotasRequest], error: ErrorCode, message: str | None = None
) -> AlterClientQuotasResponse:
    """Return the response that gives `error` to everything that was asked for."""
    return AlterClientQuotasResponse(
        entries=[EntryResult(error, message, entry.entity) for entry in request.message.entries]
    )
