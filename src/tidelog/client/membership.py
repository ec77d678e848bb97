"""A member of a group: its joins, assignments as leader, heartbeats, commits, and its leave.

The member is a state machine without a clock. A member's driver calls `join` while `must_join`
holds, and `heartbeat` in time; between polls, `heartbeats` sends heartbeats. A group may mix these
members with Kafka's consumers: protocol type, assignors, subscriptions and assignments are Kafka's.
With a cooperative assignor a member keeps its partitions while it joins, and rejoins after it
revoked a partition (KIP-429). A new member gets its id first and joins with it (KIP-394); a member
with an instance id is static (KIP-345).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from tidelog.client.assignors import ASSIGNORS, Assignor, MemberSubscription, RangeAssignor
from tidelog.client.cluster import TopicMetadata
from tidelog.client.coordinators import Coordinators
from tidelog.client.groups import FetchedOffset, GroupAdmin, read_assignment
from tidelog.client.retries import UNKNOWN_TOPIC, Patience
from tidelog.client.routing import ClusterRouter, expect, topics_of
from tidelog.client.steps import Operation, always
from tidelog.client.versions import error_code
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, KafkaError, ProtocolError
from tidelog.core.types import TopicPartition
from tidelog.wire.data import consumer_protocol as protocol
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from tidelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tidelog.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tidelog.wire.registry import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP

#: From this version on, LeaveGroup has a list of members.
_LEAVING_MEMBERS_VERSION: Final = 3
#: Version in which a member writes its subscription, with the owned partitions and the generation
#: in which the member owned them.
_SUBSCRIPTION_VERSION: Final = 2
#: Version in which the group's leader writes assignments, which every consumer can read.
_ASSIGNMENT_VERSION: Final = 0
_ANSWER_MARGIN_MS: Final = 5_000
#: Timeout of a LeaveGroup in ms. If the request fails, the coordinator removes the member when its
#: session times out.
_LEAVE_MS: Final = 5_000
#: Errors that end a membership; other members may already own the member's partitions.
LOST: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


@dataclass(frozen=True, slots=True)
class MemberOptions:
    """The settings of a member; a coordinator removes a member that is silent for the session
    timeout.

    A member that does not poll for `max_poll_interval_ms` leaves. A coordinator waits up to
    `max_poll_interval_ms` for members that must rejoin (KIP-62). A heartbeat interval of 0 means
    one heartbeat with every poll, and none between polls.
    """

    group: str
    topics: tuple[str, ...]
    assignor: Assignor = ASSIGNORS[RangeAssignor.name]
    instance_id: str | None = None
    session_timeout_ms: int = 10_000
    max_poll_interval_ms: int = 300_000
    heartbeat_interval_ms: int = 3_000


class Membership(NamedTuple):
    """The identity of a member at its coordinator since its last join."""

    generation: int
    member_id: str


class GroupMember:
    """One member of a group.

    `assignment` has the partitions that the member may read and commit. Only `join` changes the
    assignment; the loss of the membership clears it.
    """

    def __init__(
        self,
        router: ClusterRouter,
        coordinators: Coordinators,
        groups: GroupAdmin,
        options: MemberOptions,
    ) -> None:
        self.options = options
        self.member_id = ""
        self.generation = -1
        self.assignment: frozenset[TopicPartition] = frozenset()
        #: Partitions that the member owned before its last join and still owns after the join.
        self.kept: frozenset[TopicPartition] = frozenset()
        #: The current membership; None while the member joins or is not in the group.
        self.membership: Membership | None = None
        #: Whether `join` is due: at the start, after a rebalance, or after a lost membership.
        self.must_join = True
        self.is_leader = False
        self._router = router
        self._coordinators = coordinators
        self._groups = groups
        #: Partition counts of topics at the last assignment that this member computed as leader;
        #: empty if another member is the leader.
        self._counts: dict[str, int] = {}

    # -- joining --------------------------------------------------------------------------------

    def join(self) -> Operation[frozenset[TopicPartition]]:
        """Join or rejoin until a rebalance completes; return the new assignment.

        An eager member must commit its progress before `join`: another member may continue from the
        committed offsets. A cooperative member commits its revoked partitions after `join`, and
        rejoins while `must_join` holds. Raises KafkaError, also for missing topics.
        """
        what = f"joining group {self.options.group!r}"
        timeout_ms = self.options.max_poll_interval_ms + self._router.timeout_ms
        self.membership = None
        while True:
            try:
                yield from self._router.repeat(what, self._attempt, timeout_ms)
            except KafkaError as error:
                if error.code is ErrorCode.REBALANCE_IN_PROGRESS:
                    continue
                if error.code not in LOST:
                    raise
                self._lose()
                continue
            return self.assignment

    def _attempt(self, patience: Patience) -> Operation[None]:
        topics = yield from self._known_topics(patience)
        joined = yield from self._join_once(patience)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            joined = yield from self._join_once(patience)
        self._coordinators.check(self.options.group, joined.error_code)
        self.member_id = joined.member_id
        self.generation = joined.generation_id
        self.is_leader = joined.leader == joined.member_id
        self._counts = {}
        shares: list[SyncGroupRequestAssignment] = []
        if self.is_leader and not joined.skip_assignment:
            shares = yield from self._shares(joined, topics, patience)
        assigned = yield from self._sync(joined, shares, patience)
        given_up = self.assignment - assigned
        self.kept = self.assignment & assigned
        self.assignment = assigned
        self.membership = Membership(self.generation, self.member_id)
        self.must_join = bool(given_up) and self.options.assignor.is_cooperative

    def _known_topics(self, patience: Patience) -> Operation[dict[str, TopicMetadata]]:
        """Return fresh metadata of the subscribed topics.

        A missing topic is an error, because a member would silently wait for the topic.
        """
        self._router.forget()
        found = {}
        for name in self.options.topics:
            try:
                found[name] = yield from self._router.topic(name, patience)
            except KafkaError as error:
                if error.code in UNKNOWN_TOPIC and self.generation < 0:
                    raise
        return found

    def _join_once(self, patience: Patience) -> Operation[JoinGroupResponse]:
        options = self.options
        owned = self.assignment if options.assignor.is_cooperative else frozenset()
        subscription = protocol.ConsumerProtocolSubscription(
            topics=list(options.topics),
            owned_partitions=topics_of(sorted(owned), protocol.TopicPartition),
            generation_id=self.generation,
        )
        metadata = protocol.SUBSCRIPTION.encode(subscription, _SUBSCRIPTION_VERSION)
        message = JoinGroupRequest(
            group_id=options.group,
            session_timeout_ms=options.session_timeout_ms,
            rebalance_timeout_ms=options.max_poll_interval_ms,
            member_id=self.member_id,
            group_instance_id=options.instance_id,
            protocol_type=protocol.CONSUMER_PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(options.assignor.name, metadata)],
        )
        return expect((yield from self._wait(JOIN_GROUP, message, patience)), JoinGroupResponse)

    def _shares(
        self, joined: JoinGroupResponse, known: Mapping[str, TopicMetadata], patience: Patience
    ) -> Operation[list[SyncGroupRequestAssignment]]:
        """Return the partitions of every member, as the leader of the group."""
        members = {}
        for each in joined.members:
            subscription = protocol.SUBSCRIPTION.decode(each.metadata)
            owned = frozenset(
                TopicPartition(topic.topic, number)
                for topic in subscription.owned_partitions
                for number in topic.partitions
            )
            members[each.member_id] = MemberSubscription(
                tuple(subscription.topics),
                each.group_instance_id,
                owned,
                subscription.generation_id,
            )
        counts = {name: len(topic.partitions) for name, topic in known.items()}
        for name in sorted({name for each in members.values() for name in each.topics}):
            if name not in counts:  # only other members subscribe to this topic
                found = (yield from self._router.metadata([name])).topics.get(name)
                if found is not None and found.error is ErrorCode.NONE:
                    counts[name] = len(found.partitions)
        shares = self.options.assignor.assign(counts, members)
        self._counts = counts
        return [
            SyncGroupRequestAssignment(member, _assignment(share))
            for member, share in shares.items()
        ]

    def _sync(
        self,
        joined: JoinGroupResponse,
        shares: list[SyncGroupRequestAssignment],
        patience: Patience,
    ) -> Operation[frozenset[TopicPartition]]:
        message = SyncGroupRequest(
            group_id=self.options.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.options.instance_id,
            protocol_type=protocol.CONSUMER_PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=shares,
        )
        answer = yield from self._wait(SYNC_GROUP, message, patience)
        response = expect(answer, SyncGroupResponse)
        self._coordinators.check(self.options.group, response.error_code)
        try:
            return frozenset(read_assignment(response.assignment))
        except ProtocolError as error:
            raise ProtocolError(
                f"the leader of group {self.options.group!r} sent an assignment that cannot be"
                f" decoded: {error}"
            ) from error

    def _wait(self, api_key: int, message: Any, patience: Patience) -> Operation[Any]:
        """Send a request whose response the coordinator holds until other members join."""
        timeout_ms = self.options.max_poll_interval_ms + _ANSWER_MARGIN_MS
        return (
            yield from self._coordinators.ask(
                self.options.group, api_key, always(message), patience, timeout_ms
            )
        )

    # -- heartbeats, commits, leaving -----------------------------------------------------------

    def heartbeat(self) -> Operation[None]:
        """Send a heartbeat to the coordinator; set `must_join` if the response requires a join.

        Raises KafkaError FENCED_INSTANCE_ID if another member uses the same instance id.
        """
        membership = Membership(self.generation, self.member_id)
        beating = self._router.repeat(
            f"a heartbeat to group {self.options.group!r}",
            partial(send_heartbeat, self._coordinators, self.options, membership),
        )
        yield from self._judged(beating)

    def hear(self, membership: Membership, error: ErrorCode) -> None:
        """Handle the error of a heartbeat that was sent for `membership` between polls (KIP-62).

        An error of an earlier membership is ignored.

        Raises the errors of `heartbeat`.
        """
        if membership == self.membership:
            self._judge(KafkaError(error, f"group {self.options.group!r}"))

    def look_for_partitions(self) -> Operation[None]:
        """Rejoin as leader if a topic of the group has new partitions."""
        if not self._counts:
            return
        metadata = yield from self._router.metadata(sorted(self._counts))
        for name, count in self._counts.items():
            topic = metadata.topics.get(name)
            if topic is not None and topic.error is ErrorCode.NONE:
                self.must_join = self.must_join or len(topic.partitions) != count

    def commit(self, offsets: Mapping[TopicPartition, FetchedOffset]) -> Operation[bool]:
        """Commit offsets of assigned partitions.

        Returns False if the membership, and with it the assignment, was lost. Raises KafkaError.
        """
        assert self.assignment.issuperset(offsets), "others own what it does not have assigned"
        if not offsets:
            return True
        committing = self._groups.commit(
            self.options.group, offsets, self.generation, self.member_id, self.options.instance_id
        )
        return (yield from self._judged(committing))

    def leave(self) -> Operation[None]:
        """Leave, so that other members need not wait for the session timeout.

        A static member does not leave, because the coordinator expects its return (KIP-345).
        """
        if self.member_id and self.options.instance_id is None:
            membership = Membership(self.generation, self.member_id)
            leaving = partial(leave_group, self._coordinators, self.options.group, membership)
            timeout_ms = min(self._router.timeout_ms, _LEAVE_MS)
            yield from self._router.repeat(
                f"leaving group {self.options.group!r}", leaving, timeout_ms
            )
        self._lose()

    def _judged(self, operation: Operation[None]) -> Operation[bool]:
        """Run an operation; return False if it failed with an error that `_judge` handled."""
        try:
            yield from operation
        except KafkaError as error:
            self._judge(error)
            return False
        return True

    def _judge(self, error: KafkaError) -> None:
        """React to a coordinator's error; raise an error that the member cannot handle."""
        if error.code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.must_join = True
        elif error.code in LOST:
            self._lose()
        else:
            raise error

    def _lose(self) -> None:
        self.membership = None
        self.member_id = ""
        self.generation = -1
        self.assignment = frozenset()
        self.is_leader = False
        self._counts = {}
        self.must_join = True


