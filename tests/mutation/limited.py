"""Commands within limits: CPU seconds, memory, wall time, and none of its processes is left.

A mutant may compute for ever, wait for ever, or start what never ends. The kernel ends a process
that has used its CPU seconds (RLIMIT_CPU), and the caller ends a command whose wall time is over.
Each process of a command carries a mark in its environment, by which those that the command
leaves behind are found.
"""

from __future__ import annotations

import contextlib
import os
import resource
import secrets
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: The variable with the mark of a command.
MARK: Final = "MUTATION_JUDGE"
#: Of each process: a mutant that keeps all that it sees ends before the machine swaps.
MEMORY_BYTES: Final = 6 << 30
#: Of each file: a mutant that writes for ever ends before the disk is full.
FILE_BYTES: Final = 1 << 30
#: What is kept of that which a command prints.
PRINTED_BYTES: Final = 1 << 20
#: Wall seconds that a command has for each of its CPU seconds, on a machine with other work.
WALL_S_PER_CPU_S: Final = 4
_SPARE_WALL_S: Final = 30
#: Niceness of all commands: they compute for hours beside other work.
_NICENESS: Final = 10
#: Signals of the kernel that end a process at a limit, of itself or of one of its tests.
_ENDING: Final = (signal.SIGXCPU, signal.SIGKILL, signal.SIGPROF, signal.SIGALRM)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    #: Its exit code, negative for a signal; None if its wall time was over.
    code: int | None
    #: Of the command and the processes that it waited for.
    cpu_s: float
    printed: str

    @property
    def is_out_of_time(self) -> bool:
        """Whether it had to be ended, at a limit of its CPU seconds or of its wall time."""
        return self.code is None or -self.code in _ENDING


def run_limited(
    words: Sequence[str],
    directory: Path,
    environment: Mapping[str, str],
    cpu_s: int,
    wall_s: float | None = None,
) -> Ended:
    """Run a command to its end or its limits, and end each process that it leaves behind.

    `cpu_s` limits each of its processes; `wall_s` limits the command, four times `cpu_s` and half
    a minute unless it is given.
    """
    mark = secrets.token_hex(8)
    limit_s = cpu_s * WALL_S_PER_CPU_S + _SPARE_WALL_S if wall_s is None else wall_s
    before_s = _cpu_of_children_s()
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(
            words,
            cwd=directory,
            env={**environment, MARK: mark},
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        code: int | None = None
        try:
            _limit(process.pid, cpu_s)
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(limit_s)
        finally:
            with contextlib.suppress(ProcessLookupError):  # none of its group is left
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            _end_marked(mark)
        out.seek(0)
        printed = out.read(PRINTED_BYTES).decode(errors="replace")
    return Ended(code, _cpu_of_children_s() - before_s, printed)


def _end_marked(mark: str) -> None:
    """Kill the processes with a mark, until none of them is left."""
    wanted = f"{MARK}={mark}".encode()
    left = True
    while left:
        left = False
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                is_marked = wanted in (entry / "environ").read_bytes().split(b"\0")
            except OSError:  # it ended meanwhile, or belongs to another user
                continue
            if is_marked:
                left = True
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(entry.name), signal.SIGKILL)


def _limit(pid: int, cpu_s: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended
        resource.prlimit(pid, resource.RLIMIT_CPU, (cpu_s, cpu_s + 5))
        resource.prlimit(pid, resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
        os.setpriority(os.PRIO_PROCESS, pid, _NICENESS)


def _cpu_of_children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
