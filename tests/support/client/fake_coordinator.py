"""A coordinator of one group with one member, on a fake cluster: enough to join, commit and leave.

Tests put errors in front of what it would answer, and change what it assigns.
"""

from __future__ import annotations

from typing import Any

from tests.support.client.fake_cluster import FakeCluster, Handler

from tidelog.core.types import TopicPartition
from tidelog.wire.data import consumer_protocol as protocol
from tidelog.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tidelog.wire.messages.heartbeat import HeartbeatResponse
from tidelog.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from tidelog.wire.messages.leave_group import LeaveGroupResponse, MemberResponse
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tidelog.wire.registry import (
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
)

MEMBER_ID_REQUIRED = 79


class FakeCoordinator:
    """Installs itself at every broker of a cluster; `node_id` says which coordinates."""

    def __init__(self, cluster: FakeCluster, group: str = "g") -> None:
        self.cluster, self.group = cluster, group
        self.node_id = 1
        self.generation = 0
        self.is_leader = True
        #: What the member gets; None: what the leader, the member itself, decided.
        self.assigned: list[TopicPartition] | None = None
        self.committed: dict[TopicPartition, int] = {}
        #: Errors answered before anything else, by API, in order.
        self.errors: dict[int, list[int]] = {}
        for broker in cluster.brokers:
            handlers: dict[int, Handler] = {
                FIND_COORDINATOR: self._find,
                JOIN_GROUP: self._join,
                SYNC_GROUP: self._sync,
                HEARTBEAT: lambda _: HeartbeatResponse(0, self._error(HEARTBEAT)),
                LEAVE_GROUP: self._leave,
                OFFSET_COMMIT: self._commit,
                OFFSET_FETCH: self._fetch,
            }
            for api_key, handler in handlers.items():
                broker.on(api_key, handler)

    def asked(self, api_key: int) -> list[Any]:
        """The requests of one API at the broker that coordinates now."""
        return self.cluster[self.node_id].asked(api_key)

    def _error(self, api_key: int) -> int:
        waiting = self.errors.get(api_key)
        return waiting.pop(0) if waiting else 0

    def _find(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        node = self.cluster[self.node_id]
        error = self._error(FIND_COORDINATOR)
        if request.coordinator_keys:
            found = Coordinator(self.group, node.node_id, "127.0.0.1", node.port, error, None)
            return FindCoordinatorResponse(coordinators=[found])
        return FindCoordinatorResponse(0, error, None, node.node_id, "127.0.0.1", node.port)

    def _join(self, request: JoinGroupRequest) -> JoinGroupResponse:
        answer = JoinGroupResponse(error_code=self._error(JOIN_GROUP), protocol_name="")
        if answer.error_code:
            return answer
        if not request.member_id and request.group_instance_id is None:
            answer.error_code, answer.member_id = MEMBER_ID_REQUIRED, "me-1"
            return answer
        self.generation += 1
        me = request.member_id or "me-1"
        (chosen,) = request.protocols
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name=chosen.name,
            leader=me if self.is_leader else "somebody",
            member_id=me,
            members=[JoinGroupResponseMember(me, request.group_instance_id, chosen.metadata)]
            if self.is_leader
            else [],
        )

    def _sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        error = self._error(SYNC_GROUP)
        if error:
            return SyncGroupResponse(0, error)
        if self.assigned is None:
            assignment = next(
                (it.assignment for it in request.assignments if it.member_id == request.member_id),
                b"",
            )
        else:
            topics = [protocol.TopicPartition(tp.topic, [tp.partition]) for tp in self.assigned]
            assignment = protocol.ASSIGNMENT.encode(protocol.ConsumerProtocolAssignment(topics), 0)
        return SyncGroupResponse(0, 0, "consumer", "range", assignment)

    def _leave(self, request: Any) -> LeaveGroupResponse:
        error = self._error(LEAVE_GROUP)
        if not request.members:
            return LeaveGroupResponse(0, error)
        members = [MemberResponse(it.member_id, None, error) for it in request.members]
        return LeaveGroupResponse(members=members)

    def _commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        error = self._error(OFFSET_COMMIT)
        topics = []
        for topic in request.topics:
            answers = []
            for each in topic.partitions:
                if not error:
                    tp = TopicPartition(topic.name, each.partition_index)
                    self.committed[tp] = each.committed_offset
                answers.append(OffsetCommitResponsePartition(each.partition_index, error))
            topics.append(OffsetCommitResponseTopic(topic.name, answers))
        return OffsetCommitResponse(topics=topics)

    def _fetch(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        error = self._error(OFFSET_FETCH)
        grouped = bool(request.groups)
        asked = request.groups[0].topics if grouped else request.topics
        if asked is None:
            wanted = list(self.committed)
        else:
            wanted = [TopicPartition(t.name, n) for t in asked for n in t.partition_indexes]
        by_name: dict[str, list[tuple[int, int]]] = {}
        for tp in wanted:
            by_name.setdefault(tp.topic, []).append((tp.partition, self.committed.get(tp, -1)))
        if not grouped:
            old = [
                OffsetFetchResponseTopic(
                    name, [OffsetFetchResponsePartition(n, at, -1, "", 0) for n, at in each]
                )
                for name, each in by_name.items()
            ]
            return OffsetFetchResponse(topics=old, error_code=error)
        topics = [
            OffsetFetchResponseTopics(
                name, [OffsetFetchResponsePartitions(n, at, -1, "m", 0) for n, at in each]
            )
            for name, each in by_name.items()
        ]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(self.group, topics, error)])
