"""Processes by pid *and* start time, because a pid may be reused (rule S4).

A process is watched and killed through a process descriptor (pidfd), so that no other process with
the same pid is killed. This module is independent of stores.
"""

from __future__ import annotations

import os
import signal
from typing import NamedTuple


class ProcessId(NamedTuple):
    """A process of this machine, identified uniquely since boot."""

    pid: int
    #: Start of the process in clock ticks after boot, field 22 of /proc/<pid>/stat.
    start_time: int


def start_time_of(pid: int) -> int | None:
    """Return the start time of a process; None if it does not exist or is not visible."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    # In /proc/<pid>/stat, the process name is in parentheses and may contain blanks and
    # parentheses.
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

    Returns None if the process has ended, if another process has its pid, or if the process cannot
    be watched (other pid namespace, old kernel).
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
    """Send SIGKILL to exactly this process; return False if the process has ended.

    Raises PermissionError if the calling process may not kill this process.
    """
    descriptor = watch_descriptor(process)
    if descriptor is None:
        return False
    try:
        # The descriptor ensures that no other process that reuses the pid is killed.
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True
