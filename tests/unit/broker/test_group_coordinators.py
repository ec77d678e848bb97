"""Coordinators of groups over a log: loads, appends and outcomes, timers, lost leaderships."""

from __future__ import annotations

import struct

import pytest
from tests.support.broker.coordinator import (
    P0,
    READ,
    READ_ID,
    CoordinatorHarness,
    answered,
    commit,
    commit_error,
    committing,
    fetch,
    group_state,
    stable_member,
    stored_offset,
    told,
)
from tests.support.broker.fakes import settle
from tests.support.requests.of_groups import join_group

from tidelog.broker.cluster_view import Gone
from tidelog.broker.coordinators.loading import RECORDS_PER_TURN
from tidelog.core.errors import ErrorCode, KafkaError, StorageError
from tidelog.records.batch import BatchView
from tidelog.records.builder import NewRecord
from tidelog.wire.data.consumer_offsets import (
    GROUP_METADATA_VALUE,
    OFFSET_COMMIT_VALUE,
)
from tidelog.wire.messages.list_groups import ListGroupsRequest
from tidelog.wire.registry import (
    JOIN_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
)

NONE = ErrorCode.NONE
BROKEN = StorageError("/data", "pread", "/data/log", 5, 0)
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
NOT_HERE = ErrorCode.NOT_COORDINATOR


class TestLoading:
    @pytest.mark.parametrize("batch_records", [1, 100])
    @told
    async def test_a_long_log_is_read_in_slices_and_the_loop_is_let_go(
        self, batch_records: int
    ) -> None:
        harness = CoordinatorHarness(offsets_load_buffer_size="1000")
        await harness.follow(0)
        for start in range(0, 3 * RECORDS_PER_TURN, batch_records):
            harness.log.put(*[stored_offset(start + number) for number in range(batch_records)])
        many = [
            stored_offset(1_000 + number, f"g{number}") for number in range(RECORDS_PER_TURN + 1)
        ]
        harness.log.put(*many)
        await harness.lead(1)
        assert 0 < harness.log.reads[-1][0] < RECORDS_PER_TURN, "no more than one turn's records"
        assert fetch(harness) == (LOADING, -1)
        await harness.clock.advance(1)
        assert {max_bytes for _, max_bytes in harness.log.reads} == {1000}
        assert fetch(harness) == (NONE, 3 * RECORDS_PER_TURN - 1)
        assert fetch(harness, f"g{RECORDS_PER_TURN}") == (NONE, 1_000 + RECORDS_PER_TURN)

    @pytest.mark.parametrize("error", [BROKEN, KafkaError(ErrorCode.CORRUPT_MESSAGE)])
    @told
    async def test_what_cannot_be_read_is_tried_again(self, error: BaseException) -> None:
        harness = CoordinatorHarness()
        await harness.follow(0)
        harness.log.put(stored_offset(5))
        harness.log.read_errors = [error]
        await harness.lead(1)
        assert fetch(harness) == (LOADING, -1)
        assert "loading __consumer_offsets-0 waits: offset 0" in harness.broker.tracer.lines[-1]
        await harness.clock.advance(1_000)
        assert fetch(harness) == (NONE, 5)

    @told
    async def test_other_kinds_of_records_are_passed_over_and_damaged_ones_reported(self) -> None:
        harness = CoordinatorHarness()
        await harness.follow(0)
        harness.log.put(NewRecord(b"\0\0\0\0", b"\0\0\0\0\0\0"), control=True)
        harness.log.put(stored_offset(5), NewRecord(struct.pack(">h", 3) + b"?", b"newer"))
        harness.log.put(NewRecord(b"\0", b"no version"), NewRecord(None, b"no key"))
        await harness.lead(1)
        assert fetch(harness) == (NONE, 5)
        complaints = [
            line
            for line in harness.broker.tracer.lines
            if "is no record of its coordinator" in line
        ]
        assert [line.split(" is ")[0] for line in complaints] == [
            "__consumer_offsets-0 offset 3",
            "__consumer_offsets-0 offset 4",
        ]

    @told
    async def test_a_loaded_member_must_be_heard_of(self) -> None:
        harness = CoordinatorHarness()
        await harness.lead(0)
        await stable_member(harness)
        await harness.follow(1)
        await harness.lead(2)
        assert group_state(harness) == ("Stable", 1)
        await harness.clock.advance(6_100)
        assert group_state(harness) == ("Empty", 0)


