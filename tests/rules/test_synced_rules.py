"""Rule V69: with `flush.before.ack` records count when they are synced.

The decisions first, then real leaders and fetchers over fake logs whose syncs end when a test says
so (`tests.support.broker.fakes`). What survives a power loss is tested with the simulator
(`tests/sim`, profiles power_failures and flush_policies) and with real processes
(`tests/cluster/test_power_failures.py`).
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.support.broker.fakes import TOPIC, FakeBroker, a_cluster, settle, state
from tests.support.replication import LAG_MS, a_leader, fetch, proposed

from tidelog.broker.apis import produce
from tidelog.broker.server.requests import Pending, Request
from tidelog.core.completion import Completion
from tidelog.core.errors import ErrorCode, StorageError
from tidelog.log.append_plan import AppendInfo
from tidelog.metadata import layout
from tidelog.replication.effects import MOVED, NOTHING, SendAlterPartition
from tidelog.replication.isr import must_leave
from tidelog.replication.leader import LeaderReplica
from tidelog.wire.codec import RequestHeader
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.wire.registry import FETCH


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


# the decisions


@pytest.mark.rule("V69")
def test_the_leader_commits_only_what_it_has_synced_itself() -> None:
    leader = a_leader(log_end_offset=10, flush_before_ack=True, synced_offset=4)
    for follower in (2, 3):
        fetch(leader, follower, 10, is_synced=True)
    assert leader.high_watermark == 4
    assert leader.synced(7, 0) == MOVED
    assert leader.high_watermark == 7
    assert leader.synced(7, 0) == NOTHING


@pytest.mark.rule("V69")
def test_a_fetch_that_does_not_say_that_the_log_is_synced_commits_nothing() -> None:
    leader = a_leader(log_end_offset=10, flush_before_ack=True, synced_offset=10)
    fetch(leader, 2, 10, is_synced=True)
    fetch(leader, 3, 6, is_synced=True)
    assert leader.high_watermark == 6
    fetch(leader, 3, 10)
    assert leader.high_watermark == 6
    fetch(leader, 3, 10, is_synced=True)
    assert leader.high_watermark == 10


@pytest.mark.rule("V69")
def test_a_truncation_of_the_follower_lowers_its_synced_offset() -> None:
    leader = a_leader(log_end_offset=10, flush_before_ack=True, synced_offset=10)
    fetch(leader, 2, 10, is_synced=True)
    fetch(leader, 3, 8, is_synced=True)
    fetch(leader, 3, 5)
    fetch(leader, 3, 10)
    assert leader.followers[3].synced_offset == 5
    assert leader.high_watermark == 8, "it never goes back"
    assert leader.followers[3].log_end_offset == 5


@pytest.mark.rule("V69", "V63")
def test_a_follower_joins_the_isr_with_what_it_has_synced() -> None:
    leader = a_leader(isr=(1, 2), log_end_offset=10, flush_before_ack=True, synced_offset=10)
    fetch(leader, 2, 10, is_synced=True)
    assert leader.high_watermark == 10
    assert not any(isinstance(effect, SendAlterPartition) for effect in fetch(leader, 3, 10))
    assert proposed(fetch(leader, 3, 10, is_synced=True)).isr == (1, 2, 3)


@pytest.mark.rule("V69", "V62")
def test_a_follower_whose_disk_does_not_sync_leaves_the_isr() -> None:
    leader = a_leader(log_end_offset=10, flush_before_ack=True, synced_offset=10)
    fetch(leader, 2, 10, is_synced=True)
    now_ms = LAG_MS + 1
    for time_ms in range(0, now_ms, 1_000):
        fetch(leader, 3, 10, now_ms=time_ms)
    slow = leader.followers[3]
    assert must_leave(slow, leader.log_end_offset, now_ms, LAG_MS)
    assert proposed(leader.examine(now_ms)).isr == (1, 2)


@pytest.mark.rule("V69", "F3")
def test_an_idle_follower_that_has_synced_everything_stays_in_sync() -> None:
    leader = a_leader(log_end_offset=10, flush_before_ack=True, synced_offset=10)
    for follower in (2, 3):
        fetch(leader, follower, 10, is_synced=True)
    assert leader.examine(10 * LAG_MS) == NOTHING


@pytest.mark.rule("V69")
def test_a_leader_that_learns_of_it_counts_no_fetch_from_before() -> None:
    leader = a_leader(log_end_offset=10, min_insync_replicas=3)
    fetch(leader, 2, 10, now_ms=5)
    fetch(leader, 3, 8, now_ms=5)
    assert leader.high_watermark == 8
    leader.synced(10, 5)
    leader.flush_before_ack_changed(True, 5)
    assert leader.high_watermark == 8, "it never goes back"
    assert [leader.followers[each].log_end_offset for each in (2, 3)] == [-1, -1]
    assert leader.examine(LAG_MS) == NOTHING, "both have time to say what they have synced"
    fetch(leader, 2, 10, now_ms=6, is_synced=True)
    fetch(leader, 3, 10, now_ms=6)
    assert leader.high_watermark == 8
    leader.flush_before_ack_changed(False, 7)
    assert leader.high_watermark == 10


@pytest.mark.rule("V69")
def test_synced_offsets_are_known_from_before_it_was_switched_on() -> None:
    leader = a_leader(log_end_offset=10)
    for follower in (2, 3):
        fetch(leader, follower, 9, is_synced=True)
        fetch(leader, follower, 10)
    leader.flush_before_ack_changed(True, 0)
    assert [leader.followers[each].log_end_offset for each in (2, 3)] == [9, 9]


@pytest.mark.rule("V69")
def test_a_leader_knows_no_synced_offset_beyond_its_log() -> None:
    with pytest.raises(AssertionError, match="V69"):
        a_leader(log_end_offset=3, flush_before_ack=True, synced_offset=4)
    with pytest.raises(AssertionError, match="V69"):
        a_leader(log_end_offset=3, flush_before_ack=True).synced(4, 0)


# leaders and followers


ON = {"flush_before_ack": "true"}


async def a_leader_alone() -> FakeBroker:
    """Broker 1 leads, alone in the ISR; its syncs end when the test says so."""
    broker = a_cluster(1, **ON)[1]
    await broker.command(state(isr=(1,), replicas=(1,), is_new=True))
    broker.log().has_slow_sync = True
    return broker


def flushes(broker: FakeBroker) -> int:
    return sum(name == "flush" for name, _ in broker.log().calls)


def role_of(broker: FakeBroker) -> LeaderReplica:
    role = broker.partition().leadership
    assert role is not None
    return role


@pytest.mark.rule("V69")
def test_one_sync_serves_everything_that_was_written_before_it() -> None:
    async def story() -> None:
        broker = await a_leader_alone()
        partition, log = broker.partition(), broker.log()
        broker.produce()
        assert flushes(broker) == 1
        for _ in range(5):
            broker.produce()
        assert flushes(broker) == 1, "none while one is under way"
        assert partition.high_watermark == 0
        log.finish_syncs()
        assert partition.high_watermark == 1
        assert flushes(broker) == 2, "one for all that came meanwhile"
        log.finish_syncs()
        assert partition.high_watermark == 6
        assert flushes(broker) == 2, "an idle log is not synced"

    run(story())


@pytest.mark.rule("V69")
def test_a_new_leader_syncs_what_it_has_before_that_counts() -> None:
    async def story() -> None:
        broker = await a_leader_alone()
        partition, log = broker.partition(), broker.log()
        broker.produce(3)
        await broker.command(
            state(leader_epoch=1, partition_epoch=1, isr=(1,), replicas=(1,), is_new=False)
        )
        assert role_of(broker).leader_epoch == 1
        assert partition.high_watermark == 0
        log.finish_syncs()
        assert partition.high_watermark == 3

    run(story())


@pytest.mark.rule("V69")
def test_a_sync_of_an_earlier_leadership_counts_in_none() -> None:
    async def story() -> None:
        broker = await a_leader_alone()
        log = broker.log()
        broker.produce(3)
        broker.replicas.stop_leading("test")
        log.finish_syncs()
        assert broker.tracer.marks.count("sync_outlived_leadership") == 1
        assert flushes(broker) == 1

    run(story())


@pytest.mark.rule("V69", "D17")
def test_a_sync_on_a_full_disk_is_tried_again_and_a_failed_fsync_is_not() -> None:
    async def story() -> None:
        broker = await a_leader_alone()
        partition, log = broker.partition(), broker.log()
        log.flush_error = StorageError("/d", "write", "/d/t-0/x.index", errno.ENOSPC, 0)
        broker.produce()
        log.finish_syncs()
        log.flush_error = None
        await broker.clock.advance(1_000)
        log.finish_syncs()
        assert partition.high_watermark == 1
        failure = StorageError("/d", "fsync", "/d/t-0/x.log", errno.EIO, 0)
        log.flush_error = log.directory.failure = failure
        broker.produce()
        log.finish_syncs()
        tried = flushes(broker)
        await broker.clock.advance(10_000)
        assert flushes(broker) == tried
        assert partition.high_watermark == 1

    run(story())


def ask(broker: FakeBroker, acks: int, count: int = 1, timeout_ms: int = 1_000) -> list[Any]:
    """A produce; its errors appear in the list when it is answered."""
    data = PartitionProduceData(index=0, records=memoryview(b"r" * count))
    message = ProduceRequest(
        acks=acks, timeout_ms=timeout_ms, topic_data=[TopicProduceData(TOPIC, [data])]
    )
    request = Request(RequestHeader(0, 9, 0, None), message, None, 0)  # type: ignore[arg-type]  # a fake stands in
    answers: list[Any] = []

    def answered(answer: Any) -> None:
        answers.append(ErrorCode(answer.responses[0].partition_responses[0].error_code))

    answer: Any = produce.handle(broker, request)  # type: ignore[arg-type]  # a fake stands in
    if isinstance(answer, Pending):
        answer.deliver_to(answered)
    else:
        answered(answer)
    broker.submit_appends()
    return answers


@pytest.mark.rule("V69")
def test_acks_1_waits_for_the_disk_of_the_leader() -> None:
    async def story() -> None:
        broker = await a_leader_alone()
        log = broker.log()
        first = ask(broker, 1)
        second = ask(broker, 1)
        log.finish_syncs()
        assert (first, second) == ([ErrorCode.NONE], [])
        log.finish_syncs()
        assert second == [ErrorCode.NONE]
        late = ask(broker, 1, timeout_ms=50)
        await broker.clock.advance(200)
        assert late == [ErrorCode.REQUEST_TIMED_OUT]
        lost = ask(broker, 1)
        broker.replicas.stop_leading("test")
        assert lost == [ErrorCode.NOT_LEADER_OR_FOLLOWER]

    run(story())


@pytest.mark.rule("V69")
def test_acks_1_fails_where_the_leader_cannot_sync() -> None:
    async def story() -> None:
        broker = await a_leader_alone()
        broker.log().flush_error = StorageError("/d", "write", "/d/x", errno.ENOSPC, 0)
        waiting = ask(broker, 1)
        broker.log().finish_syncs()
        assert waiting == [ErrorCode.KAFKA_STORAGE_ERROR]

    run(story())


def repeat_last_batch(broker: FakeBroker) -> None:
    """Let the log find that each further batch repeats the newest one."""
    log = broker.log()
    last = log.log_end_offset - 1
    info = AppendInfo(last, last, -1, 1, 1, 0, duplicate=True)
    log.plan_leader_append = lambda *_: Completion.of(info)  # type: ignore[method-assign]  # replaced


@pytest.mark.rule("V69", "V38")
@pytest.mark.parametrize("acks", [1, -1])
def test_a_duplicate_waits_for_the_sync_of_its_original(acks: int) -> None:
    async def story() -> None:
        broker = await a_leader_alone()
        log = broker.log()
        original = ask(broker, acks)
        repeat_last_batch(broker)
        first = ask(broker, acks)
        assert (original, first) == ([], []), "the sync is under way"
        log.finish_syncs()
        assert (original, first) == ([ErrorCode.NONE], [ErrorCode.NONE])
        assert ask(broker, acks) == [ErrorCode.NONE], "it is on the disk"

    run(story())


@pytest.mark.rule("V69", "V38")
@pytest.mark.parametrize("acks", [1, -1])
def test_a_duplicate_of_a_batch_whose_sync_failed_waits_for_the_next_sync(acks: int) -> None:
    async def story() -> None:
        broker = await a_leader_alone()
        log = broker.log()
        log.flush_error = StorageError("/d", "write", "/d/t-0/x.index", errno.ENOSPC, 0)
        original = ask(broker, acks)
        log.finish_syncs()
        assert original == ([ErrorCode.KAFKA_STORAGE_ERROR] if acks == 1 else [])
        repeat_last_batch(broker)
        repeated = ask(broker, acks)
        assert repeated == []
        log.flush_error = None
        await broker.clock.advance(600)
        assert repeated == []
        log.finish_syncs()
        assert repeated == [ErrorCode.NONE]

    run(story())


async def configure(broker: FakeBroker, value: str) -> None:
    """The topic is configured so; the broker hears of it."""
    settings = {"flush.before.ack": value}
    broker.store.nodes[layout.config_path("topics", TOPIC)] = layout.encode_config(settings)
    await broker.replicas.load_configs([TOPIC])
    broker.replicas.configs_changed([TOPIC])


@pytest.mark.rule("V69")
def test_a_leader_takes_the_setting_over_while_it_leads() -> None:
    async def story() -> None:
        broker = await a_leader_alone()
        partition, log = broker.partition(), broker.log()
        waiting = ask(broker, 1)
        assert partition.high_watermark == 0
        await configure(broker, "false")
        assert (waiting, partition.high_watermark) == ([ErrorCode.NONE], 1)
        broker.produce(2)
        assert partition.high_watermark == 3
        tried = flushes(broker)
        log.finish_syncs()
        assert flushes(broker) == tried, "the sync under way was the last"
        await configure(broker, "true")
        assert flushes(broker) == tried + 1, "what is there is synced"
        broker.produce()
        assert partition.high_watermark == 3
        log.finish_syncs()
        log.finish_syncs()
        assert partition.high_watermark == 4

    run(story())


class Cluster:
    """Brokers 1 and 2 with one partition, led by broker 1; the fetches of broker 2 are seen."""

    def __init__(self, brokers: dict[int, FakeBroker]) -> None:
        self.leader, self.follower = brokers[1], brokers[2]

    @classmethod
    async def begin(cls, **config: str) -> Cluster:
        cluster = cls(a_cluster(2, **config))
        for broker in (cluster.leader, cluster.follower):
            await broker.command(state(isr=(1, 2), replicas=(1, 2), is_new=True))
        await settle()
        return cluster

    def fetches(self) -> list[tuple[int, bool]]:
        """(offset, whether the log is said to be synced) of the partition's named positions."""
        return [
            (one.fetch_offset, one.is_synced)
            for request in self.follower.peers.requests(FETCH)
            for topic in request.topics
            for one in topic.partitions
        ]


