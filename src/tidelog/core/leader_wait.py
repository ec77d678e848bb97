"""Why a partition has no leader, and for which brokers its election waits (E4, E6).

Members are the ISR and the eligible leader replicas. A member that provably has all committed
records becomes leader as soon as its broker is registered. If no member provably has all committed
records, `quorum` members must register, so that the controller can compare their logs. The
controller determines the statuses of the members, and all brokers report them to clients. Fields
that only tidelog has in UpdateMetadata and DescribeTopicPartitions carry the numbers of the
statuses.
"""

from __future__ import annotations

from enum import IntEnum

from tidelog.core.dataclass import dataclass
from tidelog.core.types import NO_LEADER


class MemberStatus(IntEnum):
    """Status of a member for the election of its partition's next leader."""

    #: The member is registered; the controller has not asked for its log end.
    REGISTERED = 0
    #: The member has reported its log end.
    COMPARED = 1
    NOT_REGISTERED = 2
    #: The member is shutting down.
    LEAVING = 3
    #: The controller has asked for the member's log end, which has not come yet.
    ASKED = 4
    #: The member cannot read its log now.
    UNREADABLE = 5
    #: The member has lost its replica (D3).
    LOST = 6
    #: The member cannot report log ends, because its broker runs Kafka.
    SILENT = 7

    @property
    def word(self) -> str:
        """The status' name in events and JSON documents."""
        return self.name.lower()


#: Texts that explain why a partition waits for a member, by the member's status.
_AWAITED = {
    MemberStatus.NOT_REGISTERED: "not registered",
    MemberStatus.LEAVING: "shutting down",
    MemberStatus.ASKED: "asked for the end of its log",
    MemberStatus.UNREADABLE: "cannot read its log",
}
#: Statuses with which a member counts for the quorum.
_COUNTED = (
    MemberStatus.REGISTERED,
    MemberStatus.COMPARED,
    MemberStatus.ASKED,
    MemberStatus.LOST,
    MemberStatus.SILENT,
)


@dataclass(frozen=True, slots=True)
class LeaderWait:
    """The members for which the election of a partition's leader waits, with their statuses."""

    #: Members with their statuses, the ISR first.
    members: tuple[tuple[int, MemberStatus], ...] = ()
    #: Number of members that must be registered before the controller may elect a member without
    #: proof that the member has every committed record (k of E6).
    quorum: int = 0
    #: Whether leader.recovery.wait.ms has not passed yet, so that the election still waits for
    #: missing members.
    is_waiting: bool = False

    @property
    def awaited(self) -> tuple[int, ...]:
        """The members that must register or respond before a leader can be elected."""
        return tuple(member for member, status in self.members if status in _AWAITED)


def status_of(number: int) -> MemberStatus:
    """Return the status with this number; REGISTERED for an unknown number of a later version."""
    try:
        return MemberStatus(number)
    except ValueError:
        return MemberStatus.REGISTERED


def reason(wait: LeaderWait, last_leader: int = NO_LEADER) -> str:
    """Return the reason why a partition has no leader, in one line for people."""
    awaited = [
        f"broker {member} ({_AWAITED[status]})"
        for member, status in wait.members
        if status in _AWAITED
    ]
    parts = []
    if awaited:
        parts.append(f"awaiting {', '.join(awaited)}")
    else:
        parts.append("no live member has all committed records for certain")
    statuses = [status for _, status in wait.members]
    compared = statuses.count(MemberStatus.COMPARED)
    if compared or MemberStatus.ASKED in statuses:
        parts.append(f"{compared} of {wait.quorum} logs compared")
    else:
        here = sum(status in _COUNTED for status in statuses)
        parts.append(f"{here} of {wait.quorum} members registered")
    lost = [str(member) for member, status in wait.members if status is MemberStatus.LOST]
    if lost:
        parts.append(f"lost on {', '.join(lost)}")
    if wait.is_waiting:
        parts.append("others may come until leader.recovery.wait.ms is over")
    elif not awaited:
        parts.append("an operator must elect one uncleanly")
    if last_leader != NO_LEADER:
        parts.append(f"last leader {last_leader}")
    return f"no leader: {'; '.join(parts)}"
