"""Names of the timers that a group's coordinator sets: a kind, a group, and maybe a member.

The coordinator keeps the deadlines in its state, so a timer that fires late or was replaced does no
harm.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class TimerKind(Enum):
    """What the group waits for."""

    #: The next heartbeat of a member, or the return of a client that was given an id.
    SESSION = "session"
    #: Members that have not joined the rebalance.
    JOIN = "join"
    #: Members that have not asked for their assignment.
    SYNC = "sync"


class TimerName(NamedTuple):
    """Identity of a timer; `member_id` is empty for timers of the group."""

    kind: TimerKind
    group_id: str
    member_id: str = ""
