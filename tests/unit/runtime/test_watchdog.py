"""The watchdog reports a loop that stands still and a call that does not return, nothing else."""

from __future__ import annotations

import asyncio
import threading

from tidelog.runtime.watchdog import Watchdog

TIMEOUT_MS = 200
PATIENCE_S = 30.0


class Reports:
    """What the watchdog said, and a way to wait for it."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self._said = threading.Event()

    def __call__(self, reason: str) -> None:
        self.reasons.append(reason)
        self._said.set()

    def block_until_said(self) -> bool:
        return self._said.wait(PATIENCE_S)


def test_a_loop_that_does_not_turn_is_reported() -> None:
    reports = Reports()

    async def stand_still() -> bool:
        watchdog = Watchdog(asyncio.get_running_loop(), TIMEOUT_MS, reports)
        watchdog.start()
        try:
            return reports.block_until_said()
        finally:
            watchdog.stop()

    assert asyncio.run(stand_still())
    assert reports.reasons[0].startswith("the event loop has not turned for ")
