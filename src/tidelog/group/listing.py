"""DescribeGroups and ListGroups: the visible state of groups.

Metadata and assignments are shown of stable groups only: in other states they belong to no
generation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.core.errors import ErrorCode
from tidelog.group.asked import GROUP_ID_NOT_FOUND_VERSION, Asked
from tidelog.group.group import Group, GroupState
from tidelog.group.turn import Turn
from tidelog.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from tidelog.wire.messages.list_groups import ListedGroup

#: The only type of group that this package knows (ListGroups version 5).
GROUP_TYPE = "classic"


def describe(turn: Turn, asked: Asked[DescribeGroupsRequest]) -> None:
    """Decide a DescribeGroups request for one group."""
    group = turn.groups.get(asked.group_id)
    if group is None:
        is_error = asked.version >= GROUP_ID_NOT_FOUND_VERSION
        error = ErrorCode.GROUP_ID_NOT_FOUND if is_error else ErrorCode.NONE
        turn.reply(asked.ticket, DescribedGroup(error, asked.group_id, GroupState.DEAD.value))
        return
    protocol_name = group.protocol_name if group.state is GroupState.STABLE else None
    turn.reply(
        asked.ticket,
        DescribedGroup(
            ErrorCode.NONE,
            group.group_id,
            group.state.value,
            group.protocol_type or "",
            protocol_name or "",
            [member.described(protocol_name) for member in group.members.values()],
        ),
    )


def list_groups(
    groups: Mapping[str, Group], states: Iterable[str], types: Iterable[str]
) -> list[ListedGroup]:
    """Return the groups in any of these states and of any of these types.

    An empty filter matches all. Upper and lower case are the same.
    """
    wanted = [state.lower() for state in states]
    wanted_types = [each.lower() for each in types]
    if wanted_types and GROUP_TYPE not in wanted_types:
        return []
    return [
        ListedGroup(group.group_id, group.protocol_type or "", group.state.value, GROUP_TYPE)
        for group in groups.values()
        if not wanted or group.state.value.lower() in wanted
    ]
