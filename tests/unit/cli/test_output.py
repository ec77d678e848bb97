"""Messages on standard error, also those of signal handlers."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PROGRAM = """
import signal
from tidelog.cli.output import say, say_in_handler

signal.signal(signal.SIGUSR1, lambda *_: say_in_handler("asked"))
say("x" * 100_000)
say("ended")
"""
_PIPE_BYTES = 4_096
_LIMIT_S = 60


def waits(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process sleeps, as in a write to a full pipe."""
    status = Path(f"/proc/{process.pid}/stat").read_text()
    return status.rpartition(")")[2].split()[0] == "S"


def test_a_signal_handler_speaks_while_a_message_is_printed() -> None:
    """A buffer refuses a second write by a handler that runs during the first one."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    environment = {**os.environ}
    environment.pop("PYTHONUNBUFFERED", None)  # without a buffer nothing is refused
    words = [sys.executable, "-c", PROGRAM]
    process = subprocess.Popen(words, stderr=writing, env=environment)
    os.close(writing)
    with os.fdopen(reading, "rb") as source:
        assert source.read(1) == b"x"
        deadline = time.monotonic() + _LIMIT_S
        while not waits(process):
            assert time.monotonic() < deadline
        process.send_signal(signal.SIGUSR1)
        printed = source.read().decode()
    assert process.wait(_LIMIT_S) == 0, printed[-1_000:]
    assert printed.replace("asked\n", "", 1) == "x" * 99_999 + "\nended\n"
