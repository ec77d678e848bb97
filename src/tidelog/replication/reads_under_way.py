"""Disk reads that a leader has begun and not finished, for followers and for consumers (F11).

A leader whose oldest read takes longer than `replica.lag.time.max.ms` cannot serve reads. Times are
monotonic milliseconds.
"""

from __future__ import annotations


class ReadsUnderWay:
    """The disk reads under way in one leadership."""

    __slots__ = ("_begun_ms", "_last_number")

    def __init__(self) -> None:
        #: Begin time of each read by the read's number, the oldest read first.
        self._begun_ms: dict[int, int] = {}
        self._last_number = 0

    def begin(self, now_ms: int) -> int:
        """Record a read that begins; return its number."""
        self._last_number += 1
        self._begun_ms[self._last_number] = now_ms
        return self._last_number

    def end(self, number: int) -> None:
        """Record the end of a read, or its failure."""
        self._begun_ms.pop(number, None)

    def age_ms(self, now_ms: int) -> int:
        """Return how long the oldest read has been under way, 0 without any read."""
        return now_ms - next(iter(self._begun_ms.values()), now_ms)
