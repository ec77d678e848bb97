"""Batches that are checked on a thread: what comes behind them waits, and is planned in order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.broker_fakes import FakeBroker, a_cluster, state

from tidelog.broker.partitions import Partition
from tidelog.core.completion import Completion
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.log.append_validation import CostlyBatch

#: What is appended is one byte a record; this one has much inside, this one is found bad.
COSTLY, BAD = b"\x7f", b"\x7e"


async def leading() -> Rig:
    broker = a_cluster()[1]
    await broker.command(state(isr=(1,), replicas=(1, 2), is_new=True))
    return Rig(broker)


class Rig:
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

        self.log.plan_leader_append = planning  # type: ignore[method-assign]
        self.log.check_on_thread = check  # type: ignore[attr-defined]

    @property
    def partition(self) -> Partition:
        return self.broker.partition()

    def append(self, records: bytes) -> Completion[Any]:
        found = self.partition.append(records, -1, 0)
        self.partition.flush_appends()
        return found


def test_appends_are_planned_in_the_order_in_which_they_came() -> None:
    async def story() -> None:
        rig = await leading()
        first, second, third, fourth = (rig.append(it) for it in (COSTLY, b"a", COSTLY, b"b"))
        assert rig.planned == [] and len(rig.checks) == 1
        rig.checks[0].resolve("found good")
        assert rig.planned == [COSTLY, b"a"], "what is behind goes with it, up to the next such one"
        assert first.result().base_offset == 0 and second.result().base_offset == 1
        assert not third.done and not fourth.done
        rig.checks[1].resolve("found good")
        assert rig.planned == [COSTLY, b"a", COSTLY, b"b"]
        assert [third.result().base_offset, fourth.result().base_offset] == [2, 3]
        assert rig.partition.high_watermark == 4, "they are written and committed without a flush"
        assert rig.append(b"c").done, "and nothing waits any more"

    asyncio.run(story())


def test_one_that_is_refused_hides_no_other() -> None:
    async def story() -> None:
        rig = await leading()
        first, bad, last = (rig.append(it) for it in (COSTLY, BAD, b"a"))
        rig.checks[0].fail(KafkaError(ErrorCode.CORRUPT_MESSAGE, "damaged"))
        assert isinstance(first.error, KafkaError) and first.error.code is ErrorCode.CORRUPT_MESSAGE
        assert isinstance(bad.error, KafkaError) and bad.error.code is ErrorCode.INVALID_RECORD
        assert last.result().base_offset == 0
        assert rig.planned == [b"a"]

    asyncio.run(story())


def test_what_waits_is_not_written_so_its_bytes_are_kept() -> None:
    async def story() -> None:
        rig = await leading()
        rig.append(COSTLY)
        assert not rig.partition.flush_appends()
        rig.append(b"a")
        assert not rig.partition.flush_appends()
        rig.checks[0].resolve("found good")
        assert rig.partition.flush_appends()

    asyncio.run(story())


@pytest.mark.rule("V38")
def test_all_are_refused_when_the_leadership_ends() -> None:
    async def story() -> None:
        rig = await leading()
        waiting = [rig.append(COSTLY), rig.append(b"a")]
        await rig.broker.command(state(2, leader_epoch=2, isr=(1, 2), replicas=(1, 2)))
        for each in waiting:
            assert isinstance(each.error, KafkaError)
            assert each.error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        rig.checks[0].resolve("found good")
        await rig.broker.command(state(1, leader_epoch=3, isr=(1,), replicas=(1, 2)))
        assert rig.planned == [], "what the check found comes too late"
        assert rig.append(b"b").done

    asyncio.run(story())


def test_a_check_counts_for_its_own_batch_alone() -> None:
    async def story() -> None:
        rig = await leading()
        rig.append(COSTLY)
        await rig.broker.command(state(2, leader_epoch=2, isr=(1, 2), replicas=(1, 2)))
        await rig.broker.command(state(1, leader_epoch=3, isr=(1,), replicas=(1, 2)))
        again = rig.append(COSTLY)
        rig.checks[0].resolve("of the first one")
        assert not again.done and rig.planned == []
        rig.checks[1].resolve("found good")
        assert again.done and rig.planned == [COSTLY]

    asyncio.run(story())


@pytest.mark.rule("V64")
def test_what_holds_when_they_are_planned_counts() -> None:
    async def story() -> None:
        rig = await leading()
        late = rig.append(COSTLY)
        rig.partition.configured(rig.log.config, 2)
        rig.checks[0].resolve("found good")
        assert isinstance(late.error, KafkaError)
        assert late.error.code is ErrorCode.NOT_ENOUGH_REPLICAS

    asyncio.run(story())
