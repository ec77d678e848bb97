"""DescribeGroups and ListGroups: the state of groups that clients see.

The group itself returns this state; a group that does not exist has the state Dead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.core.errors import ErrorCode
from tidelog.group.asked import GROUP_ID_NOT_FOUND_VERSION, Asked
from tidelog.group.group import Group
from tidelog.group.turn import Turn
from tidelog.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from tidelog.wire.messages.list_groups import ListedGroup

#: State of a group that does not exist.
DEAD = "Dead"


def describe(turn: Turn, asked: Asked[DescribeGroupsRequest]) -> None:
    """Handle a DescribeGroups request for one group."""
    group = turn.groups.get(asked.group_id)
    if group is None:
        is_error = asked.version >= GROUP_ID_NOT_FOUND_VERSION
        error = ErrorCode.GROUP_ID_NOT_FOUND if is_error else ErrorCode.NONE
        turn.reply(asked.ticket, DescribedGroup(error, asked.group_id, DEAD))
        return
    turn.reply(asked.ticket, group.described())


def list_groups(
    groups: Mapping[str, Group], states: Iterable[str], types: Iterable[str]
) -> list[ListedGroup]:
    """Return the groups in any of these states and of any of these types.

    An empty filter matches all groups. The filters do not distinguish upper and lower case.
    """
    wanted = [state.lower() for state in states]
    wanted_types = [each.lower() for each in types]
    return [
        listed
        for listed in (group.listed() for group in groups.values())
        if (not wanted or listed.group_state.lower() in wanted)
        and (not wanted_types or listed.group_type in wanted_types)
    ]
