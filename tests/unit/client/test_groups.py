"""Groups from outside and from within, against a scripted coordinator."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.client.fake_coordinator import FakeCoordinator
from tests.support.client.fake_logs import FakeLogs, batch

from tidelog.client.assignors import ASSIGNORS
from tidelog.client.fetching import LATEST
from tidelog.client.groups import DEAD, FetchedOffset
from tidelog.client.membership import MemberOptions
from tidelog.core.errors import ErrorCode, KafkaError, ProtocolError
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient
from tidelog.runtime.blocking_consumer import BlockingGroupConsumer
from tidelog.wire.data import consumer_protocol as protocol
from tidelog.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from tidelog.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from tidelog.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from tidelog.wire.messages.offset_delete import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from tidelog.wire.messages.sync_group import SyncGroupResponse
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
    SYNC_GROUP,
)

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
NOT_COORDINATOR, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS = 16, 22, 25, 27
NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, FENCED_INSTANCE_ID = 68, 69, 82
LOADING, GROUP_SUBSCRIBED = 14, 86


@pytest.fixture
def logs() -> Iterator[FakeLogs]:
    made = FakeLogs()
    made.create("t", 3)
    for number in range(3):
        made.append(TopicPartition("t", number), batch(0, b"a", b"b", b"c"))
    yield made
    made.close()


@pytest.fixture
def coordinator(logs: FakeLogs) -> FakeCoordinator:
    return FakeCoordinator(logs)


@pytest.fixture
def client(logs: FakeLogs) -> Iterator[BlockingClient]:
    with BlockingClient(logs.bootstrap, timeout_ms=5_000) as blocking:
        yield blocking


class TestFromOutside:
    def test_groups_of_all_brokers_are_listed_by_name(
        self, logs: FakeLogs, client: BlockingClient
    ) -> None:
        groups = [ListedGroup("b", "consumer", "Stable"), ListedGroup("a", "", "Empty")]
        logs[1].script(
            LIST_GROUPS, ListGroupsResponse(0, LOADING), ListGroupsResponse(groups=groups)
        )
        assert [(it.group, it.state, it.coordinator) for it in client.list_groups()] == [
            ("a", "Empty", 1),
            ("b", "Stable", 1),
        ]

    def test_groups_are_listed_without_those_that_a_broker_still_loads(
        self, logs: FakeLogs, client: BlockingClient
    ) -> None:
        groups = [ListedGroup("a", "consumer", "Stable")]
        logs[1].script(LIST_GROUPS, ListGroupsResponse(0, LOADING, groups))
        loading: set[int] = set()
        assert [each.group for each in client.list_groups(None, loading)] == ["a"]
        assert loading == {1}

    def test_members_are_described_with_what_they_read(
        self, coordinator: FakeCoordinator, logs: FakeLogs, client: BlockingClient
    ) -> None:
        assignment = protocol.ASSIGNMENT.encode(
            protocol.ConsumerProtocolAssignment([protocol.TopicPartition("t", [2, 0])]), 1
        )
        members = [
            DescribedGroupMember("m2", "static", "c", "/h", b"", assignment),
            DescribedGroupMember("m1", None, "c", "/h", b"", b"\x00\x00garbage"),
            DescribedGroupMember("m0", None, "c", "/h", b"", b""),
        ]
        told = DescribedGroup(0, "g", "Stable", "consumer", "range", members)
        logs[1].on(DESCRIBE_GROUPS, lambda _: DescribeGroupsResponse(groups=[told]))
        found = client.describe_group("g")
        assert (found.state, found.assignor, found.coordinator.broker_id) == ("Stable", "range", 1)
        assert [(it.member_id, it.assignment) for it in found.members] == [
            ("m0", ()),
            ("m1", None),
            ("m2", (T0, T2)),
        ]

    def test_a_group_that_kafka_4_does_not_find_is_dead(
        self, coordinator: FakeCoordinator, logs: FakeLogs, client: BlockingClient
    ) -> None:
        told = DescribedGroup(GROUP_ID_NOT_FOUND, "g", "", "", "", [])
        logs[1].on(DESCRIBE_GROUPS, lambda _: DescribeGroupsResponse(groups=[told]))
        assert client.describe_group("g").state == DEAD

    @pytest.mark.parametrize("version", [7, 9])
    def test_committed_offsets_are_read_in_either_form(
        self, coordinator: FakeCoordinator, logs: FakeLogs, client: BlockingClient, version: int
    ) -> None:
        logs[1].served[OFFSET_FETCH] = (1, version)
        coordinator.committed = {T0: 7, T2: 0}
        assert {tp: it.offset for tp, it in client.committed("g", [T0, T1]).items()} == {T0: 7}
        assert {tp: it.offset for tp, it in client.committed("g").items()} == {T0: 7, T2: 0}

    def test_a_broker_that_cannot_tell_all_offsets_is_not_asked_for_them(
        self, coordinator: FakeCoordinator, logs: FakeLogs, client: BlockingClient
    ) -> None:
        logs[1].served[OFFSET_FETCH] = (1, 1)
        with pytest.raises(KafkaError, match="OffsetFetch 1 cannot ask for all offsets"):
            client.committed("g")

    @pytest.mark.parametrize("version", [3, 6])
    def test_the_coordinator_is_asked_for_in_either_form_and_once(
        self, coordinator: FakeCoordinator, logs: FakeLogs, client: BlockingClient, version: int
    ) -> None:
        logs[1].served[FIND_COORDINATOR] = (0, version)
        client.committed("g")
        client.commit("g", {T0: FetchedOffset(5)})
        assert len(logs[1].asked(FIND_COORDINATOR)) == 1
        assert coordinator.committed == {T0: 5}

    def test_a_coordinator_that_moved_is_looked_for_again(
        self, coordinator: FakeCoordinator, logs: FakeLogs, client: BlockingClient
    ) -> None:
        coordinator.errors = {OFFSET_COMMIT: [NOT_COORDINATOR], FIND_COORDINATOR: [0, 15]}
        client.commit("g", {T0: FetchedOffset(5)})
        assert len(logs[1].asked(FIND_COORDINATOR)) == 3
        assert coordinator.committed == {T0: 5}

    def test_a_refused_commit_names_the_partition(
        self, coordinator: FakeCoordinator, client: BlockingClient
    ) -> None:
        coordinator.errors = {OFFSET_COMMIT: [UNKNOWN_MEMBER_ID]}
        with pytest.raises(KafkaError, match="UNKNOWN_MEMBER_ID: group 'g', t-1"):
            client.commit("g", {T1: FetchedOffset(5)})

    def test_a_group_with_members_is_not_deleted(
        self, coordinator: FakeCoordinator, logs: FakeLogs, client: BlockingClient
    ) -> None:
        refused = DeleteGroupsResponse(results=[DeletableGroupResult("g", NON_EMPTY_GROUP)])
        done = DeleteGroupsResponse(results=[DeletableGroupResult("g", 0)])
        logs[1].script(DELETE_GROUPS, refused, done)
        with pytest.raises(KafkaError) as caught:
            client.delete_group("g")
        assert caught.value.code is ErrorCode.NON_EMPTY_GROUP
        client.delete_group("g")

    def test_offsets_that_a_member_reads_are_not_deleted(
        self, coordinator: FakeCoordinator, logs: FakeLogs, client: BlockingClient
    ) -> None:
        refused = OffsetDeleteResponsePartition(0, GROUP_SUBSCRIBED)
        answer = OffsetDeleteResponse(topics=[OffsetDeleteResponseTopic("t", [refused])])
        logs[1].on(OFFSET_DELETE, lambda _: answer)
        with pytest.raises(KafkaError, match="GROUP_SUBSCRIBED_TO_TOPIC: group 'g', t-0"):
            client.delete_offsets("g", [T0])


def member(client: BlockingClient, **options: Any) -> BlockingGroupConsumer:
    chosen = MemberOptions("g", ("t",), **options)
    return client.group_consumer(chosen)


def read(consumer: BlockingGroupConsumer, **limits: int) -> list[str]:
    polled = consumer.poll(max_wait_ms=0, **limits)
    return [f"{each.tp.partition}:{each.record.offset}" for each in polled]


class TestAMember:
    def test_a_newcomer_is_given_its_id_and_joins_with_it(
        self, coordinator: FakeCoordinator, client: BlockingClient
    ) -> None:
        consumer = member(client)
        assert len(read(consumer)) == 9
        first, second = coordinator.asked(JOIN_GROUP)
        assert (first.member_id, second.member_id) == ("", "me-1")
        told = protocol.SUBSCRIPTION.decode(second.protocols[0].metadata)
        assert (second.protocols[0].name, list(told.topics)) == ("range", ["t"])
        assert consumer.assignment == {T0, T1, T2}
        assert consumer.generation == 1

    def test_it_goes_on_at_what_is_committed_and_begins_the_rest_where_it_is_told(
        self, coordinator: FakeCoordinator, client: BlockingClient
    ) -> None:
        coordinator.committed = {T1: 1}
        consumer = client.group_consumer(MemberOptions("g", ("t",)), LATEST)
        assert read(consumer) == ["1:1", "1:2"]

    def test_what_was_handed_out_is_committed_and_no_more(
        self, coordinator: FakeCoordinator, client: BlockingClient
    ) -> None:
        with member(client) as consumer:
            assert read(consumer, max_records=4) == ["0:0", "0:1", "0:2", "1:0"]
        assert coordinator.committed == {T0: 3, T1: 1, T2: 0}
        (commit,) = coordinator.asked(OFFSET_COMMIT)
        assert (commit.generation_id_or_member_epoch, commit.member_id) == (1, "me-1")
        assert [it.members[0].member_id for it in coordinator.asked(LEAVE_GROUP)] == ["me-1"]

    def test_after_a_failure_it_leaves_without_a_commit(
        self, coordinator: FakeCoordinator, client: BlockingClient
    ) -> None:
        with pytest.raises(ZeroDivisionError), member(client) as consumer:
            read(consumer)
            raise ZeroDivisionError
        assert coordinator.committed == {}
        assert len(coordinator.asked(LEAVE_GROUP)) == 1

    def test_a_rebalance_makes_it_commit_and_join_again(
        self, coordinator: FakeCoordinator, client: BlockingClient
    ) -> None:
        consumer = member(client, heartbeat_interval_ms=0)
        read(consumer)
        coordinator.errors = {HEARTBEAT: [REBALANCE_IN_PROGRESS]}
        coordinator.assigned = [T2]
        assert read(consumer) == []
        assert read(consumer) == []
        assert coordinator.committed == {T0: 3, T1: 3, T2: 3}
        assert consumer.assignment == {T2}
        assert consumer.positions == {T2: 3}
        assert [it.member_id for it in coordinator.asked(JOIN_GROUP)] == ["", "me-1", "me-1"]

    def test_a_lost_membership_gives_up_everything_and_joins_as_a_newcomer(
        self, coordinator: FakeCoordinator, client: BlockingClient
    ) -> None:
        consumer = member(client, heartbeat_interval_ms=0)
        read(consumer, max_records=2)
        coordinator.errors = {HEARTBEAT: [UNKNOWN_MEMBER_ID]}
        assert read(consumer) == []
        assert consumer.assignment == frozenset()
        consumer.commit()
        assert coordinator.committed == {}
        assert read(consumer, max_records=2) == ["0:0", "0:1"]
        assert [it.member_id for it in coordinator.asked(JOIN_GROUP)] == ["", "me-1", "", "me-1"]

    @pytest.mark.parametrize("error", [ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID])
    def test_a_commit_after_the_membership_was_lost_says_so(
        self, coordinator: FakeCoordinator, client: BlockingClient, error: int
    ) -> None:
        consumer = member(client)
        read(consumer)
        coordinator.errors = {OFFSET_COMMIT: [error]}
        assert not consumer.commit()
        assert consumer.assignment == frozenset()
        assert coordinator.committed == {}

    @pytest.mark.parametrize(
        ("api_key", "error"),
        [
            (SYNC_GROUP, REBALANCE_IN_PROGRESS),
            (SYNC_GROUP, ILLEGAL_GENERATION),
            (JOIN_GROUP, UNKNOWN_MEMBER_ID),
            (JOIN_GROUP, NOT_COORDINATOR),
            (JOIN_GROUP, LOADING),
        ],
    )
    def test_what_passes_makes_it_try_again(
        self, coordinator: FakeCoordinator, client: BlockingClient, api_key: int, error: int
    ) -> None:
        coordinator.errors = {api_key: [error]}
        assert len(read(member(client))) == 9

    def test_what_does_not_pass_is_raised(
        self, coordinator: FakeCoordinator, client: BlockingClient
    ) -> None:
        coordinator.errors = {JOIN_GROUP: [FENCED_INSTANCE_ID]}
        with pytest.raises(KafkaError, match="FENCED_INSTANCE_ID"):
            read(member(client, instance_id="me"))

    def test_a_static_member_stays_when_it_goes(
        self, coordinator: FakeCoordinator, client: BlockingClient
    ) -> None:
        with member(client, instance_id="me") as consumer:
            read(consumer)
        assert coordinator.asked(JOIN_GROUP)[0].group_instance_id == "me"
        assert coordinator.asked(OFFSET_COMMIT)[0].group_instance_id == "me"
        assert coordinator.asked(LEAVE_GROUP) == []

    def test_old_coordinators_are_left_in_their_own_way(
        self, coordinator: FakeCoordinator, logs: FakeLogs, client: BlockingClient
    ) -> None:
        logs[1].served[LEAVE_GROUP] = (0, 2)
        with member(client) as consumer:
            read(consumer)
        assert coordinator.asked(LEAVE_GROUP)[0].member_id == "me-1"

    def test_a_topic_that_is_not_there_is_no_reason_to_wait(
        self, coordinator: FakeCoordinator, logs: FakeLogs
    ) -> None:
        with BlockingClient(logs.bootstrap, timeout_ms=100) as client:
            consumer = client.group_consumer(
                MemberOptions("g", ("missing",), max_poll_interval_ms=100)
            )
            with pytest.raises(KafkaError, match="topic 'missing': there is no such topic"):
                consumer.poll(max_wait_ms=0)

    def test_another_kind_of_assignment_is_refused(
        self, coordinator: FakeCoordinator, logs: FakeLogs, client: BlockingClient
    ) -> None:
        logs[1].on(SYNC_GROUP, lambda _: SyncGroupResponse(0, 0, None, None, b"\x00\x00nonsense"))
        with pytest.raises(
            ProtocolError, match="the leader of group 'g' sent an assignment that cannot be decoded"
        ):
            read(member(client))

    def test_partitions_of_others_are_not_read(
        self, coordinator: FakeCoordinator, client: BlockingClient
    ) -> None:
        coordinator.is_leader = False
        coordinator.assigned = [T1]
        consumer = member(client)
        assert read(consumer) == ["1:0", "1:1", "1:2"]
        assert coordinator.asked(SYNC_GROUP)[0].assignments == []
        with pytest.raises(ValueError, match="t-0 is not assigned"):
            consumer.seek(T0, 0)


class Asked:
    """Lets a test wait for requests of one API, which come from another thread."""

    def __init__(self, coordinator: FakeCoordinator, api_key: int) -> None:
        self._count = threading.Semaphore(0)
        broker = coordinator.cluster[1]
        answer = broker.handler(api_key)

        def handler(request: Any) -> Any:
            answered = answer(request)
            self._count.release()
            return answered

        broker.on(api_key, handler)

    def wait(self, times: int = 1) -> None:
        for _ in range(times):
            assert self._count.acquire(timeout=30), "nobody has asked"


class TestABusyMember:
    """An application that works on records and does not poll (KIP-62)."""

    def test_is_kept_alive(self, coordinator: FakeCoordinator, client: BlockingClient) -> None:
        heartbeats = Asked(coordinator, HEARTBEAT)
        with member(client, heartbeat_interval_ms=5) as consumer:
            read(consumer)
            heartbeats.wait(3)
            assert read(consumer) == []
        told = {(it.generation_id, it.member_id) for it in coordinator.asked(HEARTBEAT)}
        assert told == {(1, "me-1")}
        assert len(coordinator.asked(JOIN_GROUP)) == 2, "as a newcomer, and never again"

    def test_keeps_what_it_has_until_it_polls_when_others_come(
        self, coordinator: FakeCoordinator, client: BlockingClient
    ) -> None:
        with member(client, heartbeat_interval_ms=5) as consumer:
            read(consumer)
            coordinator.errors = {HEARTBEAT: [REBALANCE_IN_PROGRESS]}
            coordinator.assigned = [T2]
            Asked(coordinator, HEARTBEAT).wait(3)  # it goes on
            assert consumer.assignment == {T0, T1, T2}
            read(consumer)
            assert consumer.assignment == {T2}
            assert coordinator.committed == {T0: 3, T1: 3, T2: 3}

    def test_that_is_busy_for_too_long_leaves_and_joins_anew_when_it_polls(
        self, coordinator: FakeCoordinator, client: BlockingClient
    ) -> None:
        left = Asked(coordinator, LEAVE_GROUP)
        consumer = member(client, heartbeat_interval_ms=5, max_poll_interval_ms=50)
        assert len(read(consumer)) == 9
        left.wait()
        coordinator.errors = {OFFSET_COMMIT: [UNKNOWN_MEMBER_ID]}
        assert not consumer.commit(), "what it read belongs to others"
        assert len(read(consumer)) == 9, "from what is committed on"
        assert coordinator.asked(LEAVE_GROUP)[0].members[0].member_id == "me-1"
        assert [it.member_id for it in coordinator.asked(JOIN_GROUP)] == ["", "me-1", "", "me-1"]


class TestACooperativeMember:
    def test_that_was_none_for_a_while_reads_on_where_others_have_come_to(
        self, coordinator: FakeCoordinator, client: BlockingClient
    ) -> None:
        consumer = member(client, assignor=ASSIGNORS["cooperative-sticky"], heartbeat_interval_ms=0)
        assert read(consumer, max_records=1) == ["0:0"]
        coordinator.errors = {HEARTBEAT: [UNKNOWN_MEMBER_ID]}
        coordinator.committed = {T0: 2, T1: 3, T2: 3}
        assert read(consumer) == []
        assert read(consumer) == ["0:2"]

    def test_reads_on_while_others_join_and_gives_up_in_two_rounds(
        self, coordinator: FakeCoordinator, client: BlockingClient
    ) -> None:
        consumer = member(client, assignor=ASSIGNORS["cooperative-sticky"], heartbeat_interval_ms=0)
        assert read(consumer, max_records=1) == ["0:0"]
        coordinator.errors = {HEARTBEAT: [REBALANCE_IN_PROGRESS]}
        coordinator.assigned = [T0, T1]
        assert read(consumer) == []
        assert read(consumer, max_records=3) == ["0:1", "0:2", "1:0"]
        assert coordinator.committed == {T0: 1, T1: 0, T2: 0}
        owned = [
            [
                number
                for topic in protocol.SUBSCRIPTION.decode(it.protocols[0].metadata).owned_partitions
                for number in topic.partitions
            ]
            for it in coordinator.asked(JOIN_GROUP)
        ]
        assert owned == [[], [], [0, 1, 2], [0, 1]]
        assert consumer.generation == 3

    @pytest.mark.parametrize("api_key", [HEARTBEAT, OFFSET_COMMIT])
    def test_reads_on_from_what_others_committed_where_its_membership_was_lost(
        self, coordinator: FakeCoordinator, client: BlockingClient, api_key: int
    ) -> None:
        """What it owned may have been another member's meanwhile."""
        consumer = member(client, assignor=ASSIGNORS["cooperative-sticky"], heartbeat_interval_ms=0)
        assert read(consumer, max_records=1) == ["0:0"]
        coordinator.errors = {api_key: [UNKNOWN_MEMBER_ID]}
        if api_key == OFFSET_COMMIT:
            assert not consumer.commit()
        else:
            assert read(consumer, max_records=1) == []
        coordinator.committed = {T0: 2, T1: 3, T2: 3}
        assert read(consumer) == ["0:2"]
        assert consumer.commit()
        assert coordinator.committed == {T0: 3, T1: 3, T2: 3}
