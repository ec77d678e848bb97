"""The expansions that a controller holds back, as a collection (A11)."""

from __future__ import annotations

import pytest
from tests.support.controller.values import TP, alter

from tidelog.controller.partitions.expansions import HeldExpansion, HeldExpansions
from tidelog.core.types import TopicPartition


def expansion(*members: int) -> HeldExpansion:
    """An expansion that broker 1 asks for."""
    request = alter(*members).request
    [topic] = request.topics
    return HeldExpansion(1, request.broker_epoch, 3, topic, topic.partitions[0])


@pytest.mark.rule("A11")
def test_only_the_first_of_all_begins_the_wait_and_the_newest_of_a_partition_counts() -> None:
    held = HeldExpansions()
    newest, other = expansion(1, 2, 3), expansion(1, 2)
    assert held.hold(TP, expansion(1, 2))
    assert not held.hold(TP, newest)
    assert len(held) == 1, "it took the place of the earlier one"
    assert not held.hold(TopicPartition("t", 1), other)
    assert len(held) == 2
    assert held.take() == {TP: newest, TopicPartition("t", 1): other}


@pytest.mark.rule("A11")
def test_what_was_taken_is_not_held_any_more_and_a_new_wait_begins() -> None:
    held = HeldExpansions()
    held.hold(TP, expansion(1, 2))
    held.take()
    assert len(held) == 0 and held.take() == {}
    assert held.hold(TP, expansion(1, 2, 3))


def test_key_holds_what_is_asked_for_and_copies_are_independent() -> None:
    held = HeldExpansions()
    held.hold(TP, expansion(1, 2))
    copy = held.copy()
    assert copy.key() == held.key()
    copy.hold(TP, expansion(1, 2, 3))
    assert copy.key() != held.key()
    assert len(copy) == len(held) == 1
    copy.take()
    assert len(held) == 1
