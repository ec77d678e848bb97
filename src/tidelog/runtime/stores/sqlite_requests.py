"""The loop's requests to the store's thread, and their results.

A request is made on the loop, served on the store's thread, and settled on the loop again: no other
thread touches its future. Knows nothing of how it is served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tidelog.metadata.store import Op, StoreError, WatchCallback

#: A call to run on the loop.
Call = Callable[[], None]
#: The write-ahead log is checkpointed above this size.
CHECKPOINT_WAL_BYTES = 4 * 1024 * 1024


@dataclass(slots=True, eq=False)
class ThreadRequest:
    """An operation for the store's thread; `future` belongs to the loop."""

    future: asyncio.Future[Any]
    #: Set by whichever comes first: the store's thread, or the keeper that gives it up.
    is_claimed: bool = False


@dataclass(slots=True, eq=False)
class Get(ThreadRequest):
    """Read nodes."""

    paths: Sequence[str] = ()
    watch: WatchCallback | None = None


@dataclass(slots=True, eq=False)
class Children(ThreadRequest):
    """List children."""

    path: str = ""
    watch: WatchCallback | None = None


@dataclass(slots=True, eq=False)
class WriteRequest(ThreadRequest):
    """Apply operations."""

    ops: Sequence[Op] = ()


@dataclass(slots=True, eq=False)
class Open(ThreadRequest):
    """Start a session."""


@dataclass(slots=True, eq=False)
class Checkpoint(ThreadRequest):
    """Checkpoint if the write-ahead log is larger than `above_bytes`."""

    above_bytes: int = CHECKPOINT_WAL_BYTES


@dataclass(slots=True, eq=False)
class Close(ThreadRequest):
    """End the session and the thread."""


def success(request: ThreadRequest, value: object) -> Call:
    """Return the call that gives a request its value."""

    def settle() -> None:
        if not request.future.done():
            request.future.set_result(value)

    return settle


def failure(request: ThreadRequest, error: StoreError) -> Call:
    """Return the call that gives a request its error."""

    def settle() -> None:
        if not request.future.done():
            request.future.set_exception(error)

    return settle


def failures(requests: Sequence[ThreadRequest], error: StoreError) -> list[Call]:
    """Return the calls that give all of them one error."""
    return [failure(request, error) for request in requests]
