"""What only the embedded store has: its files, its lock, its disk, its threads."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.store.clusters import SqliteCluster
from tests.support.store.driver import poll

from tidelog.core.errors import ConfigError
from tidelog.metadata.store import (
    ANY_VERSION,
    Create,
    Delete,
    EventKind,
    OutcomeUnknown,
    SessionEvent,
    SetData,
    StoreError,
    StoreUnavailable,
    WatchEvent,
)
from tidelog.runtime.stores import local_disk, sqlite_database, sqlite_nodes, sqlite_worker
from tidelog.runtime.stores.processes import ProcessId, start_time_of
from tidelog.runtime.stores.sqlite_database import DATABASE_FILE
from tidelog.runtime.stores.sqlite_nodes import SqlNodes, prepare
from tidelog.runtime.stores.sqlite_requests import CHECKPOINT_WAL_BYTES
from tidelog.runtime.stores.sqlite_watches import SqliteWatches
from tidelog.runtime.stores.store_lock import HolderWatch, LockHolding, StoreLock


@pytest.fixture
def cluster(tmp_path: Path) -> SqliteCluster:
    return SqliteCluster(tmp_path / "store")


# the directory


def test_a_store_of_another_application_is_refused(cluster: SqliteCluster) -> None:
    cluster.directory.mkdir()
    with closing(sqlite3.connect(cluster.directory / DATABASE_FILE)) as other:
        other.execute("CREATE TABLE things(id)")
        other.commit()

    async def story() -> None:
        with pytest.raises(StoreError, match=f"{DATABASE_FILE} is not a metadata store"):
            await cluster.open()

    cluster.run(story())


def test_a_file_that_is_no_database_is_refused(cluster: SqliteCluster) -> None:
    cluster.directory.mkdir()
    (cluster.directory / DATABASE_FILE).write_bytes(b"this is text" * 1000)

    async def story() -> None:
        with pytest.raises(StoreError, match="is not a metadata store"):
            await cluster.open()

    cluster.run(story())


def test_a_layout_of_another_release_is_refused(cluster: SqliteCluster) -> None:
    async def once() -> None:
        await cluster.open()

    cluster.run(once())
    with closing(sqlite3.connect(cluster.directory / DATABASE_FILE)) as connection:
        connection.execute("PRAGMA user_version = 99")

    async def again() -> None:
        with pytest.raises(StoreError, match="layout version 99, this release reads 1"):
            await cluster.open()

    cluster.run(again())


def test_a_network_file_system_is_refused(
    cluster: SqliteCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_disk, "file_system_of", lambda path, mounts: "nfs4")

    async def story() -> None:
        with pytest.raises(ConfigError, match="nfs4 is a network file system"):
            await cluster.open()

    cluster.run(story())


MOUNTS = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 27 0:40 / /data rw,relatime - xfs /dev/vdb rw
41 40 0:41 / /data/far\040away rw - nfs4 server:/export rw
42 40 0:42 / /data/over rw - ext4 /dev/vdc rw
43 42 0:43 / /data/over rw - fuse.sshfs host:/ rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/store", "ext4"),
        ("/data", "xfs"),
        ("/data/store", "xfs"),
        ("/database", "ext4"),
        ("/data/far away", "nfs4"),
        ("/data/far away/deep/store", "nfs4"),
        ("/data/over/store", "fuse.sshfs"),
    ],
)
def test_the_file_system_of_a_path_is_that_of_the_innermost_mount(path: str, kind: str) -> None:
    assert local_disk.file_system_of(path, MOUNTS) == kind
    assert (kind in local_disk.NETWORK_FILE_SYSTEMS) == (kind in ("nfs4", "fuse.sshfs"))


def test_a_directory_with_a_very_long_path_works(tmp_path: Path) -> None:
    """Longer than the path of a Unix socket may be."""
    deep = tmp_path.joinpath(*["a-directory-with-a-long-name"] * 6)
    cluster = SqliteCluster(deep)

    async def story() -> None:
        writer, watcher = await cluster.open(), await cluster.open()
        assert (deep / "sessions" / f"{watcher.session_id}.wake").is_socket()
        seen: list[WatchEvent] = []
        await watcher.get("/a", seen.append)
        await writer.transact([Create("/a", b"")])
        await cluster.until(lambda: bool(seen))

    cluster.run(story())


def test_closing_leaves_only_the_database_and_the_lock(cluster: SqliteCluster) -> None:
    async def story() -> None:
        stores = [await cluster.open() for _ in range(3)]
        await stores[0].transact([Create("/a", b"kept")])

    cluster.run(story())
    files = sorted(
        path.relative_to(cluster.directory).as_posix()
        for path in cluster.directory.rglob("*")
        if path.is_file() or path.is_socket()
    )
    assert files == [DATABASE_FILE, "store.lock"]

    async def later() -> None:
        node = await (await cluster.open()).get("/a")
        assert node is not None and node.data == b"kept"

    cluster.run(later())


def test_a_checkpoint_empties_the_log_only_when_it_is_large(cluster: SqliteCluster) -> None:
    wal = cluster.directory / f"{DATABASE_FILE}-wal"

    async def story() -> None:
        store, reader = await cluster.open(), await cluster.open()
        await store.transact([Create("/a", b"")])
        assert not await store.checkpoint_if_large()
        assert wal.stat().st_size > 0
        for number in range(2):
            await store.transact([Create(f"/n{number}", bytes([number]) * 900_000)])
        size = wal.stat().st_size
        assert size > 1_800_000
        assert not await store.checkpoint_if_large(above_bytes=size)
        assert await store.checkpoint_if_large(above_bytes=size - 1)
        assert wal.stat().st_size == 0
        node = await reader.get("/n1")
        assert node is not None and node.data == bytes([1]) * 900_000

    cluster.run(story())


def test_the_log_is_emptied_without_being_asked(cluster: SqliteCluster) -> None:
    """By the process of the oldest session, so that it never grows without bounds."""
    wal = cluster.directory / f"{DATABASE_FILE}-wal"

    async def story() -> None:
        oldest, youngest = await cluster.open(), await cluster.open()
        for number in range(12):
            await youngest.transact([Create(f"/n{number}", bytes([number]) * 900_000)])
        await cluster.until(lambda: wal.stat().st_size <= CHECKPOINT_WAL_BYTES)
        await oldest.close()
        for number in range(12):
            await youngest.transact([SetData(f"/n{number}", bytes([99]) * 900_000, 0)])
        await cluster.until(lambda: wal.stat().st_size <= CHECKPOINT_WAL_BYTES)

    cluster.run(story())


# the disk


class FailingSqlite:
    """Stands in for the module `sqlite3`: one statement of a write fails.

    Statements of reads do not fail: the worker looks for commits of other processes all the time.
    """

    def __init__(self, statement: str, when: str) -> None:
        self.statement = statement
        self.when = when
        self.is_armed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(sqlite3, name)

    def connect(self, *arguments: Any, **keywords: Any) -> sqlite3.Connection:
        failing = self

        class Connection(sqlite3.Connection):
            is_writing = False

            def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
                if sql.startswith("BEGIN"):
                    self.is_writing = sql == "BEGIN IMMEDIATE"
                strikes = failing.is_armed and self.is_writing and sql.startswith(failing.statement)
                if strikes and failing.when == "before":
                    failing.is_armed = False
                    raise sqlite3.OperationalError("disk I/O error")
                cursor = super().execute(sql, *values)
                if strikes:
                    failing.is_armed = False
                    raise sqlite3.OperationalError("disk I/O error")
                return cursor

        return sqlite3.connect(*arguments, factory=Connection, **keywords)


@pytest.mark.parametrize(
    ("statement", "when", "error", "applied"),
    [
        ("BEGIN IMMEDIATE", "before", StoreUnavailable, False),
        ("UPDATE counters", "after", StoreUnavailable, False),
        ("COMMIT", "before", OutcomeUnknown, False),
        ("COMMIT", "after", OutcomeUnknown, True),
    ],
)
def test_a_failing_disk_is_told_apart_by_what_is_certain(
    cluster: SqliteCluster,
    monkeypatch: pytest.MonkeyPatch,
    statement: str,
    when: str,
    error: type[StoreError],
    applied: bool,
) -> None:
    """S2: unavailable means not applied; an interrupted commit is unknown until read back."""
    failing = FailingSqlite(statement, when)
    monkeypatch.setattr(sqlite_database, "sqlite3", failing)

    async def story() -> None:
        # A longer session than the test: no renewal may take the failure in the write's place.
        store = await cluster.open(60_000)
        heard: list[SessionEvent] = []
        store.on_session(heard.append)
        await store.transact([Create("/a", b"before")])
        failing.is_armed = True
        with pytest.raises(error, match="disk I/O error"):
            await store.transact([SetData("/a", b"after", 0)])
        assert heard[0] is SessionEvent.SUSPENDED
        node = await store.get("/a")
        assert node is not None and node.data == (b"after" if applied else b"before")
        await store.transact([SetData("/a", b"later", ANY_VERSION)])
        assert heard[-1] is SessionEvent.CONNECTED

    cluster.run(story())
    assert any("disk I/O error" in line for line in cluster.log)


# watches that fall behind


@contextlib.contextmanager
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        prepare(connection, "memory")
        yield connection


def transact(connection: sqlite3.Connection, *ops: Any) -> None:
    nodes = SqlNodes(connection)
    _, changes = nodes.apply(ops, nodes.zxid + 1, 1)
    nodes.add(changes)
    nodes.write_back()


def test_watches_further_behind_than_the_record_of_changes_fire_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sqlite_nodes, "KEPT_TRANSACTIONS", 5)
    with database() as connection:
        names = ["kept", "set", "gone", "again", "parent", "emptied", "lost"]
        transact(connection, *(Create(f"/{name}", b"") for name in names))
        transact(connection, Create("/emptied/x", b""))
        watches = SqliteWatches(2)
        fired: list[WatchEvent] = []
        watched = [f"/{name}" for name in names if name not in ("emptied", "lost")]
        watches.watch_data(connection, [*watched, "/new", "/never"], fired.append)
        for path in ("/kept", "/parent", "/emptied", "/lost", "/again"):
            watches.watch_children(connection, path, fired.append)
        for ops in (
            [SetData("/set", b"", 0)],
            [Delete("/gone", 0), Delete("/again", 0), Delete("/lost", 0)],
            [Create("/again", b""), Create("/new", b"")],
            [Create("/parent/child", b"")],
            [Delete("/emptied/x", 0)],
        ):
            transact(connection, *ops)
        for version in range(1, 8):
            transact(connection, SetData("/set", b"", version))
        changes, zxid = watches.changes_since_seen(connection)
        called = watches.fire(changes, zxid)
    kinds = {(event.kind, event.path) for _, event in called}
    assert len(called) == len(kinds) == 7
    assert kinds == {
        (EventKind.CHANGED, "/set"),
        (EventKind.DELETED, "/gone"),
        (EventKind.DELETED, "/again"),
        (EventKind.CREATED, "/new"),
        (EventKind.CHILDREN, "/parent"),
        (EventKind.CHILDREN, "/emptied"),
        (EventKind.DELETED, "/lost"),
    }
    assert watches.seen_zxid == 14


def test_watches_that_keep_up_hear_of_the_same_changes_through_the_record() -> None:
    with database() as connection:
        transact(connection, Create("/a", b""), Create("/b", b""))
        watches = SqliteWatches(1)
        watches.watch_data(connection, ["/a", "/b"], lambda event: None)
        transact(connection, SetData("/a", b"", 0))
        changes, zxid = watches.changes_since_seen(connection)
        assert (changes, zxid) == (["=/a"], 2)
        assert [event.path for _, event in watches.fire(changes, zxid)] == ["/a"]
        assert watches.changes_since_seen(connection) == ([], 2)


# the lock

HOLDER = """
import fcntl, os, sys, time
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(file, fcntl.LOCK_EX)
if sys.argv[2]:
    os.pwrite(file, sys.argv[2].replace("PID", str(os.getpid())).encode().ljust(96), 0)
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def holder(path: str, record: str) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds the lock, naming itself by `record`."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, path, record],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == b"held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_the_lock_names_its_holder_while_it_is_held_and_nobody_after(tmp_path: Path) -> None:
    lock = StoreLock(str(tmp_path))
    me = ProcessId(os.getpid(), start_time_of(os.getpid()) or 0)
    for number in (1, 2):
        lock.acquire(session_id=7)
        assert lock.holding() == LockHolding(me, 7, number)
        lock.release()
        assert lock.holding() is None
    lock.close()


