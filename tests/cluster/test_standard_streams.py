"""Brokers whose terminal hangs up, whose reader ends or stops reading, or who have no streams."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.test_signals import PATIENCE_S, OneBroker

from tidelog.runtime.main import EXIT_HALTED


class Foreground(OneBroker):
    """A broker with a descriptor as its standard output and error, and the other end of it."""

    def run(self, reader: int, writer: int, *before: str, terminal: bool = False) -> Foreground:
        """Start it, and return when its start is complete."""
        words = [sys.executable, "-m", "tidelog.runtime.main", "--config", str(self.properties)]
        takes_terminal = [sys.executable, "-c", _TAKE_TERMINAL] if terminal else []
        self.process = subprocess.Popen(
            [*takes_terminal, *before, *words],
            stdin=writer if terminal else subprocess.DEVNULL,
            stdout=writer,
            stderr=writer,
            # Python buffers its output, as it does for most users.
            env={name: os.environ[name] for name in os.environ if name != "PYTHONUNBUFFERED"},
            start_new_session=True,
        )
        wrote = b""
        while b"broker 1 started on " not in wrote:
            wrote += os.read(reader, 65_536)
        return self


#: Makes standard input the controlling terminal, and runs the words that follow. Tests under nohup
#: would have the broker ignore hang-ups.
_TAKE_TERMINAL = (
    "import fcntl, os, signal, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    " signal.signal(signal.SIGHUP, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])"
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Foreground]:
    made = Foreground(tmp_path)
    yield made
    if made.process is not None:
        made.process.kill()
        made.process.wait()


def test_a_broker_stops_cleanly_where_its_terminal_hangs_up(broker: Foreground) -> None:
    reader, writer = pty.openpty()
    broker.run(reader, writer, terminal=True)
    os.close(writer)
    os.close(reader)
    assert broker.await_end() == 0
    assert broker.is_marked_clean()


def test_a_broker_that_ignores_hangups_outlives_its_terminal(broker: Foreground) -> None:
    ignoring = ("env", "--ignore-signal=HUP")
    reader, writer = pty.openpty()
    broker.run(reader, writer, *ignoring, terminal=True)
    os.close(writer)
    os.close(reader)
    assert broker.value_of("broker.id") == "1"
    broker.send(signal.SIGHUP)
    assert broker.value_of("broker.id") == "1"
    broker.send(signal.SIGTERM)
    assert broker.await_end() == 0
    assert broker.is_marked_clean()


def test_a_broker_outlives_the_reader_of_its_log(broker: Foreground) -> None:
    """`tidelog broker ... 2>&1 | head`."""
    reader, writer = os.pipe()
    broker.run(reader, writer)
    os.close(writer)
    os.close(reader)
    broker.send(signal.SIGHUP)
    assert broker.value_of("broker.id") == "1"
    broker.send(signal.SIGTERM)
    assert broker.await_end() == 0
    assert broker.is_marked_clean()


def fill(writer: int) -> None:
    os.set_blocking(writer, False)
    try:
        for size in (4096, 1):
            try:
                while True:
                    os.write(writer, b"x" * size)
            except BlockingIOError:
                continue
    finally:
        os.set_blocking(writer, True)


@pytest.mark.parametrize("halts", [False, True])
def test_a_broker_ends_although_nobody_reads_its_log(broker: Foreground, halts: bool) -> None:
    reader, writer = os.pipe()
    try:
        broker.run(reader, writer)
        fill(writer)
        if halts:
            broker.send(signal.SIGSTOP)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
                broker.send(number)
            broker.send(signal.SIGCONT)
        else:
            broker.send(signal.SIGTERM)
        assert broker.await_end() == (EXIT_HALTED if halts else 0)
        assert broker.is_marked_clean() is not halts
    finally:
        os.close(reader)
        os.close(writer)


def test_no_file_of_a_broker_takes_the_number_of_a_closed_stream(broker: Foreground) -> None:
    closing = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
    words = [sys.executable, "-m", "tidelog.runtime.main", "--config"]
    broker.process = subprocess.Popen([*closing, *words, str(broker.properties)])
    assert broker.value_of("broker.id") == "1"
    for descriptor in range(3):
        assert os.readlink(f"/proc/{broker.process.pid}/fd/{descriptor}") == os.devnull
    broker.send(signal.SIGTERM)
    assert broker.await_end() == 0
    refused = subprocess.run([*closing, *words, "/none"], timeout=PATIENCE_S, check=False)
    assert refused.returncode == 1
