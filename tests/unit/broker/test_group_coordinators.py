"""Coordinators of groups over a log: loads, appends and outcomes, timers, lost leaderships."""

from __future__ import annotations

import struct

import pytest
from tests.support.broker.coordinator import (
    P0,
    READ,
    CoordinatorBroker,
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
        rig = CoordinatorBroker(offsets_load_buffer_size="1000")
        await rig.follow(0)
        for start in range(0, 3 * RECORDS_PER_TURN, batch_records):
            rig.log.put(*[stored_offset(start + number) for number in range(batch_records)])
        many = [
            stored_offset(1_000 + number, f"g{number}") for number in range(RECORDS_PER_TURN + 1)
        ]
        rig.log.put(*many)
        await rig.lead(1)
        assert 0 < rig.log.reads[-1][0] < RECORDS_PER_TURN, "no more than one turn's records"
        assert fetch(rig) == (LOADING, -1)
        await rig.clock.advance(1)
        assert {max_bytes for _, max_bytes in rig.log.reads} == {1000}
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
    @told
    async def test_commits_of_one_turn_of_the_loop_are_one_batch(self) -> None:
        rig = CoordinatorBroker()
        await rig.lead()
        pendings = [rig.send(OFFSET_COMMIT, 8, committing(n, group=f"g{n}")) for n in range(10)]
        assert rig.log.batches == []
        rig.broker.groups.flush()
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
        rig.broker.groups.flush()
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
