"""The embedded metadata store, a `metadata.store.MetadataStore` on an SQLite file (rules S1-S5).

All brokers of the store must be on one machine. This module runs on the loop: it passes requests to
the store's thread (`sqlite_worker`) and delivers the results on the loop, in order. docs/adr/0049
describes how the parts work together. `sqlite_nodes` holds the tree; `sqlite_database` holds
connection and sessions. Crashed or stopped processes cannot block `store_lock` or keep `leases` for
good, because `keeper` watches both.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import cast

from tidelog.metadata.paths import validate_ops, validate_path
from tidelog.metadata.store import (
    Node,
    Op,
    OpResult,
    SessionCallback,
    SessionEvent,
    SessionExpired,
    StoreUnavailable,
    WatchCallback,
)
from tidelog.runtime.stores.sqlite_requests import (
    CHECKPOINT_WAL_BYTES,
    Checkpoint,
    Children,
    Close,
    Get,
    Open,
    ThreadRequest,
    WriteRequest,
)
from tidelog.runtime.stores.sqlite_worker import StoreThread

DEFAULT_SESSION_TIMEOUT_MS = 6000


class SqliteStore:
    """One broker's handle of the embedded store.

    `directory`, on a local disk, holds the database, its lock and the sessions. `clock` returns
    monotonic nanoseconds; `log` gets warnings, on any thread. A forked child must not use an open
    store.
    """

    def __init__(
        self,
        directory: str,
        loop: asyncio.AbstractEventLoop,
        session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS,
        clock: Callable[[], int] = time.monotonic_ns,
        log: Callable[[str], None] = lambda message: None,
    ) -> None:
        self._directory = directory
        self._loop = loop
        self._session_timeout_ms = session_timeout_ms
        self._clock = clock
        self._log = log
        self._thread: StoreThread | None = None
        self._session_id: int | None = None
        self._expired = False
        self._pending: dict[ThreadRequest, None] = {}
        self._inbox: deque[Callable[[], None]] = deque()
        self._session_callbacks: list[SessionCallback] = []

    @property
    def session_id(self) -> int | None:
        """The id of the live session; None if there is no live session."""
        return self._session_id

    @property
    def session_timeout_ms(self) -> int:
        """The session timeout in ms, counted from the session's last sign of life."""
        return self._session_timeout_ms

    def on_session(self, callback: SessionCallback) -> None:
        """Call `callback` at every change of the session's state."""
        self._session_callbacks.append(callback)

    def beat(self) -> None:
        """Record that the event loop is not stuck."""
        if self._thread is not None:
            self._thread.keeper.last_beat_ns = self._clock()

    async def open(self) -> None:
        """Start a session.

        Raises ConfigError on a network file system, StoreError for a database of another program,
        and OSError if the directory cannot be used.
        """
        if self._session_id is not None:
            return
        if self._thread is None:
            self._thread = StoreThread(
                self._directory,
                self._session_timeout_ms,
                self._clock,
                self._log,
                self._deliver,
                self._session_event,
                self._thread_failed,
            )
        self.beat()
        await self._submit(self._thread, Open(self._loop.create_future()))

    async def close(self) -> None:
        """End the session and the threads; in a stuck store, the session ends with the process."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            await self._submit(thread, Close(self._loop.create_future()))
        except StoreUnavailable as error:
            self._log(f"closing the metadata store: {error}; the session ends with the process")
        else:
            thread.join()
        self._session_id = None

    async def get(self, path: str, watch: WatchCallback | None = None) -> Node | None:
        """Read a node."""
        validate_path(path)
        request = Get(self._loop.create_future(), paths=(path,), watch=watch)
        nodes = cast("list[Node | None]", await self._submit(self._live(), request))
        return nodes[0]

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Read many nodes in one snapshot."""
        for path in paths:
            validate_path(path)
        request = Get(self._loop.create_future(), paths=tuple(paths))
        return cast("list[Node | None]", await self._submit(self._live(), request))

    async def children(self, path: str, watch: WatchCallback | None = None) -> list[str] | None:
        """List the children of a node."""
        validate_path(path)
        request = Children(self._loop.create_future(), path=path, watch=watch)
        return cast("list[str] | None", await self._submit(self._live(), request))

    async def transact(self, ops: Sequence[Op]) -> list[OpResult]:
        """Apply operations; concurrent transactions are committed together."""
        validate_ops(ops)
        request = WriteRequest(self._loop.create_future(), ops=tuple(ops))
        return cast("list[OpResult]", await self._submit(self._live(), request))

    async def checkpoint_if_large(self, above_bytes: int = CHECKPOINT_WAL_BYTES) -> bool:
        """Empty the write-ahead log if it is large; return whether it was emptied.

        The process of the oldest session also empties a large write-ahead log automatically. Raises
        StoreUnavailable if the disk fails.
        """
        request = Checkpoint(self._loop.create_future(), above_bytes=above_bytes)
        return cast("bool", await self._submit(self._live(), request))

    # the thread's side

    def _live(self) -> StoreThread:
        if self._session_id is None or self._thread is None:
            raise SessionExpired() if self._expired else StoreUnavailable("there is no session")
        return self._thread

    async def _submit(self, thread: StoreThread, request: ThreadRequest) -> object:
        self._pending[request] = None
        thread.submit(request)
        try:
            return await request.future
        finally:
            del self._pending[request]

    def _deliver(self, calls: Sequence[Callable[[], None]]) -> None:
        """Run calls on the loop, in order; may be called on any thread."""
        if not calls:
            return
        self._inbox.extend(calls)
        try:
            self._loop.call_soon_threadsafe(self._receive)
        except RuntimeError:
            return  # the loop is closed, so no callback can run

    def _receive(self) -> None:
        inbox = self._inbox
        while inbox:
            call = inbox.popleft()
            try:
                call()
            except Exception as error:  # a failing watch must not block other responses
                self._loop.call_exception_handler(
                    {"message": "a callback of the metadata store failed", "exception": error}
                )

    def _session_event(self, event: SessionEvent, session_id: int | None) -> Callable[[], None]:
        def deliver() -> None:
            self._session_id = session_id
            self._expired = event is SessionEvent.EXPIRED
            for callback in list(self._session_callbacks):
                callback(event)

        return deliver

    def _thread_failed(self, error: BaseException) -> Callable[[], None]:
        """Fail all requests after a fault of the store's own code.

        The state of the store's code cannot be trusted after an unexpected fault.
        """

        def fail() -> None:
            self._thread = None
            self._session_id = None
            unavailable = StoreUnavailable(f"the store's thread has failed: {error!r}")
            for request in list(self._pending):
                if not request.future.done():
                    request.future.set_exception(unavailable)
            raise error

        return fail
