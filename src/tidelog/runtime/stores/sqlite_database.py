"""A process's connection to the store's database: opening, sessions, expiry, checkpoints.

All writes happen inside `locked()`, which holds the store's lock for one SQL transaction, for a
checkpoint, or for opening or closing the connection (the last close checkpoints). Writes,
checkpoints, opens and closes of different processes never overlap. No other code in a process may
open the database file, because closing any descriptor of the file releases SQLite's own locks. Only
the store's thread uses this module.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator

from tidelog.core.errors import InvariantError
from tidelog.metadata.store import ANY_VERSION, Delete, StoreError
from tidelog.runtime.stores.leases import (
    SESSIONS_DIRECTORY,
    Lease,
    ObservedLease,
    SessionRow,
    remove_session_files,
    remove_stray_files,
)
from tidelog.runtime.stores.local_disk import refuse_network_file_system
from tidelog.runtime.stores.processes import ProcessId, this_process
from tidelog.runtime.stores.sqlite_nodes import SqlNodes, ephemeral_paths, prepare, read_zxid
from tidelog.runtime.stores.store_lock import StoreLock

DATABASE_FILE = "metadata.db"
#: How long SQLite may wait while a peer recovers the write-ahead log after a crash.
_BUSY_TIMEOUT_S = 2.0
_PRAGMAS = (
    "PRAGMA synchronous = FULL",
    "PRAGMA wal_autocheckpoint = 0",
    "PRAGMA cache_size = -8000",
    "PRAGMA temp_store = MEMORY",
)


class Database:
    """The database of a store directory."""

    def __init__(self, directory: str, clock: Callable[[], int]) -> None:
        os.makedirs(os.path.join(directory, SESSIONS_DIRECTORY), exist_ok=True)
        refuse_network_file_system(directory)
        self.directory = directory
        self.path = os.path.join(directory, DATABASE_FILE)
        self.lock = StoreLock(directory, clock)
        self._process = this_process()
        self._connection: sqlite3.Connection | None = None
        self._data_version = -1
        #: Whether a transaction could not be rolled back, so that the connection must be closed
        #: under the lock.
        self._is_broken = False

    @property
    def connection(self) -> sqlite3.Connection:
        """The open connection; raises sqlite3.OperationalError if there is none."""
        if self._connection is None:
            raise sqlite3.OperationalError("the database is not open")
        return self._connection

    @property
    def is_open(self) -> bool:
        """Whether there is a working connection to the database."""
        return self._connection is not None and not self._is_broken

    def open(self) -> None:
        """Connect, and create the tables of a new database; the caller holds the store's lock."""
        if self.is_open:
            return
        self.disconnect()
        connection = sqlite3.connect(self.path, isolation_level=None, timeout=_BUSY_TIMEOUT_S)
        try:
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            if mode != "wal":
                raise StoreError("", f"{self.path} cannot use a write-ahead log ({mode})")
            for pragma in _PRAGMAS:
                connection.execute(pragma)
            connection.execute("BEGIN IMMEDIATE")
            prepare(connection, self.path)
            connection.execute("COMMIT")
        except BaseException as error:
            connection.close()
            if isinstance(error, sqlite3.DatabaseError) and _is_no_database(error):
                raise StoreError("", f"{self.path} is not a metadata store: {error}") from error
            raise
        self._connection = connection

    def disconnect(self) -> None:
        """Close the connection under the store's lock: the last close writes a checkpoint."""
        connection, self._connection = self._connection, None
        self._is_broken = False
        if connection is not None:
            connection.close()

    @contextlib.contextmanager
    def locked(self, session_id: int) -> Iterator[None]:
        """Hold the store's lock during a `with` block."""
        self.lock.acquire(session_id)
        try:
            yield
        finally:
            self.lock.release()

    def roll_back(self) -> None:
        """Roll back a failed SQL transaction; if the rollback fails, abandon the connection."""
        connection = self._connection
        if connection is None or not connection.in_transaction:
            return
        try:
            connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._is_broken = True

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Run one writing SQL transaction; the caller holds the store's lock."""
        connection = self.connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            self.roll_back()
            raise

    def has_changed(self) -> bool:
        """Return whether another process has committed since the last call."""
        version = int(self.connection.execute("PRAGMA data_version").fetchone()[0])
        changed = version != self._data_version
        self._data_version = version
        return changed

    def sessions(self) -> list[SessionRow]:
        """Return all sessions, oldest first."""
        rows = self.connection.execute(
            "SELECT id, pid, start_time, timeout_ms FROM sessions ORDER BY id"
        ).fetchall()
        return [
            SessionRow(session_id, ProcessId(pid, start_time), timeout_ms)
            for session_id, pid, start_time, timeout_ms in rows
        ]

    def session_lives(self, session_id: int) -> bool:
        """Return whether a session is still live."""
        row = self.connection.execute("SELECT 1 FROM sessions WHERE id = ?", (session_id,))
        return row.fetchone() is not None

    def start_session(self, timeout_ms: int) -> tuple[Lease, int]:
        """Start a session of this process, and end the sessions of dead processes.

        Returns the session's lease and the transaction id at its start. The caller holds the
        store's lock.
        """
        lease: Lease | None = None
        try:
            with self._transaction() as connection:
                self._remove_abandoned()
                row = connection.execute("SELECT last_session FROM counters").fetchone()
                session_id = int(row[0]) + 1
                lease = Lease(self.directory, session_id)
                connection.execute("UPDATE counters SET last_session = ?", (session_id,))
                connection.execute(
                    "INSERT INTO sessions VALUES (?, ?, ?, ?)",
                    (session_id, *self._process, timeout_ms),
                )
                live = [row.session_id for row in self.sessions()]
                zxid = read_zxid(connection)
        except BaseException:
            if lease is not None:
                lease.close()
            raise
        remove_stray_files(self.directory, live)
        return lease, zxid

    def end_session(self, session_id: int) -> None:
        """End a session of this process and remove its ephemeral nodes in one transaction.

        The caller holds the store's lock.
        """
        with self._transaction():
            self._remove(session_id)
        remove_session_files(self.directory, session_id)

    def expire(self, session_id: int, silent_count: int | None) -> str | None:
        """End a peer's session if its process has ended or is still silent.

        Returns the reason, or None if this call ended no session. `silent_count` is the counter of
        the peer's lease if it has not changed for too long, and None if the peer's process has
        ended. The caller holds the store's lock.
        """
        with self._transaction():
            row = next((row for row in self.sessions() if row.session_id == session_id), None)
            why = None if row is None else self._why_over(row, silent_count)
            if why is not None:
                self._remove(session_id)
        if why is not None:
            remove_session_files(self.directory, session_id)
        return why

    def checkpoint(self) -> bool:
        """Move the write-ahead log into the database and empty it.

        Returns False if readers kept the write-ahead log from being emptied: a checkpoint does not
        wait for readers. The caller holds the store's lock.
        """
        connection = self.connection
        connection.execute("PRAGMA busy_timeout = 0")
        try:
            busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        finally:
            connection.execute(f"PRAGMA busy_timeout = {round(_BUSY_TIMEOUT_S * 1000)}")
        return not busy

    def wal_bytes(self) -> int:
        """Return the size of the write-ahead log in bytes."""
        try:
            return os.stat(self.path + "-wal").st_size
        except FileNotFoundError:
            return 0

    def close(self) -> None:
        """Close the lock's descriptor; the caller must not hold the lock."""
        self.lock.close()

    def _remove_abandoned(self) -> None:
        """Remove the sessions of dead processes, inside the current transaction."""
        for row in self.sessions():
            if self._why_over(row, None) is not None:
                self._remove(row.session_id)

    def _why_over(self, row: SessionRow, silent_count: int | None) -> str | None:
        observed = ObservedLease(self.directory, row)
        try:
            if observed.is_abandoned():
                return "its process has ended"
            if silent_count is not None and observed.read_count() == silent_count:
                return f"no sign of life for {row.timeout_ms} ms"
        finally:
            observed.close()
        return None

    def _remove(self, session_id: int) -> None:
        """Remove a session and its ephemeral nodes, inside the current transaction (rule S1)."""
        connection = self.connection
        ops = [Delete(path, ANY_VERSION) for path in ephemeral_paths(connection, session_id)]
        nodes = SqlNodes(connection)
        nodes.load(ops)
        _, changes = nodes.apply(ops, nodes.zxid + 1, session_id)
        nodes.add(changes)
        nodes.write_back()
        removed = connection.execute("DELETE FROM sessions WHERE id = ?", (session_id,)).rowcount
        if removed != 1 and changes:
            raise InvariantError(f"session {session_id} was over but had ephemeral nodes")


def raise_ids(directory: str, above: int, clock: Callable[[], int]) -> None:
    """Raise the transaction ids of a store above `above` (S6), creating a missing database.

    No other code in this process may have the store open.
    """
    database = Database(directory, clock)
    try:
        with database.locked(0):
            database.open()
            try:
                database.connection.execute("UPDATE counters SET zxid = max(zxid, ?)", (above,))
            finally:
                database.disconnect()
    finally:
        database.close()


def _is_no_database(error: sqlite3.DatabaseError) -> bool:
    return error.sqlite_errorcode in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
