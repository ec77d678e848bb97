"""Coordinators of brokers: one leader epoch from load to append (G1), Kafka's records (G2)."""

from __future__ import annotations

import struct

import pytest
from tests.support.broker.coordinator import (
    P0,
    CoordinatorHarness,
    answered,
    commit,
    commit_error,
    committing,
    fetch,
    stable_member,
    stored_offset,
    told,
)
from tests.support.broker.counters import CounterBroker
from tests.support.broker.fakes import FakeClock, settle

from tidelog.broker.server.requests import Pending
from tidelog.core.completion import Completion
from tidelog.core.coordinator_shard import CoordinatorPhase
from tidelog.core.errors import ErrorCode
from tidelog.records.builder import NewRecord
from tidelog.wire.data.consumer_offsets import GROUP_METADATA_VALUE, OFFSET_COMMIT_VALUE
from tidelog.wire.messages.list_groups import ListGroupsRequest
from tidelog.wire.registry import LIST_GROUPS, OFFSET_COMMIT

NONE = ErrorCode.NONE
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
NOT_HERE = ErrorCode.NOT_COORDINATOR


@pytest.mark.rule("G1")
@told
async def test_it_loads_to_the_log_end_though_the_high_watermark_is_behind() -> None:
    harness = CoordinatorHarness()
    await harness.follow(0)
    harness.log.put(stored_offset(5))
    harness.log.put(stored_offset(6))
    await harness.lead(1, isr=(1, 2))
    harness.replicate()
    await harness.clock.advance(0)
    assert fetch(harness) == (NONE, 6)


@pytest.mark.rule("G1")
@told
async def test_what_was_loaded_counts_when_it_is_committed() -> None:
    harness = CoordinatorHarness()
    await harness.follow(0)
    harness.log.put(stored_offset(5))
    await harness.lead(1, isr=(1, 2))
    await harness.clock.advance(10_000)
    assert harness.broker.partition(P0).high_watermark == 0
    assert fetch(harness) == (LOADING, -1)
    assert commit_error(commit(harness, 9)) is LOADING
    harness.replicate()
    await harness.clock.advance(0)
    assert fetch(harness) == (NONE, 5)


@pytest.mark.rule("G1")
@pytest.mark.parametrize("error", [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, NOT_HERE])
@told
async def test_a_load_outlives_an_isr_below_the_minimum_not_its_leadership(
    error: ErrorCode,
) -> None:
    harness = CoordinatorHarness()
    await harness.follow(0)
    harness.log.put(stored_offset(5))
    await harness.lead(1, isr=(1, 2))
    if error is NOT_HERE:
        await harness.follow(2)
        harness.log.put(stored_offset(7), leader_epoch=2)
        await harness.lead(3, isr=(1, 2))
    else:
        partition = harness.broker.partition(P0)
        partition.watchers.isr_below_minimum("the ISR is too small")
    await harness.clock.advance(0)
    assert fetch(harness) == (LOADING, -1)
    harness.replicate()
    await harness.clock.advance(0)
    assert fetch(harness) == (NONE, 7 if error is NOT_HERE else 5)
    epochs = [each["leader_epoch"] for each in harness.broker.tracer.named("groups_loaded")]
    assert epochs == [3 if error is NOT_HERE else 1]


@pytest.mark.rule("G1")
@told
async def test_a_load_ends_where_its_records_are_committed_the_moment_its_wait_is_refused() -> None:
    harness = CoordinatorHarness()
    await harness.follow(0)
    harness.log.put(stored_offset(5))
    await harness.lead(1, isr=(1, 2))
    partition = harness.broker.partition(P0)
    partition.watchers.isr_below_minimum("the ISR is too small")
    harness.replicate()
    await harness.clock.advance(0)
    assert fetch(harness) == (NONE, 5)


@pytest.mark.rule("G1")
@told
async def test_requests_wait_for_the_end_of_the_load_elsewhere() -> None:
    harness = CoordinatorHarness()
    await harness.follow(0)
    harness.log.put(stored_offset(5))
    gate: Completion[None] = Completion()
    harness.log.gate = gate
    await harness.lead(1)
    assert fetch(harness) == (LOADING, -1)
    assert commit_error(commit(harness, 9)) is LOADING
    assert harness.ask(LIST_GROUPS, 4, ListGroupsRequest()).error_code == LOADING
    gate.resolve(None)
    await harness.clock.advance(0)
    assert fetch(harness) == (NONE, 5)
    assert harness.ask(LIST_GROUPS, 4, ListGroupsRequest()).error_code == NONE


