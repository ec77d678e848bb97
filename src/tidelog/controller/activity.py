"""Stall detection for a broker's part in controlling the cluster, judged tick by tick (V42).

One flow of a broker competes for `/controller` and acts as the controller. A flow without anything
to do rests. A working flow waits for the store, which owes every request an outcome. A flow that
works for `STALLED_TICKS` ticks without an outcome is stalled. If a stalled flow owns the
`/controller` node, the cluster has a controller that does not act. A resting flow checks its claim
to `/controller`, and so finds a node of its own session for which no controller acts. The flow
counts ticks instead of time, because a process that was stopped gets one tick for the whole stop.
This module knows nothing of clocks, of the store, or of the caller's reaction to a stalled flow.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

#: Ticks without any outcome after which a flow is stalled.
STALLED_TICKS: Final = 4


class ActivityVerdict(Enum):
    """The result of a tick."""

    #: The flow rests: it should check whether its claim to `/controller` is as it believes.
    LOOK = "look"
    #: The flow works.
    WAIT = "wait"
    #: The flow's work makes no progress: the flow must end its term, if it has one, and start over.
    STALLED = "stalled"


class Activity:
    """Progress of one flow, which calls `moved` and `rests`; `tick` is called at even intervals."""

    __slots__ = ("_is_resting", "_ticks")

    def __init__(self) -> None:
        self._is_resting = False
        self._ticks = 0

    def moved(self) -> None:
        """Note that the flow works: it got an event to handle, or an outcome, good or bad."""
        self._is_resting = False
        self._ticks = 0

    def rests(self) -> None:
        """Note that the flow has nothing to do."""
        self._is_resting = True

    def tick(self) -> ActivityVerdict:
        """Judge the flow; the count of ticks starts again after STALLED."""
        if self._is_resting:
            return ActivityVerdict.LOOK
        self._ticks += 1
        if self._ticks < STALLED_TICKS:
            return ActivityVerdict.WAIT
        self._ticks = 0
        return ActivityVerdict.STALLED
