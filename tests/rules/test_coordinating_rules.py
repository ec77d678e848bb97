"""Coordinators of brokers: one leader epoch from load to append (G1), Kafka's records (G2)."""

from __future__ import annotations

import struct

import pytest
from tests.support.broker.coordinator import (
    P0,
    CoordinatorBroker,
    answered,
    commit,
    commit_error,
    committing,
    fetch,
    stable_member,
    stored_offset,
    told,
)

from tidelog.core.completion import Completion
from tidelog.core.errors import ErrorCode
from tidelog.wire.data.consumer_offsets import GROUP_METADATA_VALUE, OFFSET_COMMIT_VALUE
from tidelog.wire.messages.list_groups import ListGroupsRequest
from tidelog.wire.registry import LIST_GROUPS, OFFSET_COMMIT

NONE = ErrorCode.NONE
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
NOT_HERE = ErrorCode.NOT_COORDINATOR


@pytest.mark.rule("G1")
@told
async def test_it_loads_to_the_log_end_though_the_high_watermark_is_behind() -> None:
    rig = CoordinatorBroker()
    await rig.follow(0)
    rig.log.put(stored_offset(5))
    rig.log.put(stored_offset(6))
    await rig.lead(1, isr=(1, 2))
    rig.replicate()
    await rig.clock.advance(0)
    assert fetch(rig) == (NONE, 6)


@pytest.mark.rule("G1")
@told
async def test_what_was_loaded_counts_when_it_is_committed() -> None:
    rig = CoordinatorBroker()
    await rig.follow(0)
    rig.log.put(stored_offset(5))
    await rig.lead(1, isr=(1, 2))
    await rig.clock.advance(10_000)
    assert rig.broker.partition(P0).high_watermark == 0
    assert fetch(rig) == (LOADING, -1)
    assert commit_error(commit(rig, 9)) is LOADING
    rig.replicate()
    await rig.clock.advance(0)
    assert fetch(rig) == (NONE, 5)


@pytest.mark.rule("G1")
@pytest.mark.parametrize("error", [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, NOT_HERE])
@told
async def test_a_load_outlives_an_isr_below_the_minimum_not_its_leadership(
    error: ErrorCode,
) -> None:
    rig = CoordinatorBroker()
    await rig.follow(0)
    rig.log.put(stored_offset(5))
    await rig.lead(1, isr=(1, 2))
    if error is NOT_HERE:
        await rig.follow(2)
        rig.log.put(stored_offset(7), leader_epoch=2)
        await rig.lead(3, isr=(1, 2))
    else:
        partition = rig.broker.partition(P0)
        partition.watchers.isr_below_minimum(partition, "the ISR is too small")
    await rig.clock.advance(0)
    assert fetch(rig) == (LOADING, -1)
    rig.replicate()
    await rig.clock.advance(0)
    assert fetch(rig) == (NONE, 7 if error is NOT_HERE else 5)
    epochs = [each["leader_epoch"] for each in rig.broker.tracer.named("groups_loaded")]
    assert epochs == [3 if error is NOT_HERE else 1]


@pytest.mark.rule("G1")
@told
async def test_requests_wait_for_the_end_of_the_load_elsewhere() -> None:
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
async def test_a_load_that_ends_after_its_leadership_is_dropped() -> None:
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


@pytest.mark.rule("G1")
@told
async def test_a_commit_is_answered_when_it_is_replicated_under_the_leader_epoch() -> None:
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


@pytest.mark.rule("G2")
@told
async def test_partitions_are_counted_as_they_are_not_as_the_topic_would_be_made() -> None:
    rig = CoordinatorBroker(offsets_topic_num_partitions="1")
    known, rig.broker.view.topics = rig.broker.view.topics, {}
    await rig.lead()
    assert fetch(rig) == (ErrorCode.NOT_COORDINATOR, -1), "nobody has told how many there are"
    rig.broker.view.topics = known
    assert fetch(rig) == (NONE, -1)
    rig.broker.view.topics = {}
    assert fetch(rig) == (NONE, -1), "what a broker forgets with its session stays as it was"


@pytest.mark.rule("G2")
@told
async def test_records_are_kafkas() -> None:
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


@pytest.mark.rule("G1")
@told
async def test_whoever_waits_is_sent_away_when_the_leadership_ends() -> None:
    rig = CoordinatorBroker()
    await rig.lead(1, isr=(1, 2))
    pending = commit(rig, 5)
    await rig.follow(2)
    assert commit_error(answered(pending)) is NOT_HERE
    assert fetch(rig)[0] is NOT_HERE
    assert rig.broker.failures == []


@pytest.mark.rule("G1")
@told
async def test_a_leader_that_leads_on_loads_anew() -> None:
    rig = CoordinatorBroker()
    await rig.lead(1, isr=(1, 2))
    pending = commit(rig, 5)
    await rig.lead(2, isr=(1, 2))
    assert commit_error(answered(pending)) is NOT_HERE
    rig.replicate()
    await rig.clock.advance(0)
    assert fetch(rig) == (NONE, 5)
    loads = [each["leader_epoch"] for each in rig.broker.tracer.named("groups_loaded")]
    assert loads == [1, 2]


@pytest.mark.rule("G1")
@told
async def test_what_was_gathered_for_a_lost_leadership_is_not_appended() -> None:
    rig = CoordinatorBroker()
    await rig.lead(1)
    pending = rig.send(OFFSET_COMMIT, 8, committing(5))
    rig.broker.partition(P0).rest()
    rig.broker.groups.flush()
    assert commit_error(answered(pending)) is NOT_HERE
    assert rig.log.batches == []
