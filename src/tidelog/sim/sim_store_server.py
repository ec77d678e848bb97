"""The server of the simulated metadata store: one tree, sessions and their timeouts, watches (rules
S1-S5).

The server runs during the whole run, unlike the simulated nodes. The messages of a connection
travel through two pipes, one in each direction, which keep their order although their delays
differ. All delays of the server use the function `schedule`.

Faults expire a session, lose requests and responses, delay watches, and make the store unavailable
for a while. Even a delayed watch fires before its session gets the response to a later read (S1).
No session expires while the store is unavailable, and each session gets its whole timeout again
afterwards (S3). `sim/sim_store` is the client side.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Generic, TypeVar

from tidelog.core.dataclass import dataclass
from tidelog.metadata.store import (
    ANY_VERSION,
    Create,
    Delete,
    Node,
    Op,
    OpResult,
    SetData,
    StoreError,
    WatchCallback,
    WatchEvent,
)
from tidelog.metadata.tree import Change, Tree
from tidelog.metadata.watches import Watches

M = TypeVar("M")
#: A function that calls another function after a delay in ms of virtual time, in an event that
#: belongs to no node.
Schedule = Callable[[float, Callable[[], None]], object]
#: (transaction id, session id, operations, results) of each committed transaction.
CommitCallback = Callable[[int, int, Sequence[Op], Sequence[OpResult]], None]


class LostMessage(Enum):
    """Which message of a transaction is lost: nothing, the request or the response."""

    NOTHING = "nothing"
    #: The request is lost, and the transaction is not applied.
    REQUEST = "request"
    #: The transaction is applied, and its response is lost.
    ANSWER = "answer"


@dataclass(slots=True)
class GetRequest:
    """A request to read store nodes, with an optional watch on each of them."""

    paths: Sequence[str]
    watch: WatchCallback | None


@dataclass(slots=True)
class ChildrenRequest:
    """A request to list children."""

    path: str
    watch: WatchCallback | None


@dataclass(slots=True)
class Transact:
    """A request to apply operations as one transaction."""

    ops: Sequence[Op]
    loss: LostMessage
    #: Called after the transaction was applied, before the store responds.
    applied: Callable[[], object] | None = None


class Renew:
    """A renewal of the session, without a response."""


class End:
    """A request to end the session."""


Message = GetRequest | ChildrenRequest | Transact | Renew | End
Value = list[Node | None] | list[str] | list[OpResult] | None


@dataclass(slots=True)
class StoreResponse:
    """The response to the oldest open request."""

    value: Value = None
    error: StoreError | None = None


@dataclass(slots=True)
class Fired:
    """The notice of a watch that fired."""

    callback: WatchCallback
    event: WatchEvent


class Expired:
    """The notice that the session is over; it is the last notice of a session."""


Notice = StoreResponse | Fired | Expired


class StorePipe(Generic[M]):
    """Messages in one direction, in order: when a message arrives, all earlier messages arrive
    before it.
    """

    def __init__(self, schedule: Schedule, deliver: Callable[[M], None]) -> None:
        self._schedule = schedule
        self._deliver = deliver
        self._queue: deque[tuple[int, M]] = deque()
        self._sent = 0

    def send(self, message: M, delay_ms: float) -> None:
        """Deliver `message` after at most `delay_ms`, unless the pipe is closed first."""
        self._sent += 1
        number = self._sent
        self._queue.append((number, message))
        self._schedule(delay_ms, lambda: self._arrive(number))

    def close(self) -> list[M]:
        """Stop the delivery; return the messages in flight."""
        lost = [message for _, message in self._queue]
        self._queue.clear()
        return lost

    def _arrive(self, number: int) -> None:
        while self._queue and self._queue[0][0] <= number:
            self._deliver(self._queue.popleft()[1])


class StoreConnection:
    """One connection of a session, from the client's connection request until the connection
    breaks.
    """

    def __init__(
        self,
        server: SimStoreServer,
        session: ServerSession,
        latency: Callable[[], float],
        reachable: Callable[[], bool],
        receive: Callable[[Notice], None],
        broken: Callable[[], None],
    ) -> None:
        self.is_open = True
        self._server = server
        self.session = session
        self._latency = latency
        self._reachable = reachable
        self._receive = receive
        self._broken = broken
        self._requests: StorePipe[Message] = StorePipe(server.schedule, self._request_arrives)
        self._notices: StorePipe[Notice] = StorePipe(server.schedule, self._notice_arrives)

    def request(self, message: Message) -> None:
        """Send a request of the client, which is lost if the connection breaks first."""
        if not self._reachable():
            self.cut()
        elif self.is_open:
            self._requests.send(message, self._latency())

    def notify(self, notice: Notice, extra_ms: float = 0.0) -> None:
        """Send a notice of the server."""
        self._notices.send(notice, self._latency() + extra_ms)

    def cut(self) -> None:
        """Break the connection; both sides notice.

        Messages in flight are lost, except notices of watches that fired.
        """
        if not self.is_open:
            return
        self.is_open = False
        self._requests.close()
        undelivered = [item for item in self._notices.close() if isinstance(item, Fired)]
        self.session.disconnected(self, undelivered)
        self._server.schedule(self._latency(), self._broken)

    def _request_arrives(self, message: Message) -> None:
        if not self._reachable():
            self.cut()
        elif self.is_open:
            self._server.handle(self.session, self, message)

    def _notice_arrives(self, notice: Notice) -> None:
        if self._reachable():
            self._receive(notice)
            return
        if isinstance(notice, Fired):
            self.session.keep(notice)
        self.cut()


class ServerSession:
    """A session as the server knows it."""

    def __init__(self, session_id: int, timeout_ms: int) -> None:
        self.session_id = session_id
        self.timeout_ms = timeout_ms
        self.watches: Watches[WatchCallback] = Watches()
        self.renewals = 0
        self._connection: StoreConnection | None = None
        self._undelivered: list[Fired] = []

    def connected(self, connection: StoreConnection) -> None:
        """Use a new connection; first send it the notices of watches that fired without a
        connection.
        """
        if self._connection is not None:
            self._connection.cut()
        self._connection = connection
        undelivered, self._undelivered = self._undelivered, []
        for fired in undelivered:
            connection.notify(fired)

    def disconnected(self, connection: StoreConnection, undelivered: list[Fired]) -> None:
        """Record a broken connection, and keep its undelivered notices."""
        self._undelivered.extend(undelivered)
        if self._connection is connection:
            self._connection = None

    def keep(self, fired: Fired) -> None:
        """Keep the undelivered notice of a watch for the next connection."""
        self._undelivered.append(fired)

    def fire(self, changes: Sequence[Change], extra_ms: Callable[[], float]) -> None:
        """Send notices of changes that the session watches."""
        for callback, event in self.watches.fire(changes):
            fired = Fired(callback, event)
            if self._connection is None:
                self._undelivered.append(fired)
            else:
                self._connection.notify(fired, extra_ms())

    def expired(self) -> None:
        """Send the notice that the session is over."""
        if self._connection is not None:
            self._connection.notify(Expired())


class SimStoreServer:
    """The metadata store of one simulated cluster."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.tree = Tree()
        #: Returns the extra delay in ms of the next watch that fires; faults replace this function.
        self.watch_delay_ms: Callable[[], float] = lambda: 0.0
        #: Returns whether the fault budget allows that a session expires now; otherwise the session
        #: gets more time.
        self.may_expire: Callable[[int], bool] = lambda _: True
        #: Number of sessions that ended by expiry, not by a request of their client.
        self.expiries = 0
        #: Whether simulated nodes can reach the store.
        self.is_available = True
        self._sessions: dict[int, ServerSession] = {}
        self._last_session_id = 0
        self._commit_callbacks: list[CommitCallback] = []

    def on_commit(self, callback: CommitCallback) -> None:
        """Register a callback that is called for every transaction when it is applied.

        The removal of a session's ephemeral nodes is a transaction of that session.
        """
        self._commit_callbacks.append(callback)

    def live_sessions(self) -> list[int]:
        """Return the ids of live sessions, oldest first."""
        return list(self._sessions)

    def is_live(self, session_id: int) -> bool:
        """Return whether a session is live."""
        return session_id in self._sessions

    def start_session(self, timeout_ms: int) -> ServerSession:
        """Start a session for a client that connects without a session."""
        self._last_session_id += 1
        session = ServerSession(self._last_session_id, timeout_ms)
        self._sessions[session.session_id] = session
        self._renewed(session)
        return session

    def session(self, session_id: int) -> ServerSession | None:
        """Return the session of a client that reconnects; None if the session is over."""
        return self._sessions.get(session_id)

    def expire(self, session_id: int) -> bool:
        """Expire a session now.

        Return False if the session is over already or must not expire, or the store is unavailable.
        """
        session = self._sessions.get(session_id)
        if session is None or not self.is_available or not self.may_expire(session_id):
            return False
        self.expiries += 1
        self._end(session)
        session.expired()
        return True

    def come_back(self) -> None:
        """Make the store available again; every session gets its whole timeout from now on."""
        self.is_available = True
        for session in self._sessions.values():
            self._renewed(session)

    def write_from_outside(self, path: str, data: bytes) -> bytes:
        """Write or create a store node as an outside tool would, without calling commit callbacks.

        Return the former data of the node.
        """
        node = self.tree.get(path)
        op = Create(path, data) if node is None else SetData(path, data, ANY_VERSION)
        _, changes = self.tree.transact([op], 0)
        for session in self._sessions.values():
            session.fire(changes, self.watch_delay_ms)
        return b"" if node is None else node.data

    def edit_from_outside(self, ops: Sequence[Op]) -> list[OpResult]:
        """Apply operations as one transaction, as an outside tool would, without calling commit
        callbacks.
        """
        results, changes = self.tree.transact(ops, 0)
        for session in self._sessions.values():
            session.fire(changes, self.watch_delay_ms)
        return results

    def delete_from_outside(self, path: str) -> None:
        """Delete an existing store node, as an outside tool would, without calling commit
        callbacks.
        """
        _, changes = self.tree.transact([Delete(path, ANY_VERSION)], 0)
        for session in self._sessions.values():
            session.fire(changes, self.watch_delay_ms)

    def remove_from_outside(self, path: str) -> None:
        """Delete an existing store node, as an outside tool would, and call the commit
        callbacks.
        """
        ops: list[Op] = [Delete(path, ANY_VERSION)]
        results, changes = self.tree.transact(ops, 0)
        self._committed(0, ops, results, changes)

    def put_back(self, copy: Tree) -> None:
        """Replace the store by an older copy, as an operator does; every session ends.

        The ephemeral nodes in the copy belong to ended sessions, so they are deleted, without
        calling commit callbacks.
        """
        self._sessions.clear()
        self.tree = copy.copy()
        for owner in self.tree.owners():
            gone: list[Op] = [Delete(path, ANY_VERSION) for path in self.tree.ephemerals(owner)]
            self.tree.transact(gone, owner)

    def handle(self, session: ServerSession, connection: StoreConnection, message: Message) -> None:
        """Handle a message of a client."""
        if session.session_id not in self._sessions:
            # Ignore the request: the client will soon get the notice that its session has expired.
            return
        if isinstance(message, Renew):
            self._renewed(session)
        elif isinstance(message, Transact):
            self._transact(session, connection, message)
        elif isinstance(message, GetRequest):
            connection.notify(StoreResponse([self.tree.get(path) for path in message.paths]))
            if message.watch is not None:
                for path in message.paths:
                    session.watches.watch_data(path, message.watch)
        elif isinstance(message, ChildrenRequest):
            names = self.tree.children(message.path)
            if names is not None and message.watch is not None:
                session.watches.watch_children(message.path, message.watch)
            connection.notify(StoreResponse(names))
        else:
            self._end(session)
            connection.notify(StoreResponse())

    def _transact(
        self, session: ServerSession, connection: StoreConnection, message: Transact
    ) -> None:
        if message.loss is LostMessage.REQUEST:
            connection.cut()
            return
        try:
            results, changes = self.tree.transact(message.ops, session.session_id)
        except StoreError as error:
            answer = StoreResponse(error=error)
        else:
            answer = StoreResponse(results)
            self._committed(session.session_id, message.ops, results, changes)
            if message.applied is not None:
                message.applied()
        if message.loss is LostMessage.ANSWER:
            connection.cut()
        else:
            connection.notify(answer)

    def _end(self, session: ServerSession) -> None:
        """End a session and delete its ephemeral nodes in one transaction (rule S1)."""
        del self._sessions[session.session_id]
        paths = self.tree.ephemerals(session.session_id)
        ops: list[Op] = [Delete(path, ANY_VERSION) for path in paths]
        results, changes = self.tree.transact(ops, session.session_id)
        session.watches.clear()
        self._committed(session.session_id, ops, results, changes)

    def _committed(
        self,
        session_id: int,
        ops: Sequence[Op],
        results: Sequence[OpResult],
        changes: Sequence[Change],
    ) -> None:
        if not changes:
            return
        for callback in self._commit_callbacks:
            callback(self.tree.zxid, session_id, ops, results)
        for session in self._sessions.values():
            session.fire(changes, self.watch_delay_ms)

    def _renewed(self, session: ServerSession) -> None:
        session.renewals += 1
        renewals = session.renewals

        def check() -> None:
            if session.renewals != renewals or session.session_id not in self._sessions:
                return
            if not self.expire(session.session_id):
                self.schedule(session.timeout_ms, check)

        self.schedule(session.timeout_ms, check)
