"""Processes known by id *and* start time, so that a recycled id is never signalled.

The command that starts a broker writes the process identity to a file; later commands read this
file, perhaps days after. A signal goes through a pidfd, after a check that the pidfd's process has
the recorded start time, so it cannot reach a later process with the same id. The module needs Linux
(`/proc`, pidfd).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tidelog.core.dataclass import dataclass
from tidelog.local.errors import LocalClusterError

T = TypeVar("T")

#: States in /proc/<pid>/stat of a process that has ended.
_ENDED = ("Z", "X", "x")
#: States of a process that a signal or a debugger has stopped.
_PAUSED = ("T", "t")


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process, identified uniquely by its id and its start time in clock ticks since boot."""

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity | None:
        """Return the identity of a process; None if the process does not exist."""
        fields = _stat_fields(pid)
        return None if fields is None else cls(pid, int(fields[19]))

    def to_text(self) -> str:
        """Return the content of a pid file."""
        return json.dumps({"pid": self.pid, "start_ticks": self.start_ticks}) + "\n"

    @classmethod
    def from_text(cls, text: str) -> ProcessIdentity:
        """Parse a pid file; raise ValueError for any other text."""
        try:
            entry = json.loads(text)
            return cls(int(entry["pid"]), int(entry["start_ticks"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a pid file: {text[:80]!r}") from error

    @classmethod
    def read(cls, path: str) -> ProcessIdentity | None:
        """Return the process in a pid file; None without a file.

        Raises LocalClusterError for a file without process id and start time.
        """
        try:
            with open(path, encoding="utf-8") as file:
                return cls.from_text(file.read())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise LocalClusterError(f"{path}: {error}") from error

    @property
    def is_alive(self) -> bool:
        """Return whether this process runs or is paused; an unreaped zombie is not alive."""
        fields = _stat_fields(self.pid)
        return (
            fields is not None and int(fields[19]) == self.start_ticks and fields[0] not in _ENDED
        )

    @property
    def is_paused(self) -> bool:
        """Return whether SIGSTOP has stopped the process."""
        fields = _stat_fields(self.pid)
        return fields is not None and int(fields[19]) == self.start_ticks and fields[0] in _PAUSED

    def send(self, number: signal.Signals) -> bool:
        """Signal this process only; return False if it has ended."""
        with self._opened() as descriptor:
            if descriptor is None:
                return False
            try:
                signal.pidfd_send_signal(descriptor, number)
            except ProcessLookupError:
                return False
            return True

    def await_end(self, timeout_s: float) -> bool:
        """Wait until the process ends; return False if it still runs after `timeout_s`."""
        with self._opened() as descriptor:
            if descriptor is None:
                return True
            poller = select.poll()
            poller.register(descriptor, select.POLLIN)
            return bool(poller.poll(max(0, timeout_s) * 1000))

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int | None]:
        """Open a pidfd of this process; yield None if it has ended."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            yield None
            return
        try:
            yield descriptor if self.is_alive else None
        finally:
            os.close(descriptor)


#: Beginning of the name of the thread on which child processes are started.
_LASTING = "tidelog-processes"
_lasting: dict[int, ThreadPoolExecutor] = {}


def from_lasting_thread(start: Callable[[], T]) -> T:
    """Call `start` on a thread that lives as long as this process.

    With PR_SET_PDEATHSIG the kernel kills a child when the thread that started it ends. A fork does
    not copy the thread, so a forked process starts a lasting thread of its own. If the caller
    already runs on that lasting thread, `start` is called directly.
    """
    pid = os.getpid()
    if threading.current_thread().name.startswith(_LASTING):
        return start()
    if pid not in _lasting:
        # If two threads create executors at once, `setdefault` keeps one of them. The other
        # executor has not started a thread yet, and is dropped.
        _lasting.setdefault(pid, ThreadPoolExecutor(1, thread_name_prefix=_LASTING))
    return _lasting[pid].submit(start).result()


def start_process(
    words: Sequence[str],
    log_path: str,
    environment: Mapping[str, str] | None = None,
    *,
    ends_with_program: bool,
) -> subprocess.Popen[bytes]:
    """Start a background process in its own session; append its output to a file.

    The new process gets the environment of this process and the variables in `environment`. With
    `ends_with_program` the kernel kills the process when its parent ends.
    """

    def start() -> subprocess.Popen[bytes]:
        with open(log_path, "ab") as log:
            return subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )

    return from_lasting_thread(start) if ends_with_program else start()


def replace_file(path: str, text: str) -> None:
    """Replace a file atomically."""
    temporary = f"{path}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, path)


def _stat_fields(pid: int) -> list[str] | None:
    """Return the fields of /proc/<pid>/stat from the state on; None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
