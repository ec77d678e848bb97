"""Effects: what a replica's decision asks its broker to do, in order.

Small slotted values without behaviour. The broker's partition runs them
(`tidelog.broker.replicas.partition`), the model checker interprets them. The effects of the hot
path carry nothing, because the state that they speak of is the replica's own, and are shared:
nothing is allocated when a batch is appended or a follower fetches.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.replication.isr import IsrChange


@dataclass(slots=True)
class HighWatermarkMoved:
    """The leader's high watermark rose: answer what waits for it (V60, V64)."""


@dataclass(slots=True)
class IsrCommitted:
    """The confirmed ISR or its epoch is another: tell who watches the ISR (A9)."""


@dataclass(slots=True)
class IsrBelowMinimum:
    """The confirmed ISR fell below the effective minimum: refuse waiting requests (V64)."""


@dataclass(slots=True)
class SendAlterPartition:
    """Ask the controller for this change; replaces an earlier one that was not sent (A8)."""

    change: IsrChange


@dataclass(slots=True)
class WithdrawAlterPartition:
    """A change that was queued and never sent is not wanted any more (A8)."""

    change: IsrChange


@dataclass(slots=True)
class RetryAlterPartition:
    """The outcome of a change is not known: ask again, later (A2)."""

    change: IsrChange


@dataclass(slots=True)
class Append:
    """Append the records of the answer to the follower's log, then report `appended`."""


@dataclass(slots=True)
class TruncateTo:
    """Cut the follower's log, then report `truncated` (V32)."""

    offset: int


@dataclass(slots=True)
class TruncateFullyAndStartAt:
    """Drop the follower's log and start anew at an offset, then report `truncated` (V67)."""

    offset: int


@dataclass(slots=True)
class AskLogStart:
    """Ask the leader where its log starts, then report `leader_log_starts_at` (V67)."""


@dataclass(slots=True)
class AdvanceLogStart:
    """The leader's log starts later than ours: drop what lies before (V67)."""

    offset: int


@dataclass(slots=True)
class BackOff:
    """Leave this partition out of the fetches for a while (V66)."""

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
