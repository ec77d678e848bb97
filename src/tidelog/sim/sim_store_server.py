"""The simulated metadata store, server side: one tree, sessions, leases, watches (rules S1-S5).

The server outlives every node. Messages of a session travel through two pipes that keep their
order whatever their delays are; a pipe that breaks takes its connection with it. Time passes only
through `schedule`. Faults: a session expires now, answers and requests are lost, watches are late
(but never later than the answer to a later read, S1), the store is there for nobody for a while (no
session expires meanwhile, and each begins its time anew, S3). What a node sees is `sim/sim_store`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

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
#: Call back after a delay in ms of virtual time, as an event of no node.
Schedule = Callable[[float, Callable[[], None]], object]
#: (transaction id, session id, operations, results) of each committed transaction.
CommitCallback = Callable[[int, int, Sequence[Op], Sequence[OpResult]], None]


class Loss(Enum):
    """What becomes of a transaction on its way."""

    NOTHING = "nothing"
    #: It is lost before it is applied.
    REQUEST = "request"
    #: It is applied, and its answer is lost.
    ANSWER = "answer"


@dataclass(slots=True)
class Get:
    """Read nodes; the watch goes to each of the paths."""

    paths: Sequence[str]
    watch: WatchCallback | None


@dataclass(slots=True)
class Children:
    """List children."""

    path: str
    watch: WatchCallback | None


@dataclass(slots=True)
class Transact:
    """Apply operations."""

    ops: Sequence[Op]
    loss: Loss
    #: Called when it was applied, before anybody is answered.
    applied: Callable[[], object] | None = None


class Renew:
    """A sign of life; not answered."""


class End:
    """End the session."""


Message = Get | Children | Transact | Renew | End
Value = list[Node | None] | list[str] | list[OpResult] | None


@dataclass(slots=True)
class Answer:
    """The outcome of the oldest request that was not answered."""

    value: Value = None
    error: StoreError | None = None


@dataclass(slots=True)
class Fired:
    """A watch fired."""

    callback: WatchCallback
    event: WatchEvent


class Expired:
    """The session is over; nothing follows."""


Notice = Answer | Fired | Expired


class Pipe(Generic[M]):
    """Messages in one direction: each arrives after its delay or with a later one, in order."""

    def __init__(self, schedule: Schedule, deliver: Callable[[M], None]) -> None:
        self._schedule = schedule
        self._deliver = deliver
        self._queue: deque[tuple[int, M]] = deque()
        self._sent = 0

    def send(self, message: M, delay_ms: float) -> None:
        """Deliver `message` in `delay_ms` at the latest (unless the pipe is closed)."""
        self._sent += 1
        number = self._sent
        self._queue.append((number, message))
        self._schedule(delay_ms, lambda: self._arrive(number))

    def close(self) -> list[M]:
        """Deliver nothing more; returns what was under way."""
        lost = [message for _, message in self._queue]
        self._queue.clear()
        return lost

    def _arrive(self, number: int) -> None:
        while self._queue and self._queue[0][0] <= number:
            self._deliver(self._queue.popleft()[1])


class Connection:
    """One connection of one session, from the client's connecting until it breaks."""

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
        self._requests: Pipe[Message] = Pipe(server.schedule, self._request_arrives)
        self._notices: Pipe[Notice] = Pipe(server.schedule, self._notice_arrives)

    def request(self, message: Message) -> None:
        """Client: send; it is lost with the connection if that breaks first."""
        if not self._reachable():
            self.cut()
        elif self.is_open:
            self._requests.send(message, self._latency())

    def notify(self, notice: Notice, extra_ms: float = 0.0) -> None:
        """Server: send."""
        self._notices.send(notice, self._latency() + extra_ms)

    def cut(self) -> None:
        """Break: what is under way is lost, but for watches that fired; both sides hear of it."""
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
    """What the server knows of a session."""

    def __init__(self, session_id: int, timeout_ms: int) -> None:
        self.session_id = session_id
        self.timeout_ms = timeout_ms
        self.watches: Watches[WatchCallback] = Watches()
        self.renewals = 0
        self._connection: Connection | None = None
        self._undelivered: list[Fired] = []

    def connected(self, connection: Connection) -> None:
        """A connection took over; it first gets the watches that fired meanwhile."""
        if self._connection is not None:
            self._connection.cut()
        self._connection = connection
        undelivered, self._undelivered = self._undelivered, []
        for fired in undelivered:
            connection.notify(fired)

    def disconnected(self, connection: Connection, undelivered: list[Fired]) -> None:
        """A connection broke."""
        self._undelivered.extend(undelivered)
        if self._connection is connection:
            self._connection = None

    def keep(self, fired: Fired) -> None:
        """A watch that did not get through goes to the next connection."""
        self._undelivered.append(fired)

    def fire(self, changes: Sequence[Change], extra_ms: Callable[[], float]) -> None:
        """Tell of changes that are watched."""
        for callback, event in self.watches.fire(changes):
            fired = Fired(callback, event)
            if self._connection is None:
                self._undelivered.append(fired)
            else:
                self._connection.notify(fired, extra_ms())

    def expired(self) -> None:
        """Tell that it is over."""
        if self._connection is not None:
            self._connection.notify(Expired())


