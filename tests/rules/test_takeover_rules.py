"""The end of a failover is timed by the new leader: followers connect, truncate, fetch, and the
first record is acknowledged. V80.

Real replicas and fetchers over fake logs; time is moved by hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.support.broker.fakes import (
    CONNECTION,
    T0,
    TOPIC,
    FakeBroker,
    a_cluster,
    errors,
    replicate,
    settle,
    state,
)

from tidelog.broker.apis import offset_for_leader_epoch
from tidelog.broker.replicas.hosting.takeovers import WATCHED_MS
from tidelog.broker.replicas.metrics import TAKEOVER_MS
from tidelog.broker.server.requests import Request
from tidelog.controller.cluster_events import ClusterEvent
from tidelog.core import limits
from tidelog.core.types import TopicPartition
from tidelog.wire.codec import RequestHeader
from tidelog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

Story = Callable[[], Coroutine[Any, Any, None]]


def run(story: Story) -> None:
    asyncio.run(story())


def told_cluster(count: int = 3) -> tuple[dict[int, FakeBroker], list[ClusterEvent]]:
    """Return brokers, and the list of events that they will record."""
    cluster = a_cluster(count, cluster_events_enable="true")
    told: list[ClusterEvent] = []
    for broker in cluster.values():
        broker.cluster_events.record = told.extend  # type: ignore[method-assign,assignment]  # replaced by the test
    return cluster, told


def takeovers(told: list[ClusterEvent]) -> list[dict[str, Any]]:
    return [dict(one.fields) for one in told if one.kind == "takeover"]


async def failover(cluster: dict[int, FakeBroker], *commanded: int) -> None:
    """Broker 1 is gone, 2 leads under epoch 1; these brokers hear of it, in this order."""
    for broker_id in commanded:
        cluster[broker_id].peers.cut = [1]
        cluster[broker_id].see(2, 3)
        role = state(2, leader_epoch=1, partition_epoch=1, isr=(2, 3))
        assert errors(await cluster[broker_id].command(role)) == [0]
    await settle()


@pytest.mark.rule("V80")
def test_a_takeover_is_reported_with_the_time_of_each_of_its_phases() -> None:
    async def story() -> None:
        cluster, told = told_cluster()
        clock = cluster[1].clock
        await replicate(cluster)
        told.clear()
        cluster[2].log().fill(0, 0)
        cluster[3].log().fill(0, 0, 0)
        await failover(cluster, 2)
        await clock.advance(30)
        cluster[3].log().is_slow = True
        await failover(cluster, 3)
        await clock.advance(7)
        assert [one.kind for one in told if one.fields["leader_epoch"] == 1] == []
        cluster[3].log().is_slow = False
        cluster[3].log().finish()
        await clock.advance(3)
        [first] = [one for one in told if one.kind == "first_fetch"]
        assert (first.fields["follower"], first.fields["first_fetch_ms"]) == (3, 37)
        assert first.fields["leader_epoch"] == 1 and first.fields["log_end_offset"] == 2
        assert takeovers(told) == [], "nothing was produced yet"
        done = cluster[2].produce()
        await clock.advance(600)
        assert done.done and cluster[2].partition().high_watermark == 3
        [takeover] = takeovers(told)
        phases = takeover["phases_ms"]
        assert list(phases) == ["connect", "truncate", "first_fetch", "acknowledge"]
        assert (phases["connect"], phases["truncate"], phases["first_fetch"]) == (30, 37, 37)
        assert phases["acknowledge"] >= 40
        assert takeover["followers"] == [
            {"follower": 3, "connected_ms": 30, "diverged_ms": 30, "fetched_ms": 37}
        ]
        assert (takeover["leader"], takeover["leader_epoch"]) == (2, 1)
        assert takeover["ended_by"] == "all_seen" and cluster[2].takeovers.watched == {}
        metrics = cluster[2].metrics
        assert metrics.sample(TAKEOVER_MS, "truncate").count == 1
        assert metrics.value(TAKEOVER_MS, "truncate") == 37

    run(story)


@pytest.mark.rule("V80")
def test_what_was_committed_before_is_not_the_first_record_of_a_new_leader() -> None:
    async def story() -> None:
        cluster, told = told_cluster()
        await replicate(cluster)
        cluster[1].produce(2)
        await settle()
        told.clear()
        await failover(cluster, 2, 3)
        assert cluster[2].partition().high_watermark == 2
        assert takeovers(told) == []
        cluster[2].produce()
        await settle()
        [takeover] = takeovers(told)
        assert takeover["phases_ms"]["truncate"] == -1, "nobody had to"

    run(story)


@pytest.mark.rule("V80")
def test_a_leader_without_followers_is_timed_too() -> None:
    async def story() -> None:
        cluster, told = told_cluster(1)
        await replicate(cluster, isr=(1,))
        await cluster[1].clock.advance(12)
        cluster[1].produce()
        [takeover] = takeovers(told)
        assert takeover["phases_ms"] == {
            "connect": -1, "truncate": -1, "first_fetch": -1, "acknowledge": 12,
        }  # fmt: skip

    run(story)


@pytest.mark.rule("V80")
def test_a_question_about_an_epoch_is_a_connection_and_a_clients_is_none() -> None:
    async def story() -> None:
        cluster, _ = told_cluster(2)
        cluster[2].peers.cut = [1]
        await replicate(cluster, isr=(1, 2))
        [takeover] = cluster[1].takeovers.watched.values()
        asked = OffsetForLeaderTopic(TOPIC, [OffsetForLeaderPartition(0, 0, 0)])
        for replica_id in (-1, 2):
            assert takeover.followers == {}
            message = OffsetForLeaderEpochRequest(replica_id, [asked])
            request = Request(RequestHeader(23, 4, 0, "other"), message, CONNECTION, 0)
            offset_for_leader_epoch.handle(cluster[1], request)  # type: ignore[arg-type]  # a fake stands in
        assert list(takeover.followers) == [2]

    run(story)


@pytest.mark.rule("V80")
def test_an_unfinished_takeover_is_reported_as_far_as_it_came() -> None:
    async def story() -> None:
        cluster, told = told_cluster()
        await replicate(cluster)
        await cluster[1].clock.advance(WATCHED_MS - 1)
        cluster[1].takeovers.expire()
        assert takeovers(told) == [], "a record may come"
        await cluster[1].clock.advance(1)
        cluster[1].takeovers.expire()
        [takeover] = takeovers(told)
        assert (takeover["ended_by"], takeover["phases_ms"]["acknowledge"]) == ("time_over", -1)
        assert [one["follower"] for one in takeover["followers"]] == [2, 3]
        assert cluster[1].takeovers.watched == {}

    run(story)


@pytest.mark.rule("V80")
def test_a_leadership_that_ends_is_reported_under_its_own_epoch_and_watched_no_longer() -> None:
    async def story() -> None:
        cluster, told = told_cluster()
        await replicate(cluster)
        await replicate(cluster, leader_epoch=1, partition_epoch=1, is_new=False)
        [first] = takeovers(told)
        assert (first["leader_epoch"], first["ended_by"]) == (0, "leadership_over")
        [watched] = cluster[1].takeovers.watched.values()
        assert watched.leader_epoch == 1
        await cluster[1].command(state(2, leader_epoch=2, partition_epoch=2))
        assert cluster[1].takeovers.watched == {} and len(takeovers(told)) == 2

    run(story)


@pytest.mark.rule("V80")
def test_of_many_new_leaderships_an_even_sample_is_watched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidelog.broker.replicas.hosting.takeovers.MAX_TAKEOVERS_WATCHED", 10)

    async def story() -> None:
        cluster, _ = told_cluster(1)
        broker = cluster[1]
        for batch in range(5):
            roles = [
                state(1, partition=20 * batch + number, isr=(1,), replicas=(1,), is_new=True)
                for number in range(20)
            ]
            assert not any(errors(await broker.command(*roles)))
        watched = [one.topic_partition for one in broker.takeovers.watched]
        assert watched == [TopicPartition(TOPIC, number) for number in range(0, 100, 16)]
        for topic_partition in watched:
            broker.partition(topic_partition).rest()
        assert errors(await broker.command(state(1, leader_epoch=1, isr=(1,), replicas=(1,)))) == [
            0
        ]
        assert [one.topic_partition for one in broker.takeovers.watched] == [T0], "counted anew"

    run(story)
    assert limits.MAX_TAKEOVERS_WATCHED == 1_000


@pytest.mark.rule("V80")
def test_times_are_counted_where_no_events_are_recorded() -> None:
    async def story() -> None:
        cluster = a_cluster(2)
        await replicate(cluster, isr=(1, 2))
        cluster[1].produce()
        await settle()
        assert cluster[1].takeovers.watched == {} and cluster[1].cluster_events.is_idle
        counted = {
            label for each in cluster[1].metrics.samples(TAKEOVER_MS) for label in each.labels
        }
        assert counted == {"connect", "first_fetch", "acknowledge"}

    run(story)
