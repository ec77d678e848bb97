"""DeleteRecords on the leader: what is refused, where the log starts then, who is waited for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.broker.fakes import FakeBroker, a_cluster, state
from tests.support.replication import a_leader

from tidelog.broker.replicas.hosting.leader_role import TO_HIGH_WATERMARK
from tidelog.broker.replicas.hosting.partition import Partition
from tidelog.core.errors import ErrorCode, KafkaError


class Wait:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def acknowledged(self) -> None:
        self.told.append("done")

    def refused(self, error: ErrorCode, message: str) -> None:
        self.told.append(error)


async def a_partition(broker: FakeBroker, committed: int = 4) -> Partition:
    """A leader whose followers 2 and 3 have `committed` of five records."""
    await broker.command(state(is_new=True))
    broker.log().fill(0, 0, 0, 0, 0)
    partition = broker.partition()
    fetched(partition, 2, committed, 0)
    fetched(partition, 3, committed, 0)
    assert partition.high_watermark == committed
    return partition


def fetched(partition: Partition, replica_id: int, offset: int, log_start_offset: int) -> None:
    partition.role.follower_fetched(replica_id, 100 + replica_id, offset, log_start_offset, 0)


def test_the_log_starts_where_it_is_told_to() -> None:
    async def story() -> None:
        partition = await a_partition(a_cluster()[1])
        assert partition.role.delete_records_before(2) == 2
        assert partition.log.log_start_offset == 2
        assert partition.role.delete_records_before(1) == 1, "it is so already"
        assert partition.log.log_start_offset == 2
        assert partition.role.delete_records_before(TO_HIGH_WATERMARK) == 4
        assert partition.log.log_start_offset == 4

    asyncio.run(story())


@pytest.mark.parametrize("offset", [5, 6, -2, 2**63 - 1])
def test_what_is_not_committed_cannot_be_deleted(offset: int) -> None:
    async def story() -> None:
        partition = await a_partition(a_cluster()[1])
        with pytest.raises(KafkaError) as caught:
            partition.role.delete_records_before(offset)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert partition.log.log_start_offset == 0

    asyncio.run(story())


def test_a_topic_that_is_only_compacted_refuses() -> None:
    async def story() -> None:
        partition = await a_partition(a_cluster(log_cleanup_policy="compact")[1])
        with pytest.raises(KafkaError) as caught:
            partition.role.delete_records_before(1)
        assert caught.value.code == ErrorCode.POLICY_VIOLATION

    asyncio.run(story())


def test_a_follower_refuses() -> None:
    async def story() -> None:
        broker = a_cluster()[2]
        await broker.command(state(is_new=True))
        with pytest.raises(KafkaError) as caught:
            broker.partition().role.delete_records_before(0)
        assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert broker.partition().low_watermark == -1

    asyncio.run(story())


def test_all_live_replicas_are_waited_for() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        partition = await a_partition(broker)
        wait, later = Wait(), Wait()
        assert partition.role.delete_records_before(3) == 3
        partition.watchers.wait_for_low_watermark(3, wait)
        partition.watchers.wait_for_low_watermark(4, later)
        fetched(partition, 2, 5, 3)
        assert partition.low_watermark == 0 and wait.told == []
        fetched(partition, 3, 5, 3)
        assert partition.low_watermark == 3
        assert wait.told == ["done"] and later.told == []
        fetched(partition, 3, 5, 3)
        assert wait.told == ["done"]
        partition.watchers.give_up_deletion(later)
        assert not partition.watchers.deletions_wait

    asyncio.run(story())


def test_a_replica_that_died_is_not_waited_for() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        partition = await a_partition(broker)
        wait = Wait()
        partition.role.delete_records_before(3)
        partition.watchers.wait_for_low_watermark(3, wait)
        fetched(partition, 2, 5, 3)
        broker.see(1, 2)
        assert wait.told == ["done"]

    asyncio.run(story())


def test_who_waits_is_told_of_the_end_of_the_leadership() -> None:
    async def story() -> None:
        partition = await a_partition(a_cluster()[1])
        wait = Wait()
        partition.watchers.wait_for_low_watermark(3, wait)
        partition.rest()
        assert wait.told == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert not partition.watchers.deletions_wait

    asyncio.run(story())


def test_a_follower_that_has_told_nothing_holds_the_low_watermark_back() -> None:
    leader = a_leader(log_end_offset=5)
    assert leader.low_watermark(2) == -1
    for replica, start in ((2, 1), (3, 2)):
        leader.fetched(replica, 100 + replica, 5, start, 0)
    assert leader.low_watermark(2) == 1
    assert leader.low_watermark(0) == 0
