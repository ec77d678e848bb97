"""The ISR of a partition as its leader holds it: confirmed, and changes that may still be accepted.

The leader proposes, the controller decides (A1 to A9). Until an outcome is known both states may
be true, so the maximal ISR (the union) counts for the high watermark: an expansion at once (A7), a
shrink only when it is confirmed (A6). A change leaves the union by a newer partition epoch, or
because the controller said that it was not and will not be made (A8). One change is in flight at a
time; changes that were not sent are replaced. Does not know follower state or time, except for
the two questions that join and leave the ISR turn on (V62, V63).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tidelog.core.errors import ErrorCode
from tidelog.core.types import RECOVERED
from tidelog.replication.progress import FollowerProgress

#: The controller says that a change was not made and that no other controller will make it.
NOT_MADE = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED)
#: The change may have been made, or this leader is not current: wait for the controller's next
#: word on the partition, and count the change meanwhile (A3).
WAIT_FOR_COMMAND = (
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.NEW_LEADER_ELECTED,
)


@dataclass(frozen=True, slots=True)
class IsrChange:
    """A proposed ISR: `isr_epochs` in the order of `isr`, -1 where no fetch was counted (V63)."""

    isr: tuple[int, ...]
    isr_epochs: tuple[int, ...]
    leader_epoch: int
    #: The partition epoch that the change builds on.
    partition_epoch: int
    leader_recovery_state: int = RECOVERED


@dataclass(frozen=True, slots=True)
class IsrState:
    """The confirmed ISR and what may replace it."""

    #: Confirmed by the controller, in the order of the assignment.
    committed: tuple[int, ...]
    partition_epoch: int
    #: Sent: each may still be accepted, or has been.
    in_flight: tuple[IsrChange, ...] = ()
    #: Decided and not sent; counted like one in flight.
    queued: IsrChange | None = None


def changes(state: IsrState) -> tuple[IsrChange, ...]:
    """Every change that may still be accepted, the newest last."""
    return state.in_flight if state.queued is None else (*state.in_flight, state.queued)


def maximal_isr(state: IsrState) -> tuple[int, ...]:
    """The confirmed ISR united with every change that may still be accepted (A6, A7, A8)."""
    members = list(state.committed)
    for change in changes(state):
        members.extend(member for member in change.isr if member not in members)
    assert members[: len(state.committed)] == list(state.committed), "a shrink waits (A6)"
    return tuple(members)


def target_isr(state: IsrState) -> tuple[int, ...]:
    """The ISR that the leader wants: the newest change, or the confirmed one."""
    pending = changes(state)
    return pending[-1].isr if pending else state.committed


def queue(state: IsrState, change: IsrChange) -> IsrState:
    """Propose `change`; one that waits unsent gives way (A8)."""
    assert not state.in_flight, "one change is in flight at a time (A8)"
    assert change.partition_epoch == state.partition_epoch, "a change builds on the state (A1)"
    return replace(state, queued=change)


def withdraw(state: IsrState) -> IsrState:
    """Forget the change that waits unsent."""
    assert state.queued is not None, "only a change that waits is withdrawn (A8)"
    return replace(state, queued=None)


def sent(state: IsrState, change: IsrChange) -> IsrState:
    """The queued change went out."""
    assert change == state.queued, "the change that is sent is the one that waits (A8)"
    assert not state.in_flight, "one change is in flight at a time (A8)"
    return replace(state, in_flight=(*state.in_flight, change), queued=None)


def not_made(state: IsrState, change: IsrChange) -> IsrState:
    """The controller refused `change` for good: it does not count any longer (A8)."""
    return replace(state, in_flight=tuple(other for other in state.in_flight if other != change))


def committed(isr: Iterable[int], partition_epoch: int) -> IsrState:
    """The controller's word: whatever was pending on an older epoch is void (A9)."""
    return IsrState(tuple(isr), partition_epoch)


def reached(log_end_offset: int, high_watermark: int, epoch_start_offset: int) -> bool:
    """Whether a log is long enough to join: to the high watermark and into the current leader
    epoch, below which committed records may lie that the leader's own high watermark has not
    reached (V63)."""
    return log_end_offset >= high_watermark and log_end_offset >= epoch_start_offset


def may_join(follower: FollowerProgress, high_watermark: int, epoch_start_offset: int) -> bool:
    """Whether a follower outside the ISR may join it (V63)."""
    return follower.is_eligible and reached(
        follower.log_end_offset, high_watermark, epoch_start_offset
    )


def must_leave(
    follower: FollowerProgress,
    leader_end_offset: int,
    now_ms: int,
    max_lag_ms: int,
    max_lag_bytes: int = -1,
) -> bool:
    """Whether a member of the ISR has fallen out of sync (V62, F3, F4), by time or, where
    `max_lag_bytes` is not negative, by bytes."""
    if 0 <= max_lag_bytes < follower.bytes_behind:
        return True
    return not follower.is_caught_up(leader_end_offset, now_ms, max_lag_ms)
