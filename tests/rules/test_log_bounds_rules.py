"""V67: followers whose records all precede what the leader knows, and that end within its log.

A broker of Kafka's that is sent OFFSET_OUT_OF_RANGE for its own log end asks there for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.support.broker.fakes import (
    CONNECTION,
    TOPIC_ID,
    FakeBroker,
    a_cluster,
    replicate,
    state,
)

from tidelog.broker.apis import fetch
from tidelog.broker.server.requests import Request
from tidelog.core.errors import ErrorCode
from tidelog.wire.codec import RequestHeader
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from tidelog.wire.registry import FETCH


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


def fetched(
    broker: FakeBroker, offset: int, last_fetched_epoch: int, *, log_start_offset: int = 0
) -> Any:
    """The response to broker 2 as a follower."""
    asked = FetchPartition(0, -1, offset, last_fetched_epoch, log_start_offset, 1_000)
    message = FetchRequest(
        replica_state=ReplicaState(2, 2),
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic("", TOPIC_ID, [asked])],
    )
    request = Request(RequestHeader(FETCH, 17, 0, None), message, CONNECTION, 0)
    return fetch.handle(broker, request)  # type: ignore[arg-type]  # a fake stands in


@pytest.mark.rule("V67")
@pytest.mark.parametrize(("offset", "records"), [(4, 3), (5, 4)])
def test_a_follower_with_records_that_cannot_be_compared_is_sent_below_the_leaders_log_start(
    offset: int, records: int
) -> None:
    """OFFSET_OUT_OF_RANGE is no answer: a Kafka broker would fetch from there again and again."""

    async def story() -> None:
        leader = a_cluster()[1]
        await replicate({1: leader}, isr=(1, 2))
        await leader.log().truncate_fully_and_start_at(4)
        leader.log().fill(*[3] * records)
        leader.log().epochs.clear()
        leader.log().epochs.assign(3, 5)  # compaction removed the first record of epoch 3
        await leader.command(state(leader_epoch=3, partition_epoch=1, isr=(1, 2)))
        [answer] = fetched(leader, offset, 2).responses[0].partitions
        assert answer.error_code == 0
        assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (2, 3)
        assert answer.log_start_offset == 4
        [answer] = fetched(leader, 3, 2).responses[0].partitions
        assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        [answer] = fetched(leader, 4, -1, log_start_offset=4).responses[0].partitions
        assert (answer.error_code, answer.diverging_epoch.epoch) == (0, -1)

    run(story())


@pytest.mark.rule("V67")
def test_a_follower_that_ends_at_the_leaders_log_start_in_an_unknown_epoch_starts_over() -> None:
    async def story() -> None:
        cluster = a_cluster(2)
        await replicate(cluster, isr=(1, 2))
        await cluster[1].log().truncate_fully_and_start_at(3)
        cluster[1].log().fill(5, 5)
        cluster[2].log().fill(0, 0, 0)
        await replicate(cluster, leader_epoch=5, partition_epoch=1, isr=(1, 2), is_new=False)
        assert ("truncate_fully_and_start_at", 3) in cluster[2].log().calls
        assert cluster[2].log().log_start_offset == 3
        assert cluster[2].log().records == cluster[1].log().records

    run(story())
