"""A classic group: its state and its members.

The states and their transitions are the same as in Kafka. A group is `Dead` while its tombstones
are being written. When they are written, the group is deleted; if they cannot be written, the group
becomes Empty again. The other modules of this package answer requests, set timers, and change the
group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, InvariantError
from tidelog.core.types import TopicPartition
from tidelog.group.asked import NO_MEMBER, Asked
from tidelog.group.classic.member import Member
from tidelog.group.group import Group
from tidelog.group.records import (
    NO_TIMESTAMP,
    CommittedOffset,
    GroupKey,
    GroupRecord,
    GroupSnapshot,
    Record,
)
from tidelog.group.sessions import MemberSession
from tidelog.wire.messages.describe_groups import DescribedGroup
from tidelog.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponseMember,
)
from tidelog.wire.messages.list_groups import ListedGroup
from tidelog.wire.messages.offset_commit import OffsetCommitRequest

#: Type of classic groups (ListGroups version 5).
GROUP_TYPE = "classic"
#: Protocol type of consumer groups. The coordinator reads members' subscriptions only in groups of
#: this protocol type.
CONSUMER_PROTOCOL_TYPE = "consumer"


class GroupState(Enum):
    """Kafka's states of a classic group, with the names that clients see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_FORMER_STATES = {
    GroupState.PREPARING_REBALANCE: (
        GroupState.STABLE,
        GroupState.COMPLETING_REBALANCE,
        GroupState.EMPTY,
    ),
    GroupState.COMPLETING_REBALANCE: (GroupState.PREPARING_REBALANCE,),
    GroupState.STABLE: (GroupState.COMPLETING_REBALANCE,),
    GroupState.EMPTY: (GroupState.PREPARING_REBALANCE, GroupState.DEAD),
    GroupState.DEAD: (GroupState.EMPTY,),
}
#: States of a group with a generation of members; an empty or dead group has no members.
_OF_MEMBERS = (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
_WITHOUT_MEMBERS = (GroupState.EMPTY, GroupState.DEAD)


@dataclass(frozen=True, slots=True)
class InitialDelay:
    """The delay in which the first rebalance of an empty group waits for new members.

    The delay begins with `group.initial.rebalance.delay.ms`.
    """

    #: Time in ms by which the coordinator may still extend the initial delay.
    remaining_ms: int
    #: Whether a member joined since the initial delay began or was last extended.
    has_newcomer: bool = False


@dataclass(frozen=True, slots=True)
class StaticReplacement:
    """The running append of a group record with a new id of a static member (KIP-345)."""

    #: Number of the append.
    number: int
    #: Whether the record was not replicated in time. The static member's JoinGroup request then got
    #: an error, but the append may still commit or fail.
    is_overdue: bool = False


class ClassicGroup(Group):
    """State of one group of the classic protocol, or of a group that has only offsets."""

    __slots__ = (
        "awaiting_join",
        "generation_id",
        "initial_delay",
        "is_stored",
        "join_deadline_ms",
        "leader_id",
        "members",
        "pending_members",
        "pending_sync",
        "protocol_name",
        "protocol_type",
        "replacement",
        "speakers",
        "state",
        "state_timestamp_ms",
        "static_ids",
        "storing_generation",
        "subscribed_topics",
        "sync_deadline_ms",
        "waiting_static",
    )

    def __init__(self, group_id: str, state_timestamp_ms: int = NO_TIMESTAMP) -> None:
        super().__init__(group_id)
        self.state = GroupState.EMPTY
        #: Wall-clock time in ms at which the group entered its state.
        self.state_timestamp_ms = state_timestamp_ms
        self.generation_id = 0
        #: Protocol type; None until the first member joins. A group with only offsets is a simple
        #: group.
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        #: Member ids of static members, by group instance id.
        self.static_ids: dict[str, str] = {}
        #: Sessions of clients that were given a member id and have not joined with it yet.
        self.pending_members: dict[str, MemberSession] = {}
        #: Number of members that support each protocol, by protocol name.
        self.speakers: dict[str, int] = {}
        #: Number of members whose JoinGroup request has no response yet.
        self.awaiting_join = 0
        #: Members of this generation that have not yet sent a SyncGroup.
        self.pending_sync: dict[str, None] = {}
        self.initial_delay: InitialDelay | None = None
        self.join_deadline_ms: int | None = None
        self.sync_deadline_ms: int | None = None
        #: The generation whose assignment is being written; None while none is written.
        self.storing_generation: int | None = None
        self.replacement: StaticReplacement | None = None
        #: JoinGroup requests of static members, by instance id, that wait until the append of
        #: `replacement` ends.
        self.waiting_static: dict[str, Asked[JoinGroupRequest]] = {}
        #: Topics to which members of a consumer group subscribe; None if the topics are not known.
        self.subscribed_topics: frozenset[str] | None = None
        #: Whether the log has, or may have, a record of the group.
        self.is_stored = False

    # Queries.

    @property
    def has_members(self) -> bool:
        """Whether the group has members."""
        return bool(self.members)

    @property
    def all_joined(self) -> bool:
        """Whether each member waits in a JoinGroup request, and each client with a new member id
        has joined.
        """
        return self.awaiting_join == len(self.members) and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        """Longest rebalance timeout of the members; 0 for a group without members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def is_leader(self, member_id: str) -> bool:
        """Return whether a member is the group's leader."""
        return self.leader_id == member_id

    def member_error(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return the error of a request that names a member, NONE if it is valid (KIP-345)."""
        if instance_id is not None:
            known = self.static_ids.get(instance_id)
            if known is not None and known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE

    def supports(self, protocol_type: str, protocols: Sequence[JoinGroupRequestProtocol]) -> bool:
        """Return whether a client with these protocols may join the group."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and protocols)
        return protocol_type == self.protocol_type and any(
            self.speakers.get(protocol.name, 0) == len(self.members) for protocol in protocols
        )

    def select_protocol(
        self, other: str | None = None, protocols: Sequence[JoinGroupRequestProtocol] = ()
    ) -> str:
        """Return the protocol with the most votes among the protocols that all members support.

        Each member votes for the first of its protocols that all members support; among equals, the
        protocol that got the first vote wins. If `other` is given, that member votes with
        `protocols` instead of its current protocols. A common protocol exists, because `supports`
        rejects clients without a common protocol.
        """
        ballots = [
            [
                protocol.name
                for protocol in (protocols if member.member_id == other else member.protocols)
            ]
            for member in self.members.values()
        ]
        spoken = [name for name in ballots[0] if all(name in ballot for ballot in ballots)]
        assert spoken, f"no protocol that all members of group {self.group_id!r} speak"
        votes: dict[str, int] = {}
        for ballot in ballots:
            name = next(name for name in ballot if name in spoken)
            votes[name] = votes.get(name, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def joined_members(self) -> list[JoinGroupResponseMember]:
        """Return the list of members that the group's leader gets in its JoinGroup response."""
        return [
            JoinGroupResponseMember(
                member.member_id, member.instance_id, member.metadata(self.protocol_name)
            )
            for member in self.members.values()
        ]

    @property
    def size(self) -> int:
        """Number of members, including clients that have only been given a member id."""
        return len(self.members) + len(self.pending_members)

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members; clients with only a member id do not count."""
        return self.state is GroupState.EMPTY

    @property
    def is_dead(self) -> bool:
        """Whether the group's deletion is under way, so that the group accepts no requests."""
        return self.state is GroupState.DEAD

    @property
    def is_void(self) -> bool:
        """Whether the group has no members, offsets or records, so that it can be dropped."""
        return (
            self.is_empty
            and not self.is_stored
            and not self.pending_members
            and not self.offsets
            and not self.uncommitted
        )

    def session_of(self, member_id: str) -> tuple[MemberSession, int] | None:
        """Return a member's session and its timeout in ms, None for an unknown member."""
        member = self.members.get(member_id)
        return None if member is None else (member.session, member.session_timeout_ms)

    # Methods for commits and deletions of offsets, and for the deletion of the group.

    def commit_error(self, message: OffsetCommitRequest) -> ErrorCode:
        """Return the error of an OffsetCommit, NONE if the client may commit."""
        generation_id = message.generation_id_or_member_epoch
        member_id, instance_id = message.member_id, message.group_instance_id
        if self.is_dead:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation_id < 0 and self.is_empty:
            return ErrorCode.NONE
        if generation_id < 0 and member_id == NO_MEMBER and instance_id is None:
            # Only members may commit offsets of a group that has members.
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = self.member_error(member_id, instance_id)
        if error is not ErrorCode.NONE:
            return error
        if not self.is_current(generation_id):
            return ErrorCode.ILLEGAL_GENERATION
        if self.state is GroupState.COMPLETING_REBALANCE:
            # The member has joined this generation, but does not have its assignment yet, so it
            # cannot have read records.
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def is_current(self, generation_id: int) -> bool:
        """Return whether a commit's generation is the current generation of the group.

        A commit of an older generation is refused, because members of the current generation may
        have read further.
        """
        return generation_id == self.generation_id

    def offset_delete_error(self) -> ErrorCode:
        """Return the error of an OffsetDelete, NONE if offsets may be deleted."""
        if self.is_dead:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not self.is_empty and self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return ErrorCode.NON_EMPTY_GROUP
        return ErrorCode.NONE

    def keeps_offsets_of(self, topic: str) -> bool:
        """Return whether a member subscribes, or may subscribe, to a topic.

        OffsetDelete may not delete the group's offsets of such a topic.
        """
        return not self.is_empty and self.is_subscribed(topic)

    def is_subscribed(self, topic: str) -> bool:
        """Return whether a member subscribes to a topic; True if subscriptions are unknown."""
        return self.subscribed_topics is None or topic in self.subscribed_topics

    def unused_since_ms(self, key: TopicPartition, offset: CommittedOffset) -> int | None:
        """Return since when an offset is unused, in wall-clock ms; None while it is used (KIP-211).

        An offset becomes unused when its group becomes empty. If the group is simple, or no member
        subscribes to the topic, the offset is unused from its commit on.
        """
        if self.protocol_type is None:
            return offset.commit_timestamp_ms
        if self.is_empty:
            is_known = self.state_timestamp_ms != NO_TIMESTAMP
            return self.state_timestamp_ms if is_known else offset.commit_timestamp_ms
        if (
            self.state is GroupState.STABLE
            and self.protocol_type == CONSUMER_PROTOCOL_TYPE
            and not self.is_subscribed(key.topic)
        ):
            return offset.commit_timestamp_ms
        return None

    def begin_deletion(self) -> Mapping[str, MemberSession]:
        """Enter the state Dead; return the ended sessions of clients with only a member id."""
        ended, self.pending_members = self.pending_members, {}
        self.move_to(GroupState.DEAD, self.state_timestamp_ms)
        return ended

    def deletion_failed(self) -> None:
        """Enter the state Empty again, because the group's tombstones could not be written."""
        self.move_to(GroupState.EMPTY, self.state_timestamp_ms)

    def tombstones(self) -> list[Record]:
        """Return the tombstone of the group record; offsets have their own tombstones.

        The tombstone is needed even if this broker knows no record of the group, because a record
        may still be on its way to the log, or another broker may have written one.
        """
        return [GroupRecord(GroupKey(self.group_id), None)]

    # Descriptions for clients.

    def described(self) -> DescribedGroup:
        """Return the group's part of a DescribeGroups response.

        The response has metadata and assignments only for a stable group, because in other states
        the members have no valid assignments.
        """
        protocol_name = self.protocol_name if self.state is GroupState.STABLE else None
        return DescribedGroup(
            ErrorCode.NONE,
            self.group_id,
            self.state.value,
            self.protocol_type or "",
            protocol_name or "",
            [member.described(protocol_name) for member in self.members.values()],
        )

    def listed(self) -> ListedGroup:
        """Return the group's part of a ListGroups response."""
        return ListedGroup(self.group_id, self.protocol_type or "", self.state.value, GROUP_TYPE)

    def snapshot(self, members: Sequence[Member], assignments: dict[str, bytes]) -> GroupRecord:
        """Return the record of this generation with these members and their assignments."""
        stored = tuple(
            member.snapshot(self.protocol_name, assignments.get(member.member_id, b""))
            for member in members
        )
        return GroupRecord(
            GroupKey(self.group_id),
            GroupSnapshot(
                self.protocol_type or "",
                self.generation_id,
                self.protocol_name,
                self.leader_id,
                self.state_timestamp_ms,
                stored,
            ),
        )

    # The following methods change the group.

    def move_to(self, state: GroupState, wall_ms: int) -> None:
        """Enter another state. Raises InvariantError for a transition that Kafka does not have."""
        if self.state not in _FORMER_STATES[state]:
            raise InvariantError(
                f"group {self.group_id!r} cannot go from {self.state.value} to {state.value}"
            )
        self.state = state
        self.state_timestamp_ms = wall_ms
        self._check()

    def _check(self) -> None:
        """Assert the invariants of a group, whenever the group enters a state.

        The check is cheap enough: it visits every member, as the transition itself does.
        """
        members = self.members
        assert self.has_members or self.state not in _OF_MEMBERS, "such a group has members"
        assert not self.has_members or self.state not in _WITHOUT_MEMBERS, "such a group has none"
        if self.state is GroupState.COMPLETING_REBALANCE:
            assert self.leader_id in members, "the leader of a group is a member"
            assert self.protocol_name is not None, "the members of a generation speak a protocol"
        waiting = sum(member.join_ticket is not None for member in members.values())
        assert self.awaiting_join == waiting, "each member that waits in a join is counted once"
        static = {
            member.instance_id: member.member_id
            for member in members.values()
            if member.instance_id is not None
        }
        assert self.static_ids == static, "an instance has one member id (KIP-345)"
        assert self.pending_sync.keys() <= members.keys(), "only members are to sync"

    def add(self, member: Member) -> None:
        """Add a member; the first member becomes the group's leader."""
        assert member.member_id not in self.members, "a member id is given once"
        assert member.instance_id not in self.static_ids, "an instance has one member (KIP-345)"
        self._take(member)

    def _take(self, member: Member) -> None:
        self.members[member.member_id] = member
        self._count(member, 1)
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member: Member) -> None:
        """Remove a member whose requests were answered.

        If the member was the group's leader, another member becomes the leader.
        """
        assert self.members.get(member.member_id) is member, "only members are removed"
        assert member.join_ticket is None, "its join was answered"
        assert member.sync_ticket is None, "its sync was answered"
        del self.members[member.member_id]
        self._count(member, -1)
        self.pending_sync.pop(member.member_id, None)
        if member.instance_id is not None:
            del self.static_ids[member.instance_id]
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), None)

    def respeak(self, member: Member, protocols: Sequence[JoinGroupRequestProtocol]) -> None:
        """Replace the protocols that a member supports."""
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)

    def elect_leader(self) -> bool:
        """Keep the leader if it rejoined, else choose a leader among the members that rejoined.

        Returns False if no member rejoined.
        """
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.join_ticket is not None:
            return True
        for member in self.members.values():
            if member.join_ticket is not None:
                self.leader_id = member.member_id
                return True
        return False

    def read_subscriptions(self, topics_of: Callable[[bytes], Sequence[str] | None]) -> None:
        """Record the topics to which the members of a consumer group subscribe."""
        self.subscribed_topics = None
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE or (
            self.members and self.protocol_name is None
        ):
            return
        found: set[str] = set()
        for member in self.members.values():
            topics = topics_of(member.metadata(self.protocol_name))
            if topics is None:
                return
            found.update(topics)
        self.subscribed_topics = frozenset(found)

    def load(self, snapshot: GroupSnapshot) -> None:
        """Replace the group's state by a stored record, only while the partition loads.

        The group's offsets stay.
        """
        self.state = GroupState.STABLE if snapshot.members else GroupState.EMPTY
        self.state_timestamp_ms = snapshot.state_timestamp_ms
        self.generation_id = snapshot.generation_id
        self.protocol_type = snapshot.protocol_type or None
        self.protocol_name = snapshot.protocol_name
        self.members, self.static_ids, self.speakers = {}, {}, {}
        for stored in snapshot.members:
            self._take(Member.loaded(stored, snapshot.protocol_name))
        self.leader_id = snapshot.leader_id
        self.is_stored = True

    def unload(self) -> None:
        """Become a simple group again, because the load has reached the group's tombstone.

        The group's offsets stay.
        """
        fresh = ClassicGroup(self.group_id)
        fresh.offsets = self.offsets
        for name in _FIELDS:
            setattr(self, name, getattr(fresh, name))

    def _count(self, member: Member, change: int) -> None:
        for protocol in member.protocols:
            count = self.speakers.get(protocol.name, 0) + change
            assert count >= 0, "only a member that was counted is taken out of the count"
            if count:
                self.speakers[protocol.name] = count
            else:
                del self.speakers[protocol.name]

    # The following methods serve the model checker.

    def copy(self) -> ClassicGroup:
        """Return an independent copy."""
        other = ClassicGroup(self.group_id)
        for name in _FIELDS:
            value = getattr(self, name)
            setattr(other, name, dict(value) if isinstance(value, dict) else value)
        other.members = {name: member.copy() for name, member in self.members.items()}
        other.pending_members = {
            name: session.copy() for name, session in self.pending_members.items()
        }
        return other

    def key(self) -> tuple[object, ...]:
        """Return the whole state as a hashable value.

        The value includes the order of the members, because that order decides the next leader.
        """
        values: list[object] = []
        for name in _FIELDS:
            value = getattr(self, name)
            if name == "members":
                values.append(tuple(member.key() for member in value.values()))
            elif name == "pending_members":
                values.append(tuple((each, session.key()) for each, session in value.items()))
            else:
                values.append(tuple(value.items()) if isinstance(value, dict) else value)
        return tuple(values)


_FIELDS = (*Group.__slots__, *ClassicGroup.__slots__)


def classic(group: Group | None) -> ClassicGroup | None:
    """Return `group` as a ClassicGroup, because no other kind of group exists yet."""
    assert group is None or isinstance(group, ClassicGroup), "all groups are classic ones"
    return group
