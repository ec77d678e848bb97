"""The clock of a real broker."""

from __future__ import annotations

import asyncio
import sys
import time

import pytest

from tidelog.runtime.clock import SystemClock


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a clock of Linux")
@pytest.mark.rule("V47")
def test_a_suspended_machine_shows_as_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    suspended_ns = 3_600 * 1_000_000_000
    read = time.clock_gettime_ns
    is_over = False

    def after_suspension(which: int) -> int:
        counts_on = is_over and which == time.CLOCK_BOOTTIME
        return read(which) + (suspended_ns if counts_on else 0)

    monkeypatch.setattr(time, "clock_gettime_ns", after_suspension)
    loop = asyncio.new_event_loop()
    try:
        clock = SystemClock(loop)
        before_ns, before_ms = clock.monotonic_ns(), clock.monotonic_ms()
        is_over = True
        assert clock.monotonic_ns() - before_ns >= suspended_ns
        assert clock.monotonic_ms() - before_ms >= suspended_ns // 1_000_000
    finally:
        loop.close()