class TestAppends:
    @told
    async def test_commits_of_one_turn_of_the_loop_are_one_batch(self) -> None:
        harness = CoordinatorHarness()
        await harness.lead()
        pendings = [harness.send(OFFSET_COMMIT, 8, committing(n, group=f"g{n}")) for n in range(10)]
        assert harness.log.batches == []
        harness.broker.groups.flush()
        assert len(harness.log.batches) == 1
        assert [commit_error(answered(pending)) for pending in pendings] == [NONE] * 10

    @told
    async def test_a_batch_holds_what_the_topic_allows(self) -> None:
        harness = CoordinatorHarness(message_max_bytes="400")
        await harness.lead()
        pendings = [
            harness.send(OFFSET_COMMIT, 8, committing(n, group=f"g{n}", metadata="m" * 100))
            for n in range(5)
        ]
        harness.broker.groups.flush()
        assert [commit_error(answered(pending)) for pending in pendings] == [NONE] * 5
        assert [len(batch) <= 400 for batch in harness.log.batches] == [True] * len(
            harness.log.batches
        )
        assert len(harness.log.batches) > 1
        large = commit(harness, 6, metadata="m" * 400)
        assert commit_error(large) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        assert fetch(harness) == (NONE, -1)

    @told
    async def test_a_commit_that_takes_too_long_is_answered_and_still_counts(self) -> None:
        harness = CoordinatorHarness(offsets_commit_timeout_ms="500")
        await harness.lead(isr=(1, 2))
        pending = commit(harness, 5)
        await harness.clock.advance(520)
        assert commit_error(answered(pending)) is ErrorCode.REQUEST_TIMED_OUT
        assert fetch(harness) == (NONE, -1)
        harness.replicate()
        assert fetch(harness) == (NONE, 5)

    @told
    async def test_an_isr_below_the_minimum_is_told_and_the_commit_still_counts(self) -> None:
        harness = CoordinatorHarness()
        await harness.lead(isr=(1, 2))
        pending = commit(harness, 5)
        partition = harness.broker.partition(P0)
        partition.watchers.isr_below_minimum("too few")
        assert commit_error(answered(pending)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        partition.watchers.isr_below_minimum("still")
        harness.replicate()
        assert fetch(harness) == (NONE, 5)

    @told
    async def test_a_refused_append_is_told(self) -> None:
        harness = CoordinatorHarness(min_insync_replicas="2")
        await harness.lead(isr=(1,), replicas=(1, 2))
        assert commit_error(commit(harness, 5)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert harness.log.batches == []
        await harness.lead(1, isr=(1, 2))
        harness.log.append_error = BROKEN
        assert commit_error(commit(harness, 6)) is NOT_HERE
        harness.log.append_error = None
        pending = commit(harness, 7)
        harness.replicate()
        assert commit_error(answered(pending)) is NONE

    @told
    async def test_records_are_compressed_where_that_is_configured(self) -> None:
        harness = CoordinatorHarness(offsets_topic_compression_codec="4")
        await harness.lead()
        assert commit_error(commit(harness, 5)) is NONE
        (batch,) = harness.log.batches
        assert BatchView(bytearray(batch)).compression == 4
        await harness.follow(1)
        await harness.lead(2)
        assert fetch(harness) == (NONE, 5)

    @told
    async def test_an_offset_with_an_expiry_of_its_own_keeps_it(self) -> None:
        harness = CoordinatorHarness()
        await harness.lead()
        request = committing(5)
        request.retention_time_ms = 60_000
        harness.ask(OFFSET_COMMIT, 4, request)
        (record,) = harness.log.stored
        assert record.value is not None
        value = OFFSET_COMMIT_VALUE.decode(record.value)
        assert value.expire_timestamp_ms == 1_060_000


class TestOffsets:
    @pytest.mark.parametrize("offset", [-1, -5, -(2**63)])
    @told
    async def test_an_offset_below_0_is_kept_and_returned_as_kafka_does(self, offset: int) -> None:
        harness = CoordinatorHarness()
        await harness.lead()
        assert commit_error(commit(harness, offset)) is NONE
        assert fetch(harness) == (NONE, offset)
        await harness.follow(1)
        await harness.lead(2)
        assert fetch(harness) == (NONE, offset)


class TestLeadership:
    @told
    async def test_a_topic_made_anew_is_coordinated_from_its_first_epoch_on(self) -> None:
        harness = CoordinatorHarness()
        await harness.lead(9)
        assert commit_error(commit(harness, 5)) is NONE
        assert await harness.broker.stop(P0) == 0
        assert fetch(harness)[0] is NOT_HERE
        await harness.lead(0)
        assert fetch(harness) == (NONE, -1)

    @told
    async def test_a_leadership_that_was_let_go_is_taken_up_again(self) -> None:
        harness = CoordinatorHarness()
        await harness.lead(3)
        assert commit_error(commit(harness, 5)) is NONE
        harness.broker.replicas.stop_leading("the session has expired")
        assert fetch(harness)[0] is NOT_HERE
        await harness.lead(3)
        assert fetch(harness) == (NONE, 5)


class TestMembers:
    @told
    async def test_a_member_whose_connection_is_lost_while_it_joins_stays_a_member(self) -> None:
        harness = CoordinatorHarness(group_initial_rebalance_delay_ms="1000")
        await harness.lead()
        pending = harness.ask(JOIN_GROUP, 3, join_group(3, READ))
        pending.cancel()
        assert group_state(harness) == ("PreparingRebalance", 1)
        await harness.clock.advance(1_020)
        assert group_state(harness) == ("CompletingRebalance", 1)
        assert harness.broker.failures == []

    @told
    async def test_a_silent_member_is_dropped_and_the_empty_group_is_stored(self) -> None:
        harness = CoordinatorHarness()
        await harness.lead()
        await stable_member(harness)
        await harness.clock.advance(5_900)
        assert group_state(harness) == ("Stable", 1)
        await harness.clock.advance(200)
        assert group_state(harness) == ("Empty", 0)
        await settle()
        last = harness.log.stored[-1]
        assert last.value is not None
        assert GROUP_METADATA_VALUE.decode(last.value).members == []

    @told
    async def test_a_long_timer_does_not_keep_what_was_cancelled(self) -> None:
        harness = CoordinatorHarness()
        await harness.lead()
        request = join_group(3, READ)
        request.session_timeout_ms = request.rebalance_timeout_ms = 1_800_000
        harness.ask(JOIN_GROUP, 3, request)
        await harness.clock.advance(20)
        harness.broker.partition(P0).rest()
        assert len(harness.broker.timers) > 0
        await harness.clock.advance(30_100)
        assert len(harness.broker.timers) == 0


class TestTimeAndTopics:
    @told
    async def test_offsets_of_a_deleted_topic_are_tombstoned(self) -> None:
        harness = CoordinatorHarness()
        await harness.lead()
        commit(harness, 5)
        harness.broker.groups.ended(Gone({"other": READ_ID}, {}))
        await settle()
        assert fetch(harness) == (NONE, 5)
        harness.broker.groups.ended(Gone({READ: READ_ID}, {}))
        await settle()
        assert fetch(harness) == (NONE, -1)
        assert [record.value is None for record in harness.log.stored] == [False, True]

    @told
    async def test_expired_offsets_are_forgotten(self) -> None:
        harness = CoordinatorHarness(
            offsets_retention_minutes="1", offsets_retention_check_interval_ms="45000"
        )
        harness.broker.groups.start()
        await harness.lead()
        commit(harness, 5)
        await harness.clock.advance(45_100)
        assert fetch(harness) == (NONE, 5)
        await harness.clock.advance(45_100)
        assert fetch(harness) == (NONE, -1)
        assert harness.ask(LIST_GROUPS, 4, ListGroupsRequest()).groups == []
