"""Detection of a stalled controller task of a broker, by the ticks of a timer (V42).

One task of a broker competes for the node `/controller`, and acts as the controller while it owns
the node. A task that has nothing to do rests. A task that works sends requests to the store, which
must report an outcome of each. A task that works for `STALLED_TICKS` ticks without an outcome of
its requests is stalled. If a stalled task owns the `/controller` node, the cluster has a controller
that does not act. A resting task reads `/controller`, to notice if its own session has the node
although the task does not act as the controller. The module counts ticks instead of time, because a
paused process gets only one tick for the whole pause.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

#: Number of ticks without any outcome of a request after which the controller task is stalled.
STALLED_TICKS: Final = 4


class ActivityVerdict(Enum):
    """The state of the controller task at a tick."""

    #: The controller task rests, and should read `/controller` to check who the controller is.
    LOOK = "look"
    #: The controller task works.
    WAIT = "wait"
    #: The controller task makes no progress, and must end its term, if it has one, and start over.
    STALLED = "stalled"


class Activity:
    """Progress of the controller task, which calls `moved` and `rests`; a timer calls `tick`."""

    __slots__ = ("_is_resting", "_ticks")

    def __init__(self) -> None:
        self._is_resting = False
        self._ticks = 0

    def moved(self) -> None:
        """Note that the task works: it got an event, or any outcome of a request to the store."""
        self._is_resting = False
        self._ticks = 0

    def rests(self) -> None:
        """Note that the controller task has nothing to do."""
        self._is_resting = True

    def tick(self) -> ActivityVerdict:
        """Return the state of the controller task; after STALLED, count ticks from 0 again."""
        if self._is_resting:
            return ActivityVerdict.LOOK
        self._ticks += 1
        if self._ticks < STALLED_TICKS:
            return ActivityVerdict.WAIT
        self._ticks = 0
        return ActivityVerdict.STALLED