@pytest.mark.rule("V69")
def test_a_follower_syncs_before_its_next_fetch() -> None:
    async def story() -> None:
        cluster = await Cluster.begin(**ON)
        log = cluster.follower.log()
        log.has_slow_sync = True
        cluster.leader.produce(3)
        await settle()
        assert log.log_end_offset == 3
        assert cluster.fetches() == [(0, True)]
        assert cluster.leader.partition().high_watermark == 0
        log.finish_syncs()
        await settle()
        assert cluster.fetches() == [(0, True), (3, True)]
        assert cluster.leader.partition().high_watermark == 3

    run(story())


@pytest.mark.rule("V69")
def test_a_follower_that_learns_of_it_later_fetches_again() -> None:
    async def story() -> None:
        cluster = await Cluster.begin()
        cluster.leader.produce(3)
        await settle()
        assert cluster.fetches()[-1] == (3, False)
        await configure(cluster.leader, "true")
        cluster.leader.produce()
        await settle()
        assert cluster.fetches()[-1] == (4, False)
        assert cluster.leader.partition().high_watermark == 3
        await configure(cluster.follower, "true")
        await settle()
        assert cluster.fetches()[-1] == (4, True)
        assert cluster.leader.partition().high_watermark == 4

    run(story())


@pytest.mark.rule("V69")
def test_a_follower_that_cannot_sync_backs_off_and_tries_again() -> None:
    async def story() -> None:
        cluster = await Cluster.begin(**ON)
        log = cluster.follower.log()
        log.flush_error = StorageError("/d", "write", "/d/x.index", errno.ENOSPC, 0)
        cluster.leader.produce()
        await settle()
        assert cluster.leader.partition().high_watermark == 0
        assert any("cannot sync" in line for line in cluster.follower.tracer.lines)
        log.flush_error = None
        await cluster.follower.clock.advance(2_000)
        assert cluster.leader.partition().high_watermark == 1

    run(story())


@pytest.mark.rule("V69")
def test_a_sync_that_ends_after_its_role_changes_nothing() -> None:
    async def story() -> None:
        cluster = await Cluster.begin(**ON)
        log = cluster.follower.log()
        log.has_slow_sync = True
        cluster.leader.produce(3)
        await settle()
        await cluster.follower.command(
            state(1, leader_epoch=1, partition_epoch=1, isr=(1, 2), replicas=(1, 2))
        )
        log.finish_syncs()
        assert cluster.follower.tracer.marks.count("sync_outlived_role") == 1
        log.finish_syncs()
        await settle()
        assert cluster.fetches()[-1] == (3, True)

    run(story())
