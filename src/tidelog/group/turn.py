"""One turn of a coordinator: the state that it may look at, and the effects that it collects.

The ledger holds the requested appends that are not settled, each with its purpose. The purpose is
data here; `tidelog.group.settling` has the code that runs when an append is settled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidelog.core.coordinator_shard import Append, CancelTimer, Effect, Now, Reply, SetTimer
from tidelog.core.errors import ErrorCode, InvariantError
from tidelog.group.asked import Asked, join_error
from tidelog.group.group import Group
from tidelog.group.member import Member, Session
from tidelog.group.records import Record
from tidelog.group.settings import GroupSettings
from tidelog.group.timers import TimerKind, TimerName
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.wire.messages.offset_commit import OffsetCommitRequest
from tidelog.wire.messages.offset_delete import OffsetDeleteRequest
from tidelog.wire.messages.sync_group import SyncGroupResponse


@dataclass(frozen=True, slots=True)
class StoreOffsets:
    """Purpose of an OffsetCommit's append; `errors` are those of its partitions if it succeeds."""

    asked: Asked[OffsetCommitRequest]
    errors: tuple[ErrorCode, ...]


@dataclass(frozen=True, slots=True)
class StoreAssignment:
    """Purpose of the append for a leader's SyncGroup."""

    generation_id: int


@dataclass(frozen=True, slots=True)
class StoreStaticMember:
    """Purpose of the append for a static member's JoinGroup under a new id."""

    asked: Asked[JoinGroupRequest]
    generation_id: int
    old_member_id: str
    new_member_id: str


@dataclass(frozen=True, slots=True)
class StoreEmpty:
    """Purpose of the append after the last member has gone; no request waits for it."""


@dataclass(frozen=True, slots=True)
class DeleteOffsets:
    """Purpose of an OffsetDelete's append; `errors` are those of its partitions if it succeeds."""

    asked: Asked[OffsetDeleteRequest]
    errors: tuple[ErrorCode, ...]


@dataclass(frozen=True, slots=True)
class ForgetOffsets:
    """Purpose of tombstones without a waiting request: of expired offsets, or a deleted topic's."""

    are_expired: bool


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """Purpose of one step of a group's deletion; `ticket` is None where the group expired."""

    ticket: int | None
    is_last: bool


Purpose = (
    StoreOffsets
    | StoreAssignment
    | StoreStaticMember
    | StoreEmpty
    | DeleteOffsets
    | ForgetOffsets
    | DeleteGroup
)


@dataclass(frozen=True, slots=True)
class Unsettled:
    """An append whose outcome is open."""

    group_id: str
    records: tuple[Record, ...]
    purpose: Purpose
    #: Whether the waiting request was answered with a timeout.
    is_overdue: bool = False


class Ledger:
    """The unsettled appends of a partition, in the order of its log."""

    __slots__ = ("_by_group", "_unsettled", "next_number")

    def __init__(self) -> None:
        self.next_number = 0
        self._unsettled: dict[int, Unsettled] = {}
        self._by_group: dict[str, int] = {}

    def enter(self, unsettled: Unsettled) -> int:
        """Note an append and return its number."""
        number = self.next_number
        self.next_number += 1
        self._unsettled[number] = unsettled
        count = self._by_group.get(unsettled.group_id, 0)
        self._by_group[unsettled.group_id] = count + 1
        return number

    def look(self, number: int) -> Unsettled:
        """Return an unsettled append; raises InvariantError for any other number."""
        found = self._unsettled.get(number)
        if found is None:
            raise InvariantError(f"append {number} is settled already, or was never asked for")
        return found

    def settle(self, number: int, *, in_order: bool) -> Unsettled:
        """Take out a settled append; the log commits appends in their order."""
        found = self.look(number)
        if in_order and number != next(iter(self._unsettled)):
            raise InvariantError(f"append {number} is committed before an earlier one is settled")
        del self._unsettled[number]
        count = self._by_group.pop(found.group_id, 0) - 1
        assert count >= 0, "each append of a group is counted until it is settled (G1)"
        if count:
            self._by_group[found.group_id] = count
        return found

    def overdue(self, number: int) -> Unsettled:
        """Note that no request waits for an append any longer; return the append as it was."""
        found = self.look(number)
        self._unsettled[number] = replace(found, is_overdue=True)
        return found

    def holds(self, group_id: str) -> bool:
        """Return whether an append of a group is unsettled."""
        return group_id in self._by_group

    def unsettled(self) -> tuple[Unsettled, ...]:
        """Return all unsettled appends, in order."""
        return tuple(self._unsettled.values())

    def copy(self) -> Ledger:
        """Return an independent copy."""
        other = Ledger()
        other.next_number = self.next_number
        other._unsettled = dict(self._unsettled)
        other._by_group = dict(self._by_group)
        return other

    def key(self) -> tuple[object, ...]:
        """Return the whole state as a hashable value."""
        return (self.next_number, tuple(self._unsettled.items()))


