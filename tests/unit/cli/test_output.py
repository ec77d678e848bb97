"""Messages on standard error, also those of signal handlers."""

from __future__ import annotations

import subprocess
import sys


def test_a_signal_handler_speaks_while_a_message_is_printed() -> None:
    """Python's buffered writers raise RuntimeError if a handler writes during a write."""
    program = (
        "import signal\n"
        "from tidelog.cli.output import say, say_in_handler\n"
        "came = 0\n"
        "def ask(*_):\n"
        "    global came\n"
        "    came += 1\n"
        "    say_in_handler('asked')\n"
        "signal.signal(signal.SIGALRM, ask)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)\n"
        "while came < 2000:\n"
        "    say('printed')\n"
        "signal.setitimer(signal.ITIMER_REAL, 0)\n"
    )
    words = [sys.executable, "-c", program]
    ended = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 0, ended.stderr[-500:]
    assert ended.stderr.count("asked") >= 2000
