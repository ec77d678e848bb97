"""The interface between a broker and the coordinator of one partition of an internal topic.

A shard makes decisions and does no I/O; consumer groups are one kind of shard (`tidelog.group`).
`broker.coordinators` does the I/O for every kind of shard in the same way. A shard changes durable
state only when the record of the change is committed, with the same code that replays the record
after a failover.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple, Protocol

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode


class Now(NamedTuple):
    """The time in milliseconds: monotonic for timers, wall clock for records."""

    monotonic_ms: int
    wall_ms: int


class CoordinatorPhase(Enum):
    """Phases of a group or transaction coordinator of one partition, from loading to unloading."""

    LOADING = "loading"
    ACTIVE = "active"
    UNLOADED = "unloaded"


@dataclass(frozen=True, slots=True)
class Reply:
    """Effect: send `response` to the request that the shard received with the number `ticket`."""

    ticket: int
    answer: Any


@dataclass(frozen=True, slots=True)
class CoordinatorAppend:
    """Effect: append records as one batch, if the partition is still in `leader_epoch` (G1)."""

    number: int
    leader_epoch: int
    records: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Effect: set a timer, which replaces the earlier timer of the same name.

    The broker calls `timer_fired(name, deadline_ms, now)` at the monotonic time `deadline_ms` or
    later.
    """

    name: Any
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """Effect: cancel the timer of this name."""

    name: Any


Effect = Reply | CoordinatorAppend | SetTimer | CancelTimer
Effects = tuple[Effect, ...]


class CoordinatorShard(Protocol):
    """The decisions of the coordinator of one partition, for one leader epoch.

    When the broker becomes leader, `broker.coordinators` makes a shard for the leader epoch.
    `broker.coordinators` calls `replay` with every record from the log start to the log end (G1) in
    order, except control records and records of unknown kinds. `broker.coordinators` calls `loaded`
    when the high watermark has reached the log end of the replay. If `loaded` were called before
    the replayed records are committed, clients could see uncommitted state, which the next failover
    might lose.

    `broker.coordinators` carries out the effects that a method of the shard returns, in order. Each
    request (`ticket`) gets exactly one `Reply`, from the call of `ask` or from a later call. Each
    timer name has at most one timer, which must not fire before its deadline by the clock of `now`.

    `broker.coordinators` writes the records of each `CoordinatorAppend` with acks=all, in the order
    of the effects, and only while the leader epoch of the append is current. Each append has
    exactly one outcome, `committed` or `failed`, reported by its number. Before the outcome,
    `timed_out` may be reported once: the batch is in the log, but was not replicated in time
    (REQUEST_TIMED_OUT), or the ISR is too small (NOT_ENOUGH_REPLICAS_AFTER_APPEND). If an append
    fails, `broker.coordinators` calls `failed` only after it has carried out the other effects of
    the same method call. After `unload`, no outcome of an append is reported.
    """

    partition: int
    leader_epoch: int
    phase: CoordinatorPhase

    @property
    def size(self) -> int:
        """Number of groups, or other coordinated objects, in the shard."""

    def replay(self, record: Any) -> None:
        """Apply a record of the partition's log in order, while loading."""

    def loaded(self, now: Now) -> Effects:
        """Accept requests from now on, because the replay has reached the log end."""

    def unload(self) -> Effects:
        """End the leadership; the broker reports no outcome of an append after this call."""

    def ask(self, asked: Any, now: Now) -> Effects:
        """Decide a request, and return the effects."""

    def timer_fired(self, name: Any, deadline_ms: int, now: Now) -> Effects:
        """Handle a timer that was set to `deadline_ms`; a timer that was replaced has no effect."""

    def committed(self, number: int, now: Now) -> Effects:
        """Apply an append that the high watermark has passed; calls come in append order."""

    def failed(self, number: int, error: ErrorCode, now: Now) -> Effects:
        """Drop a rejected append, whose records are not in the log."""

    def timed_out(self, number: int, error: ErrorCode, now: Now) -> Effects:
        """Respond to a request whose append is in the log but was not replicated in time."""
