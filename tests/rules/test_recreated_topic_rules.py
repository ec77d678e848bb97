"""Offsets of topics that were deleted and created again, and of partitions likewise (G6)."""

from __future__ import annotations

import pytest
from tests.support.broker.coordinator import (
    READ,
    READ_ID,
    CoordinatorHarness,
    commit,
    commit_error,
    fetch,
    stored_offset,
    told,
)
from tests.support.broker.fakes import settle

from tidelog.broker.cluster_view import Gone, PartitionView, TopicView
from tidelog.core.completion import Completion
from tidelog.core.errors import ErrorCode
from tidelog.core.types import ZERO_TOPIC_ID, PartitionState, TopicId, TopicPartition
from tidelog.group.records import PartitionIncarnation
from tidelog.metadata import layout
from tidelog.metadata.store import StoreUnavailable
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tidelog.wire.registry import OFFSET_FETCH

NONE = ErrorCode.NONE
LOADING = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
NO_OFFSET = (NONE, -1)
EARLIER_ID = b"E" * 16
EARLIER = PartitionIncarnation(EARLIER_ID)
PRESENT = PartitionIncarnation(READ_ID)


def see(harness: CoordinatorHarness, topic_id: TopicId, first_leader_epoch: int = 0) -> None:
    """Broker 1 learns of a topic; partition 0 began with this leader epoch."""
    view = PartitionView(2, 9, (1, 2), (1, 2), (), 0, first_leader_epoch=first_leader_epoch)
    harness.broker.view.topics[READ] = TopicView(READ, topic_id, {0: view})


def store(harness: CoordinatorHarness, topic_id: TopicId, *partitions: int) -> None:
    """The store has the topic under this id."""
    assignment = layout.TopicAssignment(topic_id, dict.fromkeys(partitions, (1, 2)))
    harness.broker.store.nodes[layout.topic_path(READ)] = layout.encode_topic(assignment)


def store_state(harness: CoordinatorHarness, first_leader_epoch: int) -> None:
    """The store has a state of partition 0, which began with this leader epoch."""
    state = PartitionState(2, 9, (1, 2), 1, first_epochs=(first_leader_epoch, 0))
    path = layout.partition_state_path(TopicPartition(READ, 0))
    harness.broker.store.nodes[path] = layout.encode_partition_state(state)


async def lead_with(*committed: PartitionIncarnation | None) -> CoordinatorHarness:
    """Broker 1 is about to lead; offsets 5, 6, … of groups g0, g1, … are in the log."""
    harness = CoordinatorHarness()
    await harness.follow(0)
    for number, incarnation in enumerate(committed):
        harness.log.put(stored_offset(5 + number, f"g{number}", incarnation))
    store(harness, READ_ID, 0, 1, 2)
    return harness


def tombstones(harness: CoordinatorHarness) -> int:
    return sum(record.value is None for record in harness.log.stored)


@pytest.mark.rule("G6")
@told
async def test_a_topic_recreated_during_the_load_is_not_read_from_an_old_offset() -> None:
    harness = await lead_with(EARLIER, None, PRESENT)
    see(harness, EARLIER_ID)
    store(harness, EARLIER_ID, 0)
    harness.log.gate = Completion()
    await harness.lead(1)
    see(harness, READ_ID)
    store(harness, READ_ID, 0)
    harness.broker.groups.ended(Gone({READ: EARLIER_ID}, {}))
    assert fetch(harness, "g0") == LOADING
    harness.log.gate.resolve(None)
    await harness.clock.advance(0)
    assert [fetch(harness, f"g{number}") for number in range(3)] == [
        NO_OFFSET,
        NO_OFFSET,
        (NONE, 7),
    ]
    assert tombstones(harness) == 2


@pytest.mark.rule("G6")
@told
async def test_a_partition_added_again_during_the_load_is_not_read_from_an_old_offset() -> None:
    harness = await lead_with(PRESENT, None, PartitionIncarnation(READ_ID, 4))
    harness.log.gate = Completion()
    await harness.lead(1)
    see(harness, READ_ID, first_leader_epoch=4)
    harness.broker.groups.ended(Gone({}, {TopicPartition(READ, 0): 0}))
    harness.log.gate.resolve(None)
    await harness.clock.advance(0)
    assert [fetch(harness, f"g{number}") for number in range(3)] == [
        NO_OFFSET,
        NO_OFFSET,
        (NONE, 7),
    ]
    assert tombstones(harness) == 2


@pytest.mark.rule("G6")
@told
async def test_a_topic_recreated_before_the_load_is_not_read_from_an_old_offset() -> None:
    harness = await lead_with(EARLIER, None, PRESENT)
    await harness.lead(1)
    await settle()
    # Whoever wrote the offset without an incarnation cannot be asked.
    assert [fetch(harness, f"g{number}") for number in range(3)] == [
        NO_OFFSET,
        (NONE, 6),
        (NONE, 7),
    ]
    assert tombstones(harness) == 1


@pytest.mark.rule("G6")
@told
async def test_offsets_of_a_topic_that_is_gone_are_deleted_at_the_end_of_a_load() -> None:
    harness = await lead_with(EARLIER)
    del harness.broker.view.topics[READ]
    harness.broker.store.nodes.clear()
    await harness.lead(1)
    await settle()
    assert (fetch(harness, "g0"), tombstones(harness)) == (NO_OFFSET, 1)


