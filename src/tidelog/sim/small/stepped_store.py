"""A metadata store whose requests and responses wait for the world (rules S1 to S3, S5).

The server is a real `Tree` with real `Watches`. When the world calls `serve`, the server serves the
oldest waiting request of a session. Responses and watch events of a session keep the order in which
the server sent them. When the world calls `deliver`, the next of them reaches the client. Between
the two calls, other sessions may write, the connection may break, and the session may expire.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final

from tidelog.core.dataclass import dataclass
from tidelog.metadata.store import (
    ANY_VERSION,
    Delete,
    Node,
    Op,
    OpResult,
    OutcomeUnknown,
    SessionCallback,
    SessionEvent,
    SessionExpired,
    StoreError,
    StoreUnavailable,
    WatchCallback,
    WatchEvent,
)
from tidelog.metadata.tree import Change, Tree
from tidelog.metadata.watches import Watches
from tidelog.sim.small.stepped_loop import ReadyLoop

#: Called after each transaction: the session, the operations, and the changed nodes.
OnCommit = Callable[[int, Sequence[Op], Sequence[Change]], None]
_SESSION_TIMEOUT_MS: Final = 6_000


class StoreCallKind(Enum):
    """The kinds of requests to the store."""

    GET = "get"
    GET_MANY = "get_many"
    CHILDREN = "children"
    TRANSACT = "transact"


@dataclass(slots=True, eq=False)
class StoreCall:
    """A request of a client of the store."""

    kind: StoreCallKind
    future: asyncio.Future[Any]
    paths: Sequence[str] = ()
    ops: Sequence[Op] = ()
    watch: WatchCallback | None = None

    def fail(self, error: StoreError) -> None:
        """Let the caller get an error, unless the caller has given up."""
        if not self.future.done():
            self.future.set_exception(error)


@dataclass(slots=True, eq=False)
class StoreNotice:
    """A message from the store to a client: a watch event, a response, or the end of a session."""

    call: StoreCall | None = None
    value: Any = None
    error: StoreError | None = None
    watch: WatchCallback | None = None
    event: WatchEvent | None = None


class SteppedStore:
    """The server: the tree of nodes, and the watches of the live sessions."""

    def __init__(self, tree: Tree, on_commit: OnCommit) -> None:
        self.tree = tree
        self._on_commit = on_commit
        self._watches: dict[int, Watches[WatchCallback]] = {}
        self._clients: dict[int, SteppedSession] = {}
        self._last_session = 0

    def begin_session(self, client: SteppedSession | None = None) -> int:
        """Start a session and return its id; without `client`, a script uses the session."""
        self._last_session += 1
        self._watches[self._last_session] = Watches()
        if client is not None:
            self._clients[self._last_session] = client
        return self._last_session

    def is_live(self, session_id: int) -> bool:
        """Return whether a session has not ended."""
        return session_id in self._watches

    def watches(self, session_id: int) -> Watches[WatchCallback]:
        """Return the watches of a live session."""
        return self._watches[session_id]

    def commit(self, ops: Sequence[Op], session_id: int) -> list[OpResult]:
        """Apply a transaction, and send the watch events; raises TransactionFailed."""
        results, changes = self.tree.transact(ops, session_id)
        if changes:
            self._announce(changes)
            self._on_commit(session_id, ops, changes)
        return results

    def expire(self, session_id: int) -> None:
        """End a session: its ephemeral nodes are deleted, and its watches never fire."""
        del self._watches[session_id]
        client = self._clients.pop(session_id, None)
        ops = [Delete(path, ANY_VERSION) for path in self.tree.ephemerals(session_id)]
        if ops:
            self.commit(ops, session_id)
        if client is not None:
            client.notices.append(StoreNotice(error=SessionExpired()))

    def _announce(self, changes: Sequence[Change]) -> None:
        for session_id, watches in self._watches.items():
            if not len(watches):
                continue
            client = self._clients[session_id]
            for callback, event in watches.fire(changes):
                client.notices.append(StoreNotice(watch=callback, event=event))


class SteppedSession:
    """A client of the store, as one process uses it; implements `MetadataStore`."""

    def __init__(self, store: SteppedStore, loop: ReadyLoop) -> None:
        self._store = store
        self._loop = loop
        self._session_id: int | None = None
        self._callbacks: list[SessionCallback] = []
        #: Requests that the server has not served.
        self.requests: deque[StoreCall] = deque()
        #: Messages that have not reached the client.
        self.notices: deque[StoreNotice] = deque()
        #: Whether the client cannot reach the server.
        self.is_cut = False

    # the world

    def renew(self) -> int:
        """Start another session, and return its id."""
        self._session_id = self._store.begin_session(self)
        return self._session_id

    @property
    def next_call(self) -> StoreCall | None:
        """The request that the server serves next; None without one."""
        return self.requests[0] if self.requests and not self.is_cut else None

    @property
    def writes(self) -> bool:
        """Whether the server serves a transaction next."""
        call = self.next_call
        return call is not None and call.kind is StoreCallKind.TRANSACT

    def serve(self) -> None:
        """Let the server serve the next request; the response is on its way then."""
        call = self.requests.popleft()
        session_id = self._session_id
        if session_id is None or not self._store.is_live(session_id):
            self.notices.append(StoreNotice(call, error=SessionExpired()))
            return
        try:
            value = self._result(call, session_id)
        except StoreError as error:
            self.notices.append(StoreNotice(call, error=error))
        else:
            self.notices.append(StoreNotice(call, value))

    def _result(self, call: StoreCall, session_id: int) -> Any:
        tree = self._store.tree
        if call.kind is StoreCallKind.TRANSACT:
            return self._store.commit(call.ops, session_id)
        if call.kind is StoreCallKind.GET_MANY:
            return [tree.get(path) for path in call.paths]
        path = call.paths[0]
        if call.kind is StoreCallKind.GET:
            if call.watch is not None:
                self._store.watches(session_id).watch_data(path, call.watch)
            return tree.get(path)
        names = tree.children(path)
        if names is not None and call.watch is not None:
            self._store.watches(session_id).watch_children(path, call.watch)
        return names

    def deliver(self) -> None:
        """Let the next message reach the client."""
        notice = self.notices.popleft()
        if notice.watch is not None and notice.event is not None:
            notice.watch(notice.event)
        elif notice.call is None:
            self._end()
        elif notice.error is not None:
            notice.call.fail(notice.error)
        elif not notice.call.future.done():
            notice.call.future.set_result(notice.value)

    def _end(self) -> None:
        """Let the client learn that its session has expired."""
        self._session_id = None
        calls = [notice.call for notice in self.notices if notice.call is not None]
        calls += self.requests
        self.notices.clear()
        self.requests.clear()
        for call in calls:
            call.fail(SessionExpired())
        for callback in self._callbacks:
            callback(SessionEvent.EXPIRED)

    def break_connection(self, *, serves_write: bool) -> None:
        """Break the connection: the outcome of a transaction under way is unknown to the client.

        With `serves_write`, the transaction that the server serves next is applied before. Reads
        are sent again, and watch events are not lost (S1).
        """
        if serves_write and self.writes:
            self.serve()
        kept: deque[StoreNotice] = deque()
        again: list[StoreCall] = []
        for notice in self.notices:
            if notice.call is None:
                kept.append(notice)
            else:
                again.append(notice.call)
        unknown = [call for call in (*again, *self.requests) if call.kind is StoreCallKind.TRANSACT]
        self.requests = deque(
            call for call in (*again, *self.requests) if call.kind is not StoreCallKind.TRANSACT
        )
        self.notices = kept
        for call in unknown:
            call.fail(OutcomeUnknown("the connection broke before the response"))

    def give_up(self) -> None:
        """Let the client give up its requests, because it has not reached the server for long."""
        calls, self.requests = self.requests, deque()
        for call in calls:
            call.fail(StoreUnavailable("the store cannot be reached"))

    # the port

    @property
    def session_id(self) -> int | None:
        """The id of the session, None after its end is known."""
        return self._session_id

    @property
    def session_timeout_ms(self) -> int:
        """The session timeout."""
        return _SESSION_TIMEOUT_MS

    async def open(self) -> None:
        """Do nothing: the world starts sessions."""

    async def close(self) -> None:
        """Do nothing: the world ends sessions."""

    def on_session(self, callback: SessionCallback) -> None:
        """Call `callback` when the session's end becomes known."""
        self._callbacks.append(callback)

    def beat(self) -> None:
        """Do nothing: the world decides which session expires."""

    async def get(self, path: str, watch: WatchCallback | None = None) -> Node | None:
        """Read a node."""
        node: Node | None = await self._ask(StoreCallKind.GET, (path,), watch=watch)
        return node

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Read many nodes."""
        nodes: list[Node | None] = await self._ask(StoreCallKind.GET_MANY, tuple(paths))
        return nodes

    async def children(self, path: str, watch: WatchCallback | None = None) -> list[str] | None:
        """List the children of a node."""
        names: list[str] | None = await self._ask(StoreCallKind.CHILDREN, (path,), watch=watch)
        return names

    async def transact(self, ops: Sequence[Op]) -> list[OpResult]:
        """Apply operations."""
        results: list[OpResult] = await self._ask(StoreCallKind.TRANSACT, ops=tuple(ops))
        return results

    def _ask(
        self,
        kind: StoreCallKind,
        paths: Sequence[str] = (),
        ops: Sequence[Op] = (),
        watch: WatchCallback | None = None,
    ) -> asyncio.Future[Any]:
        if self._session_id is None:
            raise SessionExpired()
        call = StoreCall(kind, self._loop.create_future(), paths, ops, watch)
        self.requests.append(call)
        return call.future
