"""Stall detection for a broker's part in controlling the cluster, judged tick by tick (V42).

The flow that competes for `/controller` and serves as controller either rests or works. A resting
flow has nothing to do. A working flow waits for the store, whose contract gives every request an
outcome. A flow that works for `STALLED_TICKS` ticks without an outcome is stalled. The node of a
stalled flow, if it has one, belongs to a controller that does not act. A resting flow checks its
claim, so that a node of its own session that no controller acts for is found, too. Ticks are
counted instead of time: a process that was stopped gets one tick for all that time. Knows nothing
of clocks, of the store, or of what the caller does about a stalled flow.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

#: Ticks without any outcome after which a flow is stalled.
STALLED_TICKS: Final = 4


class ActivityVerdict(Enum):
    """The result of a tick."""

    #: The flow rests: it should check whether its claim is as it believes.
    LOOK = "look"
    #: The flow works.
    WAIT = "wait"
    #: The flow's work does not move: its term, if it has one, must end, and the flow must start
    #: over.
    STALLED = "stalled"


class Activity:
    """Progress of one flow, which calls `moved` and `rests`; `tick` is called at even intervals."""

    __slots__ = ("_is_resting", "_ticks")

    def __init__(self) -> None:
        self._is_resting = False
        self._ticks = 0

    def moved(self) -> None:
        """Note that the flow works: it got something to do, or an outcome, good or bad."""
        self._is_resting = False
        self._ticks = 0

    def rests(self) -> None:
        """Note that the flow has nothing to do."""
        self._is_resting = True

    def tick(self) -> ActivityVerdict:
        """Judge the flow; after STALLED the count starts again."""
        if self._is_resting:
            return ActivityVerdict.LOOK
        self._ticks += 1
        if self._ticks < STALLED_TICKS:
            return ActivityVerdict.WAIT
        self._ticks = 0
        return ActivityVerdict.STALLED
