"""The log's last stable offset ends what consumers of committed transactions see (KIP-98)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.broker.fakes import CONNECTION, TOPIC, TOPIC_ID, FakeBroker, a_cluster, state

from tidelog.broker.apis import fetch, list_offsets
from tidelog.broker.server.requests import Pending, Request
from tidelog.core.types import READ_COMMITTED, READ_UNCOMMITTED
from tidelog.wire.codec import RequestHeader
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.wire.registry import FETCH, LIST_OFFSETS

CONSUMER, FOLLOWER = -1, 2
LATEST = -1


async def leading() -> FakeBroker:
    """Broker 1 leads 5 committed records; a transaction has been open from the third one on."""
    broker = a_cluster()[1]
    await broker.command(state(isr=(1,), replicas=(1, 2), is_new=True, leader_epoch=1))
    broker.produce(5)
    broker.log().first_unstable = 2
    return broker


def asked(broker: FakeBroker, api_key: int, version: int, message: Any) -> Any:
    header = RequestHeader(api_key, version, 0, None)
    return Request(header, message, CONNECTION, broker.clock.monotonic_ms())


def fetched(
    broker: FakeBroker, reader: int, isolation_level: int, offset: int = 0, min_bytes: int = 1
) -> Any:
    """Fetch partition 0 in a session of its own; return the response or Pending."""
    wanted = FetchPartition(0, 1, offset, -1, -1, 1 << 20)
    message = FetchRequest(
        replica_state=ReplicaState(reader, 100 + reader if reader >= 0 else -1),
        max_wait_ms=60_000,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        isolation_level=isolation_level,
        session_epoch=-1,
        topics=[FetchTopic(TOPIC, TOPIC_ID, [wanted])],
    )
    return fetch.handle(broker, asked(broker, FETCH, 17, message))  # type: ignore[arg-type]  # a fake broker


@pytest.mark.parametrize(
    ("reader", "isolation_level", "count"),
    [
        (CONSUMER, READ_UNCOMMITTED, 5),
        (CONSUMER, READ_COMMITTED, 2),
        (FOLLOWER, READ_UNCOMMITTED, 5),
        (FOLLOWER, READ_COMMITTED, 5),
    ],
)
def test_a_fetch_with_read_committed_ends_at_the_last_stable_offset(
    reader: int, isolation_level: int, count: int
) -> None:
    async def story() -> None:
        broker = await leading()
        part = fetched(broker, reader, isolation_level).responses[0].partitions[0]
        assert len(part.records) == count
        assert (part.high_watermark, part.last_stable_offset) == (5, 2)

    asyncio.run(story())


def test_a_waiting_fetch_with_read_committed_responds_when_the_transaction_has_ended() -> None:
    async def story() -> None:
        broker = await leading()
        waiting = fetched(broker, CONSUMER, READ_COMMITTED, offset=2)
        assert isinstance(waiting, Pending), "records between the two offsets are no error"
        answers: list[Any] = []
        waiting.deliver_to(answers.append)
        broker.produce(1)
        assert not answers, "the high watermark rose, the last stable offset did not"
        broker.log().first_unstable = None
        broker.produce(1)
        (part,) = answers[0].responses[0].partitions
        assert (len(part.records), part.last_stable_offset) == (5, 7)

    asyncio.run(story())


@pytest.mark.parametrize(
    ("replica_id", "isolation_level", "latest"),
    [
        (CONSUMER, READ_UNCOMMITTED, 5),
        (CONSUMER, READ_COMMITTED, 2),
        (FOLLOWER, READ_COMMITTED, 5),
    ],
)
def test_the_latest_offset_with_read_committed_is_the_last_stable_offset(
    replica_id: int, isolation_level: int, latest: int
) -> None:
    async def story() -> None:
        broker = await leading()
        message = ListOffsetsRequest(
            replica_id,
            isolation_level,
            [ListOffsetsTopic(TOPIC, [ListOffsetsPartition(0, 1, LATEST)])],
        )
        request = asked(broker, LIST_OFFSETS, 9, message)
        answer: Any = list_offsets.handle(broker, request)  # type: ignore[arg-type]  # a fake broker
        assert answer.topics[0].partitions[0].offset == latest

    asyncio.run(story())
