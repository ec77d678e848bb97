"""Lists of functions that the simulator calls, in order, at an event of a run.

Checkers, and the report of a run (`sim/story`), add functions to the lists of the events that they
follow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec

P = ParamSpec("P")


class CallbackList(list[Callable[P, object]], Generic[P]):
    """Functions that are called one after the other, in the order in which they were added."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for listener in tuple(self):
            listener(*args, **kwargs)