def test_a_holder_that_does_not_name_itself_is_found_in_the_kernel(tmp_path: Path) -> None:
    lock = StoreLock(str(tmp_path))
    with holder(lock.path, "") as process:
        start_time = start_time_of(process.pid)
        assert start_time is not None
        assert lock.holding() == LockHolding(ProcessId(process.pid, start_time), 0, 0)
    poll(lambda: lock.holding() is None)
    lock.close()


@pytest.mark.parametrize("named", [True, False])
def test_a_holder_that_stays_is_killed_after_the_session_timeout(
    tmp_path: Path, named: bool
) -> None:
    lock = StoreLock(str(tmp_path))
    lines: list[str] = []
    watch = HolderWatch(lock, 1000, lines.append)
    with holder(lock.path, "") as process:
        if named:
            record = f"{process.pid} {start_time_of(process.pid)} 3 1".encode().ljust(96)
            Path(lock.path).write_bytes(record)
        for _ in range(10):
            watch.check(100)
            assert process.poll() is None and lines == []
        watch.check(100)
        assert process.wait(30) == -signal.SIGKILL
        assert len(lines) == 1
        assert lines[0].startswith(f"KILLED process {process.pid} (session {3 if named else 'un'}")
    lock.close()


def test_a_queue_that_moves_kills_nobody(tmp_path: Path) -> None:
    lock = StoreLock(str(tmp_path))
    watch = HolderWatch(lock, 1000, pytest.fail)
    with holder(lock.path, "") as process:
        start_time = start_time_of(process.pid)
        for number in range(30):
            record = f"{process.pid} {start_time} 3 {number}".encode().ljust(96)
            Path(lock.path).write_bytes(record)
            for _ in range(9):
                watch.check(100)
        assert process.poll() is None
    lock.close()


