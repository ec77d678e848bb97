"""The wait of a partition without a leader: which brokers are awaited, and for what (E4, E6).

Members are the ISR and the eligible leader replicas. A proven member leads as soon as it is there.
Without one, `quorum` members must be there, so that the controller can compare their logs. The
controller finds this out; all brokers show it. The numbers are part of tidelog's own fields of
UpdateMetadata and DescribeTopicPartitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from tidelog.core.types import NO_LEADER


class MemberStatus(IntEnum):
    """What a member contributes to the election of a leader."""

    #: It is registered; its log was not asked for yet.
    REGISTERED = 0
    #: It has reported the end of its log.
    COMPARED = 1
    NOT_REGISTERED = 2
    #: It is shutting down.
    LEAVING = 3
    #: It has not reported the end of its log yet.
    ASKED = 4
    #: It cannot read its log now.
    UNREADABLE = 5
    #: It has no such replica any more (D3).
    LOST = 6
    #: It reports no log ends: a broker of Kafka's.
    SILENT = 7

    @property
    def word(self) -> str:
        """The name in events and JSON documents."""
        return self.name.lower()


#: Members of these statuses are awaited, with the words for people.
_AWAITED = {
    MemberStatus.NOT_REGISTERED: "not registered",
    MemberStatus.LEAVING: "shutting down",
    MemberStatus.ASKED: "asked for the end of its log",
    MemberStatus.UNREADABLE: "cannot read its log",
}
#: Members of these statuses count for the quorum.
_COUNTED = (
    MemberStatus.REGISTERED,
    MemberStatus.COMPARED,
    MemberStatus.ASKED,
    MemberStatus.LOST,
    MemberStatus.SILENT,
)


@dataclass(frozen=True, slots=True)
class LeaderWait:
    """Why a partition has no leader."""

    #: Members with their statuses, the ISR first.
    members: tuple[tuple[int, MemberStatus], ...] = ()
    #: Members that must be there before one leads without a proof of its own (k of E6).
    quorum: int = 0
    #: leader.recovery.wait.ms is not over: missing members may still come.
    is_waiting: bool = False

    @property
    def awaited(self) -> tuple[int, ...]:
        """The members without which no leader can be elected now."""
        return tuple(member for member, status in self.members if status in _AWAITED)


def status_of(number: int) -> MemberStatus:
    """Return the status of that number, REGISTERED for one of a later version."""
    try:
        return MemberStatus(number)
    except ValueError:
        return MemberStatus.REGISTERED


def reason(wait: LeaderWait, last_leader: int = NO_LEADER) -> str:
    """Return why there is no leader, in one line for people."""
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
