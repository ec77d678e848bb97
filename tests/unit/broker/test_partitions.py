"""One hosted replica: what it does with decisions, and what it counts."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.broker.fakes import FakeBroker, a_cluster, settle, state

from tidelog.broker.replicas.hosting.leader_role import LeaderRole
from tidelog.broker.replicas.hosting.log_bytes import active_bytes_below, bytes_from
from tidelog.core.completion import Completion
from tidelog.core.errors import ErrorCode, InvariantError, KafkaError
from tidelog.log.index import OffsetIndex
from tidelog.replication.effects import AskLogStart
from tidelog.replication.leader import LeaderReplica


def segment(base_offset: int, size_bytes: int, index: OffsetIndex | None) -> Any:
    return SimpleNamespace(base_offset=base_offset, size_bytes=size_bytes, index=index)


def test_bytes_from_an_offset_are_counted_over_segments() -> None:
    index = OffsetIndex(10)
    index.append(14, 400)
    log: Any = SimpleNamespace(
        log_end_offset=30,
        segments=[
            segment(0, 1_000, None),
            segment(10, 900, index),
            segment(20, 50, OffsetIndex(20)),
        ],
    )
    assert bytes_from(log, -1) == 0
    assert bytes_from(log, 30) == 0
    assert bytes_from(log, 25) == 50
    assert bytes_from(log, 15) == 50 + 500
    assert bytes_from(log, 12) == 50 + 900
    assert bytes_from(log, 3) == 50 + 900


def test_bytes_of_the_active_segment_below_an_offset_are_never_too_many() -> None:
    index = OffsetIndex(20)
    index.append(24, 400)
    log: Any = SimpleNamespace(log_end_offset=30, active_segment=segment(20, 900, index))
    assert active_bytes_below(log, 30) == 900
    assert active_bytes_below(log, 29) == 400
    assert active_bytes_below(log, 22) == 0
    assert active_bytes_below(log, 20) == 0
    assert active_bytes_below(log, 3) == 0
    log.active_segment = segment(20, 900, None)
    assert active_bytes_below(log, 29) == 0, "its index is not in memory"


def test_several_appends_of_one_event_are_looked_at_once() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        await broker.command(state(isr=(1,), replicas=(1,), is_new=True))
        partition = broker.partition()
        seen: list[int] = []
        partition.watchers.watch(Watcher(lambda: seen.append(partition.high_watermark)), True)
        for _ in range(3):
            partition.role.append(b"rr", -1, 0)
        assert partition.flush_appends()
        assert partition.high_watermark == 6
        assert len(seen) == 1

    asyncio.run(story())


class Watcher:
    def __init__(self, on_readable: Any) -> None:
        self.readable = on_readable

    def changed(self) -> None:
        """Not looked at."""

    def look_again(self) -> None:
        raise AssertionError("no segment changes here")


def test_nothing_planned_is_written_at_once() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        await broker.command(state(is_new=True))
        assert broker.partition().flush_appends()

    asyncio.run(story())


def test_a_repeated_batch_that_is_done_first_hides_no_other() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        await broker.command(state(isr=(1,), replicas=(1,), is_new=True))
        partition, log = broker.partition(), broker.log()
        log.is_slow = True
        partition.role.append(b"r", -1, 0)
        repeated: Completion[Any] = Completion()
        log.plan_leader_append = lambda *args: repeated  # type: ignore[method-assign]  # replaced by the test
        partition.role.append(b"r", -1, 0)
        assert not partition.flush_appends()
        repeated.resolve(None)
        assert partition.high_watermark == 0
        log.finish()
        assert partition.high_watermark == 1

    asyncio.run(story())


def test_a_follower_reads_what_is_written_though_it_is_not_answered_yet() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        await broker.command(state(isr=(1, 2), is_new=True))
        partition = broker.partition()
        broker.log().fill(0, 0)
        partition.role.follower_fetched(2, 102, 2, 0, broker.clock.monotonic_ms())
        assert partition.role.check_follower(2, 102, 1) == ErrorCode.NONE
        assert partition.high_watermark == 2

    asyncio.run(story())


def test_a_follower_that_does_not_count_moves_nothing_and_is_told_why() -> None:
    async def story() -> None:
        cluster = a_cluster()
        await cluster[1].command(state(is_new=True))
        await cluster[2].command(state(is_new=True))
        leader, follower = cluster[1].partition(), cluster[2].partition()
        cluster[1].log().fill(0, 0)
        for number in (2, 3):
            leader.role.follower_fetched(number, 100 + number, 1, 0, 0)
        assert leader.high_watermark == 1
        leader.role.follower_fetched(9, 109, 2, 0, 0)
        leader.role.follower_fetched(2, 101, 2, 0, 0)
        leader.role.follower_fetched(3, 103, 2, 0, 0)
        follower.role.follower_fetched(3, 103, 1, 0, 0)
        assert (leader.high_watermark, follower.high_watermark) == (1, 0)
        assert leader.role.check_follower(9, 109, 1) == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert leader.role.check_follower(9, 109, -1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert leader.role.check_follower(2, 101, 1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert leader.role.check_follower(2, -1, 1) == ErrorCode.NONE, "it tells no broker epoch"
        assert follower.role.check_follower(3, 103, 1) == ErrorCode.NOT_LEADER_OR_FOLLOWER

    asyncio.run(story())


def test_a_divergence_is_told_from_the_own_history() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        await broker.command(state(leader_epoch=5, is_new=True))
        broker.log().fill(5, 5)
        assert broker.partition().diverging_epoch(5, 2) is None
        assert broker.partition().diverging_epoch(5, 3) == (5, 2)
        with pytest.raises(KafkaError):
            broker.partition().diverging_epoch(6, 2)

    asyncio.run(story())


def test_an_effect_of_a_follower_is_no_business_of_a_leader() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        await broker.command(state(is_new=True))
        role = broker.partition().role
        assert isinstance(role, LeaderRole)
        with pytest.raises(InvariantError):
            role.run((AskLogStart(),))

    asyncio.run(story())


def test_outcomes_of_changes_mean_nothing_to_a_replica_that_does_not_lead() -> None:
    async def story() -> None:
        broker = a_cluster()[2]
        await broker.command(state(is_new=True))
        partition = broker.partition()
        before = partition.role
        change: Any = None
        partition.role.change_sent(change)
        partition.role.change_unanswered(change)
        partition.role.change_accepted(change, (1,), 0, 1)
        partition.role.change_refused(change, ErrorCode.INVALID_REQUEST)
        partition.role.brokers_changed()
        partition.role.examine()
        assert partition.role is before

    asyncio.run(story())


def role_of(broker: FakeBroker) -> LeaderReplica:
    role = broker.partition().leadership
    assert role is not None
    return role


def test_brokers_that_come_and_go_are_told_to_the_leaders() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        await broker.command(state(isr=(1,), is_new=True))
        assert role_of(broker).followers[2].is_eligible
        broker.see(1, 3)
        assert not role_of(broker).followers[2].is_eligible
        broker.see(1, 2, 3)
        assert role_of(broker).followers[2].is_eligible

    asyncio.run(story())


def test_a_leader_that_leads_on_refuses_nobody() -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        await broker.command(state(is_new=True))
        broker.produce(2)
        refused: list[Any] = []
        wait = SimpleNamespace(
            acknowledged=lambda: refused.append("no"), refused=lambda *told: refused.append(told)
        )
        broker.partition().watchers.wait_for_acks(2, wait)
        await broker.command(state(leader_epoch=1, isr=(1, 2), partition_epoch=1))
        await settle()
        assert refused == []
        assert role_of(broker).leader_epoch == 1

    asyncio.run(story())


@pytest.mark.rule("V62")
def test_the_byte_lag_is_looked_up_where_it_is_on() -> None:
    async def story() -> None:
        broker = a_cluster(replica_lag_max_bytes="10")[1]
        await broker.command(state(isr=(1, 2), is_new=True))
        broker.log().fill(0, 0, 0)
        partition = broker.partition()
        partition.role.follower_fetched(2, 102, 1, 0, 0)
        partition.role.examine()
        assert role_of(broker).followers[2].bytes_behind == 2

    asyncio.run(story())
