"""The metadata store on ZooKeeper, a `metadata.store.MetadataStore` (rules S1-S3).

Brokers of this store may be on several machines. This module runs on the loop: it makes requests
and keeps unanswered requests in order. This module delivers results from the thread
(`zookeeper_thread`) in the order in which the server sent them. When a connection is lost, a sent
write has an unknown outcome (S2). Reads and unsent requests wait for the next connection, for a
session timeout at most. On the next connection, watches are set again and a `sync` is sent first,
so that later reads are no older than earlier writes. The decision docs/adr/0050 describes how the
parts work together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

from tidelog.metadata.paths import validate_ops, validate_path
from tidelog.metadata.store import (
    EventKind,
    Node,
    Op,
    OpResult,
    OutcomeUnknown,
    RequestTooLarge,
    SessionCallback,
    SessionEvent,
    SessionExpired,
    StoreError,
    StoreUnavailable,
    WatchCallback,
)
from tidelog.runtime.stores import zookeeper_wire as wire
from tidelog.runtime.stores.zookeeper_conversation import Call, ServerRequest
from tidelog.runtime.stores.zookeeper_servers import Servers
from tidelog.runtime.stores.zookeeper_thread import ServerThread
from tidelog.runtime.stores.zookeeper_watches import ZookeeperWatches

DEFAULT_SESSION_TIMEOUT_MS = 18_000
#: Maximum number of nodes in one read: with nodes of one KiB, the response has half a megabyte and
#: takes a few milliseconds to decode.
_NODES_PER_READ = 500
#: Interval of log lines while no server can be reached at the start.
_WAITING_LINE_EVERY_S = 5.0


class ZookeeperStore:
    """One broker's handle of the metadata in ZooKeeper.

    `connect_timeout_ms` is how long `open` tries to reach a server; None means the session timeout.
    The error of a failed `open` names the setting `connect_timeout_name`. `log` gets warnings, on
    any thread.
    """

    def __init__(
        self,
        servers: Servers,
        loop: asyncio.AbstractEventLoop,
        session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS,
        connect_timeout_ms: int | None = None,
        log: Callable[[str], None] = lambda message: None,
        connect_timeout_name: str = "zookeeper.connection.timeout.ms",
    ) -> None:
        self._servers = servers
        self._loop = loop
        self._session_timeout_ms = session_timeout_ms
        self._connect_timeout_ms = connect_timeout_ms or session_timeout_ms
        self._connect_timeout_name = connect_timeout_name
        self._log = log
        self._life: _Life | None = None
        self._expired = False
        self._inbox: deque[Call] = deque()
        self._is_called = False
        self._session_callbacks: list[SessionCallback] = []

    @property
    def session_id(self) -> int | None:
        """The id of the live session; None if there is no live session."""
        return None if self._life is None else self._life.session_id

    @property
    def session_timeout_ms(self) -> int:
        """The session timeout in ms that the servers granted."""
        return self._session_timeout_ms

    def on_session(self, callback: SessionCallback) -> None:
        """Call `callback` at every change of the session's state."""
        self._session_callbacks.append(callback)

    def beat(self) -> None:
        """Record that the event loop is not stuck."""
        if self._life is not None:
            self._life.thread.beat()

    async def open(self) -> None:
        """Start a session.

        Raises StoreUnavailable if no server is reached in time, and StoreError if the chroot does
        not exist or may not be read.
        """
        if self.session_id is not None:
            return
        if self._life is None:
            self._life = _Life(self)
        await self._life.opened()

    async def close(self) -> None:
        """End the session at once; without a reachable server, the session ends at its timeout."""
        life, self._life = self._life, None
        self._expired = False
        if life is not None:
            await life.close()

    async def get(self, path: str, watch: WatchCallback | None = None) -> Node | None:
        """Read a node."""
        validate_path(path)
        life = self._live()
        if watch is not None:
            life.watch_data(path, watch)
        return await life.get(path)

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Read many nodes with concurrent requests of a few hundred nodes each."""
        for path in paths:
            validate_path(path)
        life = self._live()
        parts = [
            life.get_part(paths[first : first + _NODES_PER_READ])
            for first in range(0, len(paths), _NODES_PER_READ)
        ]
        nodes: list[Node | None] = []
        for part in await asyncio.gather(*parts):
            nodes.extend(part)
        return nodes

    async def children(self, path: str, watch: WatchCallback | None = None) -> list[str] | None:
        """List the children of a node."""
        validate_path(path)
        return await self._live().children(path, watch)

    async def transact(self, ops: Sequence[Op]) -> list[OpResult]:
        """Apply operations as one multi request."""
        validate_ops(ops)
        return await self._live().transact(ops)

    # The object of the current session calls the following methods.

    def _live(self) -> _Life:
        life = self._life
        if life is None or life.session_id is None:
            raise SessionExpired() if self._expired else StoreUnavailable("there is no session")
        return life

    def _deliver(self, calls: Sequence[Call]) -> None:
        """Run calls on the loop, in order; called on the store's thread."""
        self._inbox.extend(calls)
        if self._is_called:
            return
        self._is_called = True
        try:
            self._loop.call_soon_threadsafe(self._receive)
        except RuntimeError:
            return  # the loop is closed, so no callback can run

    def _receive(self) -> None:
        self._is_called = False  # reset first, so that later calls schedule `_receive` again
        inbox = self._inbox
        while inbox:
            call = inbox.popleft()
            try:
                call()
            except Exception as error:  # a failing watch must not block other responses
                self._loop.call_exception_handler(
                    {"message": "a callback of the metadata store failed", "exception": error}
                )

    def _over(self, life: _Life, expired: bool) -> None:
        """Forget a session that expired or whose thread ended."""
        if life is self._life:
            self._life = None
            self._expired = expired

    def _emit(self, event: SessionEvent) -> None:
        for callback in list(self._session_callbacks):
            callback(event)


