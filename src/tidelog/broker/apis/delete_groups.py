"""DeleteGroups (key 42), versions 0 to 2: delete empty groups and their offsets (KIP-229).

The coordinator responds when all in-sync replicas have the tombstones of the deleted groups. A
group with members gets NON_EMPTY_GROUP, and an unknown group gets GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from typing import Any

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Request
from tidelog.core.authorization import DELETE_GROUP
from tidelog.wire.messages.delete_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

CARD = Card(api_key=42, min_version=0, max_version=2, rights=(DELETE_GROUP,))


def handle(context: ApiContext, request: Request[DeleteGroupsRequest]) -> Any:
    """Ask the coordinator of each group; a group named twice is deleted once."""
    message = request.message
    groups = list(dict.fromkeys(message.groups_names))
    return context.groups.answer_all(
        request,
        [context.groups.asked(request, group_id) for group_id in groups],
        lambda answers: DeleteGroupsResponse(results=list(answers)),
    )