@pytest.mark.rule("S4")
def test_a_pid_that_another_process_has_by_now_is_not_killed(tmp_path: Path) -> None:
    lock = StoreLock(str(tmp_path))
    lines: list[str] = []
    watch = HolderWatch(lock, 1000, lines.append)
    with holder(lock.path, "PID 12345 3 1") as process:
        for _ in range(12):
            watch.check(100)
        assert process.poll() is None
        assert len(lines) == 1 and lines[0].endswith("but is gone")
    lock.close()


def test_requests_that_cannot_have_the_lock_are_given_up_and_never_applied(
    cluster: SqliteCluster,
) -> None:
    """The lock is held by this very process, which is never killed."""

    async def story() -> None:
        store = await cluster.open(timeout_ms=1_000)
        heard: list[SessionEvent] = []
        store.on_session(heard.append)
        lock = StoreLock(str(cluster.directory))
        lock.acquire(session_id=0)
        with pytest.raises(StoreUnavailable, match="lock"):
            await store.transact([Create("/a", b"")])
        assert heard == [SessionEvent.SUSPENDED]
        lock.release()
        assert await store.get("/a") is None
        await store.transact([Create("/b", b"")])
        assert heard == [SessionEvent.SUSPENDED, SessionEvent.CONNECTED]
        assert await store.children("/") == ["b"]
        lock.close()

    cluster.run(story())
    assert any("held by this process" in line for line in cluster.log)