class _Life:
    """One session from its first connection to its end; the `LoopSide` of the session's thread."""

    def __init__(self, store: ZookeeperStore) -> None:
        self._store = store
        self._loop = store._loop
        self._chroot = store._servers.chroot
        self.session_id: int | None = None
        self._generation: int | None = None
        self._watches = ZookeeperWatches()
        #: Requests that were passed to the session's thread and are unanswered.
        self._unanswered: deque[ServerRequest] = deque()
        #: Requests that wait for a connection.
        self._waiting: deque[ServerRequest] = deque()
        self._is_over = False
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        # Retrieve the future's error here: the caller that opened the session may be gone, and
        # asyncio would then log the error as never retrieved.
        self._opened.add_done_callback(lambda opened: opened.cancelled() or opened.exception())
        self._patience: asyncio.TimerHandle | None = None
        connect_s = store._connect_timeout_ms / 1000
        self._open_timers = [
            self._loop.call_later(connect_s, self._give_up_opening),
            self._loop.call_later(min(1.0, connect_s / 2), self._say_waiting),
        ]
        self.thread = ServerThread(
            store._servers, store._session_timeout_ms, store._deliver, self, store._log
        )

    async def opened(self) -> None:
        """Wait until the session is open."""
        await asyncio.shield(self._opened)

    async def close(self) -> None:
        """End the session and the thread."""
        is_connected = self._generation is not None
        if is_connected:
            self.thread.beat()
            self._ask(ServerRequest(wire.CLOSE, _nothing, lambda answer: None))
        self._finish(StoreUnavailable("the store is closed"))
        if is_connected:
            await self._ended
        else:
            self.thread.stop()

    # requests

    def watch_data(self, path: str, callback: WatchCallback) -> None:
        """Send a request that sets a data watch, ahead of the caller's next request."""

        def settle(exists: object) -> None:
            if isinstance(exists, bool):  # after an error, the following read reports the error
                self._watches.watch_data(path, callback, exists)

        def read(error: int, _: bytes, __: int) -> bool:
            if error not in (wire.OK, wire.NO_NODE):
                raise wire.error_of(error, path)
            return error == wire.OK

        self._ask(ServerRequest(wire.exists(self._full(path)), read, settle))

    async def get(self, path: str) -> Node | None:
        """Read one node."""

        def read(error: int, frame: bytes, offset: int) -> Node | None:
            if error == wire.NO_NODE:
                return None
            _check(error, path)
            return wire.read_node(frame, offset)[0]

        return cast("Node | None", await self._asked(wire.get_data(self._full(path)), read))

    def get_part(self, paths: Sequence[str]) -> asyncio.Future[list[Node | None]]:
        """Read nodes with one request."""

        def read(error: int, frame: bytes, offset: int) -> list[Node | None]:
            _check(error, "")
            return wire.read_nodes(frame, offset, paths)

        return self._asked(wire.multi_read(self._full(path) for path in paths), read)

    async def children(self, path: str, watch: WatchCallback | None) -> list[str] | None:
        """List the children of a node."""

        def read(error: int, frame: bytes, offset: int) -> list[str] | None:
            if error == wire.NO_NODE:
                return None
            _check(error, path)
            names = sorted(wire.read_names(frame, offset))
            # The server's own node `zookeeper`, which exists only in its root, is no child of this
            # store.
            return [name for name in names if path != "/" or self._chroot or name != "zookeeper"]

        def answered(answer: object) -> None:
            if watch is not None and isinstance(answer, list):
                self._watches.watch_children(path, watch)

        message = wire.get_children(self._full(path), watch is not None)
        return cast("list[str] | None", await self._asked(message, read, answered=answered))

    async def transact(self, ops: Sequence[Op]) -> list[OpResult]:
        """Apply operations as one multi request."""
        assert self.session_id is not None
        session_id = self.session_id

        def read(error: int, frame: bytes, offset: int) -> list[OpResult]:
            _check(error, "")
            return wire.read_results(frame, offset, ops, self._chroot, session_id)

        message = wire.multi(ops, self._chroot, self._store._servers.is_protected)
        if message.frame_bytes > wire.MAX_FRAME_BYTES:
            raise RequestTooLarge(
                "",
                f"{message.frame_bytes} bytes in a transaction, below a chroot of"
                f" {len(self._chroot)} characters; ZooKeeper takes {wire.MAX_FRAME_BYTES}",
            )
        return cast("list[OpResult]", await self._asked(message, read, is_write=True))

    def _asked(
        self,
        message: wire.Message,
        read: Callable[[int, bytes, int], object],
        is_write: bool = False,
        answered: Callable[[object], None] | None = None,
    ) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()

        def settle(answer: object) -> None:
            if answered is not None:
                answered(answer)
            if future.done():
                return
            if isinstance(answer, StoreError):
                future.set_exception(answer)
            else:
                future.set_result(answer)

        self._ask(ServerRequest(message, read, settle, is_write=is_write))
        return future

    def _full(self, path: str) -> str:
        return wire.chroot_path(self._chroot, path)

    def _ask(self, request: ServerRequest) -> None:
        if self._generation is None:
            self._wait(request)
        else:
            self._send(request)

    def _send(self, *requests: ServerRequest) -> None:
        assert self._generation is not None
        for request in requests:
            request.is_sent = False
        self._unanswered.extend(requests)
        self.thread.submit(self._generation, requests)

    def _wait(self, request: ServerRequest) -> None:
        request.deadline_s = self._loop.time() + self._store.session_timeout_ms / 1000
        self._waiting.append(request)
        if self._patience is None:
            self._patience = self._loop.call_at(request.deadline_s, self._give_up)

    def _give_up(self) -> None:
        """Fail requests that have waited for a session timeout, and were certainly not applied."""
        self._patience = None
        now = self._loop.time()
        waiting = self._waiting
        while waiting and waiting[0].deadline_s <= now:
            reason = self.thread.line.last_failure or "no connection"
            timeout_ms = self._store.session_timeout_ms
            waiting.popleft().settle(
                StoreUnavailable(f"no ZooKeeper server for {timeout_ms} ms: {reason}")
            )
        if waiting:
            self._patience = self._loop.call_at(waiting[0].deadline_s, self._give_up)

    # The thread of the session requests calls of the following methods on the loop.

    def connected(self, generation: int, session_id: int, seen_zxid: int) -> None:
        """Start using a new connection."""
        if self._is_over:
            self.thread.stop()
            return
        self._generation = generation
        self._store._session_timeout_ms = self.thread.session_timeout_ms
        if self.session_id is None:
            self.thread.beat()  # no timer calls `beat` before the session is open
            self._check_chroot(session_id)
            return
        for message in self._watches.requests(self._chroot, seen_zxid):
            self._send(self._of_connection(message))
        self._send(self._of_connection(wire.sync(self._full("/"))))
        waiting, self._waiting = self._waiting, deque()
        self._send(*waiting)
        self._store._emit(SessionEvent.CONNECTED)

    def answered(self, request: ServerRequest, answer: object) -> None:
        """Complete the oldest request with its response."""
        if self._is_over and request.message is not wire.CLOSE:
            return
        oldest = self._unanswered.popleft()
        assert oldest is request, "answers come in the order of requests"
        request.settle(answer)

    def changed(self, kind: EventKind, path: str) -> None:
        """Fire the watches of a changed node."""
        if self._is_over:
            return
        for callback, event in self._watches.fire(kind, wire.unchroot_path(self._chroot, path)):
            try:
                callback(event)
            except Exception as error:  # the other watches of the event must still fire
                self._loop.call_exception_handler(
                    {"message": "a watch of the metadata store failed", "exception": error}
                )

    def dropped(self, reason: str) -> None:
        """Handle a lost connection, after which sent writes have an unknown outcome (S2)."""
        self._generation = None
        if self._is_over:
            self.thread.stop()
            return
        unanswered, self._unanswered = self._unanswered, deque()
        behind, self._waiting = self._waiting, deque()
        for request in unanswered:
            if request.is_of_connection:
                continue
            if request.is_write and request.is_sent:
                request.settle(
                    OutcomeUnknown(
                        f"the connection to ZooKeeper was lost before the answer: {reason}"
                    )
                )
            else:
                self._wait(request)
        self._waiting.extend(behind)
        if self.session_id is not None:
            self._store._emit(SessionEvent.SUSPENDED)

    def expired(self) -> None:
        """End the session that a server has declared expired."""
        if self._is_over:
            return
        was_open = self.session_id is not None
        self._finish(
            SessionExpired()
            if was_open
            else StoreUnavailable("the session expired before it was ready")
        )
        self._store._over(self, expired=was_open)
        if was_open:
            self._store._emit(SessionEvent.EXPIRED)

    def ended(self, error: BaseException | None) -> None:
        """Handle the end of the thread; an error in the thread's code fails the process."""
        self.thread.line.close()
        if not self._ended.done():
            self._ended.set_result(None)
        if error is not None:
            self._finish(StoreUnavailable(f"the store's thread has failed: {error!r}"))
            self._store._over(self, expired=False)
            raise error

    # opening and ending

    def _check_chroot(self, session_id: int) -> None:
        """Check that the chroot exists; only then does the session count as open."""

        def read(error: int, _: bytes, __: int) -> bool:
            if error not in (wire.OK, wire.NO_NODE):
                raise wire.error_of(error, self._chroot)
            return error == wire.OK

        def settle(exists: object) -> None:
            servers = self._store._servers
            if exists is True:
                self._is_open(session_id)
            elif isinstance(exists, StoreError):
                self._fail_opening(exists)
            else:
                self._fail_opening(
                    StoreError(
                        self._chroot,
                        f"{servers}: the chroot does not exist;"
                        f" `tidelog store create {servers}` makes it",
                    )
                )

        self._send(self._of_connection(wire.exists(self._full("/")), read, settle))

    def _of_connection(
        self,
        message: wire.Message,
        read: Callable[[int, bytes, int], object] | None = None,
        settle: Callable[[object], None] = lambda answer: None,
    ) -> ServerRequest:
        return ServerRequest(message, read or _nothing, settle, is_of_connection=True)

    def _is_open(self, session_id: int) -> None:
        self.session_id = session_id
        self.thread.beat()
        self._stop_timers()
        self._store._emit(SessionEvent.CONNECTED)
        if not self._opened.done():
            self._opened.set_result(None)

    def _say_waiting(self) -> None:
        servers, failure = self._store._servers, self.thread.line.last_failure
        self._store._log(
            f"waiting for ZooKeeper at {servers.hosts}: {failure or 'no connection yet'};"
            f" given up after {self._store._connect_timeout_ms} ms"
        )
        self._open_timers.append(self._loop.call_later(_WAITING_LINE_EVERY_S, self._say_waiting))

    def _give_up_opening(self) -> None:
        self._fail_opening(
            StoreUnavailable(
                f"no ZooKeeper server of {self._store._servers.hosts} could be reached within"
                f" {self._store._connect_timeout_ms} ms"
                f" ({self._store._connect_timeout_name}):"
                f" {self.thread.line.last_failure or 'no connection'}"
            )
        )

    def _fail_opening(self, error: StoreError) -> None:
        if self._generation is not None:
            self.thread.beat()
            self._ask(ServerRequest(wire.CLOSE, _nothing, lambda answer: None))
        else:
            self.thread.stop()
        self._finish(error)
        self._store._over(self, expired=False)

    def _finish(self, error: StoreError) -> None:
        """Fail the requests of this session and stop its thread."""
        self._is_over = True
        self.session_id = None
        self._stop_timers()
        if not self._opened.done():
            self._opened.set_exception(error)
        requests = [*self._unanswered, *self._waiting]
        self._waiting.clear()
        self._unanswered = deque(
            request for request in self._unanswered if request.message is wire.CLOSE
        )
        for request in requests:
            if not request.is_of_connection and request.message is not wire.CLOSE:
                unknown = request.is_write and request.is_sent
                request.settle(
                    OutcomeUnknown(f"{error} before the answer came") if unknown else error
                )

    def _stop_timers(self) -> None:
        for timer in self._open_timers:
            timer.cancel()
        self._open_timers.clear()
        if self._is_over and self._patience is not None:
            self._patience.cancel()
            self._patience = None


def _check(error: int, path: str) -> None:
    if error == wire.THROTTLED:
        raise StoreUnavailable("the ZooKeeper server is throttled")
    if error != wire.OK:
        raise wire.error_of(error, path)


def _nothing(error: int, _: bytes, __: int) -> None:
    """Ignore the response to a request; an error ends the connection anyway."""
    if error != wire.OK:
        raise wire.error_of(error, "")
