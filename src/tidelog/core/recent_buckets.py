"""Quantiles and rates of the last minutes, from numbers that count since the broker's start.

Prometheus computes quantiles and rates from the counts itself. Dashboards of Kafka show quantiles
and rates that brokers compute over the last minutes. The classes of this module therefore keep
earlier counts, and subtract them from the current counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

#: Minimum age in ms of the earlier counts that are subtracted from the current counts.
_WINDOW_MS: Final = 120_000


def quantiles(bounds: Sequence[int], counts: Sequence[int], shares: Sequence[float]) -> list[int]:
    """Return the estimated quantiles, interpolated in their buckets; 0 without observations.

    A quantile in the last bucket, which has no upper bound, is returned as the greatest bound.
    """
    total = sum(counts)
    found = []
    for share in shares:
        wanted, below, value = share * total, 0, 0
        for number, count in enumerate(counts):
            if count and below + count >= wanted:
                low = bounds[number - 1] if number else 0
                high = bounds[min(number, len(bounds) - 1)]
                value = low + round((high - low) * (wanted - below) / count)
                break
            below += count
        found.append(value)
    return found


class RecentBuckets:
    """The recent observations of one histogram."""

    __slots__ = ("_before", "_since", "_since_ms")

    def __init__(self) -> None:
        self._before: Sequence[int] = ()
        self._since: Sequence[int] = ()
        self._since_ms: int | None = None

    def of(self, counts: Sequence[int], now_ms: int) -> list[int]:
        """Return the observations in each bucket in the last two to four minutes.

        In the first minutes after the first call, return all observations since the broker's start.
        """
        if self._since_ms is None:
            self._since_ms = now_ms
        elif now_ms - self._since_ms >= _WINDOW_MS:
            self._before, self._since, self._since_ms = self._since, list(counts), now_ms
        before = self._before or [0] * len(counts)
        return [now - then for now, then in zip(counts, before, strict=True)]


class Rate:
    """The rate at which one counter has grown in the last minutes."""

    __slots__ = ("_before", "_since")

    def __init__(self, now_ms: int) -> None:
        #: Time and count at two earlier calls.
        self._before = self._since = (now_ms, 0)

    def thousandths(self, count: int, now_ms: int) -> int:
        """Return the counter's growth per second over the last minutes, multiplied by 1,000."""
        if now_ms - self._since[0] >= _WINDOW_MS:
            self._before, self._since = self._since, (now_ms, count)
        time_ms, before = self._before
        return (count - before) * 1_000_000 // max(now_ms - time_ms, 1_000)
