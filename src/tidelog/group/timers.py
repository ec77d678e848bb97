"""Names of a group coordinator's timers: the kind, the group, and for some kinds the member.

The coordinator's state has the deadlines, so a timer that fires late, or fires after it was set
again, does no harm.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class TimerKind(Enum):
    """Kind of a timer, by the event for which the coordinator waits until the timer fires."""

    #: Wait for a member's next heartbeat, or for the join of a client that was given a member id.
    SESSION = "session"
    #: Wait for members that have not yet rejoined during a rebalance.
    JOIN = "join"
    #: Wait for members that have not yet sent a SyncGroup after a rebalance.
    SYNC = "sync"


class TimerName(NamedTuple):
    """Identity of a timer; `member_id` is empty for timers of the group."""

    kind: TimerKind
    group_id: str
    member_id: str = ""
