"""Samples of numbers over time, in memory of bounded size.

A table has one column of 64-bit integers for each key, and each row has a time. Samples of
thousands of topics over a quarter of an hour take some megabytes. Rates and charts are computed
from the samples. Several threads may use a table at the same time.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Mapping
from typing import Final

#: The value of a missing sample.
_NOTHING: Final = -(1 << 63)


class SampleTable:
    """Samples by key; at least `spacing_ms` lie between the times of two rows."""

    def __init__(self, spacing_ms: int, capacity: int) -> None:
        """Create an empty table that keeps at least the last `capacity` rows."""
        self._spacing_ms = spacing_ms
        self._capacity = capacity
        self._times = array("q")
        self._columns: dict[str, array[int]] = {}
        self._lock = threading.Lock()

    def add(self, now_ms: int, values: Mapping[str, int]) -> bool:
        """Add a row unless the last row is too recent; return whether the row was added."""
        with self._lock:
            if self._times and now_ms - self._times[-1] < self._spacing_ms:
                return False
            count = len(self._times)
            self._times.append(now_ms)
            for key, value in values.items():
                column = self._columns.get(key)
                if column is None:
                    column = self._columns[key] = array("q", [_NOTHING]) * count
                column.append(value)
            for column in self._columns.values():
                if len(column) == count:
                    column.append(_NOTHING)
            if len(self._times) >= 2 * self._capacity:
                self._drop_oldest()
            return True

    def _drop_oldest(self) -> None:
        del self._times[: -self._capacity]
        for key, column in list(self._columns.items()):
            del column[: -self._capacity]
            if all(value == _NOTHING for value in column):
                del self._columns[key]

    def points(self, key: str) -> list[tuple[int, int]]:
        """Return the known samples of a key as (time in ms, value), oldest first."""
        with self._lock:
            column = self._columns.get(key, ())
            rows = zip(self._times, column, strict=False)
            return [(at_ms, value) for at_ms, value in rows if value != _NOTHING][-self._capacity :]

    def rates(self, window_ms: int) -> dict[str, float]:
        """Return the growth a second of each key over the last `window_ms`.

        A key without two samples in the window is absent. If a value fell, for example because a
        topic was recreated, its rate is 0.
        """
        with self._lock:
            if len(self._times) < 2:
                return {}
            last_ms = self._times[-1]
            first = len(self._times) - 2
            while first > 0 and self._times[first - 1] >= last_ms - window_ms:
                first -= 1
            passed_ms = last_ms - self._times[first]
            return {
                key: max(0, column[-1] - column[first]) * 1000 / passed_ms
                for key, column in self._columns.items()
                if column[-1] != _NOTHING and column[first] != _NOTHING
            }
