"""Processes known by id *and* start time, so that a recycled id is never signalled.

A broker's identity is written to a file when it is started and read by later commands, which may
run days after. A signal goes through a pidfd whose process was compared first: between the
comparison and the signal the id cannot come to mean another process. Linux only (`/proc`, pidfd).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from tidelog.local.errors import LocalClusterError

T = TypeVar("T")

#: States of /proc/<pid>/stat in which a process has ended.
_ENDED = ("Z", "X", "x")
#: States in which a signal or a debugger has stopped it.
_PAUSED = ("T", "t")


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process for all time: its id and when it started, in clock ticks since boot."""

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity | None:
        """Return the identity of a present process; None when there is none."""
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

        Raises LocalClusterError for a file with other content.
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
        """Return whether exactly this process runs or is paused.

        A zombie that waits to be reaped is not alive.
        """
        fields = _stat_fields(self.pid)
        return (
            fields is not None and int(fields[19]) == self.start_ticks and fields[0] not in _ENDED
        )

    @property
    def is_paused(self) -> bool:
        """Return whether the process was stopped (SIGSTOP) and not continued."""
        fields = _stat_fields(self.pid)
        return fields is not None and int(fields[19]) == self.start_ticks and fields[0] in _PAUSED

    def send(self, number: signal.Signals) -> bool:
        """Signal exactly this process; return False when it has ended."""
        with self._opened() as descriptor:
            if descriptor is None:
                return False
            try:
                signal.pidfd_send_signal(descriptor, number)
            except ProcessLookupError:
                return False
            return True

    def await_end(self, timeout_s: float) -> bool:
        """Wait until it has ended; return False when it still runs after `timeout_s`."""
        with self._opened() as descriptor:
            if descriptor is None:
                return True
            poller = select.poll()
            poller.register(descriptor, select.POLLIN)
            return bool(poller.poll(max(0, timeout_s) * 1000))

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int | None]:
        """Open a pidfd of exactly this process, None when it has ended."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            yield None
            return
        try:
            yield descriptor if self.is_alive else None
        finally:
            os.close(descriptor)


_lasting: dict[int, ThreadPoolExecutor] = {}


def from_lasting_thread(start: Callable[[], T]) -> T:
    """Call `start` on a thread that lives as long as this process.

    The kernel counts a child's parent as gone when the thread that started it has ended
    (PR_SET_PDEATHSIG). After a fork the new process has a thread of its own.
    """
    pid = os.getpid()
    if pid not in _lasting:
        _lasting[pid] = ThreadPoolExecutor(1, thread_name_prefix="tidelog-processes")
    return _lasting[pid].submit(start).result()


def start_process(
    words: Sequence[str],
    log_path: str,
    environment: Mapping[str, str] | None = None,
    *,
    ends_with_program: bool,
) -> subprocess.Popen[bytes]:
    """Start a background process in a session of its own; its output is appended to a file.

    `environment`: variables beyond those of this process. With `ends_with_program` the process asks
    the kernel to be killed with its parent.
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
    """Replace a file: it has the old or the new content, never a part."""
    temporary = f"{path}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, path)


def _stat_fields(pid: int) -> list[str] | None:
    """Return the fields of /proc/<pid>/stat from the state on; None without such a process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
