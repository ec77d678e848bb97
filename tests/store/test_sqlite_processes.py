"""The embedded store between real processes that are stopped, killed and resumed (S1, S4)."""

from __future__ import annotations

import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from tests.support.store.driver import (
    Driven,
    Drivers,
    Refused,
    drivers,
    poll,
)

from tidelog.runtime.stores.sqlite_database import DATABASE_FILE

TIMEOUT_MS = 1000
TRANSACTIONS = 100_000


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Drivers]:
    with drivers(tmp_path / "store") as made:
        yield made


def check_integrity(directory: Path) -> None:
    """Once no process has the store open."""
    with closing(sqlite3.connect(directory / DATABASE_FILE)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        orphans = connection.execute(
            "SELECT path FROM nodes WHERE parent NOT IN (SELECT id FROM nodes) AND path <> '/'"
        )
        assert orphans.fetchall() == []
        counted = connection.execute(
            "SELECT path FROM nodes p WHERE child_count <>"
            " (SELECT count(*) FROM nodes c WHERE c.parent = p.id)"
        )
        assert counted.fetchall() == []


def prepare_marks(process: Driven) -> None:
    for path in ("/a", "/b", "/marks", "/victims"):
        process.ask(do="make", path=path)


def seen_mark(process: Driven, mark: str) -> bool:
    """Whether a process sees the transaction of a mark: all of it, or nothing."""
    a, b, made, passing = process.ask(
        do="read", paths=["/a", "/b", f"/marks/{mark}", f"/marks/{mark}/passing"]
    )
    assert passing is None
    assert (a[0] == mark) == (b[0] == mark) == (made is not None), (a, b, made)
    return bool(made is not None)


def is_durable_at(points: list[str], at: int) -> bool:
    """Whether a transaction has been committed before its point `at` is reached."""
    return "COMMIT" in points[:at]


def test_a_process_killed_at_any_point_of_a_transaction_leaves_all_of_it_or_nothing(
    processes: Drivers,
) -> None:
    witnesses = processes.start_many(3, TIMEOUT_MS)
    prepare_marks(witnesses[0])
    victim = processes.start(TIMEOUT_MS, traced=True)
    points = victim.ask(do="points", mark="rehearsal")
    assert points.count("COMMIT") == 1
    assert len(points) >= 15, points
    for at, point in enumerate(points):
        mark = f"kill-{at}"
        victim.ask(do="make", path=f"/victims/{at}", ephemeral=True)
        for witness in witnesses:
            assert witness.ask(do="watch", path=f"/victims/{at}")
        victim.start(do="strike", mark=mark, at=at, kill=int(signal.SIGKILL))
        assert victim.wait_ended() == -signal.SIGKILL
        for witness in witnesses:
            witness.hears(watch=["DELETED", f"/victims/{at}"])
        expected = is_durable_at(points, at)
        assert [seen_mark(witness, mark) for witness in witnesses] == [expected] * 3, point
        witnesses[at % 3].ask(do="mark", mark=f"after-{at}")
        assert all(seen_mark(witness, f"after-{at}") for witness in witnesses)
        victim = processes.start(TIMEOUT_MS, traced=True)
    for process in (victim, *witnesses):
        process.ask(do="close")
        process.end()
    check_integrity(processes.directory)


def test_a_process_stopped_at_any_point_of_a_transaction_blocks_nobody_for_long(
    processes: Drivers,
) -> None:
    """Inside the lock it is killed by a peer; outside, its session expires and it finds out."""
    witnesses = processes.start_many(3, TIMEOUT_MS)
    prepare_marks(witnesses[0])
    victim = processes.start(TIMEOUT_MS, traced=True)
    points = victim.ask(do="points", mark="rehearsal")
    holding = range(points.index("lock: taken"), points.index("lock: releasing") + 1)
    killed = 0
    for at, point in enumerate(points):
        mark = f"stop-{at}"
        victim.ask(do="make", path=f"/victims/{at}", ephemeral=True)
        for witness in witnesses:
            assert witness.ask(do="watch", path=f"/victims/{at}")
        victim.start(do="strike", mark=mark, at=at, kill=int(signal.SIGSTOP))
        victim.wait_stopped()
        # All of them want to write at once, and get to it.
        writes = [
            (witness, witness.start(do="mark", mark=f"meanwhile-{at}-{number}"))
            for number, witness in enumerate(witnesses)
        ]
        for witness, number in writes:
            witness.finish(number)
            witness.hears(watch=["DELETED", f"/victims/{at}"])
        made = witnesses[0].ask(do="read", paths=[f"/marks/{mark}"])[0]
        if at in holding:
            assert victim.wait_ended() == -signal.SIGKILL, point
            killer = [one for one in witnesses if one.logged("KILLED", str(victim.pid))]
            assert killer, f"nobody tells that it killed the process stopped at {point}"
            killed += 1
            assert (made is not None) == is_durable_at(points, at), point
            victim = processes.start(TIMEOUT_MS, traced=True)
        else:
            assert victim.state() in ("T", "t"), point
            assert (made is not None) == is_durable_at(points, at), point
            victim.signal(signal.SIGCONT)
            victim.hears(session="EXPIRED")
            with pytest.raises(Refused, match="SessionExpired"):
                victim.ask(do="make", path="/late")
            victim.ask(do="open")
    assert killed == len(holding) >= 10
    assert witnesses[0].ask(do="read", paths=["/late"]) == [None]
    for process in (victim, *witnesses):
        process.ask(do="close")
        process.end()
    check_integrity(processes.directory)


def test_a_hundred_thousand_transactions_of_four_processes_under_checkpoints_and_stops(
    processes: Drivers,
) -> None:
    share = TRANSACTIONS // 4
    workers = processes.start_many(4, 3 * TIMEOUT_MS)
    workers[0].ask(do="make", path="/counts")
    workers[0].ask(do="make", path="/shared")
    for name in range(4):
        workers[0].ask(do="make", path=f"/counts/{name}")
    running = [
        (worker, worker.start(do="count", name=str(name), transactions=share, at_once=40))
        for name, worker in enumerate(workers)
    ]

    def total() -> int:
        nodes = workers[1].ask(do="read", paths=["/shared"])
        return int(nodes[0][1])

    checkpoints = 0
    for step in range(1, 9):
        poll(partial(lambda step: total() >= step * TRANSACTIONS // 10, step))
        checkpoints += workers[0].ask(do="checkpoint")
        stopped = workers[2 + step % 2]
        stopped.signal(signal.SIGSTOP)
        stopped.wait_stopped()
        # A process stopped inside a transaction makes the others wait; it comes back in time.
        stopped.signal(signal.SIGCONT)
    for worker, number in running:
        assert worker.finish(number) == share
    counts = workers[3].ask(do="read", paths=["/shared", *(f"/counts/{n}" for n in range(4))])
    assert [node[1] for node in counts] == [TRANSACTIONS, *[share] * 4]
    assert checkpoints >= 4
    for worker in workers:
        assert [said for said in worker.heard if "session" in said] == []
        worker.ask(do="close")
        worker.end()
    check_integrity(processes.directory)


def test_processes_that_were_all_suspended_keep_their_sessions(processes: Drivers) -> None:
    """Observers count only the time that they ran themselves: a machine may sleep."""
    workers = processes.start_many(4, TIMEOUT_MS)
    for number, worker in enumerate(workers):
        worker.ask(do="make", path=f"/e{number}", ephemeral=True)
    for worker in workers:
        worker.signal(signal.SIGSTOP)
    for worker in workers:
        worker.wait_stopped()
    time.sleep(2.5 * TIMEOUT_MS / 1000)  # the suspension itself
    for worker in workers:
        worker.signal(signal.SIGCONT)
    for number, worker in enumerate(workers):
        worker.ask(do="make", path=f"/e{number}-again", ephemeral=True)
        assert [said for said in worker.heard if "session" in said] == []
    assert len(workers[0].ask(do="children", path="/")) == 8


def test_a_killed_process_is_noticed_long_before_its_session_timeout(processes: Drivers) -> None:
    witness, victim = processes.start_many(2, 60_000)
    for number in range(3):
        victim.ask(do="make", path=f"/e{number}", ephemeral=True)
    assert all(witness.ask(do="watch", path=f"/e{number}") for number in range(3))
    victim.signal(signal.SIGKILL)
    for number in range(3):
        witness.hears(watch=["DELETED", f"/e{number}"])
    assert witness.logged("its process has ended")


def test_a_process_that_starts_after_all_have_died_ends_their_sessions(processes: Drivers) -> None:
    dead = processes.start_many(3, 60_000)
    for number, process in enumerate(dead):
        process.ask(do="make", path=f"/e{number}", ephemeral=True)
        process.ask(do="make", path=f"/p{number}")
    for process in dead:
        process.signal(signal.SIGSTOP)
    for process in dead:
        process.wait_stopped()
    for process in dead:
        process.signal(signal.SIGKILL)
        process.wait_ended()
    heir = processes.start(60_000)
    assert heir.ask(do="children", path="/") == ["p0", "p1", "p2"]
    left = sorted(path.name for path in (processes.directory / "sessions").iterdir())
    assert left == ["4.lease", "4.wake"]


def test_a_forked_child_does_not_keep_a_dead_process_alive(processes: Drivers) -> None:
    witness, victim = processes.start_many(2, 60_000)
    victim.ask(do="make", path="/e", ephemeral=True)
    assert witness.ask(do="watch", path="/e")
    child = victim.ask(do="fork")
    victim.signal(signal.SIGKILL)
    witness.hears(watch=["DELETED", "/e"])
    assert Path(f"/proc/{child}").exists(), "the child was to outlive it"


def test_commits_are_heard_of_without_wake_ups(processes: Drivers) -> None:
    writer, watcher = processes.start_many(2, TIMEOUT_MS)
    for socket in (processes.directory / "sessions").glob("*.wake"):
        socket.unlink()
    assert not watcher.ask(do="watch", path="/a")
    writer.ask(do="make", path="/a")
    watcher.hears(watch=["CREATED", "/a"])
