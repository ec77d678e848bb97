"""A limit on similar warnings, so that a flood of warnings cannot fill the log.

A defective client may cause hundreds of similar warnings per second. Warnings that differ only in
numbers (addresses, ports, counts) are of one kind. The log gets a limited number of warnings of
each kind per window of time. Further warnings are counted, and a summary with the count follows at
the end of the window.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator

from tidelog.core.dataclass import dataclass

#: The number of warnings of one kind that are written per window, and the length of a window.
LINES, WINDOW_S = 20, 10.0
_NUMBERS = re.compile(r"\d+")


@dataclass(slots=True)
class _Kind:
    """One kind of warnings: its current window of time, and how many warnings it has had in the
    window.
    """

    first: logging.LogRecord
    ends: float
    written: int = 0
    held: int = 0


class Floods:
    """A filter that decides which log lines are written; only one thread at a time may use it.

    `clock` returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kinds: dict[tuple[str, int, str], _Kind] = {}

    def admits(self, record: logging.LogRecord) -> bool:
        """Return whether to write a log line; lines below WARNING are always written."""
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
        """Return a summary line for each ended window of time in which warnings were suppressed.

        With `everything`, include the windows of time that have not ended.
        """
        now = self._clock()
        while self._kinds:
            # all windows are equally long, so the first to begin is the first to end
            key, kind = next(iter(self._kinds.items()))
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
