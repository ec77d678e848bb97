"""Batches that are checked on a thread: what comes behind them waits, and is planned in order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.broker.fakes import FakeBroker, a_cluster, state

from tidelog.broker.replicas.hosting.partition import Partition
from tidelog.core.completion import Completion
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.log.append_validation import CostlyBatch

#: What is appended is one byte a record; this one has much inside, this one is found bad.
COSTLY, BAD = b"\x7f", b"\x7e"


async def leading() -> AppendHarness:
    broker = a_cluster()[1]
    await broker.command(state(isr=(1,), replicas=(1, 2), is_new=True))
    return AppendHarness(broker)


class AppendHarness:
    """A leader whose log finds some batches costly, and whose thread waits for the test."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.checks: list[Completion[Any]] = []
        self.log = broker.log()
        self.planned: list[bytes] = []
        plan = self.log.plan_leader_append

        def planning(records: Any, epoch: int, now_ms: int, checked: Any = None) -> Any:
            if bytes(records) == BAD:
                raise KafkaError(ErrorCode.INVALID_RECORD, "bad")
            if bytes(records) == COSTLY and checked is None:
                raise CostlyBatch("much inside")
            self.planned.append(bytes(records))
            return plan(records, epoch, now_ms, checked)

        def check(records: Any) -> Completion[Any]:
            self.checks.append(Completion())
            return self.checks[-1]

        self.log.plan_leader_append = planning  # type: ignore[method-assign,assignment]  # replaced
        self.log.check_on_thread = check  # type: ignore[attr-defined]  # a fake stands in

    @property
    def partition(self) -> Partition:
        return self.broker.partition()

    def append(self, records: bytes) -> Completion[Any]:
        found = self.partition.role.append(records, -1, 0)
        self.partition.flush_appends()
        return found


def test_appends_are_planned_in_the_order_in_which_they_came() -> None:
    async def story() -> None:
        harness = await leading()
        first, second, third, fourth = (harness.append(it) for it in (COSTLY, b"a", COSTLY, b"b"))
        assert harness.planned == [] and len(harness.checks) == 1
        harness.checks[0].resolve("found good")
        assert harness.planned == [COSTLY, b"a"], (
            "what is behind goes with it, up to the next such one"
        )
        assert first.result().base_offset == 0 and second.result().base_offset == 1
        assert not third.done and not fourth.done
        harness.checks[1].resolve("found good")
        assert harness.planned == [COSTLY, b"a", COSTLY, b"b"]
        assert [third.result().base_offset, fourth.result().base_offset] == [2, 3]
        assert harness.partition.high_watermark == 4, (
            "they are written and committed without a flush"
        )
        assert harness.append(b"c").done, "and nothing waits any more"

    asyncio.run(story())


def test_one_that_is_refused_hides_no_other() -> None:
    async def story() -> None:
        harness = await leading()
        first, bad, last = (harness.append(it) for it in (COSTLY, BAD, b"a"))
        harness.checks[0].fail(KafkaError(ErrorCode.CORRUPT_MESSAGE, "damaged"))
        assert isinstance(first.error, KafkaError) and first.error.code is ErrorCode.CORRUPT_MESSAGE
        assert isinstance(bad.error, KafkaError) and bad.error.code is ErrorCode.INVALID_RECORD
        assert last.result().base_offset == 0
        assert harness.planned == [b"a"]

    asyncio.run(story())


def test_what_waits_is_not_written_so_its_bytes_are_kept() -> None:
    async def story() -> None:
        harness = await leading()
        harness.append(COSTLY)
        assert not harness.partition.flush_appends()
        harness.append(b"a")
        assert not harness.partition.flush_appends()
        harness.checks[0].resolve("found good")
        assert harness.partition.flush_appends()

    asyncio.run(story())


@pytest.mark.rule("V38")
def test_all_are_refused_when_the_leadership_ends() -> None:
    async def story() -> None:
        harness = await leading()
        waiting = [harness.append(COSTLY), harness.append(b"a")]
        await harness.broker.command(state(2, leader_epoch=2, isr=(1, 2), replicas=(1, 2)))
        for each in waiting:
            assert isinstance(each.error, KafkaError)
            assert each.error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        harness.checks[0].resolve("found good")
        await harness.broker.command(state(1, leader_epoch=3, isr=(1,), replicas=(1, 2)))
        assert harness.planned == [], "what the check found comes too late"
        assert harness.append(b"b").done

    asyncio.run(story())


def test_a_check_counts_for_its_own_batch_alone() -> None:
    async def story() -> None:
        harness = await leading()
        harness.append(COSTLY)
        await harness.broker.command(state(2, leader_epoch=2, isr=(1, 2), replicas=(1, 2)))
        await harness.broker.command(state(1, leader_epoch=3, isr=(1,), replicas=(1, 2)))
        again = harness.append(COSTLY)
        harness.checks[0].resolve("of the first one")
        assert not again.done and harness.planned == []
        harness.checks[1].resolve("found good")
        assert again.done and harness.planned == [COSTLY]

    asyncio.run(story())


@pytest.mark.rule("V64")
def test_what_holds_when_they_are_planned_counts() -> None:
    async def story() -> None:
        harness = await leading()
        late = harness.append(COSTLY)
        harness.partition.configured(harness.log.config, 2)
        harness.checks[0].resolve("found good")
        assert isinstance(late.error, KafkaError)
        assert late.error.code is ErrorCode.NOT_ENOUGH_REPLICAS

    asyncio.run(story())
