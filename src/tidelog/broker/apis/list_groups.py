"""ListGroups (key 16), versions 0 to 5: the groups that this broker coordinates.

While the broker still loads a partition of `__consumer_offsets`, the error is
COORDINATOR_LOAD_IN_PROGRESS; the response then lists the groups loaded so far.
"""

from __future__ import annotations

from tidelog.broker.apis.support.context import ApiContext
from tidelog.broker.server.requests import Card, Request
from tidelog.core.authorization import DESCRIBE_CLUSTER, DESCRIBE_GROUP
from tidelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

CARD = Card(api_key=16, min_version=0, max_version=5, rights=(DESCRIBE_CLUSTER, DESCRIBE_GROUP))


def handle(context: ApiContext, request: Request[ListGroupsRequest]) -> ListGroupsResponse:
    """Return all groups that match the filters."""
    message = request.message
    error, groups = context.groups.list_groups(message.states_filter, message.types_filter)
    return ListGroupsResponse(error_code=error, groups=groups)
