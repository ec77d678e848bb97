"""Timeouts fire no earlier than asked, in order of their buckets; cancelled ones never do."""

from __future__ import annotations

from tests.support.ports import ManualClock

from tidelog.broker.server.timers import BUCKET_MS, TimerWheel


def test_a_timeout_fires_not_before_its_time_and_at_most_a_bucket_later() -> None:
    clock = ManualClock()
    wheel = TimerWheel(clock)
    fired: list[int] = []
    for delay_ms in (0, 1, 9, 10, 11, 250):
        wheel.after(delay_ms, lambda delay_ms=delay_ms: fired.append(clock.now_ms - delay_ms))  # type: ignore[misc]  # a default argument binds the loop variable
    clock.advance(1_000)
    assert len(fired) == 6
    assert all(1_000 <= at_ms <= 1_000 + 2 * BUCKET_MS for at_ms in fired)


def test_one_timer_of_the_loop_serves_all_and_is_moved_for_an_earlier_timeout() -> None:
    clock = ManualClock()
    wheel = TimerWheel(clock)
    order: list[str] = []
    wheel.after(500, lambda: order.append("late"))
    wheel.after(20, lambda: order.append("early"))
    assert len(clock.armed) == 1
    clock.advance(600)
    assert order == ["early", "late"]
    assert clock.armed == []


def test_a_cancelled_timeout_never_fires_and_its_bucket_goes() -> None:
    clock = ManualClock()
    wheel = TimerWheel(clock)
    fired: list[str] = []
    timeout = wheel.after(30, lambda: fired.append("cancelled"))
    wheel.after(30, lambda: fired.append("kept"))
    timeout.cancel()
    clock.advance(100)
    assert fired == ["kept"]
    assert len(wheel) == 0


def test_a_callback_may_set_the_next_timeout() -> None:
    clock = ManualClock()
    wheel = TimerWheel(clock)
    fired: list[int] = []

    def again() -> None:
        fired.append(clock.now_ms)
        if len(fired) < 3:
            wheel.after(50, again)

    wheel.after(50, again)
    clock.advance(1_000)
    assert len(fired) == 3
    assert fired == sorted(fired)


def test_close_drops_everything() -> None:
    clock = ManualClock()
    wheel = TimerWheel(clock)
    wheel.after(10, lambda: (_ for _ in ()).throw(AssertionError("fired after close")))
    wheel.close()
    clock.advance(100)
    assert clock.armed == []


def test_a_wheel_that_is_held_calls_back_when_it_is_released() -> None:
    clock = ManualClock()
    wheel = TimerWheel(clock)
    fired: list[str] = []
    wheel.after(50, lambda: fired.append("early"))
    wheel.hold()
    clock.advance(200)
    wheel.after(50, lambda: fired.append("late"))
    clock.advance(200)
    assert fired == []
    wheel.release()
    assert fired == []
    clock.advance(BUCKET_MS)
    assert fired == ["early", "late"]
