"""Metrics of groups: the ages of unread records, the ends of logs, and the limits of series."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.support.broker.coordinator import CoordinatorHarness, commit, told
from tests.support.broker.fakes import T0, a_cluster, state
from tests.support.requests.of_groups import GROUP

from tidelog.broker.cluster_view import PartitionView, TopicView
from tidelog.broker.coordinators import group_readings
from tidelog.broker.coordinators import metrics as declared
from tidelog.broker.coordinators.group_readings import GroupReadings, oldest_ms
from tidelog.broker.coordinators.log_ends import KnownEnds, LogEnds
from tidelog.core.metrics import Metric
from tidelog.records.batch import DELETE_HORIZON_MASK, BatchView
from tidelog.records.builder import NewRecord, build_batch


def batch_of(*timestamps_ms: int, log_append_time_ms: int | None = None) -> BatchView:
    records = [NewRecord(None, b"value", each) for each in timestamps_ms]
    return BatchView(build_batch(records, log_append_time_ms=log_append_time_ms))


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (batch_of(1_000, 5_000), 1_000),
        (batch_of(1_000, 5_000, log_append_time_ms=9_000), 9_000),
        (batch_of(-1), None),
    ],
    ids=["create-time", "log-append-time", "no-timestamp"],
)
def test_oldest_record(batch: BatchView, expected: int | None) -> None:
    assert oldest_ms(batch) == expected


def test_the_horizon_of_a_compacted_batch_is_no_age() -> None:
    batch = batch_of(1_000, 5_000)
    batch.attributes |= DELETE_HORIZON_MASK
    batch.base_timestamp = 99_000_000
    assert oldest_ms(batch) == 5_000


async def lagging(harness: CoordinatorHarness, groups: int) -> None:
    """Let each of several groups commit an offset."""
    await harness.lead()
    for number in range(groups):
        commit(harness, 5, group=f"{GROUP}-{number}")
    harness.replicate()
    await harness.settle()


def lines(readings: GroupReadings) -> Counter[Metric]:
    return Counter(metric for group, *_ in readings.readings() for metric in group)


@told
async def test_groups_beyond_the_limit_are_counted_and_have_no_series(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_readings, "MAX_METERED_GROUPS", 2)
    harness = CoordinatorHarness()
    await lagging(harness, 5)
    broker = harness.broker
    readings = GroupReadings(broker.services, broker.groups, broker.replicas)
    found = lines(readings)
    assert found[declared.MEMBERS] == found[declared.CURRENT_OFFSET] == 2
    [left] = [v for group, v, _ in readings.readings() if group == (declared.GROUPS_LEFT_OUT,)]
    [offsets] = [v for group, v, _ in readings.readings() if group == (declared.OFFSETS_LEFT_OUT,)]
    assert (left, offsets) == ((3,), (3,))


@told
async def test_the_log_of_a_follower_outside_the_isr_says_nothing_of_the_end() -> None:
    broker = a_cluster()[1]
    ends = KnownEnds(broker.services, broker.replicas)
    await broker.command(state(2, is_new=True))
    for isr, expected in (((1, 2, 3), LogEnds(0, 0)), ((2, 3), None)):
        shown = PartitionView(2, 0, (1, 2, 3), isr, (), 0)
        broker.view.topics = {"t": TopicView("t", b"T" * 16, {0: shown})}
        assert ends.of(T0) == expected
    await broker.command(state(1, leader_epoch=1, partition_epoch=1))
    assert ends.of(T0) == LogEnds(0, 0), "the leader's own log, whatever the view shows"


@told
async def test_the_ends_that_a_leader_returned_are_forgotten_when_they_are_old() -> None:
    cluster = a_cluster()
    await cluster[1].command(state(1, is_new=True))
    shown = PartitionView(1, 0, (1,), (1,), (), 0)
    asking = cluster[2]
    asking.view.topics = {"t": TopicView("t", b"T" * 16, {0: shown})}
    ends = KnownEnds(asking.services, asking.replicas)
    assert ends.of(T0) is None, "it is only noted"
    ends.refresh()
    await asking.clock.advance(0)
    assert ends.of(T0) == LogEnds(0, 0)
    ends.refresh()
    assert ends.of(T0) == LogEnds(0, 0), "too early to ask again"
    for seconds, expected in ((30, LogEnds(0, 0)), (31, None)):
        asking.clock.now_ms += seconds * 1_000
        ends._wanted.clear()  # no group has offsets of it, or its log is here
        ends.refresh()
        assert ends.of(T0) == expected
