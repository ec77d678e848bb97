"""Processes that end with the process that started them (Linux).

This module imports little, because short launchers import it.
"""

from __future__ import annotations

import os
import signal

from tidelog.core.errors import ConfigError

#: Option of prctl(2) for the signal that the kernel sends when the parent thread ends.
_PR_SET_PDEATHSIG = 1
#: A Python program that executes another program, which the kernel kills when its parent ends. The
#: arguments of the Python program are the parent's process id, then the command to execute.
LAUNCHER = (
    "import os, sys; from tidelog.runtime.parent import end_with_parent;"
    " end_with_parent(int(sys.argv[1])); os.execvp(sys.argv[2], sys.argv[2:])"
)


def end_with_parent(parent_pid: int) -> None:
    """Make the kernel kill this process, even if paused, when its parent ends.

    Raises OSError if the kernel refuses prctl(2), and ConfigError if the parent has already ended.
    """
    import ctypes  # imported here, because most processes never call this function

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_PDEATHSIG): {os.strerror(number)}")
    if os.getppid() != parent_pid:
        raise ConfigError(f"--end-with-parent {parent_pid}: the parent has ended already")
