"""Produces wait for the high watermark in order of offset; losing leadership answers them all."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.broker.replicas.hosting.purgatory import PartitionWatchers
from tidelog.core.errors import ErrorCode
from tidelog.core.types import TopicPartition


class Waiter:
    def __init__(self) -> None:
        self.outcome: Any = None

    def acknowledged(self) -> None:
        self.outcome = "acknowledged"

    def refused(self, error: ErrorCode, message: str) -> None:
        self.outcome = (error, message)


class Watcher:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def changed(self) -> None:
        self.calls.append("changed")

    def readable(self) -> None:
        self.calls.append("readable")

    def look_again(self) -> None:
        raise AssertionError("no segment changes here")


@pytest.mark.rule("V64")
def test_the_high_watermark_releases_exactly_what_it_has_reached() -> None:
    watchers = PartitionWatchers()
    waiters = {offset: Waiter() for offset in (5, 10, 15)}
    for offset, waiter in waiters.items():
        watchers.wait_for_acks(offset, waiter)
    watchers.high_watermark_moved(10)
    assert [waiters[offset].outcome for offset in (5, 10, 15)] == [
        "acknowledged",
        "acknowledged",
        None,
    ]
    assert watchers.acks_waiting == 1


@pytest.mark.rule("V38")
def test_a_repeated_batch_waits_for_the_offset_of_its_original_not_behind_later_ones() -> None:
    watchers = PartitionWatchers()
    later, repeated = Waiter(), Waiter()
    watchers.wait_for_acks(20, later)
    watchers.wait_for_acks(10, repeated)
    watchers.high_watermark_moved(9)
    assert repeated.outcome is None
    watchers.high_watermark_moved(10)
    assert repeated.outcome == "acknowledged"
    assert later.outcome is None


@pytest.mark.rule("V38")
def test_a_batch_that_is_repeated_within_an_acknowledgement_is_acknowledged_once() -> None:
    watchers = PartitionWatchers()
    acknowledged: list[str] = []

    class Repeating(Waiter):
        def acknowledged(self) -> None:
            acknowledged.append("first")
            watchers.wait_for_acks(15, Named("repeated"))

    class Named(Waiter):
        def __init__(self, name: str) -> None:
            super().__init__()
            self._name = name

        def acknowledged(self) -> None:
            acknowledged.append(self._name)

    watchers.wait_for_acks(10, Repeating())
    watchers.wait_for_acks(20, Named("second"))
    watchers.wait_for_acks(30, Named("third"))
    watchers.high_watermark_moved(20)
    assert acknowledged == ["first", "repeated", "second"]
    watchers.high_watermark_moved(30)
    assert acknowledged == ["first", "repeated", "second", "third"]


@pytest.mark.rule("V38")
def test_losing_leadership_answers_everything_that_waits() -> None:
    watchers = PartitionWatchers()
    waiters = [Waiter(), Waiter()]
    fetch = Watcher()
    for offset, waiter in enumerate(waiters, 1):
        watchers.wait_for_acks(offset, waiter)
    watchers.watch(fetch, follower=True)
    watchers.leadership_lost(TopicPartition("t", 0), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert [waiter.outcome[0] for waiter in waiters] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert "t-0" in waiters[0].outcome[1]
    assert fetch.calls == ["readable"]
    assert watchers.acks_waiting == 0


@pytest.mark.rule("V64")
def test_an_isr_confirmed_below_the_minimum_refuses_what_waits_and_says_why() -> None:
    watchers = PartitionWatchers()
    waiter = Waiter()
    watchers.wait_for_acks(1, waiter)
    watchers.isr_below_minimum("ISR [1] has 1 member, 2 are needed")
    assert waiter.outcome == (
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        "ISR [1] has 1 member, 2 are needed",
    )


@pytest.mark.rule("V61")
def test_the_high_watermark_wakes_consumers_and_only_marks_followers() -> None:
    watchers = PartitionWatchers()
    consumer, follower = Watcher(), Watcher()
    watchers.watch(consumer, follower=False)
    watchers.watch(follower, follower=True)
    watchers.high_watermark_moved(1)
    assert consumer.calls == ["readable"]
    assert follower.calls == ["changed"]
    watchers.log_end_moved()
    assert consumer.calls == ["readable"]
    assert follower.calls == ["changed", "readable"]


def test_who_does_not_watch_any_more_is_told_nothing() -> None:
    watchers = PartitionWatchers()
    watcher = Watcher()
    watchers.watch(watcher, follower=True)
    watchers.unwatch(watcher)
    watchers.unwatch(watcher)
    watchers.log_end_moved()
    watchers.high_watermark_moved(1)
    assert watcher.calls == []
