"""Effects: the actions that a replica's decision requests of its broker, in order.

Small slotted values without behaviour. The broker's partition runs them
(`tidelog.broker.replicas.partition`), the model checker interprets them. The effects of the hot
path carry no values, because their state is the replica's own. They are shared, so that no object
is allocated when a batch is appended or a follower fetches.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.replication.isr import IsrChange


@dataclass(slots=True)
class HighWatermarkMoved:
    """The leader's high watermark rose: the broker answers requests that wait for it (V60, V64)."""


@dataclass(slots=True)
class IsrCommitted:
    """The confirmed ISR or its epoch changed: the broker notifies the observers of the ISR (A9)."""


@dataclass(slots=True)
class IsrBelowMinimum:
    """The confirmed ISR fell below the effective minimum: the broker rejects waiting requests
    (V64).
    """


@dataclass(slots=True)
class SendAlterPartition:
    """A change to request of the controller; replaces an earlier change that was not sent (A8)."""

    change: IsrChange


@dataclass(slots=True)
class WithdrawAlterPartition:
    """A queued change that was never sent and is no longer wanted (A8)."""

    change: IsrChange


@dataclass(slots=True)
class RetryAlterPartition:
    """A change whose outcome is unknown: the broker requests it again, later (A2)."""

    change: IsrChange


@dataclass(slots=True)
class Append:
    """The records of the response are due: the broker appends them to the follower's log, then
    reports `appended`.
    """


@dataclass(slots=True)
class TruncateTo:
    """The offset to which the broker truncates the follower's log, before it reports `truncated`
    (V32).
    """

    offset: int


@dataclass(slots=True)
class TruncateFullyAndStartAt:
    """The offset at which the follower's log starts over.

    The broker drops the whole log, then reports `truncated` (V67).
    """

    offset: int


@dataclass(slots=True)
class AskLogStart:
    """The leader's log start is needed: the broker asks for it, then reports `leader_log_starts_at`
    (V67).
    """


@dataclass(slots=True)
class AdvanceLogStart:
    """The leader's log starts later than the follower's: the broker drops the records before it
    (V67).
    """

    offset: int


@dataclass(slots=True)
class BackOff:
    """A pause: the broker leaves this partition out of its fetches for a while (V66)."""

    error: int


Effect = (
    HighWatermarkMoved
    | IsrCommitted
    | IsrBelowMinimum
    | SendAlterPartition
    | WithdrawAlterPartition
    | RetryAlterPartition
    | Append
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
