"""The store's thread of one process, which serves requests and fires watches (S1-S4).

The thread serves requests in order. Waiting writes share one SQL transaction and one sync, but each
write is atomic and has its own transaction id. Every transaction, read or write, first checks that
the session is live and reads the commits of other processes. A session gets the watch events of all
commits that a transaction has read, and only then the transaction's result (S1). Without requests,
the thread checks for commits when it is woken, and every 100 ms.
"""

from __future__ import annotations

import os
import select
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tidelog.metadata.store import (
    OpResult,
    OutcomeUnknown,
    SessionEvent,
    SessionExpired,
    StoreError,
    StoreUnavailable,
    TransactionFailed,
    WatchCallback,
)
from tidelog.runtime.stores.keeper import Keeper
from tidelog.runtime.stores.leases import SessionRow
from tidelog.runtime.stores.sqlite_database import Database
from tidelog.runtime.stores.sqlite_nodes import SqlNodes, read_children, read_nodes
from tidelog.runtime.stores.sqlite_requests import (
    CHECKPOINT_WAL_BYTES,
    Call,
    Checkpoint,
    Children,
    Get,
    Open,
    ThreadRequest,
    WriteRequest,
    failure,
    failures,
    success,
)
from tidelog.runtime.stores.sqlite_watches import SqliteWatches
from tidelog.runtime.stores.wakeups import Wakeups

_POLL_MS = 100
_NS_PER_MS = 1_000_000
#: Time in ms between two attempts to checkpoint the write-ahead log, if a reader prevents one.
_CHECKPOINT_EVERY_MS = 1000
#: Maximum number of operations in one SQL transaction; so many operations hold the lock for about
#: 50 ms.
_MAX_GROUP_OPS = 10_000
#: Maximum number of groups of requests that the thread serves before it checks again for lost peers
#: and sessions.
_MAX_RUNS_PER_TURN = 16

Deliver = Callable[[Sequence[Call]], None]


