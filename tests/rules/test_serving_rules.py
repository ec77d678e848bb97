"""What a replica serves and answers while it leads, and when it ceases to: V13, V37, V38, V64.

Real replicas and APIs over fake logs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.support.broker.directory import FakeLog
from tests.support.broker.fakes import (
    T0,
    TOPIC_ID,
    a_cluster,
    replicate,
    settle,
    state,
)

from tidelog.broker.apis import produce
from tidelog.broker.replicas.hosting.role import KnownOffset, NoRole
from tidelog.core.completion import Completion
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import RECOVERED, RECOVERING
from tidelog.log.append_plan import AppendInfo
from tidelog.wire.messages.produce import PartitionProduceResponse


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


@pytest.mark.rule("V37")
def test_askers_are_fenced_by_leader_epoch_before_anything_else() -> None:
    async def story() -> None:
        cluster = a_cluster()
        await replicate(cluster, leader_epoch=5)
        for broker_id in (1, 2):
            partition = cluster[broker_id].partition()
            assert partition.check_leader_epoch(4) == ErrorCode.FENCED_LEADER_EPOCH
            assert partition.check_leader_epoch(6) == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert cluster[1].partition().check_leader_epoch(5) == ErrorCode.NONE
        assert cluster[1].partition().check_leader_epoch(-1) == ErrorCode.NONE
        assert cluster[2].partition().check_leader_epoch(5) == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(story())


class Wait:
    def __init__(self) -> None:
        self.outcome: list[Any] = []

    def acknowledged(self) -> None:
        self.outcome.append("acknowledged")

    def refused(self, error: ErrorCode, message: str) -> None:
        self.outcome.append((error, message))


@pytest.mark.rule("V38")
@pytest.mark.parametrize("how", ["command", "expiry", "stop"])
def test_losing_leadership_answers_everything_that_waits(how: str) -> None:
    async def story() -> None:
        cluster = a_cluster()
        await cluster[1].command(state(is_new=True))
        leader = cluster[1]
        leader.produce(3)
        wait = Wait()
        leader.partition().watchers.wait_for_acks(3, wait)
        if how == "command":
            await leader.command(state(2, leader_epoch=1))
        elif how == "expiry":
            leader.replicas.stop_leading("expired")
        else:
            await leader.stop()
        assert [error for error, _ in wait.outcome] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]

    run(story())


@pytest.mark.rule("V38")
def test_a_truncation_takes_the_high_watermark_with_it() -> None:
    async def story() -> None:
        cluster = a_cluster()
        await replicate(cluster)
        cluster[2].log().fill(0, 0, 0, 0, 0)
        await cluster[2].stop(leader_epoch=0, delete=False)
        role = cluster[2].partition().role
        assert isinstance(role, NoRole)
        role.core = KnownOffset(5)
        cluster[1].log().fill(0, 0)
        await cluster[1].command(state(1, leader_epoch=1, partition_epoch=1))
        await cluster[2].command(state(1, leader_epoch=1, partition_epoch=1))
        await settle()
        assert cluster[2].log().calls == [("truncate_to", 2)]
        assert cluster[2].partition().high_watermark <= 2

    run(story())


@pytest.mark.rule("V38")
def test_a_repeated_batch_is_answered_when_the_high_watermark_passes_the_original() -> None:
    async def story() -> None:
        cluster = a_cluster()
        leader = cluster[1]
        await replicate({1: leader}, isr=(1, 2))
        leader.produce(2)
        assert leader.partition().high_watermark == 0
        answer = PartitionProduceResponse(0)
        request = produce._Produce(leader, -1)  # type: ignore[arg-type]  # a fake stands in
        repeated = produce._PartitionAppend(request, leader.partition(), answer)
        repeated.appended(Completion.of(AppendInfo(0, 1, -1, 2, 2, 0, duplicate=True)))
        assert not repeated.done
        await cluster[2].command(state(isr=(1, 2), is_new=True))
        await settle()
        assert leader.partition().high_watermark == 2
        assert (repeated.done, answer.error_code, answer.base_offset) == (True, 0, 0)

    run(story())


@pytest.mark.rule("V64")
def test_acks_all_is_refused_before_the_append_naming_isr_size_and_minimum() -> None:
    async def story() -> None:
        broker = a_cluster(min_insync_replicas="2")[1]
        await broker.command(state(isr=(1,), is_new=True))
        with pytest.raises(KafkaError) as raised:
            broker.partition().role.append(b"r", -1, 0)
        assert raised.value.code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert "[1]" in raised.value.message
        assert "1 in-sync replicas, 2 are needed" in raised.value.message
        broker.produce(1, acks=1)
        assert broker.log().log_end_offset == 1

    run(story())


@pytest.mark.rule("V64")
def test_a_confirmed_shrink_below_the_minimum_answers_what_waits_at_once() -> None:
    async def story() -> None:
        leader = a_cluster(min_insync_replicas="2")[1]
        await leader.command(state(isr=(1, 2), is_new=True))
        leader.produce(1)
        wait = Wait()
        leader.partition().watchers.wait_for_acks(1, wait)
        await leader.command(state(isr=(1,), partition_epoch=1))
        ((error, message),) = wait.outcome
        assert error == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert "1 in-sync replicas, 2 are needed" in message

    run(story())


@pytest.mark.rule("V64")
def test_acks_all_is_answered_when_the_high_watermark_passes_the_batch() -> None:
    async def story() -> None:
        cluster = a_cluster()
        await replicate(cluster)
        leader = cluster[1]
        leader.log().is_slow = True
        leader.produce(2)
        wait = Wait()
        leader.partition().watchers.wait_for_acks(2, wait)
        assert wait.outcome == []
        leader.log().finish()
        await settle()
        assert wait.outcome == ["acknowledged"]

    run(story())


@pytest.mark.rule("V64")
def test_a_produce_with_acks_all_is_answered_when_its_last_offset_is_passed() -> None:
    async def story() -> None:
        leader = a_cluster()[1]
        await leader.command(state(isr=(1, 2), is_new=True))
        leader.produce(3)
        partition = leader.partition()
        answers = [PartitionProduceResponse(0) for _ in range(2)]
        appends = [
            produce._PartitionAppend(
                produce._Produce(leader, acks),  # type: ignore[arg-type]  # a fake stands in
                partition,
                answer,
            )
            for acks, answer in zip((-1, 1), answers, strict=True)
        ]
        for append in appends:
            append.appended(Completion.of(AppendInfo(0, 2, -1, 3, 3, 0)))
        assert [append.done for append in appends] == [False, True]
        for high_watermark, is_done in ((2, False), (3, True)):
            assert partition.leadership is not None
            partition.leadership.high_watermark = high_watermark
            partition.watchers.high_watermark_moved(partition.high_watermark)
            assert appends[0].done is is_done

    run(story())


@pytest.mark.rule("V13")
@pytest.mark.parametrize("recovery_state", [RECOVERED, RECOVERING])
def test_who_is_elected_uncleanly_says_which_offsets_are_at_risk(recovery_state: int) -> None:
    async def story() -> None:
        broker = a_cluster()[1]
        broker.directory.logs[T0] = found = FakeLog(T0, TOPIC_ID)
        found.fill(0, 0, 0)
        broker.directory.high_watermarks = {T0: 2}
        await broker.open_replicas()
        told = state(leader_epoch=1, isr=(1,))
        told.leader_recovery_state = recovery_state
        await broker.command(told)
        said = [
            (one["high_watermark"], one["log_end_offset"])
            for one in broker.tracer.named("unclean_leader")
        ]
        assert said == ([(2, 3)] if recovery_state == RECOVERING else [])
        await broker.tasks.close()

    run(story())