class Turn:
    """The decision on one request, timer or outcome."""

    __slots__ = ("effects", "groups", "leader_epoch", "ledger", "member_count", "now", "settings")

    def __init__(
        self,
        now: Now,
        settings: GroupSettings,
        leader_epoch: int,
        groups: dict[str, Group],
        ledger: Ledger,
        member_count: int,
    ) -> None:
        self.now = now
        self.settings = settings
        self.leader_epoch = leader_epoch
        self.groups = groups
        self.ledger = ledger
        #: Number of members of all groups when the turn began, including clients that only have an
        #: id.
        self.member_count = member_count
        self.effects: list[Effect] = []

    # Answers.

    def reply(self, ticket: int, answer: Any) -> None:
        """Answer a request."""
        self.effects.append(Reply(ticket, answer))

    def await_join(self, group: Group, member: Member, ticket: int) -> None:
        """Let a member wait in a join; its earlier join is superseded and answered."""
        error = ErrorCode.REBALANCE_IN_PROGRESS
        self.end_join(group, member, join_error(error, member.member_id))
        member.join_ticket = ticket
        group.awaiting_join += 1

    def end_join(self, group: Group, member: Member, answer: JoinGroupResponse) -> None:
        """Answer the join in which a member waits, if any."""
        if member.join_ticket is not None:
            self.reply(member.join_ticket, answer)
            member.join_ticket = None
            group.awaiting_join -= 1
            assert group.awaiting_join >= 0, "each member that waits in a join is counted once"

    def end_sync(self, member: Member, answer: SyncGroupResponse) -> bool:
        """Answer the sync in which a member waits; return whether there was one."""
        if member.sync_ticket is None:
            return False
        self.reply(member.sync_ticket, answer)
        member.sync_ticket = None
        return True

    # Members.

    def remove_member(
        self, group: Group, member: Member, error: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID
    ) -> None:
        """Remove a member from its group; its waiting requests are answered with `error`."""
        self.end_join(group, member, join_error(error))
        self.end_sync(member, SyncGroupResponse(error_code=error))
        self.disarm(group, member.member_id, member.session)
        group.remove(member)

    # Timers.

    def touch(self, group: Group, member_id: str, session: Session, timeout_ms: int) -> None:
        """Extend a member's session after the member was heard of.

        A timer that fires no later than the new deadline stays as it is; it is set again when it
        fires.
        """
        session.deadline_ms = self.now.monotonic_ms + timeout_ms
        if session.armed_ms is None or session.deadline_ms < session.armed_ms:
            self.arm(group, member_id, session)

    def arm(self, group: Group, member_id: str, session: Session) -> None:
        """Set the timer of a member to its deadline."""
        session.armed_ms = session.deadline_ms
        name = TimerName(TimerKind.SESSION, group.group_id, member_id)
        self.effects.append(SetTimer(name, session.deadline_ms))

    def disarm(self, group: Group, member_id: str, session: Session) -> None:
        """Cancel the timer of a member that is no longer watched."""
        if session.armed_ms is not None:
            session.armed_ms = None
            name = TimerName(TimerKind.SESSION, group.group_id, member_id)
            self.effects.append(CancelTimer(name))

    def set_join_timer(self, group: Group, delay_ms: int) -> None:
        """Set the timer that ends the wait for members to join."""
        group.join_deadline_ms = self.now.monotonic_ms + delay_ms
        name = TimerName(TimerKind.JOIN, group.group_id)
        self.effects.append(SetTimer(name, group.join_deadline_ms))

    def cancel_join_timer(self, group: Group) -> None:
        """Cancel the join timer: all members joined, or the group waits for none."""
        if group.join_deadline_ms is not None:
            group.join_deadline_ms = None
            self.effects.append(CancelTimer(TimerName(TimerKind.JOIN, group.group_id)))

    def set_sync_timer(self, group: Group, delay_ms: int) -> None:
        """Set the timer that ends the wait for members to ask for their assignments."""
        group.sync_deadline_ms = self.now.monotonic_ms + delay_ms
        name = TimerName(TimerKind.SYNC, group.group_id)
        self.effects.append(SetTimer(name, group.sync_deadline_ms))

    def cancel_sync_timer(self, group: Group) -> None:
        """Cancel the sync timer: all members asked, or the group waits for none."""
        if group.sync_deadline_ms is not None:
            group.sync_deadline_ms = None
            self.effects.append(CancelTimer(TimerName(TimerKind.SYNC, group.group_id)))

    # Records.

    def append(self, group: Group, records: Sequence[Record], purpose: Purpose) -> int:
        """Request an append of records; return its number."""
        number = self.ledger.enter(Unsettled(group.group_id, tuple(records), purpose))
        self.effects.append(Append(number, self.leader_epoch, tuple(records)))
        return number