class SimStoreServer:
    """The shared truth of one simulated cluster."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.tree = Tree()
        #: Extra delay in ms of each watch that fires; draws may be replaced at any time.
        self.watch_delay_ms: Callable[[], float] = lambda: 0.0
        #: Whether a session may expire now (a fault budget); one that may not gets more time.
        self.may_expire: Callable[[int], bool] = lambda _: True
        #: Sessions that ended by expiry, not by their own close.
        self.expiries = 0
        #: Whether anybody can reach it.
        self.is_available = True
        self._sessions: dict[int, ServerSession] = {}
        self._last_session_id = 0
        self._commit_callbacks: list[CommitCallback] = []

    def on_commit(self, callback: CommitCallback) -> None:
        """Follow every committed transaction, at the moment it is applied. The removal of a
        session's ephemeral nodes is one, in its name."""
        self._commit_callbacks.append(callback)

    def live_sessions(self) -> list[int]:
        """Ids of the sessions that live, oldest first."""
        return list(self._sessions)

    def is_live(self, session_id: int) -> bool:
        """Whether a session lives."""
        return session_id in self._sessions

    def start_session(self, timeout_ms: int) -> ServerSession:
        """A client without a session connects."""
        self._last_session_id += 1
        session = ServerSession(self._last_session_id, timeout_ms)
        self._sessions[session.session_id] = session
        self._renewed(session)
        return session

    def session(self, session_id: int) -> ServerSession | None:
        """A client comes back; None when its session is over."""
        return self._sessions.get(session_id)

    def expire(self, session_id: int) -> bool:
        """End a session now; False if it was over already, or may not end, or nobody is there to
        end it."""
        session = self._sessions.get(session_id)
        if session is None or not self.is_available or not self.may_expire(session_id):
            return False
        self.expiries += 1
        self._end(session)
        session.expired()
        return True

    def come_back(self) -> None:
        """The store is available again; every session has its whole time from here on."""
        self.is_available = True
        for session in self._sessions.values():
            self._renewed(session)

    def write_from_outside(self, path: str, data: bytes) -> bytes:
        """Somebody who is no broker writes a node, or makes it; nobody follows that as a commit.
        Returns what it held."""
        node = self.tree.get(path)
        op = Create(path, data) if node is None else SetData(path, data, ANY_VERSION)
        _, changes = self.tree.transact([op], 0)
        for session in self._sessions.values():
            session.fire(changes, self.watch_delay_ms)
        return b"" if node is None else node.data

    def edit_from_outside(self, ops: Sequence[Op]) -> list[OpResult]:
        """Somebody who is no broker makes, writes and deletes nodes in one transaction; nobody
        follows that as a commit."""
        results, changes = self.tree.transact(ops, 0)
        for session in self._sessions.values():
            session.fire(changes, self.watch_delay_ms)
        return results

    def delete_from_outside(self, path: str) -> None:
        """Somebody who is no broker deletes a node that is there."""
        _, changes = self.tree.transact([Delete(path, ANY_VERSION)], 0)
        for session in self._sessions.values():
            session.fire(changes, self.watch_delay_ms)

    def handle(self, session: ServerSession, connection: Connection, message: Message) -> None:
        """A message of a client arrives."""
        if session.session_id not in self._sessions:
            return  # the notice that it has expired is under way
        if isinstance(message, Renew):
            self._renewed(session)
        elif isinstance(message, Transact):
            self._transact(session, connection, message)
        elif isinstance(message, Get):
            connection.notify(Answer([self.tree.get(path) for path in message.paths]))
            if message.watch is not None:
                for path in message.paths:
                    session.watches.watch_data(path, message.watch)
        elif isinstance(message, Children):
            names = self.tree.children(message.path)
            if names is not None and message.watch is not None:
                session.watches.watch_children(message.path, message.watch)
            connection.notify(Answer(names))
        else:
            self._end(session)
            connection.notify(Answer())

    def _transact(self, session: ServerSession, connection: Connection, message: Transact) -> None:
        if message.loss is Loss.REQUEST:
            connection.cut()
            return
        try:
            results, changes = self.tree.transact(message.ops, session.session_id)
        except StoreError as error:
            answer = Answer(error=error)
        else:
            answer = Answer(results)
            self._committed(session.session_id, message.ops, results, changes)
            if message.applied is not None:
                message.applied()
        if message.loss is Loss.ANSWER:
            connection.cut()
        else:
            connection.notify(answer)

    def _end(self, session: ServerSession) -> None:
        """The session and its ephemeral nodes go in one transaction (rule S1)."""
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
