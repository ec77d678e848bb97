"""Invariants of the controller that assertions hold: what breaks one stops the broker."""

from __future__ import annotations

import pytest
from tests.support.controller.reassigning import completing
from tests.support.controller.values import TP, loaded, settings, state, topic

from tidelog.controller.draft import Draft
from tidelog.controller.image import Change, Image
from tidelog.controller.partitions.removal import (
    PartitionsRemoved,
    RemovalCommanded,
    RemovalsAdded,
)
from tidelog.controller.producer_ids import TakeProducerIds
from tidelog.controller.reassignments.progress import AssignmentsWritten, LeavingCommanded
from tidelog.controller.state_writes import WritePartitionState
from tidelog.controller.topics.deletion import DeletionCommanded, DeletionRequested


@pytest.fixture
def image() -> Image:
    """One partition t-0 on brokers 1, 2, 3."""
    return loaded().image


def test_a_state_is_written_as_the_next_version_of_its_node() -> None:
    WritePartitionState(TP, state(partition_epoch=11), expected_epoch=10)
    with pytest.raises(AssertionError, match="not the next"):
        WritePartitionState(TP, state(partition_epoch=12), expected_epoch=10)


def test_a_leader_epoch_never_falls(image: Image) -> None:
    draft = Draft(image, settings())
    with pytest.raises(AssertionError, match="leader epoch falls"):
        draft.write_state(WritePartitionState(TP, state(leader_epoch=4, partition_epoch=11), 10))


def test_the_node_of_a_topic_is_written_once_in_a_decision(image: Image) -> None:
    draft = Draft(image, settings())
    draft.resized["t"] = draft.reassigned["t"] = None
    with pytest.raises(AssertionError, match=r"written twice: \['t'\]"):
        draft.close()


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        (DeletionCommanded("t", {9: (TP,)}), "dead"),
        (RemovalCommanded("t", (0,), {9: (TP,)}), "dead"),
        (RemovalCommanded("t", (1,), {}), "not requested"),
        (PartitionsRemoved(topic(), (0,)), "not the highest"),
        (AssignmentsWritten(topic(assignments={0: (1, 2, 3), 1: (1, 2, 3)})), "other partitions"),
        (LeavingCommanded(TP, ()), "target is not published"),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Change) else one,
)
def test_a_change_that_cannot_be_is_none(image: Image, change: Change, broken: str) -> None:
    image.apply(DeletionRequested("t"))
    image.apply(RemovalsAdded("t", {0: False}))
    with pytest.raises(AssertionError, match=broken):
        image.apply(change)


def test_only_live_brokers_are_waited_for_when_replicas_leave() -> None:
    controller, _ = completing(4, 2, 3)
    with pytest.raises(AssertionError, match="dead"):
        controller.image.apply(LeavingCommanded(TP, (9,)))


@pytest.mark.parametrize(("first", "last"), [(5, 4), (-1, 4), (0, 2**63)])
def test_a_block_of_producer_ids_is_one(first: int, last: int) -> None:
    with pytest.raises(AssertionError, match="no block"):
        TakeProducerIds(1, first, last, 0)
