"""The simulated metadata store as one incarnation of a node sees it (rules S1-S3, S5).

This client implements `metadata.store.MetadataStore`. While the store is unreachable, requests wait
for at most a session timeout. If the connection breaks, the outcome of a transaction in flight is
unknown, and reads in flight are sent again. The client renews the session only if recent calls of
`beat` prove that the node's event loop runs. Every message arrives as an event of the node, so a
paused or dead node gets no messages.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from tidelog.core.dataclass import dataclass
from tidelog.core.ports import Clock, TimerHandle
from tidelog.metadata.paths import validate_ops, validate_path
from tidelog.metadata.store import (
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
)
from tidelog.sim.sim_store_server import (
    ChildrenRequest,
    End,
    Fired,
    GetRequest,
    LostMessage,
    Message,
    Notice,
    Renew,
    ServerSession,
    SimStoreServer,
    StoreConnection,
    StoreResponse,
    Transact,
    Value,
)

__all__ = ["SimStoreClient", "SimStoreServer"]

#: Renewals per session timeout.
_RENEWALS = 6
#: Attempts to reconnect per session timeout.
_RECONNECTS = 60


@dataclass(slots=True)
class WriteStrike:
    """A planned fault at the `countdown`-th transaction from now that checks or writes the store
    node `path`.

    The client calls `strike` before it sends this transaction; with `is_applied`, `strike` is
    called after the store has applied the transaction and before it responds.
    """

    countdown: int
    path: str
    is_applied: bool
    strike: Callable[[], object]

    def meets(self, ops: Sequence[Op]) -> bool:
        """Count a transaction if it checks or writes `path`; return whether the planned fault
        happens at it.
        """
        if all(op.path != self.path for op in ops):
            return False
        self.countdown -= 1
        return self.countdown <= 0


@dataclass(slots=True, eq=False)
class _Request:
    message: Message
    future: asyncio.Future[Value]
    #: Time at which the request was last sent, on the node's own clock.
    sent_ms: int = 0

    def names(self, path: str) -> bool:
        """Return whether the request reads, checks or writes a node, or lists its children."""
        message = self.message
        match message:
            case Transact():
                return any(op.path == path for op in message.ops)
            case GetRequest():
                return path in message.paths
            case ChildrenRequest():
                return message.path == path
            case _:
                return False


class SimStoreClient:
    """The store client of one incarnation.

    `latency` draws the delay of a message in ms. Every call of the client first calls `alive`,
    which raises NodeDead if the incarnation is dead. `reachable` returns whether node and store can
    communicate. After the death of the process (`crashed`), the store ends the session after
    `detect_ms`; None means at the session timeout.
    """

    def __init__(
        self,
        server: SimStoreServer,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        latency: Callable[[], float],
        alive: Callable[[], None],
        reachable: Callable[[], bool],
        session_timeout_ms: int = 6000,
        detect_ms: float | None = None,
    ) -> None:
        self._server = server
        self._loop = loop
        self._clock = clock
        self._latency = latency
        self._alive = alive
        self._reachable = reachable
        #: Time in ms for which the session continues after its last renewal.
        self.session_timeout_ms = session_timeout_ms
        self._detect_ms = detect_ms
        self._session: ServerSession | None = None
        self._expired = False
        self._connection: StoreConnection | None = None
        self._connecting = False
        #: Number of the current session, so that timers of an earlier session do nothing.
        self._life = 0
        self._last_beat_ms = 0
        #: Time, on the node's own clock, at which the client sent the last request to which the
        #: store has responded.
        self.heard_ms = 0
        self._in_flight: deque[_Request] = deque()
        self._waiting: deque[_Request] = deque()
        self._openers: list[asyncio.Future[None]] = []
        self._reconnect_timer: TimerHandle | None = None
        self._next_loss = LostMessage.NOTHING
        #: A planned fault at a later transaction; None without one.
        self.write_strike: WriteStrike | None = None
        #: If set, the path of a store node: the next response to a request about this node never
        #: reaches the caller. This breaks the store's contract, as a client library with a defect
        #: could.
        self.forgotten_path = ""
        self._session_callbacks: list[SessionCallback] = []

    # faults

    def lose_next_answer(self) -> None:
        """Let the store apply the next transaction, but lose its response; the caller gets
        OutcomeUnknown.
        """
        self._next_loss = LostMessage.ANSWER

    def lose_next_request(self) -> None:
        """Lose the request of the next transaction, so that it is not applied; the caller gets
        OutcomeUnknown.
        """
        self._next_loss = LostMessage.REQUEST

    def crashed(self) -> None:
        """Record the death of the process; if `detect_ms` is set, the store ends the session after
        this time.
        """
        session = self._session
        if session is None or self._detect_ms is None:
            return

        def noticed() -> None:
            self._server.expire(session.session_id)

        self._server.schedule(self._detect_ms, noticed)

    # the port

    @property
    def session_id(self) -> int | None:
        """The live session's id."""
        return None if self._session is None else self._session.session_id

    def on_session(self, callback: SessionCallback) -> None:
        """Register a callback for every change of the session's state."""
        self._alive()
        self._session_callbacks.append(callback)

    def beat(self) -> None:
        """Record that the event loop of the node runs."""
        self._alive()
        self._last_beat_ms = self._clock.monotonic_ms()

    async def open(self) -> None:
        """Connect and start a session; raise StoreUnavailable after a session timeout."""
        self._alive()
        if self._session is not None:
            return
        if not self._openers:
            self._life += 1
            self._expired = False
            self._last_beat_ms = self._clock.monotonic_ms()
            self._clock.call_later(self.session_timeout_ms, partial(self._give_up, self._life))
            self._reconnect()
        opener: asyncio.Future[None] = self._loop.create_future()
        self._openers.append(opener)
        await opener

    async def close(self) -> None:
        """End the session; if the store is unreachable, the session ends at its timeout."""
        self._alive()
        if self._session is not None and self._connection is not None and self._reachable():
            # If the request to end the session is lost, the session ends at its timeout.
            with contextlib.suppress(OutcomeUnknown, StoreUnavailable, SessionExpired):
                await self._ask(End())
        self._over(StoreUnavailable("the store is closed"))

    async def get(self, path: str, watch: WatchCallback | None = None) -> Node | None:
        """Read a node."""
        self._alive()
        validate_path(path)
        nodes = cast("list[Node | None]", await self._ask(GetRequest((path,), watch)))
        return nodes[0]

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Read many nodes."""
        self._alive()
        for path in paths:
            validate_path(path)
        return cast("list[Node | None]", await self._ask(GetRequest(tuple(paths), None)))

    async def children(self, path: str, watch: WatchCallback | None = None) -> list[str] | None:
        """List children."""
        self._alive()
        validate_path(path)
        return cast("list[str] | None", await self._ask(ChildrenRequest(path, watch)))

    async def transact(self, ops: Sequence[Op]) -> list[OpResult]:
        """Apply operations."""
        self._alive()
        validate_ops(ops)
        loss, self._next_loss = self._next_loss, LostMessage.NOTHING
        message = Transact(tuple(ops), loss)
        planned = self.write_strike
        if planned is not None and planned.meets(ops):
            self.write_strike = None
            if planned.is_applied:
                message.applied = planned.strike
            else:
                planned.strike()
                self._alive()
        return cast("list[OpResult]", await self._ask(message))

    # requests

    def _ask(self, message: Message) -> asyncio.Future[Value]:
        if self._session is None:
            raise SessionExpired() if self._expired else StoreUnavailable("there is no session")
        request = _Request(message, self._loop.create_future())
        if self._connection is None:
            self._wait(request)
        else:
            self._send(self._connection, request)
        return request.future

    def _send(self, connection: StoreConnection, request: _Request) -> None:
        if connection.is_open and self._reachable():
            request.sent_ms = self._clock.monotonic_ms()
            self._in_flight.append(request)
            connection.request(request.message)
        else:  # the request was never sent, so it is certainly not applied
            connection.cut()
            self._wait(request)

    def _wait(self, request: _Request) -> None:
        self._waiting.append(request)

        def give_up() -> None:
            if request in self._waiting:
                self._waiting.remove(request)
                _fail(
                    request.future,
                    StoreUnavailable(f"no connection for {self.session_timeout_ms} ms"),
                )

        self._clock.call_later(self.session_timeout_ms, give_up)

    # the connection

    def _reconnect(self) -> None:
        """Try to connect until the connection is established or the session is over."""
        if self._reconnect_timer is not None:
            self._reconnect_timer.cancel()
            self._reconnect_timer = None
        if self._connection is not None:
            return
        life = self._life
        if self._reachable() and not self._connecting:
            self._connecting = True
            self._server.schedule(self._latency(), lambda: self._connect_arrives(life))
        self._reconnect_timer = self._clock.call_later(
            self.session_timeout_ms / _RECONNECTS, self._reconnect
        )

    def _connect_arrives(self, life: int) -> None:
        """Let the server handle the client's connection request."""
        server = self._server
        if life != self._life:
            return
        if not self._reachable():
            self._connecting = False
            return
        session: ServerSession | None
        if self._session is None:
            session = server.start_session(self.session_timeout_ms)
        else:
            session = server.session(self._session.session_id)
        if session is None:
            server.schedule(self._latency(), partial(self._on_loop, self._refused, life))
            return
        connection = StoreConnection(
            server,
            session,
            self._latency,
            self._reachable,
            receive=lambda notice: self._on_loop(self._receive, connection, notice),
            broken=lambda: self._on_loop(self._broken, connection),
        )
        connected = partial(self._on_loop, self._connected, life, session, connection)
        server.schedule(self._latency(), connected)

    def _on_loop(self, callback: Callable[..., None], *args: object) -> None:
        self._loop.call_soon(callback, *args)

    def _connected(self, life: int, session: ServerSession, connection: StoreConnection) -> None:
        if life != self._life:
            return  # the client no longer wants the session, which will end at its timeout
        self._connecting = False
        is_new = self._session is None
        if not self._server.is_live(session.session_id):
            if not is_new:
                self._session_expired()
            return
        if not self._reachable():
            return
        self._session = session
        self._connection = connection
        # From this call on, the server may use the connection; it first sends notices of watches
        # that fired.
        session.connected(connection)
        if is_new:
            self._renewal_timer(life)
        else:
            self._renew()
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            self._send(connection, request)
        self._emit(SessionEvent.CONNECTED)
        openers, self._openers = self._openers, []
        for opener in openers:
            if not opener.done():
                opener.set_result(None)

    def _refused(self, life: int) -> None:
        if life == self._life:
            self._session_expired()

    def _broken(self, connection: StoreConnection) -> None:
        if connection is not self._connection:
            return
        self._connection = None
        in_flight, self._in_flight = self._in_flight, deque()
        behind, self._waiting = self._waiting, deque()
        for request in in_flight:
            if isinstance(request.message, Transact):
                _fail(request.future, OutcomeUnknown("the connection broke before the answer"))
            else:
                self._wait(request)
        self._waiting.extend(behind)
        self._emit(SessionEvent.SUSPENDED)
        self._reconnect()

    def _receive(self, connection: StoreConnection, notice: Notice) -> None:
        if connection.session is not self._session:
            return
        if isinstance(notice, Fired):
            notice.callback(notice.event)
        elif connection is not self._connection:
            return
        elif isinstance(notice, StoreResponse):
            request = self._in_flight.popleft()
            self.heard_ms = request.sent_ms
            future = request.future
            if self.forgotten_path and request.names(self.forgotten_path):
                self.forgotten_path = ""
            elif notice.error is not None:
                _fail(future, notice.error)
            elif not future.done():
                future.set_result(notice.value)
        else:
            self._session_expired()

    # the session

    def _renewal_timer(self, life: int) -> None:
        if life != self._life or self._session is None:
            return
        self._renew()
        self._clock.call_later(
            self.session_timeout_ms / _RENEWALS, lambda: self._renewal_timer(life)
        )

    def _renew(self) -> None:
        age_ms = self._clock.monotonic_ms() - self._last_beat_ms
        if self._connection is not None and age_ms * 3 < self.session_timeout_ms:
            self._connection.request(Renew())

    def _session_expired(self) -> None:
        self._expired = True
        self._over(SessionExpired())
        self._emit(SessionEvent.EXPIRED)

    def _over(self, error: StoreError) -> None:
        self._life += 1
        self._session = None
        self._connection = None
        self._connecting = False
        if self._reconnect_timer is not None:
            self._reconnect_timer.cancel()
            self._reconnect_timer = None
        openers, self._openers = self._openers, []
        for opener in openers:
            _fail(opener, error)
        requests = [*self._in_flight, *self._waiting]
        self._in_flight.clear()
        self._waiting.clear()
        for request in requests:
            _fail(request.future, error)

    def _give_up(self, life: int) -> None:
        """Give up opening the session, because the session timeout has passed."""
        if life == self._life and self._session is None:
            self._over(StoreUnavailable(f"not reached within {self.session_timeout_ms} ms"))

    def _emit(self, event: SessionEvent) -> None:
        for callback in list(self._session_callbacks):
            callback(event)


def _fail(future: asyncio.Future[Value] | asyncio.Future[None], error: StoreError) -> None:
    if not future.done():
        future.set_exception(error)
