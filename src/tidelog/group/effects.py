"""Effects: what a group's coordinator asks its broker to do, in order.

Appends end in exactly one of `committed` and `failed`, with `timed_out` before it or not; see the
package's docstring. Timers are told apart by kind, group and member: setting one replaces the
former, and one that fires although it was replaced does no harm.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from tidelog.group.answers import Answer
from tidelog.group.records import Record


class Now(NamedTuple):
    """The time: monotonic for timers, wall clock for what stands in records; milliseconds."""

    monotonic_ms: int
    wall_ms: int


class TimerKind(Enum):
    """What is waited for."""

    #: The next heartbeat of a member, or the return of one that was given an id.
    SESSION = "session"
    #: Members that have not joined the rebalance.
    JOIN = "join"
    #: Members that have not asked for their assignment.
    SYNC = "sync"


class TimerName(NamedTuple):
    """Which timer; `member_id` is empty for those of the group."""

    kind: TimerKind
    group_id: str
    member_id: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the request with this ticket."""

    ticket: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class Append:
    """Append these records as one batch, under this leader epoch only (G1)."""

    number: int
    leader_epoch: int
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Report `timer_fired(name, deadline_ms)` at this monotonic time, or later."""

    name: TimerName
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """The timer is of no use any longer."""

    name: TimerName


Effect = Reply | Append | SetTimer | CancelTimer
Effects = tuple[Effect, ...]
