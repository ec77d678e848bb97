"""The checker of moves that get another target finds what R10 forbids, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.sim import checked

from tidelog.core.types import TopicPartition
from tidelog.sim.checkers.reassignment_checker import RedirectedMoveChecker
from tidelog.sim.observed.moves import PublishedMove
from tidelog.sim.observed.published_state import PublishedPartition, PublishedTopic
from tidelog.sim.observed.replica_logs import LogKey

ID = b"t" * 16
KEY = LogKey(ID, 0)
#: [2, 3] goes to [1, 4]; then it goes to [2, 4] instead, and 1 is not wanted any more.
FIRST = PublishedMove(adding=(1, 4), removing=(2, 3), original=(2, 3))
SECOND = PublishedMove(adding=(4,), removing=(3, 1), original=(2, 3))
STATE = PublishedPartition(KEY, 2, 5, 9, (2, 3, 1), (12, 13, 11), controller_epoch=7)


class Published:
    """The published state of one partition."""

    def __init__(self) -> None:
        self.on_moves: list[Any] = []
        self.on_state: list[Any] = []
        self.controller_epoch = 7
        self.brokers = {1: 11, 2: 12, 3: 13, 4: 14}
        self.topic = PublishedTopic("moved", ID, 0, {0: (1, 4, 2, 3)}, {0: FIRST})
        self.all_topics = {ID: self.topic}
        self.partitions = {KEY: STATE}
        self.found: list[str] = []
        self.checker = RedirectedMoveChecker(checked(self.found, published=self))

    def key(self, topic_id: bytes, number: int) -> LogKey:
        return LogKey(topic_id, number)

    def name(self, key: LogKey) -> TopicPartition:
        return TopicPartition(self.topic.name, key.partition)

    def effective_minimum(self, key: LogKey) -> int:
        return 2

    def redirect(self) -> None:
        before, self.topic.moving = self.topic.moving, {0: SECOND}
        self.on_moves[0](self.topic, 1, before)

    def write(self, **changes: Any) -> None:
        """Write the next state, of the same leader under the next epoch unless told otherwise."""
        before = self.partitions[KEY]
        epochs = {"leader_epoch": before.leader_epoch + 1, "partition_epoch": 1}
        after = self.partitions[KEY] = replace(before, **{**epochs, **changes})
        self.on_state[0](before, after)


def test_a_dropped_replica_that_leaves_with_the_first_write_is_fine() -> None:
    published = Published()
    published.redirect()
    published.write(isr=(2, 3), isr_epochs=(12, 13))
    published.write(isr=(2, 3, 4), isr_epochs=(12, 13, 14))
    assert (published.found, published.checker.dropped) == ([], 1)


def test_a_dropped_replica_that_stays_is_found() -> None:
    published = Published()
    published.redirect()
    published.write()
    assert "[1] of the ISR (2, 3, 1) stay in sync" in published.found[0]


@pytest.mark.parametrize(
    "why",
    [
        {"leader": 1},
        {"isr": (2, 1), "isr_epochs": (12, 11)},
        {"controller_epoch": 8},
    ],
    ids=["it leads", "few others are in sync", "another controller elects first"],
)
def test_a_dropped_replica_may_stay_for_a_reason(why: dict[str, Any]) -> None:
    published = Published()
    published.redirect()
    published.write(**why)
    assert published.found == []


def test_a_dropped_replica_that_joins_again_is_found() -> None:
    published = Published()
    published.redirect()
    published.write(isr=(2, 3), isr_epochs=(12, 13))
    published.write(isr=(2, 3, 1), isr_epochs=(12, 13, 11))
    assert "[1] join the ISR (2, 3, 1)" in published.found[0]


def test_a_replica_that_the_target_names_may_join() -> None:
    published = Published()
    published.write(isr=(2, 3, 1, 4), isr_epochs=(12, 13, 11, 14))
    assert published.found == []
