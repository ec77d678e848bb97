"""Members of groups: they join, share partitions, commit, pause, leave, crash, and join again.

On one connection, a member finds its coordinator, joins, assigns partitions if it is the group
leader, and fetches committed offsets. Then it commits ever higher offsets. A member also makes
mistakes of real clients: it commits after a pause in which it lost its membership, forgets its
member id, or drops its connection while it waits for a response. A committer commits offsets for a
group without being its member. The clients report any error response that faults do not explain as
an anomaly.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tidelog.client.steps import Address
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, KafkaError, TidelogError
from tidelog.history.operations import FAIL, INFO, OK, Operation
from tidelog.sim.checkers.group_checker import Commit, GroupChecker
from tidelog.sim.client_history import Outcome
from tidelog.sim.workload.client import ClientConnection, ClientNode
from tidelog.wire import registry as apis
from tidelog.wire.data.consumer_protocol import (
    ASSIGNMENT,
    SUBSCRIPTION,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.messages.heartbeat import HeartbeatRequest
from tidelog.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from tidelog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

#: By client family: the highest version of each API, or the newest version if the API is missing.
FAMILIES: Final[Sequence[Mapping[int, int]]] = (
    {},
    {},
    {apis.FIND_COORDINATOR: 2, apis.JOIN_GROUP: 5, apis.SYNC_GROUP: 3, apis.HEARTBEAT: 3,
     apis.LEAVE_GROUP: 3, apis.OFFSET_COMMIT: 7, apis.OFFSET_FETCH: 5},
    {apis.FIND_COORDINATOR: 1, apis.JOIN_GROUP: 2, apis.SYNC_GROUP: 1, apis.HEARTBEAT: 1,
     apis.LEAVE_GROUP: 1, apis.OFFSET_COMMIT: 3, apis.OFFSET_FETCH: 2},
)  # fmt: skip
SESSION_TIMEOUT_MS: Final = 1_200
REBALANCE_TIMEOUT_MS: Final = 2_500
_ANSWER_MS: Final = 2_500
_JOIN_ANSWER_MS: Final = 2 * REBALANCE_TIMEOUT_MS
_BACKOFF_MS: Final = (20, 250)
_HEARTBEAT_MS: Final = 200
#: First API versions in which a group request has other fields than in earlier versions.
_COORDINATOR_KEYS_VERSION: Final = 4
_LEAVING_MEMBERS_VERSION: Final = 3
_FETCHED_GROUPS_VERSION: Final = 8
_PROTOCOL_VERSION: Final = 5
#: Errors of a coordinator after which the request certainly has no effect.
_FENCED: Final = frozenset((
    ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
))  # fmt: skip
#: Temporary errors of a coordinator; after such an error, the outcome of a commit is unknown.
_PASSING: Final = frozenset((
    ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
))  # fmt: skip


@dataclass(slots=True)
class GroupPlan:
    """The data that all simulated members of a group share."""

    name: str
    topic: str
    partitions: int
    #: Counter of committed offsets: each commit takes the next number, so that no offset occurs
    #: twice.
    next_offset: int = 0
    has_static_members: bool = False

    def take_offset(self) -> int:
        """Return an offset that no client has committed."""
        self.next_offset += 1
        return self.next_offset


class _Speaker:
    """Base class of the clients that talk to the coordinator of one group."""

    def __init__(
        self,
        client: ClientNode,
        plan: GroupPlan,
        checker: GroupChecker,
        draw: random.Random,
        family: Mapping[int, int],
    ) -> None:
        self.client = client
        self.plan = plan
        self.checker = checker
        #: The client's name in histories.
        self.process = f"member-{client.node_id}"
        #: Whether the client behaves well, without pauses, crashes and other mistakes.
        self.is_steady = False
        #: Number of rounds of work (heartbeats, commits) that the client began and completed while
        #: it was steady.
        self.steady_rounds = 0
        self.stopping = False
        self.is_done = False
        self._draw = draw
        self._family = family
        self._coordinator_id = -1

    async def _coordinator(self) -> ClientConnection:
        """Ask a random broker for the coordinator; return a connection to the coordinator."""
        connection = await self.client.connection(self._draw.choice(self.client.bootstrap))
        version = self._version(connection, apis.FIND_COORDINATOR)
        group = self.plan.name
        if version >= _COORDINATOR_KEYS_VERSION:
            request = FindCoordinatorRequest(coordinator_keys=[group])
        else:
            request = FindCoordinatorRequest(key=group)
        answer: FindCoordinatorResponse = await connection.call(
            apis.FIND_COORDINATOR, version, request, _ANSWER_MS
        )
        found: Any = answer
        if version >= _COORDINATOR_KEYS_VERSION:
            found = answer.coordinators[0]
        self._expect(apis.FIND_COORDINATOR, ErrorCode(found.error_code))
        self._coordinator_id = found.node_id
        return await self.client.connection(Address(found.host, found.port))

    def _version(self, connection: ClientConnection, api_key: int) -> int:
        return connection.version(api_key, self._family.get(api_key))

    async def _call(
        self, connection: ClientConnection, api_key: int, message: Any, patience_ms: int
    ) -> Any:
        version = self._version(connection, api_key)
        return await connection.call(api_key, version, message, patience_ms)

    async def _ask(
        self,
        connection: ClientConnection,
        api_key: int,
        message: Any,
        patience_ms: int = _ANSWER_MS,
    ) -> Any:
        """Return the response to a request, or raise its error."""
        answer = await self._call(connection, api_key, message, patience_ms)
        self._expect(api_key, ErrorCode(answer.error_code))
        return answer

    def _expect(self, api_key: int, error: ErrorCode) -> None:
        """Raise an error other than NONE; report an error that no fault explains as an anomaly."""
        if error is ErrorCode.NONE:
            return
        if error not in _PASSING and error not in _FENCED:
            self.client.history.anomaly(
                f"client {self.client.node_id} of group {self.plan.name} got {error.name}"
                f" from API {api_key}"
            )
        raise KafkaError(error, f"API {api_key}")

    async def _back_off(self) -> None:
        await self.client.tasks.sleep(self._draw.randrange(*_BACKOFF_MS))

    async def _commit(
        self,
        connection: ClientConnection,
        partitions: Sequence[int],
        generation: int = -1,
        member_id: str = "",
        instance_id: str | None = None,
    ) -> None:
        """Commit an offset for each of the given partitions; raise the first error."""
        plan, checker = self.plan, self.checker
        commits = [
            Commit(
                plan.name, partition, generation, plan.take_offset(),
                topic=plan.topic, process=self.process, member=member_id, instance=instance_id,
            )
            for partition in partitions
        ]  # fmt: skip
        for commit in commits:
            checker.commit_begins(commit)
        asked = [
            OffsetCommitRequestPartition(commit.partition, commit.offset, committed_metadata="m")
            for commit in commits
        ]
        request = OffsetCommitRequest(
            group_id=plan.name,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            topics=[OffsetCommitRequestTopic(plan.topic, asked)],
        )
        try:
            answer = await self._call(connection, apis.OFFSET_COMMIT, request, _ANSWER_MS)
        except TidelogError:
            for commit in commits:
                checker.commit_ends(commit, Outcome.UNKNOWN)
            raise
        responses = answer.topics[0].partitions
        errors = [ErrorCode(each.error_code) for each in responses]
        for commit, error in zip(commits, errors, strict=True):
            self._commit_ended(commit, error)
        for error in errors:
            self._expect(apis.OFFSET_COMMIT, error)

    def _commit_ended(self, commit: Commit, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            outcome = Outcome.DONE
        else:
            outcome = Outcome.REFUSED if error in _FENCED else Outcome.UNKNOWN
        self.checker.commit_ends(commit, outcome)

    async def _fetch(
        self, connection: ClientConnection, partitions: Sequence[int]
    ) -> dict[int, int]:
        """Return the committed offset of each partition."""
        plan = self.plan
        if self._version(connection, apis.OFFSET_FETCH) >= _FETCHED_GROUPS_VERSION:
            topics = [OffsetFetchRequestTopics(plan.topic, list(partitions))]
            wanted = OffsetFetchRequestGroup(plan.name, topics=topics)
            request = OffsetFetchRequest(groups=[wanted])
        else:
            old = [OffsetFetchRequestTopic(plan.topic, list(partitions))]
            request = OffsetFetchRequest(group_id=plan.name, topics=old)
        answer = await self._call(connection, apis.OFFSET_FETCH, request, _ANSWER_MS)
        found = answer.groups[0] if answer.groups else answer
        self._expect(apis.OFFSET_FETCH, ErrorCode(found.error_code))
        offsets: dict[int, int] = {}
        for topic in found.topics:
            for each in topic.partitions:
                self._expect(apis.OFFSET_FETCH, ErrorCode(each.error_code))
                offsets[each.partition_index] = each.committed_offset
        return offsets

    async def read_last(self) -> None:
        """Read the committed offset of every partition, with retries, and report the offsets to the
        checker.
        """
        while True:
            try:
                connection = await self._coordinator()
                asked_ns = self.client.now_ns
                offsets = await self._fetch(connection, range(self.plan.partitions))
            except TidelogError:
                await self._back_off()
                continue
            for partition, offset in offsets.items():
                self.checker.fetched_last(self.plan.name, partition, offset, asked_ns)
            return


class Committer(_Speaker):
    """A client that commits offsets of a group without members."""

    async def run(self) -> None:
        """Commit one offset after the other until stopped."""
        while not self.stopping:
            try:
                connection = await self._coordinator()
                while not self.stopping:
                    was_steady = self.is_steady
                    await self._commit(connection, [self._draw.randrange(self.plan.partitions)])
                    self.steady_rounds += was_steady
                    await self.client.tasks.sleep(self._draw.randrange(20, 400))
            except TidelogError:
                await self._back_off()
        self.is_done = True


class SimMember(_Speaker):
    """One client that becomes a member of its group again and again."""

    def __init__(
        self,
        client: ClientNode,
        plan: GroupPlan,
        checker: GroupChecker,
        draw: random.Random,
        family: Mapping[int, int],
        *,
        instance_id: str | None = None,
    ) -> None:
        super().__init__(client, plan, checker, draw, family)
        self._instance_id = instance_id
        self._member_id = ""
        #: Time at which the last JoinGroup request was sent.
        self._joined_ns = -1
        self._generation = -1
        self._former_generation = -1
        self._owned: list[int] = []

    async def run(self) -> None:
        """Join and work as a member repeatedly, until stopped."""
        while not self.stopping:
            try:
                connection = await self._coordinator()
                was_steady = self.is_steady
                await self._subscribe(connection)
                await self._live(connection, was_steady)
            except KafkaError as error:
                self._forget_member_id(error.code)
                await self._back_off()
            except TidelogError:
                await self._back_off()
        self.is_done = True

    def _forget_member_id(self, error: ErrorCode) -> None:
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self._member_id = ""

    # Joining

    async def _subscribe(self, connection: ClientConnection) -> None:
        """Join the group, and record the operation in the history."""
        begin_ns = self.client.now_ns
        outcome = INFO
        try:
            await self._join(connection)
            outcome = OK
        except KafkaError:
            outcome = FAIL
            raise
        finally:
            self.client.history.operations.append(
                Operation(
                    self.process,
                    "subscribe",
                    begin_ns,
                    self.client.now_ns,
                    outcome,
                    topics=[self.plan.topic],
                    group=self.plan.name,
                )
            )

    async def _join(self, connection: ClientConnection) -> None:
        answer = await self._join_once(connection)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
            answer = await self._join_once(connection)
        self._expect(apis.JOIN_GROUP, ErrorCode(answer.error_code))
        self._member_id = answer.member_id
        self._former_generation, self._generation = self._generation, answer.generation_id
        assignments = []
        if answer.leader == answer.member_id and not answer.skip_assignment:
            assignments = self._assign([member.member_id for member in answer.members])
        await self._sync(connection, answer, assignments)

    async def _join_once(self, connection: ClientConnection) -> JoinGroupResponse:
        version = self._version(connection, apis.JOIN_GROUP)
        metadata = SUBSCRIPTION.encode(ConsumerProtocolSubscription([self.plan.topic]), 1)
        if self._draw.random() < 0.3:
            # The user data in the subscription is new, so the coordinator starts a rebalance
            # although the topics are the same.
            subscription = ConsumerProtocolSubscription([self.plan.topic], self._draw.randbytes(2))
            metadata = SUBSCRIPTION.encode(subscription, 1)
        request = JoinGroupRequest(
            group_id=self.plan.name,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", metadata)],
        )
        self._joined_ns = self.client.now_ns
        asked_of = self.checker.term(self.plan.name, self._coordinator_id)
        answer: JoinGroupResponse = await connection.call(
            apis.JOIN_GROUP, version, request, _JOIN_ANSWER_MS
        )
        is_checked = answer.error_code == ErrorCode.NONE and not self.plan.has_static_members
        if is_checked and asked_of == self.checker.term(self.plan.name, self._coordinator_id):
            self.checker.joined(self.plan.name, answer.generation_id, answer.leader, asked_of)
        return answer

    def _assign(self, members: list[str]) -> list[SyncGroupRequestAssignment]:
        shares: dict[str, list[int]] = {member: [] for member in members}
        self._draw.shuffle(members)
        for partition in range(self.plan.partitions):
            shares[members[partition % len(members)]].append(partition)
        return [
            SyncGroupRequestAssignment(
                member,
                ASSIGNMENT.encode(
                    ConsumerProtocolAssignment([TopicPartition(self.plan.topic, share)]), 1
                ),
            )
            for member, share in shares.items()
        ]

    async def _sync(
        self,
        connection: ClientConnection,
        joined: JoinGroupResponse,
        assignments: list[SyncGroupRequestAssignment],
    ) -> None:
        request = SyncGroupRequest(
            group_id=self.plan.name,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            assignments=assignments,
        )
        if self._version(connection, apis.SYNC_GROUP) >= _PROTOCOL_VERSION:
            request.protocol_type = "consumer"
            request.protocol_name = joined.protocol_name
        joined_ns = self._joined_ns
        answer = await self._ask(connection, apis.SYNC_GROUP, request, _JOIN_ANSWER_MS)
        self._owned = []
        if answer.assignment:
            assignment = ASSIGNMENT.decode(answer.assignment)
            self._owned = [
                number for each in assignment.assigned_partitions for number in each.partitions
            ]
        owner = self._instance_id or self._member_id
        if self._instance_id is not None:
            self.checker.place_taken(self.plan.name, self._instance_id, self._member_id, joined_ns)
        self.checker.synced(self.plan.name, self._generation, owner, self._owned)
        asked_ns = self.client.now_ns
        for partition, offset in (await self._fetch(connection, self._owned)).items():
            self.checker.fetched(self.plan.name, self._generation, partition, offset, asked_ns)

    # Membership

    async def _live(self, connection: ClientConnection, was_steady: bool) -> None:
        """Send heartbeats and commits, and make mistakes, until the membership ends.

        If `is_steady` is set during the membership, the membership ends, too, so that the client
        joins again as a steady member.
        """
        draw = self._draw
        while not self.stopping:
            if self.is_steady and not was_steady:
                return
            what = draw.random()
            if self.is_steady or what >= 0.14:
                await self._work(connection)
                self.steady_rounds += was_steady
                await self.client.tasks.sleep(draw.randrange(20, _HEARTBEAT_MS))
            elif what < 0.03:
                # Pause so long that the coordinator removes the member, and then rejects its
                # commit.
                await self.client.tasks.sleep(SESSION_TIMEOUT_MS * draw.uniform(0.8, 3.0))
                await self._commit_owned(connection)
            elif what < 0.05:
                await self._leave(connection)
                return
            elif what < 0.07:
                # Crash: the member is gone without having left the group.
                self._member_id = ""
                connection.close("a member crashes")
                await self.client.tasks.sleep(draw.randrange(100, 2_000))
                return
            elif what < 0.09:
                # Send a JoinGroup request, and drop the connection before the response comes.
                self.client.tasks.spawn("an abandoned join", self._forsake(connection))
                await self.client.tasks.sleep(draw.randrange(1, 40))
                connection.close("a member does not wait for its join")
                return
            elif what < 0.11:
                return  # join again without having left
            else:
                await self._commit_late(connection)
        await self._leave(connection)

    async def _forsake(self, connection: ClientConnection) -> None:
        try:
            await self._join_once(connection)
        except TidelogError:
            return

    async def _work(self, connection: ClientConnection) -> None:
        if not self._owned or self._draw.random() < 0.25:
            request = HeartbeatRequest(
                self.plan.name, self._generation, self._member_id, self._instance_id
            )
            await self._ask(connection, apis.HEARTBEAT, request)
        else:
            await self._commit_owned(connection)

    async def _commit_owned(self, connection: ClientConnection) -> None:
        if self._owned:
            count = self._draw.randrange(1, len(self._owned) + 1)
            partitions = self._draw.sample(self._owned, count)
            await self._commit(
                connection, partitions, self._generation, self._member_id, self._instance_id
            )

    async def _commit_late(self, connection: ClientConnection) -> None:
        """Commit with the generation before the current one; the coordinator must reject this
        commit.
        """
        if not 0 <= self._former_generation < self._generation or not self._owned:
            return
        try:
            await self._commit(
                connection,
                self._owned[:1],
                self._former_generation,
                self._member_id,
                self._instance_id,
            )
        except KafkaError as error:
            if error.code is not ErrorCode.ILLEGAL_GENERATION:
                raise

    async def _leave(self, connection: ClientConnection) -> None:
        if self._version(connection, apis.LEAVE_GROUP) >= _LEAVING_MEMBERS_VERSION:
            request = LeaveGroupRequest(
                group_id=self.plan.name,
                members=[MemberIdentity(self._member_id, self._instance_id)],
            )
        else:
            request = LeaveGroupRequest(group_id=self.plan.name, member_id=self._member_id)
        await self._ask(connection, apis.LEAVE_GROUP, request)
        self._member_id = ""
