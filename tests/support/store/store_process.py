"""A process with an open embedded store, driven line by line over its pipes.

Reads one JSON command a line, answers with one JSON line each. A command can make it strike itself
with a signal at a chosen point of a transaction. The points are the SQL statements as SQLite is
about to execute them, and the moments around the store's lock. All of that is put in from here: the
store knows nothing of it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable
from typing import Any

from tidelog.metadata.store import (
    ANY_VERSION,
    Create,
    Delete,
    Op,
    SessionEvent,
    SetData,
    StoreError,
    WatchEvent,
)
from tidelog.runtime.stores import sqlite_database, store_lock
from tidelog.runtime.stores.sqlite import SqliteStore

BEAT_S = 0.02


class Points:
    """Counts the points of the next transaction that writes, and strikes at one of them."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._strike_at = -1
        self._signal = 0
        self._counting = False

    def arm(self, strike_at: int, number: int) -> None:
        """Send signal `number` to this process at point `strike_at` of the next transaction."""
        self.names = []
        self._strike_at = strike_at
        self._signal = number

    def reached(self, name: str) -> None:
        """A point; only those from asking for the lock to having given it back count."""
        if name == LOCK_BEFORE and not self.names:
            self._counting = True
        if not self._counting:
            return
        self.names.append(name)
        if name == LOCK_RELEASED:
            self._counting = False
        if len(self.names) - 1 == self._strike_at:
            self._strike_at = -1
            # To this thread, so that it goes not one step further; the process stops with it.
            signal.pthread_kill(threading.get_ident(), self._signal)

    @property
    def is_over(self) -> bool:
        """Whether the transaction has passed its last point."""
        return bool(self.names) and not self._counting


LOCK_BEFORE, LOCK_RELEASED = "lock: before", "lock: released"
POINTS = Points()


class TracedSqlite:
    """A replacement of the module `sqlite3`, whose connections report each statement."""

    def __getattr__(self, name: str) -> Any:
        return getattr(sqlite3, name)

    @staticmethod
    def connect(*arguments: Any, **keywords: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = sqlite3.connect(*arguments, **keywords)
        connection.set_trace_callback(lambda statement: POINTS.reached(statement.split("(")[0]))
        return connection


class TracedLock(store_lock.StoreLock):
    """The store's lock, telling when it was taken and when it is given back."""

    def acquire(self, session_id: int) -> None:
        POINTS.reached(LOCK_BEFORE)
        super().acquire(session_id)
        POINTS.reached("lock: taken")

    def release(self) -> None:
        POINTS.reached("lock: releasing")
        super().release()
        POINTS.reached(LOCK_RELEASED)


class Process:
    """The store of this process and what it has heard."""

    def __init__(self, directory: str, timeout_ms: int) -> None:
        loop = asyncio.get_running_loop()
        self.store = SqliteStore(
            directory, loop, session_timeout_ms=timeout_ms, log=lambda line: say({"log": line})
        )
        self.store.on_session(self._session)
        self._beats = asyncio.create_task(self._beat())

    async def _beat(self) -> None:
        while True:
            self.store.beat()
            await asyncio.sleep(BEAT_S)

    def _session(self, event: SessionEvent) -> None:
        say({"session": event.name})

    async def run(self, command: dict[str, Any]) -> object:
        """Execute one command."""
        method: Callable[..., Any] = getattr(self, f"do_{command.pop('do')}")
        return await method(**command)

    async def do_open(self) -> object:
        await self.store.open()
        return self.store.session_id

    async def do_close(self) -> object:
        await self.store.close()
        return None

    async def do_make(self, path: str, ephemeral: bool = False) -> object:
        [result] = await self.store.transact([Create(path, b"", ephemeral=ephemeral)])
        return result.stat.czxid if result.stat else None

    async def do_read(self, paths: list[str]) -> object:
        nodes = await self.store.get_many(paths)
        return [None if node is None else [node.data.decode(), *node.stat] for node in nodes]

    async def do_children(self, path: str) -> object:
        return await self.store.children(path)

    async def do_watch(self, path: str) -> object:
        def fired(event: WatchEvent) -> None:
            say({"watch": [event.kind.name, event.path]})

        return await self.store.get(path, fired) is not None

    async def do_mark(self, mark: str) -> object:
        """One transaction over several nodes, to be seen whole or not at all."""
        data = mark.encode()
        ops: list[Op] = [
            SetData("/a", data, ANY_VERSION),
            Create(f"/marks/{mark}", data),
            SetData("/b", data, ANY_VERSION),
            Create(f"/marks/{mark}/passing", data),
            Delete(f"/marks/{mark}/passing", 0),
        ]
        await self.store.transact(ops)
        return None

    async def do_points(self, mark: str) -> object:
        """The points of such a transaction."""
        POINTS.arm(-1, 0)
        await self.do_mark(mark)
        while not POINTS.is_over:
            await asyncio.sleep(0.001)
        return POINTS.names

    async def do_strike(self, mark: str, at: int, kill: int) -> object:
        """Such a transaction, struck by a signal at a point."""
        POINTS.arm(at, kill)
        await self.do_mark(mark)
        return None

    async def do_count(self, name: str, transactions: int, at_once: int) -> object:
        """Count `/counts/<name>` up by conditional writes, and `/shared` by unconditional ones."""
        path = f"/counts/{name}"
        node = await self.store.get(path)
        assert node is not None
        version = node.stat.version
        done = 0
        while done < transactions:
            part = min(at_once, transactions - done)
            tasks = [
                asyncio.create_task(
                    self.store.transact(
                        [
                            SetData(path, str(done + n).encode(), version + n),
                            SetData("/shared", name.encode(), ANY_VERSION),
                        ]
                    )
                )
                for n in range(part)
            ]
            for task in tasks:
                await task
            done += part
            version += part
        return version

    async def do_fork(self) -> object:
        """A child that goes on without exec and outlives this process, until its input closes."""
        child = os.fork()
        if child == 0:
            os.close(1)
            os.set_blocking(0, True)
            while os.read(0, 1):  # until the driver closes it
                pass
            os._exit(0)
        return child

    async def do_checkpoint(self) -> object:
        return await self.store.checkpoint_if_large(0)


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


async def serve(directory: str, timeout_ms: int) -> None:
    process = Process(directory, timeout_ms)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    running: list[asyncio.Task[None]] = []

    async def answer(command: dict[str, Any]) -> None:
        number = command.pop("number")
        try:
            say({"number": number, "value": await process.run(command)})
        except StoreError as error:
            say({"number": number, "error": type(error).__name__, "text": str(error)})

    while line := await reader.readline():
        running.append(asyncio.create_task(answer(json.loads(line))))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if "--traced" in sys.argv:
        replaced = vars(sqlite_database)  # what it has imported
        replaced.update(sqlite3=TracedSqlite(), StoreLock=TracedLock)
    asyncio.run(serve(sys.argv[1], int(sys.argv[2])))
