"""Effects: the actions that a replica's decision asks its broker to run, in order.

Effects are small slotted values without methods. The broker runs the effects (`leader_effects` in
`tidelog.broker.replicas.hosting`, `followed_partition` in `fetching`), and the model checker
interprets them. Effects of appends and of follower fetches have no fields, because the broker reads
the values from the replica. They are constants that all replicas share, so that an append or fetch
allocates no object.
"""

from __future__ import annotations

from tidelog.core.dataclass import dataclass
from tidelog.replication.isr import IsrChange


@dataclass(slots=True)
class HighWatermarkMoved:
    """The leader's high watermark rose: the broker responds to requests that wait for it (V60,
    V64).
    """


@dataclass(slots=True)
class IsrCommitted:
    """The confirmed ISR or its partition epoch changed: the broker notifies the ISR's observers
    (A9).
    """


@dataclass(slots=True)
class IsrBelowMinimum:
    """The confirmed ISR fell below the effective minimum.

    The broker rejects requests that wait for the high watermark (V64).
    """


@dataclass(slots=True)
class SendAlterPartition:
    """The broker queues an ISR change, in place of an earlier change that was not sent (A8)."""

    change: IsrChange


@dataclass(slots=True)
class WithdrawAlterPartition:
    """The broker drops a queued ISR change that was never sent, because the leader no longer wants
    the change (A8).
    """

    change: IsrChange


@dataclass(slots=True)
class RetryAlterPartition:
    """The broker repeats the request for an ISR change whose outcome is unknown (A2).

    If the controller delays the ISR change, the broker repeats the request only after `after_ms`
    (A11).
    """

    change: IsrChange
    after_ms: int = 0


@dataclass(slots=True)
class Append:
    """The broker appends the fetched records to the follower's log, then calls `appended`."""


@dataclass(slots=True)
class Flush:
    """The broker flushes appended records again, because their first flush failed, then calls
    `appended` (V66).
    """


@dataclass(slots=True)
class TruncateTo:
    """The broker truncates the follower's log to `offset`, then calls `truncated` (V32)."""

    offset: int


@dataclass(slots=True)
class TruncateFullyAndStartAt:
    """The broker removes all records of the follower's log, restarts the log at `offset`, then
    calls `truncated` (V67).
    """

    offset: int


@dataclass(slots=True)
class AskLogStart:
    """The broker asks the leader for its log start offset, and passes the response to
    `leader_log_starts_at`.
    """


@dataclass(slots=True)
class AdvanceLogStart:
    """The broker advances the follower's log start to the leader's log start `offset`, and drops
    earlier records (V67).
    """

    offset: int


@dataclass(slots=True)
class BackOff:
    """The broker pauses the fetches of this partition for a while, because of `error` (V66)."""

    error: int


Effect = (
    HighWatermarkMoved
    | IsrCommitted
    | IsrBelowMinimum
    | SendAlterPartition
    | WithdrawAlterPartition
    | RetryAlterPartition
    | Append
    | Flush
    | TruncateTo
    | TruncateFullyAndStartAt
    | AskLogStart
    | AdvanceLogStart
    | BackOff
)
Effects = tuple[Effect, ...]

NOTHING: Effects = ()
MOVED: Effects = (HighWatermarkMoved(),)
APPEND: Effects = (Append(),)
