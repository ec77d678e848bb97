"""Names of the timers that a group's coordinator sets: a kind, a group, and for some a member.

The coordinator keeps the deadlines in its state, so a timer that fires late or was set again is
harmless.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class TimerKind(Enum):
    """The event for which the group waits."""

    #: The next heartbeat of a member, or the return of a client that was given a member id.
    SESSION = "session"
    #: Members that have not yet joined the rebalance.
    JOIN = "join"
    #: Members that have not yet sent a SyncGroup.
    SYNC = "sync"


class TimerName(NamedTuple):
    """Identity of a timer; `member_id` is empty for timers of the group."""

    kind: TimerKind
    group_id: str
    member_id: str = ""
