"""Coordinators of groups over a log: loads, appends and outcomes, timers, lost leaderships."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from tests.broker_fakes import settle
from tests.cluster.group_requests import GROUP, join_group
from tests.coordinator_rig import P0, READ, CoordinatorBroker, answered, told

from tidelog.broker.coordinators.loading import RECORDS_PER_TURN
from tidelog.core.completion import Completion
from tidelog.core.errors import ErrorCode, KafkaError, StorageError
from tidelog.records.batch import BatchView
from tidelog.records.builder import NewRecord
from tidelog.wire.data import consumer_offsets
from tidelog.wire.data.consumer_offsets import (
    GROUP_METADATA_VALUE,
    OFFSET_COMMIT_VALUE,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tidelog.wire.messages.describe_groups import DescribeGroupsRequest
from tidelog.wire.messages.join_group import JoinGroupResponse
from tidelog.wire.messages.list_groups import ListGroupsRequest
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tidelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tidelog.wire.registry import (
    DESCRIBE_GROUPS,
    JOIN_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
)

NONE = ErrorCode.NONE
BROKEN = StorageError("/data", "pread", "/data/log", 5, 0)
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
NOT_HERE = ErrorCode.NOT_COORDINATOR


def committing(offset: int, *, group: str = GROUP, metadata: str = "") -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(0, offset, committed_metadata=metadata)
    return OffsetCommitRequest(group, topics=[OffsetCommitRequestTopic(READ, [partition])])


def commit(rig: CoordinatorBroker, offset: int, **more: Any) -> Any:
    return rig.ask(OFFSET_COMMIT, 8, committing(offset, **more))


def commit_error(answer: Any) -> ErrorCode:
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def fetch(rig: CoordinatorBroker, group: str = GROUP) -> tuple[ErrorCode, int]:
    answer = rig.ask(
        OFFSET_FETCH, 7, OffsetFetchRequest(group, [OffsetFetchRequestTopic(READ, [0])])
    )
    offset = answer.topics[0].partitions[0].committed_offset if answer.topics else -1
    return ErrorCode(answer.error_code), offset


def stored_offset(offset: int, group: str = GROUP) -> NewRecord:
    key = consumer_offsets.encode_key(OffsetCommitKey(group, READ, 0))
    value = consumer_offsets.encode_offset_commit_value(
        OffsetCommitValue(offset, -1, "", 1_000_000, -1)
    )
    return NewRecord(key, value, 1)


async def stable_member(rig: CoordinatorBroker) -> JoinGroupResponse:
    pending = rig.ask(JOIN_GROUP, 3, join_group(3, READ))
    await rig.clock.advance(20)
    joined: JoinGroupResponse = answered(pending)
    assert joined.error_code == NONE
    assignment = SyncGroupRequestAssignment(joined.member_id, b"mine")
    synced = rig.ask(
        SYNC_GROUP,
        3,
        SyncGroupRequest(GROUP, joined.generation_id, joined.member_id, assignments=[assignment]),
    )
    assert synced.assignment == b"mine"
    return joined


def group_state(rig: CoordinatorBroker) -> tuple[str, int]:
    (group,) = rig.ask(DESCRIBE_GROUPS, 5, DescribeGroupsRequest([GROUP])).groups
    return group.group_state, len(group.members)


class TestLoading:
    @pytest.mark.rule("G1")
    @told
    async def test_it_loads_to_the_log_end_though_the_high_watermark_is_behind(self) -> None:
        rig = CoordinatorBroker()
        await rig.follow(0)
        rig.log.put(stored_offset(5))
        rig.log.put(stored_offset(6))
        await rig.lead(1, isr=(1, 2))
        assert rig.broker.partition(P0).high_watermark == 0
        assert fetch(rig) == (NONE, 6)

    @pytest.mark.rule("G1")
    @told
    async def test_requests_wait_for_the_end_of_the_load_elsewhere(self) -> None:
        rig = CoordinatorBroker()
        await rig.follow(0)
        rig.log.put(stored_offset(5))
        rig.log.gate = gate = Completion()
        await rig.lead(1)
        assert fetch(rig) == (LOADING, -1)
        assert commit_error(commit(rig, 9)) is LOADING
        assert rig.ask(LIST_GROUPS, 4, ListGroupsRequest()).error_code == LOADING
        gate.resolve(None)
        await rig.clock.advance(0)
        assert fetch(rig) == (NONE, 5)
        assert rig.ask(LIST_GROUPS, 4, ListGroupsRequest()).error_code == NONE

    @pytest.mark.rule("G1")
    @told
    async def test_a_load_that_ends_after_its_leadership_is_dropped(self) -> None:
        rig = CoordinatorBroker()
        await rig.follow(0)
        rig.log.put(stored_offset(5))
        rig.log.gate = gate = Completion()
        await rig.lead(1)
        await rig.follow(2)
        rig.log.gate = None
        rig.log.put(stored_offset(7), leader_epoch=2)
        await rig.lead(3)
        assert fetch(rig) == (NONE, 7)
        gate.resolve(None)
        await rig.clock.advance(0)
        assert fetch(rig) == (NONE, 7)
        assert [each["leader_epoch"] for each in rig.broker.tracer.named("groups_loaded")] == [3]

    @told
    async def test_a_long_log_is_read_in_slices_and_the_loop_is_let_go(self) -> None:
        rig = CoordinatorBroker(offsets_load_buffer_size="1000")
        await rig.follow(0)
        for start in range(0, 3 * RECORDS_PER_TURN, 100):
            rig.log.put(*[stored_offset(start + number) for number in range(100)])
        many = [
            stored_offset(1_000 + number, f"g{number}") for number in range(RECORDS_PER_TURN + 1)
        ]
        rig.log.put(*many)
        await rig.lead(1)
        assert [max_bytes for _, max_bytes in rig.log.reads] == [1000] * len(rig.log.batches)
        assert fetch(rig) == (LOADING, -1)
        await rig.clock.advance(1)
        assert fetch(rig) == (NONE, 3 * RECORDS_PER_TURN - 1)
        assert fetch(rig, f"g{RECORDS_PER_TURN}") == (NONE, 1_000 + RECORDS_PER_TURN)

    @pytest.mark.parametrize("error", [BROKEN, KafkaError(ErrorCode.CORRUPT_MESSAGE)])
    @told
    async def test_what_cannot_be_read_is_tried_again(self, error: BaseException) -> None:
        rig = CoordinatorBroker()
        await rig.follow(0)
        rig.log.put(stored_offset(5))
        rig.log.read_errors = [error]
        await rig.lead(1)
        assert fetch(rig) == (LOADING, -1)
        assert "loading __consumer_offsets-0 waits: offset 0" in rig.broker.tracer.lines[-1]
        await rig.clock.advance(1_000)
        assert fetch(rig) == (NONE, 5)

    @told
    async def test_other_kinds_of_records_are_passed_over_and_damaged_ones_reported(self) -> None:
        rig = CoordinatorBroker()
        await rig.follow(0)
        rig.log.put(NewRecord(b"\0\0\0\0", b"\0\0\0\0\0\0"), control=True)
        rig.log.put(stored_offset(5), NewRecord(struct.pack(">h", 3) + b"?", b"newer"))
        rig.log.put(NewRecord(b"\0", b"no version"), NewRecord(None, b"no key"))
        await rig.lead(1)
        assert fetch(rig) == (NONE, 5)
        complaints = [line for line in rig.broker.tracer.lines if "no record of a group" in line]
        assert [line.split(" is ")[0] for line in complaints] == [
            "__consumer_offsets-0 offset 3",
            "__consumer_offsets-0 offset 4",
        ]

    @told
    async def test_a_loaded_member_must_be_heard_of(self) -> None:
        rig = CoordinatorBroker()
        await rig.lead(0)
        await stable_member(rig)
        await rig.follow(1)
        await rig.lead(2)
        assert group_state(rig) == ("Stable", 1)
        await rig.clock.advance(6_100)
        assert group_state(rig) == ("Empty", 0)


class TestAppends:
    @pytest.mark.rule("G1")
    @told
    async def test_a_commit_is_answered_when_it_is_replicated_under_the_leader_epoch(
        self,
    ) -> None:
        rig = CoordinatorBroker()
        await rig.lead(7, isr=(1, 2))
        pending = commit(rig, 5)
        assert not pending.done
        assert fetch(rig) == (NONE, -1)
        rig.replicate()
        assert commit_error(answered(pending)) is NONE
        assert fetch(rig) == (NONE, 5)
        (batch,) = rig.log.batches
        assert struct.unpack_from(">i", batch, 12) == (7,)

    @told
    async def test_commits_of_one_read_event_are_one_batch(self) -> None:
        rig = CoordinatorBroker()
        await rig.lead()
        pendings = [rig.send(OFFSET_COMMIT, 8, committing(n, group=f"g{n}")) for n in range(10)]
        assert rig.log.batches == []
        rig.broker.submit_appends()
        assert len(rig.log.batches) == 1
        assert [commit_error(answered(pending)) for pending in pendings] == [NONE] * 10

    @told
    async def test_a_batch_holds_what_the_topic_allows(self) -> None:
        rig = CoordinatorBroker(message_max_bytes="400")
        await rig.lead()
        pendings = [
            rig.send(OFFSET_COMMIT, 8, committing(n, group=f"g{n}", metadata="m" * 100))
            for n in range(5)
        ]
        rig.broker.submit_appends()
        assert [commit_error(answered(pending)) for pending in pendings] == [NONE] * 5
        assert [len(batch) <= 400 for batch in rig.log.batches] == [True] * len(rig.log.batches)
        assert len(rig.log.batches) > 1
        large = commit(rig, 6, metadata="m" * 400)
        assert commit_error(large) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        assert fetch(rig) == (NONE, -1)

    @told
    async def test_a_commit_that_takes_too_long_is_answered_and_still_counts(self) -> None:
        rig = CoordinatorBroker(offsets_commit_timeout_ms="500")
        await rig.lead(isr=(1, 2))
        pending = commit(rig, 5)
        await rig.clock.advance(520)
        assert commit_error(answered(pending)) is ErrorCode.REQUEST_TIMED_OUT
        assert fetch(rig) == (NONE, -1)
        rig.replicate()
        assert fetch(rig) == (NONE, 5)

    @told
    async def test_an_isr_below_the_minimum_is_told_and_the_commit_still_counts(self) -> None:
        rig = CoordinatorBroker()
        await rig.lead(isr=(1, 2))
        pending = commit(rig, 5)
        partition = rig.broker.partition(P0)
        partition.watchers.isr_below_minimum(partition, "too few")
        assert commit_error(answered(pending)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        partition.watchers.isr_below_minimum(partition, "still")
        rig.replicate()
        assert fetch(rig) == (NONE, 5)

    @told
    async def test_a_refused_append_is_told(self) -> None:
        rig = CoordinatorBroker(min_insync_replicas="2")
        await rig.lead(isr=(1,), replicas=(1, 2))
        assert commit_error(commit(rig, 5)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert rig.log.batches == []
        await rig.lead(1, isr=(1, 2))
        rig.log.append_error = BROKEN
        assert commit_error(commit(rig, 6)) is NOT_HERE
        rig.log.append_error = None
        pending = commit(rig, 7)
        rig.replicate()
        assert commit_error(answered(pending)) is NONE

    @told
    async def test_records_are_compressed_where_that_is_configured(self) -> None:
        rig = CoordinatorBroker(offsets_topic_compression_codec="4")
        await rig.lead()
        assert commit_error(commit(rig, 5)) is NONE
        (batch,) = rig.log.batches
        assert BatchView(bytearray(batch)).compression == 4
        await rig.follow(1)
        await rig.lead(2)
        assert fetch(rig) == (NONE, 5)

    @pytest.mark.rule("G2")
    @told
    async def test_records_are_kafkas(self) -> None:
        rig = CoordinatorBroker()
        await rig.lead()
        commit(rig, 5, metadata="text")
        joined = await stable_member(rig)
        offset, group = rig.log.stored
        assert offset.key == struct.pack(">hh5sh4si", 1, 5, b"group", 4, b"read", 0)
        assert offset.value is not None
        assert offset.value[:2] == struct.pack(">h", 3)
        value = OFFSET_COMMIT_VALUE.decode(offset.value)
        assert (value.offset, value.leader_epoch, value.metadata) == (5, -1, "text")
        assert value.commit_timestamp_ms == offset.timestamp_ms == 1_000_000
        assert group.key == struct.pack(">hh5s", 2, 5, b"group")
        assert group.value is not None
        assert group.value[:2] == struct.pack(">h", 3)
        stored = GROUP_METADATA_VALUE.decode(group.value)
        assert (stored.protocol_type, stored.generation, stored.protocol) == (
            "consumer",
            1,
            "range",
        )
        (member,) = stored.members
        assert stored.leader == member.member_id == joined.member_id
        assert member.client_id == "a-client"
        assert member.client_host == "/10.0.0.1"
        assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (6_000, 6_000)
        assert member.assignment == b"mine"

    @told
    async def test_an_offset_with_an_expiry_of_its_own_keeps_it(self) -> None:
        rig = CoordinatorBroker()
        await rig.lead()
        request = committing(5)
        request.retention_time_ms = 60_000
        rig.ask(OFFSET_COMMIT, 4, request)
        (record,) = rig.log.stored
        assert record.value is not None
        value = OFFSET_COMMIT_VALUE.decode(record.value)
        assert value.expire_timestamp_ms == 1_060_000


class TestLeadership:
    @pytest.mark.rule("G1")
    @told
    async def test_whoever_waits_is_sent_away_when_the_leadership_ends(self) -> None:
        rig = CoordinatorBroker()
        await rig.lead(1, isr=(1, 2))
        pending = commit(rig, 5)
        await rig.follow(2)
        assert commit_error(answered(pending)) is NOT_HERE
        assert fetch(rig)[0] is NOT_HERE
        assert rig.broker.failures == []

    @pytest.mark.rule("G1")
    @told
    async def test_a_leader_that_leads_on_loads_anew(self) -> None:
        rig = CoordinatorBroker()
        await rig.lead(1, isr=(1, 2))
        pending = commit(rig, 5)
        await rig.lead(2, isr=(1, 2))
        assert commit_error(answered(pending)) is NOT_HERE
        assert fetch(rig) == (NONE, 5)
        rig.replicate()
        assert fetch(rig) == (NONE, 5)
        loads = [each["leader_epoch"] for each in rig.broker.tracer.named("groups_loaded")]
        assert loads == [1, 2]

    @pytest.mark.rule("G1")
    @told
    async def test_what_was_gathered_for_a_lost_leadership_is_not_appended(self) -> None:
        rig = CoordinatorBroker()
        await rig.lead(1)
        pending = rig.send(OFFSET_COMMIT, 8, committing(5))
        rig.broker.partition(P0).rest()
        rig.broker.submit_appends()
        assert commit_error(answered(pending)) is NOT_HERE
        assert rig.log.batches == []

    @told
    async def test_a_topic_made_anew_is_coordinated_from_its_first_epoch_on(self) -> None:
        rig = CoordinatorBroker()
        await rig.lead(9)
        assert commit_error(commit(rig, 5)) is NONE
        assert await rig.broker.stop(P0) == 0
        assert fetch(rig)[0] is NOT_HERE
        await rig.lead(0)
        assert fetch(rig) == (NONE, -1)

    @told
    async def test_a_leadership_that_was_let_go_is_taken_up_again(self) -> None:
        rig = CoordinatorBroker()
        await rig.lead(3)
        assert commit_error(commit(rig, 5)) is NONE
        rig.broker.replicas.stop_leading("the session has expired")
        assert fetch(rig)[0] is NOT_HERE
        await rig.lead(3)
        assert fetch(rig) == (NONE, 5)


class TestMembers:
    @told
    async def test_a_member_whose_connection_is_lost_while_it_joins_stays_a_member(self) -> None:
        rig = CoordinatorBroker(group_initial_rebalance_delay_ms="1000")
        await rig.lead()
        pending = rig.ask(JOIN_GROUP, 3, join_group(3, READ))
        pending.cancel()
        assert group_state(rig) == ("PreparingRebalance", 1)
        await rig.clock.advance(1_020)
        assert group_state(rig) == ("CompletingRebalance", 1)
        assert rig.broker.failures == []

    @told
    async def test_a_silent_member_is_dropped_and_the_empty_group_is_stored(self) -> None:
        rig = CoordinatorBroker()
        await rig.lead()
        await stable_member(rig)
        await rig.clock.advance(5_900)
        assert group_state(rig) == ("Stable", 1)
        await rig.clock.advance(200)
        assert group_state(rig) == ("Empty", 0)
        await settle()
        last = rig.log.stored[-1]
        assert last.value is not None
        assert GROUP_METADATA_VALUE.decode(last.value).members == []

    @told
    async def test_a_long_timer_does_not_keep_what_was_cancelled(self) -> None:
        rig = CoordinatorBroker()
        await rig.lead()
        request = join_group(3, READ)
        request.session_timeout_ms = request.rebalance_timeout_ms = 1_800_000
        rig.ask(JOIN_GROUP, 3, request)
        await rig.clock.advance(20)
        rig.broker.partition(P0).rest()
        assert len(rig.broker.timers) > 0
        await rig.clock.advance(30_100)
        assert len(rig.broker.timers) == 0


class TestTimeAndTopics:
    @told
    async def test_offsets_of_a_deleted_topic_are_tombstoned(self) -> None:
        rig = CoordinatorBroker()
        await rig.lead()
        commit(rig, 5)
        rig.broker.groups.topics_deleted(["other"])
        await settle()
        assert fetch(rig) == (NONE, 5)
        rig.broker.groups.topics_deleted([READ])
        await settle()
        assert fetch(rig) == (NONE, -1)
        assert [record.value is None for record in rig.log.stored] == [False, True]

    @told
    async def test_expired_offsets_are_forgotten(self) -> None:
        rig = CoordinatorBroker(
            offsets_retention_minutes="1", offsets_retention_check_interval_ms="45000"
        )
        rig.broker.groups.start()
        await rig.lead()
        commit(rig, 5)
        await rig.clock.advance(45_100)
        assert fetch(rig) == (NONE, 5)
        await rig.clock.advance(45_100)
        assert fetch(rig) == (NONE, -1)
        assert rig.ask(LIST_GROUPS, 4, ListGroupsRequest()).groups == []
