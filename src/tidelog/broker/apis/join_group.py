"""JoinGroup (key 11), versions 0 to 9: become or stay a member of a group.

The coordinator responds when the rebalance is over: with the generation, its protocol, and for the
group's leader its members. A newcomer of version 4 or later first gets MEMBER_ID_REQUIRED and an id
(KIP-394). A client that loses its connection while it waits stays a member until its session is
over, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.broker.server.requests import Card, Request
from tidelog.group.answers import JoinAnswer
from tidelog.group.requests import JoinAsked, Protocol
from tidelog.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

if TYPE_CHECKING:
    from tidelog.broker.apis.support.context import ApiContext

CARD = Card(api_key=11, min_version=0, max_version=9)

_REBALANCE_TIMEOUT_VERSION = 1
_NULL_PROTOCOL_VERSION = 7


def handle(context: ApiContext, request: Request[JoinGroupRequest]) -> Any:
    """Ask the group's coordinator."""
    message = request.message
    version = request.header.api_version
    has_own_timeout = version >= _REBALANCE_TIMEOUT_VERSION
    asked = JoinAsked(
        ticket=context.groups.ticket(),
        version=version,
        group_id=message.group_id,
        member_id=message.member_id,
        instance_id=message.group_instance_id,
        client_id=request.header.client_id or "",
        client_host=_host(request.connection.peer),
        session_timeout_ms=message.session_timeout_ms,
        rebalance_timeout_ms=(
            message.rebalance_timeout_ms if has_own_timeout else message.session_timeout_ms
        ),
        protocol_type=message.protocol_type,
        protocols=tuple(Protocol(each.name, each.metadata) for each in message.protocols),
        uuid=_uuid(context.services.ports.random.randbytes(16)),
    )
    return context.groups.answer(request, asked, lambda answer: _response(answer, version))


def _response(answer: JoinAnswer, version: int) -> JoinGroupResponse:
    protocol_name = answer.protocol_name
    if protocol_name is None and version < _NULL_PROTOCOL_VERSION:
        protocol_name = ""
    return JoinGroupResponse(
        error_code=answer.error,
        generation_id=answer.generation_id,
        protocol_type=answer.protocol_type,
        protocol_name=protocol_name,
        leader=answer.leader_id,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            JoinGroupResponseMember(member.member_id, member.instance_id, member.metadata)
            for member in answer.members
        ],
    )


def _host(peer: str) -> str:
    """Return the client's address in Kafka's form: Java's text of an address without a name."""
    return "/" + peer.rpartition(":")[0].strip("[]")


def _uuid(raw: bytes) -> str:
    text = raw.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
