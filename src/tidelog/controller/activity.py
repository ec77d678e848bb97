"""Whether a broker's part in controlling the cluster moves, judged tick by tick (V42).

The flow that races for `/controller` and serves in it either rests, with nothing to do, or is at
something: then it is the store that it waits for, whose contract gives every request an outcome.
A flow that was at something for `STALLED_TICKS` ticks and got no outcome is stalled: its node, if
it has one, is that of a controller that does not act. One that rests looks at its claim, so that a
node of its own session that nobody acts for is found, too. Ticks are counted instead of time: one
who did not run itself, as its process was stopped, gets one tick for all that time.
Knows nothing of clocks, of the store, or of what is done about a stalled flow.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

#: Ticks without any outcome after which a flow is stalled.
STALLED_TICKS: Final = 4


class Verdict(Enum):
    """What a tick finds."""

    #: It rests: let it look whether its claim is as it believes.
    LOOK = "look"
    #: It is at something.
    WAIT = "wait"
    #: What it is at does not move: its term, if it has one, must end, and it must begin anew.
    STALLED = "stalled"


class Activity:
    """Of one flow; `moved` and `rests` are told by it, `tick` is called at even intervals."""

    __slots__ = ("_is_resting", "_ticks")

    def __init__(self) -> None:
        self._is_resting = False
        self._ticks = 0

    def moved(self) -> None:
        """It goes on: it was given something to do, or an outcome, good or bad."""
        self._is_resting = False
        self._ticks = 0

    def rests(self) -> None:
        """It has nothing to do."""
        self._is_resting = True

    def tick(self) -> Verdict:
        """Judge; after STALLED the count begins anew."""
        if self._is_resting:
            return Verdict.LOOK
        self._ticks += 1
        if self._ticks < STALLED_TICKS:
            return Verdict.WAIT
        self._ticks = 0
        return Verdict.STALLED
