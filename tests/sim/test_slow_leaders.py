"""Leaders with slow reads keep followers by pending reads, or step back (F5, F7, F11)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog.sim.profiles import PROFILES
from tidelog.sim.run import SeedRun

SEEDS = range(3)


def shrinks(profile: str, enough: int) -> int:
    """How often a member left an ISR in a few seeds, none of which breaks a promise.

    No further seed is played once it happened often enough.
    """
    total = 0
    for seed in SEEDS:
        run = SeedRun(seed, profile)
        result = run.run()
        assert not result.violation, f"seed {seed} of {profile}: {result.violation}"
        slow = sum(
            broker.logs.disks[0].effects.get("slow reads", 0)
            for broker in run.cluster.brokers.values()
        )
        assert slow >= 10, f"seed {seed} of {profile}: {slow} slow reads"
        total += result.counters["ISR shrinks"]
        if total >= enough:
            break
    return total


@pytest.mark.rule("F5")
def test_healthy_followers_of_slow_leaders_stay_with_pending_reads_and_leave_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert shrinks("slow_leaders", 1) == 0
    profile = PROFILES["slow_leaders"]
    properties = {
        key: value for key, value in profile.properties.items() if "pending.reads" not in key
    }
    assert properties != profile.properties
    unaided = replace(profile, name="unaided", properties=properties, isr_stands=False)
    monkeypatch.setitem(PROFILES, unaided.name, unaided)
    assert shrinks(unaided.name, 5) >= 5


@pytest.mark.rule("F5")
def test_a_follower_that_leaves_a_slow_leader_is_noticed_where_all_are_healthy() -> None:
    """The invariant of the profile can fail: pending reads for no fetch break it."""
    run = SeedRun(0, "slow_leaders")
    for broker in run.cluster.brokers.values():
        broker.config = replace(broker.config, follower_fetch_pending_reads_insync_enable=False)
    assert "left the ISR of leader" in run.run().violation


@pytest.mark.rule("F7")
def test_dead_followers_leave_slow_leaders() -> None:
    removed = 0
    for seed in SEEDS:
        run = SeedRun(seed, "dead_followers")
        result = run.run()
        assert not result.violation, f"seed {seed}: {result.violation}"
        assert run.cluster.in_sync is not None
        removed += run.cluster.in_sync.removed
        if removed >= 5:
            return
    pytest.fail(f"{removed} dead followers left")


@pytest.mark.rule("F7", "V31")
def test_healthy_followers_stay_with_a_slow_leader_when_another_broker_goes() -> None:
    led_on = 0
    for seed in SEEDS:
        run = SeedRun(seed, "readers_led_on")
        result = run.run()
        assert not result.violation, f"seed {seed}: {result.violation}"
        assert run.cluster.in_sync is not None
        led_on += run.cluster.in_sync.led_on
        if led_on >= 5:
            return
    pytest.fail(f"{led_on} leaders led on under other epochs")


@pytest.mark.rule("F11")
def test_hung_leaders_are_replaced_and_nothing_is_lost() -> None:
    relinquished = 0
    for seed in SEEDS:
        result = SeedRun(seed, "hung_leaders").run()
        assert not result.violation, f"seed {seed}: {result.violation}"
        relinquished += result.marks.get("leadership_relinquished", 0)
        if relinquished >= 3:
            return
    pytest.fail(f"{relinquished} leaderships were relinquished")
