"""Whatever real thing an event of a node reaches raises, and says what to use in its place."""

from __future__ import annotations

import asyncio
import contextlib
import linecache
import os
import random
import secrets
import socket
import sqlite3
import subprocess
import threading
import time
import traceback
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.sim import Running

from tidelog.broker.membership import session
from tidelog.sim.run import run_seed
from tidelog.sim.sandbox import SandboxError, sandboxed
from tidelog.sim.simulator import Simulator

# Each is looked up when it is called, since it is replaced by then.
# ruff: noqa: PLW0108
WAYS_OUT: dict[str, tuple[Callable[[], object], str]] = {
    "time.time": (lambda: time.time(), "Clock"),
    "time.time_ns": (lambda: time.time_ns(), "Clock"),
    "time.monotonic": (lambda: time.monotonic(), "Clock"),
    "time.perf_counter": (lambda: time.perf_counter(), "Clock"),
    "time.sleep": (lambda: time.sleep(0), "Clock"),  # raises instead
    "random.random": (lambda: random.random(), "Random"),
    "random.randrange": (lambda: random.randrange(3), "Random"),
    "random.SystemRandom": (lambda: random.SystemRandom().random(), "Random"),
    "os.urandom": (lambda: os.urandom(4), "Random"),
    "uuid.uuid4": (lambda: uuid.uuid4(), "Random"),
    "secrets.token_bytes": (lambda: secrets.token_bytes(4), "Random"),
    "open": (lambda: open("/dev/null"), "Files"),  # noqa: SIM115
    "os.open": (lambda: os.open("/dev/null", os.O_RDONLY), "Files"),
    "os.listdir": (lambda: os.listdir("/"), "Files"),
    "os.rename": (lambda: Path("/nowhere/a").rename("/nowhere/b"), "Files"),
    "pathlib": (lambda: Path("/dev/null").read_bytes(), "Files"),
    "socket": (lambda: socket.socket(), "Network"),
    "socket.getaddrinfo": (lambda: socket.getaddrinfo("localhost", 1), "Network"),
    "threading": (lambda: threading.Thread(target=print).start(), "lane"),
    "threading.Timer": (lambda: threading.Timer(1, print), "lane"),
    "subprocess": (lambda: subprocess.Popen(["true"]), "no processes"),
    "sqlite3": (lambda: sqlite3.connect(":memory:"), "MetadataStore"),
    "asyncio.new_event_loop": (lambda: asyncio.new_event_loop(), "core/tasks.py"),
    "asyncio.to_thread": (lambda: asyncio.to_thread(print), "core/tasks.py"),
    "asyncio.set_event_loop": (lambda: asyncio.set_event_loop(None), "core/tasks.py"),
    "loop.run_in_executor": (
        lambda: asyncio.get_running_loop().run_in_executor(None, print),
        "core/tasks.py",
    ),
    "loop.call_soon_threadsafe": (
        lambda: asyncio.get_running_loop().call_soon_threadsafe(print),
        "core/tasks.py",
    ),
    "loop.create_connection": (
        lambda: asyncio.get_running_loop().create_connection(asyncio.Protocol, "h", 1),
        "core/tasks.py",
    ),
}


def reach_in_a_node(reach: Callable[[], object]) -> list[BaseException]:
    """What `reach` raises as an event of a node, if anything."""
    raised: list[BaseException] = []

    def event() -> None:
        try:
            reach()
        except BaseException as error:
            raised.append(error)

    simulator = Simulator(1)
    running = Running(simulator.add_node(1, "node1"))
    running.ports.clock.call_later(1, event)
    simulator.run_until(1_000_000_000)
    simulator.close()
    return raised


@pytest.mark.parametrize("name", WAYS_OUT)
def test_a_way_out_raises_in_an_event_of_a_node(name: str) -> None:
    reach, instead = WAYS_OUT[name]
    with sandboxed() as reached:
        raised = reach_in_a_node(reach)
    assert len(raised) == 1
    assert isinstance(raised[0], SandboxError), raised
    assert "under simulation" in str(raised[0]) and instead in str(raised[0])
    assert reached[:1] == [str(raised[0])]


def test_outside_of_events_and_in_other_threads_nothing_is_forbidden() -> None:
    told: list[float] = []
    with sandboxed() as reached:
        thread = threading.Thread(target=lambda: told.append(time.monotonic()))
        thread.start()
        thread.join()
        told.append(time.time())
        told.append(random.random())
        with Path("/dev/null").open("rb"):
            pass
    assert len(told) == 3 and reached == []


def fails() -> bool:
    raise ValueError("in a condition")


def format_a_failed_condition() -> str:
    """Format a traceback whose line cannot be parsed alone; Python 3.13 asks for its file."""
    try:
        if fails():
            pass
    except ValueError:
        return traceback.format_exc()
    return ""


def test_a_traceback_may_be_formatted_in_an_event_of_a_node() -> None:
    formatted: list[str] = []
    linecache.clearcache()
    with sandboxed() as reached:
        raised = reach_in_a_node(lambda: formatted.append(format_a_failed_condition()))
    assert (raised, reached) == ([], [])
    assert "if fails():" in formatted[0]


def test_everything_is_as_it_was_afterwards() -> None:
    before = (time.time, random.random, os.urandom, threading.Timer)
    with sandboxed(), sandboxed():
        assert time.time is not before[0]
    assert (time.time, random.random, os.urandom, threading.Timer) == before


def test_what_a_broker_reaches_is_a_violation_even_where_it_is_swallowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    beat = session.Session._beat

    def impatient(self: session.Session) -> None:
        with contextlib.suppress(AssertionError):
            time.sleep(0)  # raises instead
        beat(self)

    monkeypatch.setattr(session.Session, "_beat", impatient)
    assert "time.sleep" in run_seed(3).violation


def test_what_a_broker_reaches_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    beat = session.Session._beat

    def curious(self: session.Session) -> None:
        time.monotonic()
        beat(self)

    monkeypatch.setattr(session.Session, "_beat", curious)
    result = run_seed(3)
    assert "time.monotonic() was reached under simulation; use the Clock port" in result.violation
