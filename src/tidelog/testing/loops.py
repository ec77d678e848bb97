"""Calls that take time, and the event loop that they must not block.

A blocking call in a running event loop stops every coroutine of the loop, also the client that a
test waits for. In a running loop, a call that waits for a state would wait until its timeout, so it
raises `BlockedLoopError`. A call that takes as long as the cluster needs emits a
`BlockedLoopWarning`. The error and the warning name the coroutine to await instead.
"""

from __future__ import annotations

import asyncio
import functools
import sys
import warnings
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

C = TypeVar("C")
P = ParamSpec("P")
T = TypeVar("T")

#: Beginning of the names of the modules whose frames a warning skips, to show the test's line.
_PACKAGE = "tidelog."


class BlockedLoopError(RuntimeError):
    """The error for a wait that would block the event loop in which it was called."""


class BlockedLoopWarning(RuntimeWarning):
    """The warning about a call that blocked the event loop in which it was called."""


def refuse_in_loop(call: str, instead: str) -> None:
    """Raise BlockedLoopError if an event loop is running."""
    if _is_in_loop():
        raise BlockedLoopError(
            f"{call}() in a running event loop stops the loop, and the clients in it that the"
            f" call may wait for: {instead}"
        )


def warn_in_loop(call: str, instead: str) -> None:
    """Emit a BlockedLoopWarning if an event loop is running; the warning shows the test's line."""
    if not _is_in_loop():
        return
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals["__name__"].startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(
        f"{call}() stops the running event loop until it returns: {instead}",
        BlockedLoopWarning,
        stacklevel=level,
    )


def takes_time(method: Callable[Concatenate[C, P], T]) -> Callable[Concatenate[C, P], T]:
    """Return a method of Cluster that warns if an event loop is running."""
    name = method.__name__

    @functools.wraps(method)
    def guarded(cluster: C, /, *args: P.args, **named: P.kwargs) -> T:
        warn_in_loop(f"cluster.{name}", f"`await cluster.aio.{name}(...)`")
        return method(cluster, *args, **named)

    return guarded


def _is_in_loop() -> bool:
    if "asyncio" not in sys.modules:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
