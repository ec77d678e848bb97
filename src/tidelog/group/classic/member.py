"""A member of a group in the coordinator's state.

A heartbeat extends the member's session and changes nothing else. A member has the tickets
(numbers) of its waiting requests, by which the coordinator answers them.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.group.asked import Asked
from tidelog.group.records import MemberSnapshot
from tidelog.group.sessions import MemberSession
from tidelog.wire.messages.describe_groups import DescribedGroupMember
from tidelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol


class Member:
    """One group member; `join_ticket` and `sync_ticket` are the tickets of its waiting requests."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join_ticket",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session",
        "session_timeout_ms",
        "sync_ticket",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocols: Sequence[JoinGroupRequestProtocol],
        session: MemberSession,
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocols = protocols
        self.session = session
        self.assignment = b""
        self.join_ticket: int | None = None
        self.sync_ticket: int | None = None
        #: Whether the member waits in its first JoinGroup. A client sends no heartbeats before the
        #: response to its first JoinGroup.
        self.is_new = False

    @classmethod
    def joining(
        cls, asked: Asked[JoinGroupRequest], member_id: str, session: MemberSession
    ) -> Member:
        """Return a member with the values of its JoinGroup request."""
        message = asked.message
        return cls(
            member_id,
            message.group_instance_id,
            asked.client_id,
            asked.client_host,
            message.session_timeout_ms,
            message.rebalance_timeout_ms,
            message.protocols,
            session,
        )

    @classmethod
    def loaded(cls, snapshot: MemberSnapshot, protocol_name: str | None) -> Member:
        """Return a member with the values of the group's record."""
        spoken = []
        if protocol_name is not None:
            spoken.append(JoinGroupRequestProtocol(protocol_name, snapshot.subscription))
        member = cls(
            snapshot.member_id,
            snapshot.instance_id,
            snapshot.client_id,
            snapshot.client_host,
            snapshot.session_timeout_ms,
            snapshot.rebalance_timeout_ms,
            spoken,
            MemberSession(),
        )
        member.assignment = snapshot.assignment
        return member

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return the member's metadata for a protocol; empty if the member does not support it."""
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        return b""

    def snapshot(self, protocol_name: str | None, assignment: bytes) -> MemberSnapshot:
        """Return the member's part of the group's record."""
        return MemberSnapshot(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            self.metadata(protocol_name),
            assignment,
        )

    def described(self, protocol_name: str | None) -> DescribedGroupMember:
        """Return the member as DescribeGroups shows it; if `protocol_name` is None, metadata is
        empty.
        """
        return DescribedGroupMember(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.metadata(protocol_name),
            b"" if protocol_name is None else self.assignment,
        )

    def copy(self) -> Member:
        """Return an independent copy."""
        other = Member(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            self.protocols,
            self.session.copy(),
        )
        other.assignment = self.assignment
        other.join_ticket = self.join_ticket
        other.sync_ticket = self.sync_ticket
        other.is_new = self.is_new
        return other

    def key(self) -> tuple[object, ...]:
        """Return the whole state as a hashable value."""
        return (
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            tuple((each.name, each.metadata) for each in self.protocols),
            self.session.key(),
            self.assignment,
            self.join_ticket,
            self.sync_ticket,
            self.is_new,
        )
