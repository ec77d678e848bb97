"""The last 24 hours of a broker's main series, in a bounded number of bytes.

The ring has two grains (resolutions): slots of ten seconds for the last two hours, and slots of a
minute for the last day. A slot of a minute has the mean of each series over the fine slots in that
minute. Slots of times at which the broker was down have no values. This module does no I/O and
reads no clock.
"""

from __future__ import annotations

import json
import math
import sys
import zlib
from array import array
from collections.abc import Iterator, Sequence
from typing import Final

from tidelog.core.dataclass import dataclass

#: The two resolutions of the history, the finer first: seconds of one slot, and number of slots.
GRAINS: Final = ((10, 720), (60, 1440))
FINE_S: Final = GRAINS[0][0]
_MAGIC: Final = b"TLH1"
_MAX_HEADER_BYTES: Final = 65_536


class HistoryError(ValueError):
    """The error for bytes that are not a valid history; the message has the reason."""


@dataclass(slots=True)
class _Grain:
    """The slots of one resolution of the history: their times, and their values slot by slot."""

    step_s: int
    slots: int
    times: array[int]
    values: array[float]


class HistoryRing:
    """Values of named series at whole steps of time."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._grains = [_empty(step_s, slots, len(names)) for step_s, slots in GRAINS]
        #: Number and values of each fine slot in the current coarse slot, whose means are computed
        #: from these values.
        self._minute: list[tuple[int, list[float]]] = []

    def put(self, time_s: int, values: Sequence[float]) -> None:
        """Put the values of all series at a time, in seconds since 1970; NaN is no value.

        Later values of a slot replace its earlier values.
        """
        if len(values) != len(self.names):
            raise ValueError(f"{len(values)} values for {len(self.names)} series")
        fine, coarse = self._grains
        number = time_s // fine.step_s
        minute = time_s // coarse.step_s
        self._minute = [
            each
            for each in self._minute
            if each[0] != number and each[0] * fine.step_s // coarse.step_s == minute
        ]
        self._minute.append((number, list(values)))
        _store(fine, number * fine.step_s, values)
        columns = zip(*(each for _, each in self._minute), strict=True)
        _store(coarse, minute * coarse.step_s, [_mean(column) for column in columns])

    def rows(self, since_s: int, until_s: int) -> tuple[int, list[tuple[int, Sequence[float]]]]:
        """Return the step in seconds, and the rows (time, values) from `since_s` to `until_s`.

        The rows have the finest grain whose slots, counted back from `until_s`, reach `since_s`.
        """
        chosen = next(
            (each for each in self._grains if since_s >= until_s - each.step_s * each.slots),
            self._grains[-1],
        )
        oldest_s = max(since_s, until_s - chosen.step_s * chosen.slots + 1)
        width = len(self.names)
        found = [
            (time_s, chosen.values[slot * width : (slot + 1) * width])
            for slot, time_s in enumerate(chosen.times)
            if oldest_s <= time_s <= until_s
        ]
        return chosen.step_s, sorted(found, key=lambda row: row[0])

    def to_bytes(self) -> bytes:
        """Return the whole ring as bytes, which `take` can read."""
        header = json.dumps({"names": self.names, "grains": GRAINS}).encode()
        parts = [len(header).to_bytes(4, "little"), header]
        for grain in self._grains:
            parts += [_little(grain.times), _little(grain.values)]
        body = b"".join(parts)
        return b"".join((_MAGIC, zlib.crc32(body).to_bytes(4, "little"), body))

    def take(self, data: bytes) -> None:
        """Load the values of the series of the same names from an earlier ring's `to_bytes`.

        Raises HistoryError, without changing the ring, if the bytes are damaged or have another
        format.
        """
        names, grains = _read(data)
        width = len(names)
        columns = [names.index(name) if name in names else None for name in self.names]
        for grain, (times, values) in zip(self._grains, grains, strict=True):
            for slot, time_s in enumerate(times):
                if time_s < 0:
                    continue
                row = [
                    math.nan if column is None else values[slot * width + column]
                    for column in columns
                ]
                _store(grain, time_s, row)


def _empty(step_s: int, slots: int, width: int) -> _Grain:
    return _Grain(step_s, slots, array("q", [-1]) * slots, array("f", [math.nan]) * (slots * width))


def _store(grain: _Grain, time_s: int, values: Sequence[float]) -> None:
    slot = time_s // grain.step_s % grain.slots
    width = len(values)
    grain.times[slot] = time_s
    grain.values[slot * width : (slot + 1) * width] = array("f", values)


def _mean(values: Sequence[float]) -> float:
    known = [each for each in values if not math.isnan(each)]
    return sum(known) / len(known) if known else math.nan


def _little(values: array[int] | array[float]) -> bytes:
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values.tobytes()


def _read(data: bytes) -> tuple[list[str], list[tuple[array[int], array[float]]]]:
    """Return the names of series, and times and values of each grain."""
    if data[:4] != _MAGIC:
        raise HistoryError(f"begins with {data[:4]!r}, not with {_MAGIC!r}")
    body = data[8:]
    if len(body) < 4 or zlib.crc32(body).to_bytes(4, "little") != data[4:8]:
        raise HistoryError("its checksum is wrong")
    length = int.from_bytes(body[:4], "little")
    if length > _MAX_HEADER_BYTES:
        raise HistoryError(f"its header of {length} bytes is too long")
    try:
        header = json.loads(body[4 : 4 + length])
        names, grains = [str(each) for each in header["names"]], header["grains"]
    except (ValueError, TypeError, KeyError) as error:
        raise HistoryError(f"its header is of another form: {error!r}") from error
    if grains != [list(each) for each in GRAINS]:
        raise HistoryError(f"it has the grains {grains}, not {GRAINS}")
    pieces = _pieces(body, 4 + length, len(names))
    return names, list(pieces)


def _pieces(body: bytes, at: int, width: int) -> Iterator[tuple[array[int], array[float]]]:
    for _, slots in GRAINS:
        times, values = array("q"), array("f")
        middle, end = at + 8 * slots, at + 8 * slots + 4 * slots * width
        times.frombytes(body[at:middle])
        values.frombytes(body[middle:end])
        if len(times) != slots or len(values) != slots * width:
            raise HistoryError(f"it ends after {len(body)} bytes")
        if sys.byteorder == "big":
            times.byteswap()
            values.byteswap()
        at = end
        yield times, values
