"""Processes are known by id and start time: a recycled id is never signalled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tidelog.local import processes
from tidelog.local.processes import ProcessIdentity, from_lasting_thread


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


def identity(process: subprocess.Popen[bytes]) -> ProcessIdentity:
    found = ProcessIdentity.of(process.pid)
    assert found is not None
    return found


def test_a_process_is_alive_until_it_ends(child: subprocess.Popen[bytes]) -> None:
    known = identity(child)
    assert known.is_alive
    assert not known.await_end(0)
    assert known.send(signal.SIGKILL)
    assert known.await_end(10)
    assert not known.is_alive, "waiting to be reaped is not alive"
    child.wait()
    assert not known.is_alive
    assert not known.send(signal.SIGTERM)
    assert known.await_end(0)
    assert ProcessIdentity.of(child.pid) is None


def test_another_process_under_the_same_id_is_never_signalled(
    child: subprocess.Popen[bytes],
) -> None:
    known = identity(child)
    earlier = ProcessIdentity(known.pid, known.start_ticks - 1)
    assert not earlier.is_alive
    assert not earlier.is_paused
    assert not earlier.send(signal.SIGKILL)
    assert earlier.await_end(0)
    assert child.poll() is None


def test_a_paused_process_is_alive(child: subprocess.Popen[bytes]) -> None:
    known = identity(child)
    assert not known.is_paused
    known.send(signal.SIGSTOP)
    os.waitpid(child.pid, os.WUNTRACED)
    assert known.is_paused
    assert known.is_alive
    known.send(signal.SIGCONT)
    os.waitpid(child.pid, os.WCONTINUED)
    assert not known.is_paused


def test_an_identity_survives_its_file() -> None:
    known = ProcessIdentity.of(os.getpid())
    assert known is not None
    assert ProcessIdentity.from_text(known.to_text()) == known


@pytest.mark.parametrize("text", ["", "12", "{}", '{"pid": "x", "start_ticks": 1}', "[1, 2]"])
def test_what_is_not_a_pid_file_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a pid file"):
        ProcessIdentity.from_text(text)


def test_a_start_on_the_lasting_thread_may_start_another() -> None:
    names = from_lasting_thread(
        lambda: (threading.current_thread().name, from_lasting_thread(threading.current_thread))
    )
    assert names[0] == names[1].name != threading.current_thread().name


def test_two_threads_that_begin_at_once_share_the_lasting_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second thread would end with its executor, and the kernel would kill its processes."""
    found: list[threading.Thread] = []

    def executor(workers: int, thread_name_prefix: str) -> ThreadPoolExecutor:
        if not found:  # another thread is between the look and the entry
            found.append(threading.current_thread())
            other = threading.Thread(
                target=lambda: found.append(from_lasting_thread(threading.current_thread))
            )
            other.start()
            other.join()
        return ThreadPoolExecutor(workers, thread_name_prefix=thread_name_prefix)

    monkeypatch.setattr(processes, "_lasting", {})
    monkeypatch.setattr(processes, "ThreadPoolExecutor", executor)
    found.append(from_lasting_thread(threading.current_thread))
    assert found[1] is found[2]