# the threads


def test_a_fault_of_the_stores_own_code_is_loud(
    cluster: SqliteCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        unhandled: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: unhandled.append(context)
        )
        store = await cluster.open()

        def fail(*_: Any) -> None:
            raise ZeroDivisionError("a fault")

        monkeypatch.setattr(sqlite_worker, "_apply", fail)
        with pytest.raises(StoreUnavailable, match="a fault"):
            await store.transact([Create("/a", b"")])
        assert [str(context["exception"]) for context in unhandled] == ["a fault"]
        assert store.session_id is None
        with pytest.raises(StoreUnavailable):
            await store.get("/a")

    cluster.run(story())


def test_a_watch_that_fails_does_not_keep_answers_from_others(cluster: SqliteCluster) -> None:
    async def story() -> None:
        unhandled: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: unhandled.append(context)
        )
        store = await cluster.open()
        seen: list[WatchEvent] = []

        def fail(_: WatchEvent) -> None:
            raise ZeroDivisionError("a watch's fault")

        await store.get("/a", fail)
        await store.get("/a", seen.append)
        await store.transact([Create("/a", b"")])
        assert len(seen) == 1
        assert [str(context["exception"]) for context in unhandled] == ["a watch's fault"]

    cluster.run(story())


def test_a_cancelled_request_leaves_the_store_usable(cluster: SqliteCluster) -> None:
    async def story() -> None:
        store = await cluster.open()
        calls: list[Callable[[], Any]] = [
            lambda: store.get("/"),
            lambda: store.transact([Create("/n-", b"", sequence=True)]),
        ]
        for call in calls * 20:
            task = asyncio.create_task(call())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert len(await store.children("/") or []) == 20, "they were under way"

    cluster.run(story())


def test_threads_and_descriptors_are_given_back(cluster: SqliteCluster) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    async def story() -> None:
        stores = [await cluster.open() for _ in range(3)]
        await stores[0].transact([Create("/e", b"", ephemeral=True)])

    cluster.run(story())
    gc.collect()  # loops of earlier stories are garbage that holds descriptors
    before = (threading.active_count(), descriptors())
    for _ in range(3):
        cluster.stores.clear()
        cluster.run(story())
    gc.collect()
    assert threading.active_count() <= before[0]
    assert descriptors() <= before[1]