class StoreThread:
    """The thread of one open store, with its database connection, session keeper and sockets."""

    def __init__(
        self,
        directory: str,
        timeout_ms: int,
        clock: Callable[[], int],
        log: Callable[[str], None],
        deliver: Deliver,
        session_event: Callable[[SessionEvent, int | None], Callable[[], None]],
        failed: Callable[[BaseException], Callable[[], None]],
    ) -> None:
        self._timeout_ms = timeout_ms
        self._log = log
        self._deliver = deliver
        self._session_event = session_event
        self._failed = failed
        self._database = Database(directory, clock)
        self._wakeups = Wakeups(directory)
        self._session_id: int | None = None
        self._watches = SqliteWatches(0)
        self._peers: list[int] = []
        self._is_suspended = False
        self._queue: deque[ThreadRequest] = deque()
        self._current: list[ThreadRequest] = []
        self._lost_peers: deque[tuple[int, int | None]] = deque()
        self._claims = threading.Lock()
        self._stopping = False
        self._clock = clock
        self._refreshed_ns = 0
        self._checkpointed_ns = 0
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self._wake, select.POLLIN)
        self.keeper = Keeper(
            directory,
            timeout_ms,
            self._database.lock,
            clock,
            log,
            self._peer_lost,
            self._suspended,
            self._lock_denied,
            self._keeper_failed,
        )
        self._thread = threading.Thread(target=self._run, name="tidelog-store", daemon=True)
        self._thread.start()

    # The loop calls the following methods.

    def submit(self, request: ThreadRequest) -> None:
        """Queue a request."""
        with self._claims:
            self._queue.append(request)
        os.eventfd_write(self._wake, 1)

    def join(self) -> None:
        """Wait until the thread has ended after Close; no request may be submitted later."""
        self._thread.join()
        os.close(self._wake)

    # The keeper calls the following methods.

    def _peer_lost(self, session_id: int, silent_count: int | None) -> None:
        """Record that a peer has released its lease, or no longer renews its lease."""
        self._lost_peers.append((session_id, silent_count))
        os.eventfd_write(self._wake, 1)

    def _lock_denied(self) -> None:
        """Fail the requests that have waited long enough, and were certainly not applied."""
        with self._claims:
            given_up = [
                request for request in [*self._current, *self._queue] if not request.is_claimed
            ]
            for request in given_up:
                request.is_claimed = True
        error = StoreUnavailable(
            f"the metadata store's lock was not available for {self._timeout_ms} ms"
        )
        self._deliver(failures(given_up, error))

    def _keeper_failed(self, error: BaseException) -> None:
        """Fail the store after an error of the keeper thread, which keeps the session alive."""
        self._deliver([self._failed(error)])

    # the thread

    def _run(self) -> None:
        try:
            while not self._stopping:
                ready = [descriptor for descriptor, _ in self._poll.poll(_POLL_MS)]
                if self._wake in ready:
                    os.eventfd_read(self._wake)
                self._wakeups.drain()
                self._turn()
        except BaseException as error:
            self._deliver([self._failed(error)])
        finally:
            self.keeper.stop()
            self._wakeups.close()
            self._database.close()

    def _turn(self) -> None:
        """Serve the queued requests, then look for commits of other processes if that is due."""
        for _ in range(len(self._lost_peers)):
            self._expire(*self._lost_peers.popleft())
        served = 0
        while self._queue and not self._stopping and served < _MAX_RUNS_PER_TURN:
            served += 1
            first = self._queue[0]
            with self._claims:
                self._current = self._take_run(type(first))
            if isinstance(first, WriteRequest):
                self._write()
            elif isinstance(first, Get | Children):
                self._read()
            elif isinstance(first, Open):
                self._open()
            elif isinstance(first, Checkpoint):
                self._checkpoint(first)
            else:
                self._close()
            self._current = []
        if self._queue:
            os.eventfd_write(self._wake, 1)
        if not served or self._clock() - self._refreshed_ns > _POLL_MS * _NS_PER_MS:
            self._refresh()
            self._checkpoint_if_due()

    def _take_run(self, kind: type[ThreadRequest]) -> list[ThreadRequest]:
        """Remove and return the oldest queued requests that one SQL transaction can serve."""
        run: list[ThreadRequest] = []
        operations = 0
        reads = issubclass(kind, Get | Children)
        while self._queue:
            request = self._queue[0]
            if isinstance(request, WriteRequest):
                operations += len(request.ops)
            if run and (
                operations > _MAX_GROUP_OPS
                or not (isinstance(request, Get | Children) if reads else kind is WriteRequest)
                or (kind is WriteRequest and not isinstance(request, WriteRequest))
            ):
                break
            run.append(self._queue.popleft())
        return run

    def _claim(self) -> list[ThreadRequest]:
        """Claim and return the current requests, except requests that have already failed."""
        with self._claims:
            claimed = [request for request in self._current if not request.is_claimed]
            for request in claimed:
                request.is_claimed = True
        return claimed

    # sessions

    def _open(self) -> None:
        requests: list[ThreadRequest] = []
        try:
            with self._database.locked(0):
                requests = self._claim()
                if not requests:
                    return
                self._database.open()
                lease, zxid = self._database.start_session(self._timeout_ms)
                self._session_id = lease.session_id
                self.keeper.keep(lease)
            self._poll.register(self._wakeups.receive_for(lease.session_id), select.POLLIN)
            self._peers_are(self._database.sessions())
        except (sqlite3.Error, OSError, StoreError) as error:
            wrapped = error if isinstance(error, StoreError) else StoreUnavailable(str(error))
            self._deliver(failures([*requests, *self._claim()], wrapped))
            return
        self._watches = SqliteWatches(zxid)
        self._is_suspended = False
        answers = [success(request, None) for request in requests]
        self._deliver([self._session_event(SessionEvent.CONNECTED, self._session_id), *answers])
        self._wake_peers()

    def _session_is_over(self) -> None:
        """Report that the session expired, because a peer considered this process dead."""
        session_id, self._session_id = self._session_id, None
        if session_id is None:
            return
        self._log(f"session {session_id} has expired")
        self.keeper.keep(None)
        self._stop_receiving()
        self._watches = SqliteWatches(0)
        self._deliver([self._session_event(SessionEvent.EXPIRED, None)])

    def _expire(self, session_id: int, silent_count: int | None) -> None:
        try:
            with self._database.locked(self._session_id or 0):
                self._database.open()
                why = self._database.expire(session_id, silent_count)
        except (sqlite3.Error, OSError) as error:
            self._unreachable(error)
            return
        if why is not None:
            self._log(f"session {session_id} has expired: {why}")
            self._wake_peers()
        self._refresh(even_unchanged=True)

    def _close(self) -> None:
        try:
            with self._database.locked(self._session_id or 0):
                if self._session_id is not None and self._database.is_open:
                    self._database.end_session(self._session_id)
                    self._wake_peers()
                self._database.disconnect()
        except (sqlite3.Error, OSError) as error:
            self._log(f"closing the metadata store: {error}; the session ends with the process")
        self._session_id = None
        self._stopping = True
        self._deliver([success(request, None) for request in self._claim()])

    def _stop_receiving(self) -> None:
        receiver = self._wakeups.receiver
        if receiver is not None:
            self._poll.unregister(receiver)
            self._wakeups.stop_receiving()

    def _peers_are(self, rows: list[SessionRow]) -> None:
        others = [row for row in rows if row.session_id != self._session_id]
        session_ids = [row.session_id for row in others]
        if session_ids != self._peers:
            self._peers = session_ids
            self.keeper.watch_peers(others)

    def _wake_peers(self) -> None:
        self._wakeups.send(self._peers)

    # reads

    def _refresh(self, even_unchanged: bool = False) -> None:
        """Read the commits of other processes and fire watches, without a request."""
        database = self._database
        self._refreshed_ns = self._clock()
        if not database.is_open:
            return
        try:
            if not database.has_changed() and not even_unchanged:
                return
            database.connection.execute("BEGIN")
            rows = database.sessions()
            changes, zxid = self._watches.changes_since_seen(database.connection)
            database.connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._unreachable(error)
            return
        self._peers_are(rows)
        if self._session_id is None:
            return
        self._reachable()
        if all(row.session_id != self._session_id for row in rows):
            self._session_is_over()
        else:
            self._deliver(self._fired(self._watches.fire(changes, zxid)))

    def _read(self) -> None:
        requests = self._claim()
        session_id, database = self._session_id, self._database
        if session_id is None:
            self._refuse(requests)
            return
        answers: list[Call] = []
        fired = 0
        try:
            self._ensure_open(session_id)
            connection = database.connection
            connection.execute("BEGIN")
            changes, zxid = self._watches.changes_since_seen(connection)
            if not database.session_lives(session_id):
                connection.execute("COMMIT")
                self._session_is_over()
                self._refuse(requests)
                return
            answers.extend(self._fired(self._watches.fire(changes, zxid)))
            fired = len(answers)
            answers.extend([self._answer(connection, request) for request in requests])
            connection.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            self._unreachable(error)
            unavailable = StoreUnavailable(str(error))
            # Watches that fired are already removed, so deliver their events although the requests
            # fail.
            del answers[fired:]
            answers.extend(failures(requests, unavailable))
        else:
            self._reachable()
        self._deliver(answers)

    def _ensure_open(self, session_id: int) -> None:
        """Reconnect to the database after a failure."""
        if not self._database.is_open:
            with self._database.locked(session_id):
                self._database.open()

    def _answer(self, connection: sqlite3.Connection, request: ThreadRequest) -> Call:
        if isinstance(request, Get):
            nodes = read_nodes(connection, request.paths)
            if request.watch is not None:
                self._watches.watch_data(connection, request.paths, request.watch)
            return success(request, nodes)
        assert isinstance(request, Children)
        names = read_children(connection, request.path)
        if names is not None and request.watch is not None:
            self._watches.watch_children(connection, request.path, request.watch)
        return success(request, names)

    # writes

    def _write(self) -> None:
        session_id = self._session_id
        if session_id is None:
            self._refuse(self._claim())
            return
        answers: list[Call] = []
        try:
            with self._database.locked(session_id):
                requests = self._claim()
                if requests:
                    answers = self._write_locked(session_id, requests)
        except OSError as error:
            self._unreachable(error)
            answers += failures(self._claim(), StoreUnavailable(str(error)))
        self._deliver(answers)
        self._wake_peers()

    def _write_locked(self, session_id: int, requests: list[ThreadRequest]) -> list[Call]:
        """Apply and commit a group of writes; return the calls to run on the loop."""
        database = self._database
        try:
            database.open()
            connection = database.connection
            connection.execute("BEGIN IMMEDIATE")
            rows = database.sessions()
            if all(row.session_id != session_id for row in rows):
                connection.execute("ROLLBACK")
                self._session_is_over()
                return failures(requests, SessionExpired())
            changes, _ = self._watches.changes_since_seen(connection)
            nodes = SqlNodes(connection)
            answers = _apply(nodes, requests, session_id)
            nodes.write_back()
        except sqlite3.Error as error:
            database.roll_back()
            self._unreachable(error)
            return failures(requests, StoreUnavailable(str(error)))
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            database.roll_back()
            self._unreachable(error)
            return failures(requests, OutcomeUnknown(f"the commit was interrupted: {error}"))
        self._peers_are(rows)
        fired = self._watches.fire([*changes, *nodes.changes()], nodes.zxid)
        self._reachable()
        return [*self._fired(fired), *answers]

    def _checkpoint_if_due(self) -> None:
        """Checkpoint a large write-ahead log, only in the process of the oldest session."""
        session_id = self._session_id
        if session_id is None or any(peer < session_id for peer in self._peers):
            return
        now_ns = self._clock()
        if (
            now_ns - self._checkpointed_ns < _CHECKPOINT_EVERY_MS * _NS_PER_MS
            or self._database.wal_bytes() <= CHECKPOINT_WAL_BYTES
        ):
            return
        self._checkpointed_ns = now_ns
        try:
            with self._database.locked(session_id):
                self._database.open()
                self._database.checkpoint()
        except (sqlite3.Error, OSError) as error:
            self._unreachable(error)

    def _checkpoint(self, request: Checkpoint) -> None:
        done = False
        try:
            if self._database.wal_bytes() > request.above_bytes:
                with self._database.locked(self._session_id or 0):
                    self._database.open()
                    done = self._database.checkpoint()
        except (sqlite3.Error, OSError) as error:
            self._unreachable(error)
            unavailable = StoreUnavailable(f"the checkpoint failed: {error}")
            self._deliver(failures(self._claim(), unavailable))
            return
        self._deliver([success(request, done) for request in self._claim()])

    # answers

    def _refuse(self, requests: list[ThreadRequest]) -> None:
        self._deliver(failures(requests, SessionExpired()))

    @staticmethod
    def _fired(fired: Sequence[tuple[WatchCallback, Any]]) -> list[Call]:
        return [partial(callback, event) for callback, event in fired]

    def _unreachable(self, error: Exception) -> None:
        self._log(f"metadata store: {error}")
        self._database.roll_back()
        self._suspended()

    def _suspended(self) -> None:
        if not self._is_suspended and self._session_id is not None:
            self._is_suspended = True
            self._deliver([self._session_event(SessionEvent.SUSPENDED, self._session_id)])

    def _reachable(self) -> None:
        if self._is_suspended:
            self._is_suspended = False
            self._deliver([self._session_event(SessionEvent.CONNECTED, self._session_id)])


def _apply(nodes: SqlNodes, requests: list[ThreadRequest], session_id: int) -> list[Call]:
    """Apply each request's operations in turn; a failed request does not affect other requests."""
    writes = [request for request in requests if isinstance(request, WriteRequest)]
    nodes.load(op for request in writes for op in request.ops)
    answers: list[Call] = []
    for request in writes:
        results: list[OpResult]
        try:
            results, changes = nodes.apply(request.ops, nodes.zxid + 1, session_id)
        except TransactionFailed as failed:
            answers.append(failure(request, failed))
        else:
            nodes.add(changes)
            answers.append(success(request, results))
    return answers
