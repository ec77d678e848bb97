"""What brokers count of reassignments: R16, under the names of Kafka's metrics (KIP-352).

Real leaders and fetchers over fake logs; a record is one byte.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest
from tests.support.broker.fakes import FakeBroker, a_cluster, settle, state

from tidelog.broker.replicas.metrics import (
    REASSIGNING_PARTITIONS,
    REASSIGNMENT_BYTES_IN,
    REASSIGNMENT_BYTES_OUT,
)
from tidelog.wire.messages.leader_and_isr import LeaderAndIsrPartitionState


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


def moving(leader_epoch: int, *, leader: int = 1) -> LeaderAndIsrPartitionState:
    """The partition of brokers 1 and 2 moves from 2 to 3."""
    found = state(leader, leader_epoch=leader_epoch, partition_epoch=leader_epoch, isr=(1, 2))
    return replace(found, adding_replicas=(3,), removing_replicas=(2,))


def fill(broker: FakeBroker, count: int) -> None:
    partition = broker.partition()
    partition.role.append(b"r" * count, 1, 0)
    partition.flush_appends()


def counted(broker: FakeBroker) -> tuple[int, int, int]:
    """Partitions that are reassigned, bytes in, bytes out."""
    metrics = broker.metrics
    return (
        metrics.value(REASSIGNING_PARTITIONS),
        metrics.value(REASSIGNMENT_BYTES_IN),
        metrics.value(REASSIGNMENT_BYTES_OUT),
    )


async def begun() -> dict[int, FakeBroker]:
    """Brokers 1 and 2 have 40 records; a move begins that adds broker 3."""
    cluster = a_cluster(min_insync_replicas="1")
    for broker_id in (1, 2):
        await cluster[broker_id].command(state(isr=(1, 2), replicas=(1, 2), is_new=True))
    await settle()
    fill(cluster[1], 40)
    await settle()
    for broker_id in (1, 2, 3):
        await cluster[broker_id].command(replace(moving(1), is_new=broker_id == 3))
    await settle()
    return cluster


@pytest.mark.rule("R16")
def test_bytes_of_the_added_replica_count_at_both_ends() -> None:
    async def story() -> None:
        cluster = await begun()
        assert cluster[3].log().log_end_offset == 40
        assert counted(cluster[1]) == (1, 0, 40)
        assert counted(cluster[2]) == (0, 0, 0)
        assert counted(cluster[3]) == (0, 40, 0)
        # New records go to both followers; those of the one that stays do not count.
        fill(cluster[1], 5)
        await settle()
        assert cluster[2].log().log_end_offset == 45
        assert [counted(cluster[each]) for each in (1, 2, 3)] == [(1, 0, 45), (0, 0, 0), (0, 45, 0)]

    run(story())


@pytest.mark.rule("R16")
def test_nothing_counts_after_the_end_of_a_move() -> None:
    async def story() -> None:
        cluster = await begun()
        done = state(leader_epoch=2, partition_epoch=2, isr=(1, 3), replicas=(1, 3))
        for broker_id in (1, 3):
            await cluster[broker_id].command(done)
        await settle()
        fill(cluster[1], 5)
        await settle()
        assert cluster[3].log().log_end_offset == 45
        assert [counted(cluster[each]) for each in (1, 3)] == [(0, 0, 40), (0, 40, 0)]

    run(story())


@pytest.mark.rule("R16")
def test_the_next_leader_counts_the_partition() -> None:
    async def story() -> None:
        cluster = await begun()
        for broker_id in (2, 1, 3):
            await cluster[broker_id].command(moving(2, leader=2))
        await settle()
        assert [counted(cluster[each])[0] for each in (1, 2, 3)] == [0, 1, 0]
        cluster[2].partition().rest()
        assert counted(cluster[2])[0] == 0

    run(story())


@pytest.mark.rule("R16")
def test_a_replica_that_only_leaves_is_a_reassignment_without_bytes() -> None:
    async def story() -> None:
        cluster = a_cluster(2)
        await cluster[1].command(state(isr=(1, 2), replicas=(1, 2), is_new=True))
        await settle()
        leaving = state(leader_epoch=1, partition_epoch=1, isr=(1, 2), replicas=(1, 2))
        await cluster[1].command(replace(leaving, removing_replicas=(2,)))
        assert counted(cluster[1]) == (1, 0, 0)

    run(story())
