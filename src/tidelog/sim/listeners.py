"""Lists of functions that follow what happens in a run, called in order by one call.

Checkers and stories add their functions to the lists of events that they follow.
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
