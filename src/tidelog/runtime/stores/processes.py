"""Processes by pid *and* start time: a pid alone may name another process by now (rule S4).

A process is watched and killed through a descriptor of it, so that no other process is hit. Knows
nothing of stores.
"""

from __future__ import annotations

import os
import signal
from typing import NamedTuple


class ProcessId(NamedTuple):
    """One process of this machine, unique for ever."""

    pid: int
    #: Clock ticks after boot, field 22 of /proc/<pid>/stat.
    start_time: int


def start_time_of(pid: int) -> int | None:
    """Return when a process started, None when there is none (or it cannot be seen)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    # The name, in parentheses, may hold blanks and parentheses.
    return int(stat[stat.rindex(b")") + 2 :].split()[19])


def this_process() -> ProcessId:
    """Return the id of the calling process."""
    pid = os.getpid()
    start_time = start_time_of(pid)
    if start_time is None:
        raise OSError(f"/proc/{pid}/stat cannot be read: /proc is needed")
    return ProcessId(pid, start_time)


def watch_descriptor(process: ProcessId) -> int | None:
    """Return a descriptor that becomes readable when the process ends.

    None when it has ended, when another process has its pid, or when it cannot be watched here
    (other pid namespace, old kernel).
    """
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return None
    if start_time_of(process.pid) != process.start_time:
        os.close(descriptor)
        return None
    return descriptor


def kill(process: ProcessId) -> bool:
    """Send SIGKILL to exactly this process; return False when it is gone.

    Raises PermissionError where that is not allowed.
    """
    descriptor = watch_descriptor(process)
    if descriptor is None:
        return False
    try:
        # Through the descriptor, so that no process that took the pid meanwhile is hit.
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True
