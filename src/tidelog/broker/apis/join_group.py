"""JoinGroup (key 11), versions 0 to 9: a client becomes or stays a member of a group.

When the rebalance is complete, the coordinator responds with the generation and its protocol; the
group's leader also gets the list of members. A new client from version 4 on first gets
MEMBER_ID_REQUIRED and a member id (KIP-394). A client that loses its connection while it waits
stays a member until its session expires, as in Kafka.
"""

from __future__ import annotations

from typing import Any

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Request
from tidelog.core.authorization import READ_GROUP
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

CARD = Card(api_key=11, min_version=0, max_version=9, rights=(READ_GROUP,))

_REBALANCE_TIMEOUT_VERSION = 1
_NULL_PROTOCOL_VERSION = 7


def handle(context: ApiContext, request: Request[JoinGroupRequest]) -> Any:
    """Pass the request to the group's coordinator."""
    message = request.message
    version = request.header.api_version
    if version < _REBALANCE_TIMEOUT_VERSION:
        message.rebalance_timeout_ms = message.session_timeout_ms
    asked = context.groups.asked(
        request,
        message.group_id,
        client_id=request.header.client_id or "",
        client_host=_host(request.connection.peer),
        uuid=_uuid(context.services.ports.random.randbytes(16)),
    )
    return context.groups.answer(request, asked, lambda answer: _response(answer, version))


def _response(response: JoinGroupResponse, version: int) -> JoinGroupResponse:
    if version < _NULL_PROTOCOL_VERSION and response.protocol_name is None:
        response.protocol_name = ""
    return response


def _host(peer: str) -> str:
    """Return the client's address as Kafka shows it: a slash and the address without the port."""
    return "/" + peer.rpartition(":")[0].strip("[]")


def _uuid(raw: bytes) -> str:
    text = raw.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
