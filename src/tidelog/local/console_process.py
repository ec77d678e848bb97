"""The web console of a local cluster, as a background process beside the brokers.

`tidelog up --console` starts the console, and `tidelog down` ends it. The cluster's directory has
the console's output (`console.log`) and its process identity (`console.pid`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

from tidelog.core.errors import ConfigError
from tidelog.local.errors import LocalClusterError
from tidelog.local.processes import ProcessIdentity, replace_file, start_process
from tidelog.runtime.extras import install_command, missing_module

_POLL_S = 0.05
_LINE = "console: "


def check_installed() -> None:
    """Raise ConfigError if the libraries of the console are not installed."""
    missing = missing_module("starlette", "uvicorn")
    if missing is not None:
        raise ConfigError(f"the console needs {missing}: {install_command('console')}")


def start_console(directory: str, timeout_s: float) -> str:
    """Start the console of the cluster in a directory, unless it runs; return its address.

    Raises LocalClusterError with the last line of the console's output if the console ends, or does
    not respond in time.
    """
    log_path, pid_path = _paths(directory)
    known = ProcessIdentity.read(pid_path)
    if known is None or not known.is_alive:
        with contextlib.suppress(FileNotFoundError):
            os.remove(log_path)
        words = [sys.executable, "-m", "tidelog", "console", "--dir", directory, "--port", "0"]
        process = start_process(words, log_path, ends_with_program=False)
        known = ProcessIdentity.of(process.pid)
        if known is not None:
            replace_file(pid_path, known.to_text())
    deadline = time.monotonic() + timeout_s
    while True:
        lines = _lines(log_path)
        for line in lines:
            if line.startswith(_LINE):
                return line.removeprefix(_LINE)
        is_over = known is None or not known.is_alive
        if is_over or time.monotonic() > deadline:
            what = "ended" if is_over else f"did not respond within {timeout_s:.0f} s"
            raise LocalClusterError(
                f"the console {what}: {lines[-1] if lines else 'it wrote no output'} ({log_path})"
            )
        time.sleep(_POLL_S)


def stop_console(directory: str, timeout_s: float) -> bool:
    """End the console of the cluster in a directory; return whether one ran."""
    _, pid_path = _paths(directory)
    known = ProcessIdentity.read(pid_path)
    ran = known is not None and known.is_alive
    if known is not None and ran:
        known.send(signal.SIGTERM)
        if not known.await_end(timeout_s):
            known.send(signal.SIGKILL)
    with contextlib.suppress(FileNotFoundError):
        os.remove(pid_path)
    return ran


def _paths(directory: str) -> tuple[str, str]:
    return os.path.join(directory, "console.log"), os.path.join(directory, "console.pid")


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except FileNotFoundError:
        return []
