"""Pending reads of a leader that leads on under another epoch: F7, F10, V31 (KIP-501)."""

from __future__ import annotations

import asyncio

import pytest
from tests.rules.pending_read_harness import (
    BROKERS,
    LAG_MS,
    LEADER,
    OTHER,
    SLOW_SIDE,
    SOCKET_TIMEOUT_MS,
    Scene,
    run,
)
from tests.support.broker.fakes import (
    state,
)

from tidelog.broker.server.requests import Pending


async def leads_on(scene: Scene, leader_epoch: int, isr: tuple[int, ...] = BROKERS) -> None:
    """The controller itself has changed the ISR: the same broker leads under another epoch."""
    await scene.broker.command(
        state(
            LEADER, isr=isr, replicas=BROKERS, leader_epoch=leader_epoch,
            partition_epoch=leader_epoch,
        )
    )  # fmt: skip


@pytest.mark.rule("F7", "V31")
def test_pending_reads_vanish_when_another_broker_leads() -> None:
    async def story() -> None:
        scene = Scene(enabled=True)
        await scene.golden()
        await scene.broker.command(
            state(OTHER, isr=BROKERS, replicas=BROKERS, leader_epoch=2, partition_epoch=1)
        )
        await leads_on(scene, 3)
        assert scene.leadership().followers[SLOW_SIDE].reads is None
        await scene.clock.advance(LAG_MS)
        assert scene.keeps(), "the grace period of the new leadership (V31)"
        await scene.clock.advance(1)
        assert not scene.keeps()

    run(story())


@pytest.mark.rule("F7", "V31")
def test_pending_reads_vanish_when_the_broker_stops_leading() -> None:
    async def story() -> None:
        for is_busy in (False, True):
            scene = Scene(enabled=True)
            await scene.golden()
            if is_busy:
                scene.broker.partition().rest(leads_on=True)
            scene.broker.replicas.stop_leading("the session has expired")
            await leads_on(scene, 2)
            assert scene.leadership().followers[SLOW_SIDE].reads is None
            await scene.clock.advance(LAG_MS + 1)
            assert not scene.keeps()

    run(story())


@pytest.mark.rule("F10", "F7", "V31")
@pytest.mark.parametrize("is_busy", [False, True])
def test_the_golden_case_while_another_broker_dies(is_busy: bool) -> None:
    """The controller takes the dead broker out: a new leader epoch, and the same leader."""

    async def story() -> None:
        scene = Scene(enabled=True)
        _, ty, _ = await scene.golden()
        log = scene.broker.log()
        log.is_slow = is_busy
        if is_busy:
            scene.append(1101)
        command = asyncio.ensure_future(leads_on(scene, 2, (LEADER, SLOW_SIDE)))
        await scene.clock.advance(0)
        assert scene.broker.partition().is_leader is not is_busy, "it waits for its appends"
        log.is_slow = False
        log.finish()
        await command
        assert scene.leadership().leader_epoch == 2
        await scene.clock.advance(ty + 25_000 - scene.clock.now_ms)
        assert scene.keeps(), "it waits for a read of this very broker"
        scene.disk_answers()
        follower = scene.leadership().followers[SLOW_SIDE]
        assert follower.caught_up_ms() == ty + 25_000
        # The response was of the former epoch. The follower fetches the same again, as slowly.
        scene.append(1200)
        again = scene.fetches(1002, leader_epoch=2)
        assert isinstance(again, Pending)
        await scene.clock.advance(25_000)
        assert scene.keeps()
        again.cancel()
        assert not scene.keeps(), "the follower is gone"

    run(story())


@pytest.mark.rule("F10", "F7", "V31")
def test_epochs_that_rise_again_and_again_change_nothing_of_a_pending_read() -> None:
    """Another broker dies, one more is shut down, a member leaves for another reason."""

    async def story() -> None:
        scene = Scene(enabled=True)
        _, ty, waiting = await scene.golden()
        for epoch in range(2, 6):
            await scene.clock.advance(5_000)
            await leads_on(scene, epoch, (LEADER, SLOW_SIDE))
        await scene.clock.advance(ty + SOCKET_TIMEOUT_MS - scene.clock.now_ms)
        assert scene.keeps()
        await scene.clock.advance(1)
        assert not scene.keeps(), "the follower has given the request up"
        waiting.cancel()

    run(story())


@pytest.mark.rule("F7", "V31")
def test_a_follower_of_a_continued_leadership_is_kept_no_longer_than_before() -> None:
    """Its connection closes, or it registers again: the leadership knows of both."""

    async def story() -> None:
        for ending in ("closed", "registered", "gone", "forgotten"):
            scene = Scene(enabled=True)
            _, _, waiting = await scene.golden()
            await leads_on(scene, 2)
            await scene.clock.advance(LAG_MS + 1)
            assert scene.keeps()
            if ending == "closed":
                waiting.cancel()
            elif ending == "registered":
                scene.fetches(10, epoch=999, leader_epoch=2)
            elif ending == "gone":
                scene.broker.see(LEADER, OTHER)
            else:
                scene.broker.fetch_sessions.close()
            assert not scene.keeps(), ending

    run(story())


@pytest.mark.rule("F8", "V31", "V60")
def test_a_continued_leadership_knows_no_end_of_a_followers_log() -> None:
    """Another broker may have led in between, under an epoch of which this one never heard."""

    async def story() -> None:
        scene = Scene(enabled=True)
        await scene.golden()
        high_watermark = scene.leadership().high_watermark
        await leads_on(scene, 4)
        follower = scene.leadership().followers[SLOW_SIDE]
        assert follower.has_pending_read(scene.clock.now_ms)
        assert follower.log_end_offset == follower.fetch_offset == follower.synced_offset == -1
        assert follower.counted_broker_epoch == -1, "its log has to reach this epoch first (V63)"
        scene.append(1200)
        assert scene.leadership().high_watermark == high_watermark

    run(story())


@pytest.mark.rule("F7")
def test_a_continued_leadership_compares_the_next_fetch_as_the_one_before_would() -> None:
    """Nothing was pending: the next fetch must reach the LEO that the last one found (F5)."""

    async def story() -> None:
        for offset, is_kept in ((949, False), (950, True)):
            scene = Scene(enabled=True)
            await scene.begin(950)
            scene.fetches(950)
            scene.append(1000)
            await leads_on(scene, 2)
            scene.slow()
            scene.fetches(offset, leader_epoch=2)
            assert len(scene.reads) == 1
            await scene.clock.advance(LAG_MS + 1)
            assert scene.keeps() is is_kept, offset

    run(story())


@pytest.mark.rule("F11")
def test_a_continued_leadership_knows_how_long_its_reads_take() -> None:
    async def story() -> None:
        scene = Scene(enabled=True)
        await scene.golden()
        begun_ms = scene.leadership().reads_under_way
        begun_ms.begin(scene.clock.now_ms)
        await scene.clock.advance(LAG_MS)
        await leads_on(scene, 2)
        await scene.clock.advance(1)
        assert scene.leadership().must_relinquish(scene.clock.now_ms)

    run(story())
