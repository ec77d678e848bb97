"""The interface between a broker and the coordinator of one partition of an internal topic.

A shard makes decisions and does no I/O; consumer groups are one kind of shard (`tidelog.group`).
The shell `broker.coordinators` drives every kind of shard in the same way. State that the next
coordinator needs changes only when its record is committed, by the same code as in a reload.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol

from tidelog.core.errors import ErrorCode


class Now(NamedTuple):
    """The time in milliseconds: monotonic for timers, wall clock for records."""

    monotonic_ms: int
    wall_ms: int


class CoordinatorPhase(Enum):
    """Phases of a coordinator."""

    LOADING = "loading"
    ACTIVE = "active"
    UNLOADED = "unloaded"


@dataclass(frozen=True, slots=True)
class Reply:
    """The response to the request with this ticket."""

    ticket: int
    answer: Any


@dataclass(frozen=True, slots=True)
class CoordinatorAppend:
    """Records to append as one batch, under this leader epoch only (G1)."""

    number: int
    leader_epoch: int
    records: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class SetTimer:
    """A timer to set, which replaces the earlier timer of the same name.

    The broker calls `timer_fired(name, deadline_ms, now)` at this monotonic time or later.
    """

    name: Any
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """A timer to cancel."""

    name: Any


Effect = Reply | CoordinatorAppend | SetTimer | CancelTimer
Effects = tuple[Effect, ...]


class CoordinatorShard(Protocol):
    """The decisions of the coordinator of one partition, for one leader epoch.

    When the leadership begins, the shell makes a shard under the leader epoch. It calls `replay`
    with every record from the log start to the log end in order. By G1 that is the end, not the
    high watermark; control records and records of other kinds are left out. It calls `loaded` when
    the high watermark has reached that end. Otherwise a client could see uncommitted state, which
    the next failover might lose.

    Effects are carried out in their order. Each ticket is answered by exactly one `Reply`, of the
    call that asks or of a later one. There is one timer for each name. It must not fire early by
    the clock of `now`.

    A `CoordinatorAppend` is written with acks=all, under the leader epoch named and no other, in
    the order of the effects. It has exactly one outcome, `committed` or `failed`, which is reported
    by its number. `timed_out` may be reported once before the outcome, for a batch that is in the
    log. Either the batch was not replicated in time (REQUEST_TIMED_OUT), or the ISR is too small
    (NOT_ENOUGH_REPLICAS_AFTER_APPEND). `failed` comes after all effects of the call, so that
    effects never nest. After `unload` no report is needed.
    """

    partition: int
    leader_epoch: int
    phase: CoordinatorPhase

    @property
    def size(self) -> int:
        """Number of the groups, or whatever it coordinates, that it knows."""

    def replay(self, record: Any) -> None:
        """Apply a record of the partition's log, in order; only while loading."""

    def loaded(self, now: Now) -> Effects:
        """Accept requests from now on, as replay has reached the log end."""

    def unload(self) -> Effects:
        """End the leadership; outcomes that are reported later have no effect."""

    def ask(self, asked: Any, now: Now) -> Effects:
        """Decide a request."""

    def timer_fired(self, name: Any, deadline_ms: int, now: Now) -> Effects:
        """Handle a timer that was set to `deadline_ms`; a timer that was replaced has no effect."""

    def committed(self, number: int, now: Now) -> Effects:
        """Apply an append that the high watermark has passed; appends are reported in order."""

    def failed(self, number: int, error: ErrorCode, now: Now) -> Effects:
        """Drop an append that was rejected: its records are not in the log."""

    def timed_out(self, number: int, error: ErrorCode, now: Now) -> Effects:
        """Answer for an append that is in the log and was not replicated in time."""
