"""Large requests take room in one budget, in their order; none waits for ever."""

from __future__ import annotations

import asyncio

from tests.support.broker.fakes import FakeClock

from tidelog.core.limits import KIB, MIB
from tidelog.core.receive_budget import (
    MAX_PERIODS,
    MIN_PROGRESS_BYTES,
    PROGRESS_MS,
    STALLED_MS,
    BudgetShare,
    ReceiveBudget,
)

PRODUCE, FETCH, LEADER_AND_ISR = 0, 1, 4


class BudgetHarness:
    """A budget of 10 MiB for writes and 4 MiB for the rest, and its connections."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.lines: list[str] = []
        self.told: list[str] = []
        self.closed: list[str] = []
        self.budget = ReceiveBudget(10 * MIB, 4 * MIB, self.clock, self.lines.append)

    def connect(self, name: str) -> BudgetShare:
        share = self.budget.share(name, lambda: self.told.append(name), lambda _: lose())

        def lose() -> None:
            self.closed.append(name)
            share.close()

        return share


def test_requests_wait_in_their_order_and_the_largest_gets_its_turn() -> None:
    harness = BudgetHarness()
    a, b, c, d = (harness.connect(name) for name in "abcd")
    assert a.reserve(6 * MIB, PRODUCE)
    assert not b.reserve(9 * MIB, PRODUCE)
    assert not c.reserve(MIB, PRODUCE), "it fits, and would keep the larger one waiting"
    assert not d.reserve(2 * MIB, PRODUCE)
    a.completed(6 * MIB, PRODUCE)
    assert (harness.told, harness.budget.waiting) == ([], 3), "it is held until it is handled"
    a.handled(6 * MIB, PRODUCE)
    assert harness.told == ["b", "c"]
    assert (harness.budget.used_bytes, d.is_waiting) == (10 * MIB, True)
    b.completed(9 * MIB, PRODUCE)
    b.handled(9 * MIB, PRODUCE)
    assert (harness.told, harness.budget.waiting) == (["b", "c", "d"], 0)


def test_a_request_larger_than_the_budget_is_received_alone() -> None:
    harness = BudgetHarness()
    a, b = harness.connect("a"), harness.connect("b")
    assert a.reserve(11 * MIB, PRODUCE)
    assert not b.reserve(100 * KIB, PRODUCE)
    a.close()
    assert (harness.told, harness.budget.used_bytes) == (["b"], 100 * KIB)


def test_writes_do_not_keep_back_what_brokers_and_groups_need() -> None:
    harness = BudgetHarness()
    assert harness.connect("a").reserve(10 * MIB, PRODUCE)
    assert not harness.connect("b").reserve(MIB, PRODUCE)
    controller = harness.connect("controller")
    assert controller.reserve(3 * MIB, LEADER_AND_ISR)
    assert not harness.connect("c").reserve(2 * MIB, FETCH)
    controller.completed(3 * MIB, LEADER_AND_ISR)
    controller.handled(3 * MIB, LEADER_AND_ISR)
    assert harness.told == ["c"]


def test_a_request_that_came_at_once_takes_room_that_is_not_there() -> None:
    harness = BudgetHarness()
    a, b = harness.connect("a"), harness.connect("b")
    assert a.reserve(10 * MIB, PRODUCE)
    b.completed(200 * KIB, PRODUCE)
    assert harness.budget.used_bytes == 10 * MIB + 200 * KIB
    b.handled(200 * KIB, PRODUCE)
    a.close()
    assert harness.budget.used_bytes == 0


def test_a_lost_connection_gives_everything_back_once() -> None:
    harness = BudgetHarness()
    a, b, c, d = (harness.connect(name) for name in "abcd")
    a.completed(3 * MIB, PRODUCE)
    assert a.reserve(5 * MIB, PRODUCE)
    assert not b.reserve(9 * MIB, PRODUCE)
    assert not c.reserve(2 * MIB, PRODUCE)
    assert not d.reserve(MIB, PRODUCE)
    b.close()
    assert harness.told == ["c"], "who waited behind the one that is gone"
    a.close()
    a.close()
    a.handled(3 * MIB, PRODUCE)
    assert harness.told == ["c", "d"]
    assert harness.budget.used_bytes == 3 * MIB


def test_who_holds_room_and_sends_nothing_is_closed_while_others_wait() -> None:
    async def scenario() -> None:
        harness = BudgetHarness()
        idle, slow, quick = (harness.connect(name) for name in ("idle", "slow", "quick"))
        for share in (idle, slow, quick):
            assert share.reserve(3 * MIB, PRODUCE)
        await harness.clock.advance(10 * PROGRESS_MS)
        assert harness.closed == [], "nobody waits"
        assert not harness.connect("waits").reserve(9 * MIB, PRODUCE)
        slow.received(MIN_PROGRESS_BYTES // 2)
        quick.received(MIN_PROGRESS_BYTES)
        await harness.clock.advance(STALLED_MS - 1)
        assert harness.closed == []
        await harness.clock.advance(PROGRESS_MS - STALLED_MS)
        assert harness.closed == ["idle"]
        await harness.clock.advance(STALLED_MS)
        assert harness.closed == ["idle", "slow"]
        await harness.clock.advance(2 * PROGRESS_MS)
        assert (harness.closed, harness.told) == (["idle", "slow", "quick"], ["waits"])
        first, *lines = harness.lines
        assert "1 connections wait to send requests, waits one of 9,437,184 bytes" in first
        assert lines[0].startswith("closing idle: 0 bytes of a request of 3,145,728 bytes came in")
        assert "queued.max.request.bytes" in lines[0]

    asyncio.run(scenario())


def test_a_large_request_that_comes_slowly_holds_its_room_for_a_minute_at_most() -> None:
    async def scenario() -> None:
        harness = BudgetHarness()
        size = 3 * MAX_PERIODS * MIN_PROGRESS_BYTES
        budget = ReceiveBudget(2 * size, MIB, harness.clock, harness.lines.append)
        slow = budget.share("slow", lambda: None, lambda _: slow.close())
        steady = budget.share("steady", lambda: None, lambda _: steady.close())
        waits = budget.share("waits", lambda: harness.told.append("waits"), lambda _: None)
        assert slow.reserve(size, PRODUCE)
        assert steady.reserve(size, PRODUCE)
        assert not waits.reserve(size, PRODUCE)
        slow.received(2 * MIN_PROGRESS_BYTES)
        steady.received(3 * MIN_PROGRESS_BYTES)
        await harness.clock.advance(PROGRESS_MS)
        assert harness.told == ["waits"]
        assert budget.used_bytes == 2 * size
        assert harness.lines[-1].startswith("closing slow")
        assert f"at least {size // MAX_PERIODS:,} in" in harness.lines[-1]

    asyncio.run(scenario())


def test_a_whole_request_may_be_handled_slowly() -> None:
    async def scenario() -> None:
        harness = BudgetHarness()
        handled, waits = harness.connect("handled"), harness.connect("waits")
        assert handled.reserve(8 * MIB, PRODUCE)
        handled.completed(8 * MIB, PRODUCE)
        assert not waits.reserve(8 * MIB, PRODUCE)
        await harness.clock.advance(10 * PROGRESS_MS)
        assert harness.closed == []
        handled.handled(8 * MIB, PRODUCE)
        assert harness.told == ["waits"]

    asyncio.run(scenario())
