"""The processor time that the console's reader may use, however large the cluster is.

Each part of a reading pauses for four times as long as its last read took. Ten parts that all take
long still add up, so the thread of the reader has a budget for all parts together.
"""

from __future__ import annotations

import time
from typing import Final

#: Share of one core that the thread may use on average. `_BURST_S` is the processor time in s that
#: the thread may use at once after a rest, as for the parts of a first page.
_SHARE: Final = 0.2
_BURST_S: Final = 2.0


class ProcessorBudget:
    """The processor time that is left for one thread: it grows with time, up to `_BURST_S`.

    Many parts that take long add up, although each has its own pause.
    """

    def __init__(self) -> None:
        self._left_s = _BURST_S
        self._at_s = time.monotonic()
        self._used_s = 0.0

    def begin(self) -> None:
        """Begin to count the time that the calling thread uses."""
        self._used_s = time.thread_time()

    def count(self) -> None:
        """Count the time that the calling thread has used since the last call, or since `begin`."""
        now_s, used_s = time.monotonic(), time.thread_time()
        grown_s = min(_BURST_S, self._left_s + _SHARE * (now_s - self._at_s))
        self._left_s = grown_s - (used_s - self._used_s)
        self._at_s, self._used_s = now_s, used_s

    def wait_s(self) -> float:
        """Return the time in s after which the thread may go on; 0 for at once."""
        passed_s = time.monotonic() - self._at_s
        return max(0.0, -self._left_s / _SHARE - passed_s)
