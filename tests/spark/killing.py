"""Spark programs that tests kill, whose executors they kill, or that kill themselves.

`LOCAL_CLUSTER` makes the driver start two executors, each a Java process with Python workers of its
own, as on a cluster; a dead one is replaced, and its tasks are tried again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.class_archives import QUICK, SPARK, options_of

from tidelog.testing import Fault

ROOT = Path(__file__).resolve().parents[2]
_POLL_S = 0.02
#: Configuration of a session, beside that of `start_session`.
LOCAL_CLUSTER = {
    "spark.master": "local-cluster[2,1,512]",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": " ".join((*QUICK, *options_of(SPARK))),
}
_EXECUTOR = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"


def run_until_killed(
    module: str, *arguments: str, environment: Mapping[str, str] | None = None
) -> None:
    """Run a module that kills itself, and wait for its death.

    There is no time limit, because Java alone takes minutes to start on a busy machine. The limit
    of the part of the tests (`tests/run.py`) ends a program that hangs.
    """
    died = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=None if environment is None else os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr


def await_strike(fault: Fault, running: subprocess.Popen[Any], log: Path) -> None:
    """Wait until a fault has struck a request of a running program; fail if the program ends."""
    while fault.count < 1:
        assert running.poll() is None, log.read_text()[-4000:]
        time.sleep(_POLL_S)


def descendants(pid: int) -> list[int]:
    """The processes below a process, parents first."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        parent = int(text.rpartition(")")[2].split()[1])
        children.setdefault(parent, []).append(int(stat.parent.name))
    return _below(pid, children)


def _below(pid: int, children: dict[int, list[int]]) -> list[int]:
    found: list[int] = []
    for each in children.get(pid, []):
        found += [each, *_below(each, children)]
    return found


def kill_executors(running: subprocess.Popen[Any]) -> int:
    """Kill every executor with its Python workers; return the number of executors."""
    executors = [pid for pid in descendants(running.pid) if _is_executor(pid)]
    family = [(pid, descendants(pid)) for pid in executors]
    for executor, workers in family:
        for pid in (executor, *workers):
            kill(pid)
    return len(executors)


def kill_program(running: subprocess.Popen[Any]) -> None:
    """Kill a driver, its Java, its executors and the workers at once; nothing if it has ended."""
    if running.poll() is not None:
        return
    for pid in (running.pid, *descendants(running.pid)):
        kill(pid)
    running.wait()


def kill(pid: int) -> None:
    """Send SIGKILL to a process, which may have ended."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _is_executor(pid: int) -> bool:
    try:
        return _EXECUTOR in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
