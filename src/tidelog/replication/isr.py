"""The ISR of a partition as its leader knows it: the confirmed ISR, and changes not yet decided.

The leader proposes ISR changes, and the controller decides on them (A1 to A9). Until the leader
knows the outcome of a change, the ISR may be any of several ISRs; the union of these ISRs is the
maximal ISR. The maximal ISR includes a proposed member at once (A7), and a removed member until the
removal is confirmed (A6). Only one request per partition waits at the controller at a time. If a
request gets no response, the leader may request a newer change instead; the maximal ISR then
includes both changes. A change no longer counts when a newer partition epoch arrives, or when the
controller responds with an error of `NOT_MADE` (A8). A newer change replaces a change that was not
sent. Only the checks for joining and leaving the ISR use follower state and time (V62, V63).
`docs/internals/isr.md` shows the transitions in a diagram.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace
from enum import Enum

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode
from tidelog.core.types import RECOVERED
from tidelog.replication.progress import FollowerProgress
from tidelog.replication.shrinks import IsrShrink

#: Errors of AlterPartition which show that no controller has made the proposed ISR change or will
#: make it.
NOT_MADE = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED)
#: Errors after which the leader waits for the controller's next command for the partition: the
#: change may have been made, this leader is not current, or the controller cannot read the topic.
#: The maximal ISR still includes the change (A3). If the controller's next command shows no newer
#: state, the leader requests the change again.
WAIT_FOR_COMMAND = (
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.NEW_LEADER_ELECTED,
)


class Awaits(Enum):
    """The event that the leader awaits, because it will show the outcome of the newest change in
    flight.
    """

    #: No change is in flight.
    NOTHING = "nothing"
    #: The leader awaits the response to the request for the change; until then the leader sends no
    #: other request for the partition.
    RESPONSE = "response"
    #: The leader will repeat the request, because the last request got no response that shows the
    #: change's outcome (A2). The leader may request a newer change instead of repeating the request
    #: (A8).
    REPETITION = "repetition"
    #: The leader awaits the controller's next command for the partition, because the response to
    #: the request did not show the change's outcome (A3).
    COMMAND = "command"


@dataclass(frozen=True, slots=True)
class IsrChange:
    """A proposed ISR; `isr_epochs` has the members' broker epochs in the order of `isr`, or -1
    (V63).
    """

    isr: tuple[int, ...]
    isr_epochs: tuple[int, ...]
    leader_epoch: int
    #: The partition epoch on which the change builds.
    partition_epoch: int
    leader_recovery_state: int = RECOVERED
    #: Causes of the removals, which the request states; changes that differ only in causes are
    #: equal.
    shrinks: tuple[IsrShrink, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class IsrState:
    """The confirmed ISR and the changes that may replace it."""

    #: The ISR that the controller confirmed, in the order of the assignment.
    committed: tuple[int, ...]
    partition_epoch: int
    #: ISR changes that were sent to the controller and have no outcome yet, the newest last.
    in_flight: tuple[IsrChange, ...] = ()
    #: An ISR change that was not sent yet; the maximal ISR includes it like a change in flight.
    queued: IsrChange | None = None
    awaits: Awaits = Awaits.NOTHING
    #: Whether a command with the known partition epoch has come since the last request was sent.
    was_commanded: bool = False


def changes(state: IsrState) -> tuple[IsrChange, ...]:
    """Return every change that may still be accepted, the newest last."""
    return state.in_flight if state.queued is None else (*state.in_flight, state.queued)


def maximal_isr(state: IsrState) -> tuple[int, ...]:
    """Return the confirmed ISR united with every change that may still be accepted (A6, A7, A8)."""
    members = list(state.committed)
    for change in changes(state):
        members.extend(member for member in change.isr if member not in members)
    assert members[: len(state.committed)] == list(state.committed), "a shrink waits (A6)"
    return tuple(members)


def target_isr(state: IsrState) -> tuple[int, ...]:
    """Return the ISR that the leader wants: the newest change, or the confirmed ISR."""
    pending = changes(state)
    return pending[-1].isr if pending else state.committed


def may_propose(state: IsrState) -> bool:
    """Return whether the leader may send a change now: no request waits at the controller (A8)."""
    return state.awaits in (Awaits.NOTHING, Awaits.REPETITION)


def is_to_be_sent(state: IsrState, change: IsrChange) -> bool:
    """Return whether the next request carries `change`, for the first time or as a repetition."""
    if not may_propose(state):
        return False
    return change == (state.queued or repetition(state))


def repetition(state: IsrState) -> IsrChange | None:
    """Return the change in flight that the leader must request again; None if a queued change
    supersedes it (A2).
    """
    if state.awaits is not Awaits.REPETITION or state.queued is not None:
        return None
    return state.in_flight[-1]


def queue(state: IsrState, change: IsrChange) -> IsrState:
    """Queue `change`; it replaces a queued change that was not sent, but no change in flight
    (A8).
    """
    assert may_propose(state), "one request is with the controller at a time (A8)"
    assert change.partition_epoch == state.partition_epoch, "a change builds on the state (A1)"
    return replace(state, queued=change)


def withdraw(state: IsrState) -> IsrState:
    """Drop the queued change, which was not sent; changes in flight stay (A8)."""
    assert state.queued is not None, "only a change that waits is withdrawn (A8)"
    return replace(state, queued=None)


def sent(state: IsrState, change: IsrChange) -> IsrState:
    """Record that the queued change, or the repetition of the newest change, was sent.

    Earlier changes in flight stay: the controller may still accept each of them (A8).
    """
    assert is_to_be_sent(state, change), "the change that is sent is the one that waits (A8)"
    earlier = tuple(other for other in state.in_flight if other != change)
    return IsrState(
        state.committed, state.partition_epoch, (*earlier, change), None, Awaits.RESPONSE
    )


def unanswered(state: IsrState) -> IsrState:
    """Record that the request for the newest change got no response that shows its outcome (A2)."""
    assert state.awaits is Awaits.RESPONSE, "only a request can stay without a response (A2)"
    return replace(state, awaits=Awaits.REPETITION)


def left_to_command(state: IsrState, change: IsrChange) -> IsrState:
    """Record that the controller responded to `change` with an error of `WAIT_FOR_COMMAND` (A3).

    If a newer change has superseded `change`, or is queued, the error says nothing about the newer
    change. The controller sends the command on another connection, so the command may have come
    before the response. No further command need follow, and the leader requests the change again.
    """
    if state.queued is not None or not state.in_flight or state.in_flight[-1] != change:
        return state
    awaits = Awaits.REPETITION if state.was_commanded else Awaits.COMMAND
    return replace(state, awaits=awaits, was_commanded=False)


def commanded_early(state: IsrState) -> IsrState:
    """Record that a command with the known partition epoch came before the awaited response
    (A3).
    """
    assert state.awaits is Awaits.RESPONSE, "a response that came is not awaited (A3)"
    return replace(state, was_commanded=True)


def command_repeated(state: IsrState) -> IsrState:
    """Record that the awaited command came with the partition epoch that the leader already knows
    (A3).

    A repeated command shows the outcome of no change: the controller may still accept a request
    that is under way (A8).
    """
    assert state.awaits is Awaits.COMMAND, "only a change can be left to a command (A3)"
    return replace(state, awaits=Awaits.REPETITION)


def not_made(state: IsrState, change: IsrChange) -> IsrState:
    """Drop `change` from the maximal ISR, because no controller will make it (A8)."""
    left = tuple(other for other in state.in_flight if other != change)
    awaits = state.awaits
    if not left:
        awaits = Awaits.NOTHING
    elif state.in_flight[-1] == change:
        awaits = Awaits.REPETITION
    return replace(state, in_flight=left, awaits=awaits)


def committed(isr: Iterable[int], partition_epoch: int) -> IsrState:
    """Return the state after the controller has confirmed `isr` with a newer partition epoch.

    It has no change in flight, because changes on an older partition epoch are dropped (A9).
    """
    return IsrState(tuple(isr), partition_epoch)


def confirmed_as_known(state: IsrState, change: IsrChange, isr: Iterable[int]) -> IsrState:
    """Return the state after a response which says that the ISR already equals `change` (A4).

    The response shows the outcome of `change` only: earlier changes on the same epoch may still be
    accepted (A8).
    """
    return not_made(replace(state, committed=tuple(isr), queued=None), change)


def reached(log_end_offset: int, high_watermark: int, epoch_start_offset: int) -> bool:
    """Return whether a replica's log is long enough for the replica to join the ISR (V63).

    The log must reach the high watermark and the start of the current leader epoch. Records below
    that start may be committed even if the new leader's own high watermark is lower.
    """
    return log_end_offset >= high_watermark and log_end_offset >= epoch_start_offset


def may_join(follower: FollowerProgress, high_watermark: int, epoch_start_offset: int) -> bool:
    """Return whether a follower outside the ISR may join the ISR (V63)."""
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
    """Return whether a member of the ISR has fallen out of sync (V62, F3 to F6).

    The member's lag is limited in time and, if `max_lag_bytes` is not negative, also in bytes. A
    member that waits for the leader's disk reads stays in the ISR.
    """
    if 0 <= max_lag_bytes < follower.bytes_behind and not follower.has_pending_read(now_ms):
        return True
    return not follower.is_in_sync(leader_end_offset, now_ms, max_lag_ms)
