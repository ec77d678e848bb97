"""The byte rate of a throttle over its last windows, compared with a limit (R15).

As in Kafka (SimpleRate), the rate is the bytes of the last `replication.quota.window.num` windows,
divided by the time since the oldest window began (at least the length of one window). A window
begins when its first bytes are counted. One large read may have more bytes than the limit allows
during all windows. Kafka forgets the bytes of expired windows, so large reads can exceed a low
limit again and again. When a window expires, tidelog carries its throttled bytes above the limit
over to later windows. In any period, the throttled bytes thus exceed the limit by at most one read
plus the bytes that the limit allows in the time of all windows. Times are arguments, in monotonic
milliseconds.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from tidelog.core.dataclass import dataclass

_MS_PER_S: Final = 1_000


@dataclass(slots=True)
class _Window:
    begun_ms: int
    count: int = 0
    #: How many of the `count` bytes were copied to replicas outside the ISR.
    held_count: int = 0


class ByteRate:
    """Byte rate of one side of the throttle (the leader's or the follower's).

    A limit is in bytes a second; None means no limit.
    """

    __slots__ = ("_carried", "_limit", "_limit_set_ms", "_size_ms", "_windows", "span_ms")

    def __init__(self, windows: int, size_ms: int) -> None:
        #: The longest time that the rate covers.
        self.span_ms = windows * size_ms
        self._size_ms = size_ms
        self._windows: deque[_Window] = deque()
        self._limit: int | None = None
        self._limit_set_ms = 0
        #: Throttled bytes of expired windows that were above the limit, and so count in later
        #: windows.
        self._carried = 0

    def limited(self, limit: int | None, now_ms: int) -> None:
        """Apply a new limit from now on; bytes of windows that began earlier are not carried
        over.
        """
        if limit != self._limit:
            self._limit, self._limit_set_ms, self._carried = limit, now_ms, 0

    def record(self, count: int, held_count: int, now_ms: int) -> None:
        """Count bytes; `held_count` of them belong to replicas outside the ISR, which the throttle
        can delay.
        """
        self._expire(now_ms)
        windows = self._windows
        if not windows or now_ms - windows[-1].begun_ms >= self._size_ms:
            windows.append(_Window(now_ms))
        windows[-1].count += count
        windows[-1].held_count += held_count

    def per_second(self, now_ms: int) -> int:
        """Return the measured rate in bytes a second."""
        self._expire(now_ms)
        total = sum(window.count for window in self._windows)
        return total * _MS_PER_S // self._elapsed_ms(now_ms)

    def is_exceeded(self, now_ms: int, further: int = 0) -> bool:
        """Return whether the rate, with `further` bytes added, is above the limit."""
        if self._limit is None:
            return False
        self._expire(now_ms)
        total = self._carried + further + sum(window.count for window in self._windows)
        elapsed_ms = self._elapsed_ms(now_ms)
        if self._carried:
            # If bytes are carried over, divide by the time since the first window began, even if
            # this time is shorter than one window.
            elapsed_ms = now_ms - self._windows[0].begun_ms
        return total * _MS_PER_S > self._limit * elapsed_ms

    def recovers_in_ms(self, now_ms: int) -> int:
        """Return after how many ms the rate falls to the limit, if no more bytes are counted.

        The returned time is at least 1 ms, and at most the length of all windows. With a limit of 0
        the rate never falls to the limit; the returned time is then the time until the caller's
        next check.
        """
        if self._limit is None:
            return 1
        self._expire(now_ms)
        windows, carried, earliest_ms = list(self._windows), self._carried, now_ms
        while windows:
            first = windows.pop(0)
            total = carried + first.count + sum(window.count for window in windows)
            gone_ms = first.begun_ms + self.span_ms
            if self._limit:
                paid_ms = max(earliest_ms, first.begun_ms + _time_of(total, self._limit))
                if paid_ms < gone_ms:
                    return max(1, paid_ms - now_ms)
            earliest_ms = gone_ms
            carried = self._left(first, windows[0].begun_ms if windows else gone_ms, carried)
        rest_ms = _time_of(carried, self._limit) if self._limit else self.span_ms
        return max(1, min(self.span_ms, earliest_ms + rest_ms - now_ms))

    def _elapsed_ms(self, now_ms: int) -> int:
        begun_ms = self._windows[0].begun_ms if self._windows else now_ms
        return max(now_ms - begun_ms, self._size_ms)

    def _expire(self, now_ms: int) -> None:
        windows = self._windows
        while windows and now_ms - windows[0].begun_ms >= self.span_ms:
            first = windows.popleft()
            end_ms = windows[0].begun_ms if windows else first.begun_ms + self.span_ms
            self._carried = self._left(first, end_ms, self._carried)
            if self._carried and not windows:
                # The carried bytes count from the end of the expired window; with a limit of 0,
                # they never decrease.
                windows.append(_Window(end_ms if self._limit else now_ms))

    def _left(self, window: _Window, end_ms: int, carried: int) -> int:
        """Return the throttled bytes above the limit to carry over when a window expires."""
        if self._limit is None or window.begun_ms < self._limit_set_ms:
            return 0
        paid = self._limit * (end_ms - window.begun_ms) // _MS_PER_S
        return max(0, min(carried + window.count - paid, carried + window.held_count))


def _time_of(count: int, limit: int) -> int:
    """Return the milliseconds in which the limit allows `count` bytes, rounded up."""
    return -(-count * _MS_PER_S // limit)
