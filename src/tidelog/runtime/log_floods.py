"""A log that a flood of equal warnings cannot fill.

A defective client connects and is rejected hundreds of times a second. Warnings that differ in
their numbers only (addresses, ports, counts) are of one kind. Of each kind a limited number is
written in each window. The others are counted, and a summary with the count follows when the window
ends.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

#: How many warnings of one kind are written in one window, and the window's length.
LINES, WINDOW_S = 20, 10.0
_NUMBERS = re.compile(r"\d+")


@dataclass(slots=True)
class _Kind:
    """Warnings of one kind in their window."""

    first: logging.LogRecord
    ends: float
    written: int = 0
    held: int = 0


class Floods:
    """The decision which lines are written; one thread at a time.

    `clock` returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kinds: dict[tuple[str, int, str], _Kind] = {}

    def admits(self, record: logging.LogRecord) -> bool:
        """Return whether the line is written; all lines below WARNING are."""
        if record.levelno < logging.WARNING:
            return True
        text = _NUMBERS.sub("#", record.getMessage())
        kind = self._kinds.get((record.name, record.levelno, text))
        if kind is None:
            kind = _Kind(record, self._clock() + WINDOW_S)
            self._kinds[record.name, record.levelno, text] = kind
        if kind.written < LINES:
            kind.written += 1
            return True
        kind.held += 1
        return False

    def ended(self, everything: bool = False) -> Iterator[logging.LogRecord]:
        """Return a summary line for each ended window that held lines back.

        `everything`: for all windows, ended or not.
        """
        now = self._clock()
        while self._kinds:
            key, kind = next(iter(self._kinds.items()))  # the oldest window ends first
            if not everything and kind.ends > now:
                return
            del self._kinds[key]
            if kind.held:
                yield _summary(kind)


def _summary(kind: _Kind) -> logging.LogRecord:
    first = kind.first
    text = (
        f"{first.getMessage()} … and {kind.held} more like the last {LINES} within {WINDOW_S:g} s"
    )
    return logging.LogRecord(
        first.name, first.levelno, first.pathname, first.lineno, text, None, None
    )
