"""The APIs of groups: what each version carries, and how bad requests are answered."""

from __future__ import annotations

import pytest
from tests.support.broker.coordinator import (
    READ,
    CoordinatorHarness,
    answered,
    commit,
    commit_error,
    fetch,
    stable_member,
    told,
)
from tests.support.requests.of_groups import GROUP, join_group

from tidelog.broker.cluster_view import PartitionView, TopicView
from tidelog.broker.server.requests import Pending
from tidelog.core.errors import ErrorCode
from tidelog.core.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from tidelog.core.string_hash import coordinating_partition
from tidelog.wire.messages.delete_groups import DeleteGroupsRequest
from tidelog.wire.messages.describe_groups import DescribeGroupsRequest
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.heartbeat import HeartbeatRequest
from tidelog.wire.messages.join_group import JoinGroupRequest
from tidelog.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tidelog.wire.messages.list_groups import ListGroupsRequest
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from tidelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.wire.messages.sync_group import SyncGroupRequest
from tidelog.wire.registry import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    PRODUCE,
    SYNC_GROUP,
)

E = ErrorCode
#: Longer than any group id that is taken.
LONG = "g" * 1_001


class TestFindCoordinator:
    @told
    async def test_it_is_the_leader_of_the_groups_partition(self) -> None:
        harness = CoordinatorHarness()
        old = harness.ask(FIND_COORDINATOR, 3, FindCoordinatorRequest(GROUP))
        assert (old.error_code, old.node_id, old.host, old.port) == (E.NONE, 1, "h", 1)
        many = FindCoordinatorRequest(coordinator_keys=[GROUP, "other"])
        found = harness.ask(FIND_COORDINATOR, 4, many).coordinators
        assert [(each.key, each.node_id) for each in found] == [(GROUP, 1), ("other", 1)]

    @told
    async def test_a_topic_that_is_not_there_is_made(self) -> None:
        harness = CoordinatorHarness()
        del harness.broker.view.topics[CONSUMER_OFFSETS]
        answer = harness.ask(FIND_COORDINATOR, 3, FindCoordinatorRequest(GROUP))
        assert answer.error_code == E.COORDINATOR_NOT_AVAILABLE
        assert answer.node_id == -1
        await harness.settle()
        (line,) = [line for line in harness.broker.tracer.lines if "cannot create topics" in line]
        assert CONSUMER_OFFSETS in line

    @told
    async def test_a_partition_without_a_live_leader_has_no_coordinator_now(self) -> None:
        harness = CoordinatorHarness()
        harness.broker.see(2)
        answer = harness.ask(FIND_COORDINATOR, 2, FindCoordinatorRequest(GROUP))
        assert answer.error_code == E.COORDINATOR_NOT_AVAILABLE

    @told
    async def test_other_kinds_of_keys_are_refused(self) -> None:
        harness = CoordinatorHarness()
        for key_type, error in (
            (1, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
            (2, E.INVALID_REQUEST),
        ):
            request = FindCoordinatorRequest(GROUP, key_type)
            assert harness.ask(FIND_COORDINATOR, 3, request).error_code == error
        long = FindCoordinatorRequest(coordinator_keys=[LONG])
        (found,) = harness.ask(FIND_COORDINATOR, 6, long).coordinators
        assert found.error_code == E.INVALID_GROUP_ID

    @told
    async def test_beside_brokers_of_kafka_the_leader_of_the_transactions_is_named(self) -> None:
        harness = CoordinatorHarness()
        await harness.lead()
        topic = TopicView(TRANSACTION_STATE, b"T" * 16)
        harness.broker.view.topics[TRANSACTION_STATE] = topic
        for number in range(3):
            topic.partitions[number] = PartitionView(-1, 0, (1,), (1,), (), 0)
        owner = coordinating_partition("id", 3)
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=["id"])
        (found,) = harness.ask(FIND_COORDINATOR, 6, request).coordinators
        assert found.error_code == E.COORDINATOR_NOT_AVAILABLE
        topic.partitions[owner] = PartitionView(1, 0, (1,), (1,), (), 0)
        (found,) = harness.ask(FIND_COORDINATOR, 6, request).coordinators
        assert (found.error_code, found.node_id) == (E.NONE, 1)


