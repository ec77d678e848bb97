"""Timeouts of waiting requests: 10 ms buckets on one timer of the loop (DESIGN.md, rule 7).

Most requests get their response long before their timeout. Setting and cancelling a timeout must
therefore be cheap. A cancelled timeout stays in its bucket, and is dropped when the bucket's time
has come.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from tidelog.core.ports import Clock, TimerHandle

BUCKET_MS = 10


class Timeout:
    """A timeout that was set; the code that set it cancels it if the operation ends first."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Cancel the timeout; this has no effect after the timeout has fired."""
        self.callback = None


class TimerWheel:
    """The timeouts of all waiting requests of one broker, in buckets of 10 ms."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: dict[int, list[Timeout]] = {}
        self._order: list[int] = []
        self._timer: TimerHandle | None = None
        self._armed_for = 0
        self._is_held = False

    def __len__(self) -> int:
        return sum(len(bucket) for bucket in self._buckets.values())

    def after(self, delay_ms: float, callback: Callable[[], None]) -> Timeout:
        """Call `callback` after at least `delay_ms` and at most `BUCKET_MS` more."""
        timeout = Timeout(callback)
        due_ms = self._clock.monotonic_ms() + max(0, int(delay_ms))
        bucket = due_ms // BUCKET_MS + 1
        entries = self._buckets.get(bucket)
        if entries is None:
            self._buckets[bucket] = [timeout]
            heappush(self._order, bucket)
            if self._timer is None or bucket < self._armed_for:
                self._arm()
        else:
            entries.append(timeout)
        return timeout

    def hold(self) -> None:
        """Let no timeout fire until `release` is called."""
        self._is_held = True

    def release(self) -> None:
        """Let timeouts fire again; overdue timeouts fire within `BUCKET_MS`."""
        self._is_held = False
        if self._order and self._timer is None:
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = self._order[0]
        delay_ms = self._armed_for * BUCKET_MS - self._clock.monotonic_ms()
        self._timer = self._clock.call_later(max(0, delay_ms), self._fire)

    def _fire(self) -> None:
        self._timer = None
        if self._is_held:
            return
        now_bucket = self._clock.monotonic_ms() // BUCKET_MS
        while self._order and self._order[0] <= now_bucket:
            for timeout in self._buckets.pop(heappop(self._order)):
                callback, timeout.callback = timeout.callback, None
                if callback is not None:
                    callback()
        if self._order and self._timer is None:
            self._arm()

    def close(self) -> None:
        """Drop every timeout."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._buckets.clear()
        self._order.clear()
