"""One turn of a coordinator: the state that a request or event may use, and its effects.

A ledger holds the appends whose outcome is unknown. Each append has a purpose, a value from which
`tidelog.group.settling` derives what to do when the append is committed or fails.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

from tidelog.core.coordinator_shard import (
    CancelTimer,
    CoordinatorAppend,
    Effect,
    Now,
    Reply,
    SetTimer,
)
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, InvariantError
from tidelog.group.asked import Asked
from tidelog.group.group import Group
from tidelog.group.records import Record
from tidelog.group.sessions import MemberSession
from tidelog.group.settings import GroupSettings
from tidelog.group.timers import TimerKind, TimerName
from tidelog.wire.messages.offset_commit import OffsetCommitRequest
from tidelog.wire.messages.offset_delete import OffsetDeleteRequest


@dataclass(frozen=True, slots=True)
class StoreOffsets:
    """An OffsetCommit whose records are appended; `errors` has the error of each partition for the
    response.
    """

    asked: Asked[OffsetCommitRequest]
    errors: tuple[ErrorCode, ...]


@dataclass(frozen=True, slots=True)
class DeleteOffsets:
    """An OffsetDelete whose tombstones are appended; `errors` has the error of each partition for
    the response.
    """

    asked: Asked[OffsetDeleteRequest]
    errors: tuple[ErrorCode, ...]


@dataclass(frozen=True, slots=True)
class ForgetOffsets:
    """An append of tombstones for offsets that expired or whose partition no longer exists."""

    are_expired: bool


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """A group's deletion by tombstones; `ticket` is None if no request waits for the deletion."""

    ticket: int | None
    is_last: bool


@dataclass(frozen=True, slots=True)
class Unsettled:
    """An append whose outcome is not known yet."""

    group_id: str
    records: tuple[Record, ...]
    #: The purpose of the append, an instance of a class in this module or in `classic.waits`; it
    #: decides what happens when the append is settled.
    purpose: Hashable
    #: Whether the waiting request was answered with a timeout.
    is_overdue: bool = False


class Ledger:
    """The coordinator's appends to its partition whose outcome is not known yet, in the order of
    the log.
    """

    __slots__ = ("_by_group", "_unsettled", "next_number")

    def __init__(self) -> None:
        self.next_number = 0
        self._unsettled: dict[int, Unsettled] = {}
        self._by_group: dict[str, int] = {}

    def enter(self, unsettled: Unsettled) -> int:
        """Record an append and return its number."""
        number = self.next_number
        self.next_number += 1
        self._unsettled[number] = unsettled
        count = self._by_group.get(unsettled.group_id, 0)
        self._by_group[unsettled.group_id] = count + 1
        return number

    def look(self, number: int) -> Unsettled:
        """Return an unsettled append; raise InvariantError if no append has this number."""
        found = self._unsettled.get(number)
        if found is None:
            raise InvariantError(f"append {number} is settled already, or was never asked for")
        return found

    def settle(self, number: int, *, in_order: bool) -> Unsettled:
        """Remove and return an append whose outcome is known now.

        With `in_order`, raises InvariantError unless all earlier appends are settled. Appends are
        committed in the order of the log, but an append may fail while earlier ones are unsettled.
        """
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
        """Mark an append as overdue, so that no request waits for it; return its former state."""
        found = self.look(number)
        self._unsettled[number] = replace(found, is_overdue=True)
        return found

    def holds(self, group_id: str) -> bool:
        """Return whether an append of this group has no outcome yet."""
        return group_id in self._by_group

    def unsettled(self) -> tuple[Unsettled, ...]:
        """Return all unsettled appends, in log order."""
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
    """The handling of one request, one fired timer or one outcome of an append."""

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
        #: Number of members of all groups when the turn began, including clients that have only
        #: been given a member id.
        self.member_count = member_count
        self.effects: list[Effect] = []

    # Answers.

    def reply(self, ticket: int, answer: Any) -> None:
        """Answer a request."""
        self.effects.append(Reply(ticket, answer))

    # Timers.

    def touch(self, group: Group, member_id: str, session: MemberSession, timeout_ms: int) -> None:
        """Extend a member's session to `timeout_ms` from now.

        A session timer that is set to an earlier time stays set. When this timer fires, the
        coordinator sets it to the deadline of the session.
        """
        session.deadline_ms = self.now.monotonic_ms + timeout_ms
        if session.armed_ms is None or session.deadline_ms < session.armed_ms:
            self.arm(group, member_id, session)

    def arm(self, group: Group, member_id: str, session: MemberSession) -> None:
        """Set the session timer of a member to its deadline."""
        session.armed_ms = session.deadline_ms
        name = TimerName(TimerKind.SESSION, group.group_id, member_id)
        self.effects.append(SetTimer(name, session.deadline_ms))

    def disarm(self, group: Group, member_id: str, session: MemberSession) -> None:
        """Cancel the session timer of a member, whose heartbeats are no longer awaited."""
        if session.armed_ms is not None:
            session.armed_ms = None
            name = TimerName(TimerKind.SESSION, group.group_id, member_id)
            self.effects.append(CancelTimer(name))

    # Records.

    def append(self, group: Group, records: Sequence[Record], purpose: Hashable) -> int:
        """Request an append of records; return the number of the append."""
        number = self.ledger.enter(Unsettled(group.group_id, tuple(records), purpose))
        self.effects.append(CoordinatorAppend(number, self.leader_epoch, tuple(records)))
        return number