class TestMembership:
    @told
    async def test_group_ids_that_cannot_be_are_told_whoever_coordinates(self) -> None:
        harness = CoordinatorHarness()
        for group in ("", LONG):
            beat = harness.ask(HEARTBEAT, 4, HeartbeatRequest(group, 1, "m"))
            assert beat.error_code == E.INVALID_GROUP_ID
        assert harness.ask(HEARTBEAT, 4, HeartbeatRequest(GROUP, 1, "m")).error_code == (
            E.NOT_COORDINATOR
        )

    @told
    async def test_a_newcomer_is_given_its_id_first_from_version_4_on(self) -> None:
        harness = CoordinatorHarness()
        await harness.lead()
        required = harness.ask(JOIN_GROUP, 4, join_group(4, READ))
        assert required.error_code == E.MEMBER_ID_REQUIRED
        name, _, uuid = required.member_id.partition("-client-")
        assert name == "a"
        assert [len(part) for part in uuid.split("-")] == [8, 4, 4, 4, 12]
        assert required.protocol_name == ""
        request = join_group(7, READ)
        request.member_id = "unknown"
        assert harness.ask(JOIN_GROUP, 7, request).protocol_name is None

    @told
    async def test_the_leader_is_told_of_the_members(self) -> None:
        harness = CoordinatorHarness()
        await harness.lead()
        pending = harness.ask(JOIN_GROUP, 0, join_group(0, READ))
        await harness.clock.advance(20)
        joined = answered(pending)
        assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")
        assert joined.leader == joined.member_id
        (member,) = joined.members
        assert member.metadata == join_group(0, READ).protocols[0].metadata

    @told
    async def test_bad_joins_are_refused(self) -> None:
        harness = CoordinatorHarness()
        await harness.lead()
        await stable_member(harness)
        quick, strange = join_group(3, READ), join_group(3, READ)
        quick.session_timeout_ms = 1
        strange.protocol_type = "connect"
        bare = JoinGroupRequest(GROUP, 6_000, 6_000, protocol_type="consumer")
        wanted = (
            (quick, E.INVALID_SESSION_TIMEOUT),
            (strange, E.INCONSISTENT_GROUP_PROTOCOL),
            (bare, E.INCONSISTENT_GROUP_PROTOCOL),
        )
        for request, error in wanted:
            assert harness.ask(JOIN_GROUP, 3, request).error_code == error

    @told
    async def test_a_sync_of_version_5_names_its_protocol(self) -> None:
        harness = CoordinatorHarness()
        await harness.lead()
        joined = await stable_member(harness)
        request = SyncGroupRequest(GROUP, joined.generation_id, joined.member_id)
        assert harness.ask(SYNC_GROUP, 5, request).error_code == E.INCONSISTENT_GROUP_PROTOCOL
        request.protocol_type, request.protocol_name = "consumer", "range"
        again = harness.ask(SYNC_GROUP, 5, request)
        assert (again.error_code, again.assignment) == (E.NONE, b"mine")
        assert (again.protocol_type, again.protocol_name) == ("consumer", "range")

    @told
    async def test_members_leave_in_old_versions_and_new_ones(self) -> None:
        harness = CoordinatorHarness()
        await harness.lead()
        joined = await stable_member(harness)
        assert harness.ask(LEAVE_GROUP, 2, LeaveGroupRequest(GROUP, "nobody")).error_code == (
            E.UNKNOWN_MEMBER_ID
        )
        members = [MemberIdentity("nobody"), MemberIdentity(joined.member_id)]
        left = harness.ask(LEAVE_GROUP, 3, LeaveGroupRequest(GROUP, members=members))
        assert left.error_code == E.NONE
        assert [each.error_code for each in left.members] == [E.UNKNOWN_MEMBER_ID, E.NONE]

    @told
    async def test_a_heartbeat_storm_disturbs_nobody(self) -> None:
        harness = CoordinatorHarness()
        await harness.lead()
        joined = await stable_member(harness)
        before = len(harness.log.batches), len(harness.broker.timers)
        beat = HeartbeatRequest(GROUP, joined.generation_id, joined.member_id)
        for _ in range(2_000):
            assert harness.ask(HEARTBEAT, 4, beat).error_code == E.NONE
        assert (len(harness.log.batches), len(harness.broker.timers)) == before