@pytest.mark.rule("G1")
@told
async def test_a_load_that_ends_after_its_leadership_is_dropped() -> None:
    harness = CoordinatorHarness()
    await harness.follow(0)
    harness.log.put(stored_offset(5))
    gate: Completion[None] = Completion()
    harness.log.gate = gate
    await harness.lead(1)
    await harness.follow(2)
    harness.log.gate = None
    harness.log.put(stored_offset(7), leader_epoch=2)
    await harness.lead(3)
    assert fetch(harness) == (NONE, 7)
    gate.resolve(None)
    await harness.clock.advance(0)
    assert fetch(harness) == (NONE, 7)
    assert [each["leader_epoch"] for each in harness.broker.tracer.named("groups_loaded")] == [3]


@pytest.mark.rule("G1")
@told
async def test_a_commit_is_answered_when_it_is_replicated_under_the_leader_epoch() -> None:
    harness = CoordinatorHarness()
    await harness.lead(7, isr=(1, 2))
    pending = commit(harness, 5)
    assert isinstance(pending, Pending) and not pending.done
    assert fetch(harness) == (NONE, -1)
    harness.replicate()
    assert commit_error(answered(pending)) is NONE
    assert fetch(harness) == (NONE, 5)
    (batch,) = harness.log.batches
    assert struct.unpack_from(">i", batch, 12) == (7,)


@pytest.mark.rule("G2")
@told
async def test_partitions_are_counted_as_they_are_not_as_the_topic_would_be_made() -> None:
    harness = CoordinatorHarness(offsets_topic_num_partitions="1")
    known, harness.broker.view.topics = harness.broker.view.topics, {}
    await harness.lead()
    assert fetch(harness) == (ErrorCode.NOT_COORDINATOR, -1), "nobody has told how many there are"
    harness.broker.view.topics = known
    assert fetch(harness) == (NONE, -1)
    harness.broker.view.topics = {}
    assert fetch(harness) == (NONE, -1), "what a broker forgets with its session stays as it was"


@pytest.mark.rule("G2")
@told
async def test_records_are_kafkas() -> None:
    harness = CoordinatorHarness()
    await harness.lead()
    commit(harness, 5, metadata="text")
    joined = await stable_member(harness)
    offset, group = harness.log.stored
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


@pytest.mark.rule("G1")
@told
async def test_whoever_waits_is_sent_away_when_the_leadership_ends() -> None:
    harness = CoordinatorHarness()
    await harness.lead(1, isr=(1, 2))
    pending = commit(harness, 5)
    await harness.follow(2)
    assert commit_error(answered(pending)) is NOT_HERE
    assert fetch(harness)[0] is NOT_HERE
    assert harness.broker.failures == []


@pytest.mark.rule("G1")
@told
async def test_a_leader_that_leads_on_loads_its_partition_again() -> None:
    harness = CoordinatorHarness()
    await harness.lead(1, isr=(1, 2))
    pending = commit(harness, 5)
    await harness.lead(2, isr=(1, 2))
    assert commit_error(answered(pending)) is NOT_HERE
    harness.replicate()
    await harness.clock.advance(0)
    assert fetch(harness) == (NONE, 5)
    loads = [each["leader_epoch"] for each in harness.broker.tracer.named("groups_loaded")]
    assert loads == [1, 2]


@pytest.mark.rule("G1")
@told
async def test_what_was_gathered_for_a_lost_leadership_is_not_appended() -> None:
    harness = CoordinatorHarness()
    await harness.lead(1)
    pending = harness.send(OFFSET_COMMIT, 8, committing(5))
    harness.broker.partition(P0).rest()
    harness.broker.groups.flush()
    assert commit_error(answered(pending)) is NOT_HERE
    assert harness.log.batches == []


@pytest.mark.rule("G1")
@told
async def test_a_load_whose_leadership_ends_is_not_completed() -> None:
    broker = CounterBroker(FakeClock())
    await broker.lead(2, 0)
    broker.counter_log.put(NewRecord(b"a", b"7", 0))
    await broker.lead(1, 1, isr=(1, 2))
    (led,) = broker.counters.led()
    await broker.lead(2, 2)
    await settle()
    assert led.shard.phase is CoordinatorPhase.UNLOADED
    assert broker.tracer.named("counters_loaded") == []