@pytest.mark.rule("G6")
@told
async def test_offsets_of_removed_partitions_are_deleted_at_the_end_of_a_load() -> None:
    harness = await lead_with(PRESENT)
    harness.broker.view.topics[READ].partitions.pop(0)
    store(harness, READ_ID, 1)
    await harness.lead(1)
    await settle()
    assert (fetch(harness, "g0"), tombstones(harness)) == (NO_OFFSET, 1)


@pytest.mark.rule("G6")
@told
async def test_a_topic_that_waits_for_its_deletion_does_not_hold_up_the_load() -> None:
    harness = await lead_with(PRESENT)
    del harness.broker.view.topics[READ]
    await harness.lead(1)
    assert (fetch(harness, "g0"), tombstones(harness)) == ((NONE, 5), 0)


@pytest.mark.rule("G6")
@pytest.mark.parametrize(
    ("committed", "seen"), [(PRESENT, EARLIER), (PartitionIncarnation(READ_ID, 4), PRESENT)]
)
@told
async def test_an_offset_of_a_topic_that_the_view_does_not_show_yet_is_waited_for(
    committed: PartitionIncarnation, seen: PartitionIncarnation
) -> None:
    harness = await lead_with(committed)
    see(harness, *seen)
    store_state(harness, 4)
    await harness.lead(1)
    await harness.clock.advance(2_000)
    assert fetch(harness, "g0") == LOADING
    see(harness, *committed)
    await harness.clock.advance(200)
    assert (fetch(harness, "g0"), tombstones(harness)) == ((NONE, 5), 0)


@pytest.mark.rule("G6")
@pytest.mark.parametrize("stored", [0, None, b"nonsense"])
@told
async def test_an_offset_of_an_incarnation_that_the_store_lacks_does_not_hold_up_the_load(
    stored: int | bytes | None,
) -> None:
    harness = await lead_with(PartitionIncarnation(READ_ID, 4))
    see(harness, READ_ID)
    if isinstance(stored, bytes):
        path = layout.partition_state_path(TopicPartition(READ, 0))
        harness.broker.store.nodes[path] = stored
    elif stored is not None:
        store_state(harness, stored)
    await harness.lead(1)
    assert (fetch(harness, "g0"), tombstones(harness)) == ((NONE, 5), 0)


@pytest.mark.rule("G6")
@told
async def test_a_topic_that_is_published_without_its_id_does_not_hold_up_the_load() -> None:
    harness = await lead_with(PRESENT)
    see(harness, ZERO_TOPIC_ID)
    await harness.lead(1)
    assert (fetch(harness, "g0"), tombstones(harness)) == ((NONE, 5), 0)


@pytest.mark.rule("G6")
@told
async def test_the_load_waits_while_the_store_cannot_be_asked_which_topic_is_older() -> None:
    harness = await lead_with(EARLIER)
    harness.broker.store.errors = [StoreUnavailable("no answer")]
    await harness.lead(1)
    assert fetch(harness, "g0") == LOADING
    assert "waits for the store" in harness.broker.tracer.lines[-1]
    await harness.clock.advance(200)
    assert fetch(harness, "g0") == NO_OFFSET


@pytest.mark.rule("G6")
@told
async def test_a_topic_whose_node_is_unreadable_does_not_serve_another_ones_offsets() -> None:
    harness = await lead_with(EARLIER)
    harness.broker.store.nodes[layout.topic_path(READ)] = b"nonsense"
    await harness.lead(1)
    assert (fetch(harness, "g0"), tombstones(harness)) == (NO_OFFSET, 0)
    everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g0", topics=None)])
    [group] = harness.ask(OFFSET_FETCH, 8, everything).groups
    assert [each.committed_offset for each in group.topics[0].partitions] == [-1]
    named = [OffsetFetchRequestTopics(READ, [0])]
    everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g0", topics=named)])
    [group] = harness.ask(OFFSET_FETCH, 8, everything).groups
    assert [each.committed_offset for each in group.topics[0].partitions] == [-1]


@pytest.mark.rule("G6")
@told
async def test_a_load_that_is_over_is_not_checked() -> None:
    harness = await lead_with(PRESENT)
    see(harness, EARLIER_ID)
    await harness.lead(1)
    await harness.follow(2)
    await harness.clock.advance(2_000)
    assert fetch(harness, "g0")[0] is ErrorCode.NOT_COORDINATOR
    assert tombstones(harness) == 0


@pytest.mark.rule("G6")
@told
async def test_a_commit_is_one_of_the_present_topic() -> None:
    harness = CoordinatorHarness()
    see(harness, READ_ID, first_leader_epoch=4)
    await harness.lead()
    assert commit_error(commit(harness, 5)) is NONE
    [record] = harness.log.stored
    assert record.headers == [("tidelog.partition", READ_ID + b"\0\0\0\4")]
    see(harness, b"L" * 16)
    assert fetch(harness) == NO_OFFSET, "not even before the end of the topic is noted"
