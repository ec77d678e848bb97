"""Effects: the actions that a group's coordinator requests of its broker, in order.

Each append ends in exactly one of `committed` and `failed`, possibly after `timed_out`; see the
package's docstring. A timer is identified by kind, group and member. Setting a timer replaces the
former, and a timer that fires although it was replaced does no harm.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from tidelog.group.answers import Answer
from tidelog.group.records import Record


class Now(NamedTuple):
    """The time in milliseconds: monotonic for timers, wall clock for records."""

    monotonic_ms: int
    wall_ms: int


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


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer to the request with this ticket."""

    ticket: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class Append:
    """Records to append as one batch, under this leader epoch only (G1)."""

    number: int
    leader_epoch: int
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class SetTimer:
    """A timer: the broker reports `timer_fired(name, deadline_ms)` at this time or later.

    The deadline is in monotonic time.
    """

    name: TimerName
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """A timer that is no longer needed."""

    name: TimerName


Effect = Reply | Append | SetTimer | CancelTimer
Effects = tuple[Effect, ...]
