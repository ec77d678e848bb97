"""Starts of processes as forks of a server that has imported their programs.

A broker's process spends most of its start on imports. A fork server imports the modules once, and
each start is a fork of the server. A forked process has its own identity, standard streams,
environment, directory, command line and exit code, and shares the server's memory until it writes
to the memory. The parent of a forked process is the fork server, which is a child of the program
that uses this module. The module needs Linux (`/proc`, pidfd).
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import math
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tidelog.core.dataclass import dataclass
from tidelog.local.errors import LocalClusterError
from tidelog.local.fork_server import GO_ON, receive, send
from tidelog.local.processes import from_lasting_thread

#: The Python program of a server. The arguments of this program are the descriptor of the server's
#: socket, the process id of the server's parent, the modules to import, and a filler, which makes
#: room for the command lines of forked processes.
_PROGRAM: Final = "import sys; from tidelog.local.fork_server import main; main(sys.argv[1:])"
#: Bytes of the server's command line, which forked processes replace by their own.
_TITLE_BYTES: Final = 1024
#: Maximum time of a request in s, including the imports of a newly started server.
_LIMIT_S: Final = 30.0
_FIRST_OWN_DESCRIPTOR: Final = 3
#: Beginnings of the names of environment variables that the interpreter or the C library reads when
#: a process starts.
_READ_AT_START: Final = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "GLIBC_")
#: Lines of /proc/self/status with properties that a child process inherits.
_INHERITED: Final = ("Umask", "Uid", "Gid", "Groups", "SigBlk", "SigIgn", "Cap", "Cpus_allowed")


@dataclass(frozen=True, slots=True)
class Program:
    """The program that a forked process runs.

    `entry` is `module:function` of a function without arguments, whose result is the exit code.
    """

    entry: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    #: The command line that `ps` shows, if it is short enough.
    words: Sequence[str]
    #: Whether the process leads a session of its own.
    new_session: bool = False


class ForkServer:
    """Starts processes from one server process, which starts at the first use.

    The server ends with this program. After a server has ended, the next start of a process begins
    another server. Threads may share a ForkServer; a forked program starts a server of its own.
    """

    def __init__(self, *modules: str) -> None:
        """The server imports `modules`; forked processes import other modules themselves."""
        self._modules = modules
        self._forget()
        atexit.register(self.close)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._inherited: tuple[str, ...] = ()

    def starts_alike(self, environment: Mapping[str, str]) -> bool:
        """Return whether a forked process starts in the same state as a child of this program.

        Umask, user, limits, priority, signals and some variables act on a process from its first
        instruction, and a forked process has the server's values.
        """
        of_server = self._inherited if self._is_running else _inherited(os.environ)
        return _inherited(environment) == of_server

    def start(
        self, program: Program, streams: Sequence[int], directory: int | None = None
    ) -> ForkedProcess:
        """Fork a process with three descriptors as standard input, output and error.

        `directory` is a descriptor of the process's working directory, by default this program's.
        Raises LocalClusterError if the server does not respond, and OSError if the fork fails.
        """
        request = {
            "entry": program.entry,
            "arguments": list(program.arguments),
            "environment": dict(program.environment),
            "words": list(program.words),
            "new_session": program.new_session,
        }
        here = os.open(".", os.O_PATH)  # works even if this directory was removed
        try:
            descriptors = [*streams, here if directory is None else directory]
            answer = self._ask(request, descriptors)
        finally:
            os.close(here)
        if "errno" in answer:
            raise OSError(answer["errno"], f"fork: {os.strerror(answer['errno'])}")
        return ForkedProcess(self, answer["pid"])

    @property
    def pid(self) -> int:
        """The process id of the server, which is the parent of forked processes."""
        self._open()
        assert self._process is not None
        return self._process.pid

    def reap(self, pid: int) -> int:
        """Return the exit code of an ended process, as `subprocess` has it.

        If the server has ended, the exit code is unknown, and the result is the code of a SIGKILL.
        """
        code = None
        if self._is_running:
            with contextlib.suppress(LocalClusterError):
                code = self._ask({"reap": pid})["code"]
        return -signal.SIGKILL if code is None else int(code)

    def close(self) -> None:
        """End the server; processes that it forked go on, unless they end with their parent."""
        if self._owner == os.getpid():
            with self._lock:
                self._drop()

    @property
    def _is_running(self) -> bool:
        return (
            self._owner == os.getpid()
            and self._process is not None
            and self._process.poll() is None
        )

    def _drop(self) -> None:
        if self._socket is not None and self._process is not None:
            with contextlib.suppress(OSError):
                # Ends the connection even if forked processes share the socket.
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
            try:
                self._process.wait(1.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._socket = self._process = None

    def _open(self) -> socket.socket:
        """Return the socket to this program's server; start a server if none runs."""
        if self._owner != os.getpid():
            self._forget()  # a fork has copied this object, and perhaps a locked lock
        with self._lock:
            if not self._is_running:
                self._drop()
                self._start_server()
            assert self._socket is not None
            return self._socket

    def _start_server(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # Pass a copy with a higher descriptor: if this program's standard streams are closed,
            # `theirs` may have a descriptor below 3, which the server uses for a standard stream.
            passed = fcntl.fcntl(theirs, fcntl.F_DUPFD_CLOEXEC, _FIRST_OWN_DESCRIPTOR)
        words = [sys.executable, "-c", _PROGRAM, str(passed), str(os.getpid()), *self._modules]
        self._inherited = _inherited(os.environ)
        try:
            self._process = from_lasting_thread(
                lambda: subprocess.Popen(
                    [*words, " " * _TITLE_BYTES],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=None if _is_open(2) else subprocess.DEVNULL,
                    pass_fds=[passed],
                    # Signals to this program's process group must not reach the server.
                    start_new_session=True,
                )
            )
        finally:
            os.close(passed)
        self._socket = ours

    def _ask(self, request: Mapping[str, Any], descriptors: Sequence[int] = ()) -> Any:
        """Return the answer to a request, which has a socket of its own.

        An interrupted request leaves no data that a later request could read.
        """
        server = self._open()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.settimeout(_LIMIT_S)
            try:
                passed = [theirs.fileno(), *descriptors]
                socket.send_fds(server, [b"?"], passed, socket.MSG_NOSIGNAL)
                theirs.close()
                send(ours, request)
                answer = receive(ours)
                if answer is None:
                    raise ConnectionResetError("it ended")
                if "pid" in answer:
                    ours.sendall(GO_ON, socket.MSG_NOSIGNAL)
                return answer
            except (ConnectionError, TimeoutError) as error:
                self.close()  # the next start of a process begins another server
                raise LocalClusterError(
                    f"the server that forks processes does not respond: {error}"
                ) from error


class ForkedProcess:
    """A process forked by a server, with the methods of `subprocess.Popen` that await its end."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self._server = server
        self.pid = pid
        self.returncode: int | None = None
        self._reaping = threading.Lock()

    def poll(self) -> int | None:
        """Return the exit code; None if the process runs."""
        return self._await_end(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code.

        Raises subprocess.TimeoutExpired if the process still runs after `timeout` seconds.
        """
        code = self._await_end(None if timeout is None else max(0, math.ceil(timeout * 1000)))
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return code

    def _await_end(self, timeout_ms: int | None) -> int | None:
        if self.returncode is None and _has_ended(self.pid, timeout_ms):
            with self._reaping:
                if self.returncode is None:
                    self.returncode = self._server.reap(self.pid)
        return self.returncode


def _has_ended(pid: int, timeout_ms: int | None) -> bool:
    """Wait for the end of a process that is not reaped yet; return False after the timeout."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        return bool(poller.poll(timeout_ms))
    finally:
        os.close(descriptor)


def _inherited(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the state that a child process with this environment would inherit, as texts."""
    with open("/proc/thread-self/status", encoding="utf-8") as file:
        status = [line for line in file if line.startswith(_INHERITED)]
    with open("/proc/self/limits", encoding="utf-8") as file:
        limits = file.read()
    names = sorted(name for name in environment if name.startswith(_READ_AT_START))
    variables = [f"{name}={environment[name]}" for name in names]
    return (*status, limits, str(os.getpriority(os.PRIO_PROCESS, 0)), *variables)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
