"""Requests of the loop to the store's thread, and the delivery of their results.

A request is made on the loop, served on the store's thread, and completed on the loop, so that only
the loop accesses its future.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from tidelog.core.dataclass import dataclass
from tidelog.metadata.store import Op, StoreError, WatchCallback

#: A function that the store's thread asks the event loop to call.
Call = Callable[[], None]
#: Size of the write-ahead log in bytes above which it is checkpointed.
CHECKPOINT_WAL_BYTES = 4 * 1024 * 1024


@dataclass(slots=True, eq=False)
class ThreadRequest:
    """A request to the store's thread; only the loop accesses `future`."""

    future: asyncio.Future[Any]
    #: Whether a thread has claimed the request: the store's thread to serve it, or the keeper's
    #: thread to fail it.
    is_claimed: bool = False


@dataclass(slots=True, eq=False)
class Get(ThreadRequest):
    """A request to read nodes."""

    paths: Sequence[str] = ()
    watch: WatchCallback | None = None


@dataclass(slots=True, eq=False)
class Children(ThreadRequest):
    """A request to list the children of a node."""

    path: str = ""
    watch: WatchCallback | None = None


@dataclass(slots=True, eq=False)
class WriteRequest(ThreadRequest):
    """A request to apply operations."""

    ops: Sequence[Op] = ()


@dataclass(slots=True, eq=False)
class Open(ThreadRequest):
    """A request to start a session."""


@dataclass(slots=True, eq=False)
class Checkpoint(ThreadRequest):
    """A request to checkpoint if the write-ahead log is larger than `above_bytes`."""

    above_bytes: int = CHECKPOINT_WAL_BYTES


@dataclass(slots=True, eq=False)
class Close(ThreadRequest):
    """A request to end the session and the thread."""


def success(request: ThreadRequest, value: object) -> Call:
    """Return a call that completes a request with a value."""

    def settle() -> None:
        if not request.future.done():
            request.future.set_result(value)

    return settle


def failure(request: ThreadRequest, error: StoreError) -> Call:
    """Return a call that fails a request with an error."""

    def settle() -> None:
        if not request.future.done():
            request.future.set_exception(error)

    return settle


def failures(requests: Sequence[ThreadRequest], error: StoreError) -> list[Call]:
    """Return calls that fail all requests with one error."""
    return [failure(request, error) for request in requests]