def send_heartbeat(
    coordinators: Coordinators, options: MemberOptions, membership: Membership, patience: Patience
) -> Operation[None]:
    """Send one heartbeat for a membership. Raises KafkaError with the coordinator's error."""
    message = HeartbeatRequest(
        options.group, membership.generation, membership.member_id, options.instance_id
    )
    answer = yield from coordinators.ask(options.group, HEARTBEAT, always(message), patience)
    coordinators.check(options.group, expect(answer, HeartbeatResponse).error_code)


def leave_group(
    coordinators: Coordinators, group: str, membership: Membership, patience: Patience
) -> Operation[None]:
    """End a membership; do nothing if the membership is already over."""

    def build(version: int) -> LeaveGroupRequest:
        if version < _LEAVING_MEMBERS_VERSION:
            return LeaveGroupRequest(group, member_id=membership.member_id)
        return LeaveGroupRequest(group, members=[MemberIdentity(membership.member_id)])

    answer = yield from coordinators.ask(group, LEAVE_GROUP, build, patience)
    response = expect(answer, LeaveGroupResponse)
    for number in [response.error_code, *(each.error_code for each in response.members)]:
        if error_code(number) is not ErrorCode.UNKNOWN_MEMBER_ID:  # the member has left already
            coordinators.check(group, number)


def _assignment(share: list[TopicPartition]) -> bytes:
    partitions = topics_of(share, protocol.TopicPartition)
    assignment = protocol.ConsumerProtocolAssignment(partitions)
    return protocol.ASSIGNMENT.encode(assignment, _ASSIGNMENT_VERSION)