class TestOffsets:
    @told
    async def test_partitions_that_do_not_exist_are_refused_one_by_one(self) -> None:
        harness = CoordinatorHarness()
        await harness.lead()
        partitions = [
            OffsetCommitRequestPartition(number, 5, committed_metadata=None) for number in (9, 0)
        ]
        topics = [
            OffsetCommitRequestTopic("nowhere", partitions[1:]),
            OffsetCommitRequestTopic(READ, partitions),
        ]
        answer = harness.ask(OFFSET_COMMIT, 8, OffsetCommitRequest(GROUP, topics=topics))
        found = [
            (topic.name, each.partition_index, each.error_code)
            for topic in answer.topics
            for each in topic.partitions
        ]
        unknown = E.UNKNOWN_TOPIC_OR_PARTITION
        assert found == [("nowhere", 0, unknown), (READ, 9, unknown), (READ, 0, E.NONE)]
        assert len(harness.log.stored) == 1

    @told
    async def test_a_commit_without_any_known_partition_reaches_no_group(self) -> None:
        harness = CoordinatorHarness()
        await harness.lead()
        partition = OffsetCommitRequestPartition(0, 5, committed_metadata="")
        topics = [OffsetCommitRequestTopic("nowhere", [partition])]
        answer = harness.ask(OFFSET_COMMIT, 8, OffsetCommitRequest(GROUP, topics=topics))
        assert commit_error(answer) is E.UNKNOWN_TOPIC_OR_PARTITION
        assert harness.ask(LIST_GROUPS, 4, ListGroupsRequest()).groups == []

    @told
    async def test_commits_are_fenced(self) -> None:
        harness = CoordinatorHarness()
        await harness.lead()
        joined = await stable_member(harness)
        partition = OffsetCommitRequestPartition(0, 5, committed_metadata="")
        topics = [OffsetCommitRequestTopic(READ, [partition])]
        generation = joined.generation_id
        for member, of_generation, error in (
            (joined.member_id, generation - 1, E.ILLEGAL_GENERATION),
            ("stranger", generation, E.UNKNOWN_MEMBER_ID),
            ("", -1, E.UNKNOWN_MEMBER_ID),
        ):
            request = OffsetCommitRequest(GROUP, of_generation, member, topics=topics)
            assert commit_error(harness.ask(OFFSET_COMMIT, 8, request)) is error

    @pytest.mark.parametrize(("version", "partitions"), [(1, 1), (2, 0), (7, 0)])
    @told
    async def test_an_error_of_the_group_stands_where_the_version_has_room(
        self, version: int, partitions: int
    ) -> None:
        harness = CoordinatorHarness()
        request = OffsetFetchRequest(GROUP, [OffsetFetchRequestTopic(READ, [0])])
        answer = harness.ask(OFFSET_FETCH, version, request)
        assert answer.error_code == (E.NOT_COORDINATOR if version >= 2 else E.NONE)
        found = [each.error_code for topic in answer.topics for each in topic.partitions]
        assert found == [E.NOT_COORDINATOR] * partitions

    @told
    async def test_offsets_of_many_groups_are_fetched_at_once(self) -> None:
        harness = CoordinatorHarness()
        await harness.lead()
        commit(harness, 5)
        groups = [
            OffsetFetchRequestGroup(GROUP, topics=None),
            OffsetFetchRequestGroup("other", topics=None),
            OffsetFetchRequestGroup(LONG, topics=None),
        ]
        one, other, long = harness.ask(OFFSET_FETCH, 8, OffsetFetchRequest(groups=groups)).groups
        assert [each.committed_offset for topic in one.topics for each in topic.partitions] == [5]
        assert (other.topics, other.error_code) == ([], E.NONE)
        assert long.error_code == E.INVALID_GROUP_ID

    @told
    async def test_offsets_are_deleted(self) -> None:
        harness = CoordinatorHarness()
        await harness.lead()
        commit(harness, 5)
        wanted = [OffsetDeleteRequestPartition(0), OffsetDeleteRequestPartition(9)]
        request = OffsetDeleteRequest(GROUP, [OffsetDeleteRequestTopic(READ, wanted)])
        (topic,) = harness.ask(OFFSET_DELETE, 0, request).topics
        assert [each.error_code for each in topic.partitions] == [
            E.NONE,
            E.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert fetch(harness) == (E.NONE, -1)
        nobody = OffsetDeleteRequest("nobody", [OffsetDeleteRequestTopic(READ, wanted)])
        assert harness.ask(OFFSET_DELETE, 0, nobody).error_code == E.GROUP_ID_NOT_FOUND


class TestAdministration:
    @told
    async def test_groups_are_described_listed_and_deleted(self) -> None:
        harness = CoordinatorHarness()
        await harness.lead()
        joined = await stable_member(harness)
        seen, dead = harness.ask(DESCRIBE_GROUPS, 5, DescribeGroupsRequest([GROUP, "none"])).groups
        assert (seen.group_state, seen.protocol_type, seen.protocol_data) == (
            "Stable",
            "consumer",
            "range",
        )
        (member,) = seen.members
        assert (member.member_id, member.client_host) == (joined.member_id, "/10.0.0.1")
        assert member.member_assignment == b"mine"
        assert (dead.error_code, dead.group_state) == (E.NONE, "Dead")
        (listed,) = harness.ask(LIST_GROUPS, 5, ListGroupsRequest()).groups
        assert (listed.group_id, listed.group_state, listed.group_type) == (
            GROUP,
            "Stable",
            "classic",
        )
        assert harness.ask(LIST_GROUPS, 5, ListGroupsRequest(["Empty"])).groups == []
        refused, unknown = harness.ask(
            DELETE_GROUPS, 2, DeleteGroupsRequest([GROUP, "none"])
        ).results
        assert refused.error_code == E.NON_EMPTY_GROUP
        assert unknown.error_code == E.GROUP_ID_NOT_FOUND
        harness.ask(
            LEAVE_GROUP, 3, LeaveGroupRequest(GROUP, members=[MemberIdentity(joined.member_id)])
        )
        await harness.settle()
        twice = harness.ask(DELETE_GROUPS, 2, DeleteGroupsRequest([GROUP, GROUP]))
        assert [(each.group_id, each.error_code) for each in twice.results] == [(GROUP, E.NONE)]
        assert harness.ask(LIST_GROUPS, 5, ListGroupsRequest()).groups == []

    @told
    async def test_nothing_asked_is_nothing_answered(self) -> None:
        harness = CoordinatorHarness()
        assert harness.ask(DESCRIBE_GROUPS, 5, DescribeGroupsRequest([])).groups == []

    @told
    async def test_a_group_that_is_named_again_and_again_is_told_once(self) -> None:
        harness = CoordinatorHarness()
        await harness.lead()
        commit(harness, 5)
        described = harness.ask(DESCRIBE_GROUPS, 5, DescribeGroupsRequest([GROUP] * 1000)).groups
        assert [each.group_id for each in described] == [GROUP]
        groups = [OffsetFetchRequestGroup(GROUP, topics=None)] * 1000
        fetched = harness.ask(OFFSET_FETCH, 8, OffsetFetchRequest(groups=groups)).groups
        assert [each.group_id for each in fetched] == [GROUP]

    @told
    async def test_many_groups_are_asked_of_in_several_turns(self) -> None:
        harness = CoordinatorHarness()
        await harness.lead()
        names = [f"group {number}" for number in range(1200)]
        pending = harness.ask(DESCRIBE_GROUPS, 5, DescribeGroupsRequest(names))
        assert isinstance(pending, Pending)
        await harness.settle()
        await harness.clock.advance(0)
        assert [each.group_id for each in answered(pending).groups] == names
        lost = harness.ask(DELETE_GROUPS, 2, DeleteGroupsRequest(names))
        lost.cancel()
        await harness.settle()
        await harness.clock.advance(0)
        assert harness.broker.failures == []

    @told
    async def test_clients_cannot_write_to_the_coordinators_topic(self) -> None:
        harness = CoordinatorHarness()
        await harness.lead()
        topic = TopicProduceData(CONSUMER_OFFSETS, [PartitionProduceData(0, memoryview(b"x"))])
        answer = harness.ask(
            PRODUCE, 9, ProduceRequest(acks=-1, timeout_ms=100, topic_data=[topic])
        )
        (told_of,) = answer.responses[0].partition_responses
        assert told_of.error_code == E.INVALID_TOPIC_EXCEPTION
        assert harness.log.batches == []
