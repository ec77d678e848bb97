"""The fork server: a process that forks itself for each process that its parent wants to start.

The parent is the client of the server, and uses the class ForkServer of `tidelog.local.forking`.
This module has the server's loop and the first steps of a forked process. A request has a socket of
its own. The request and its answer are messages on this socket: a length and JSON. The client sends
this socket together with the descriptors of the new process's standard streams and working
directory.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from tidelog.core.dataclass import generate
from tidelog.runtime.parent import end_with_parent

#: The message with which a client, once it knows the id of a forked process, permits the process to
#: run its program.
GO_ON: Final = b"."
#: Positions of two fields in /proc/self/stat, counted from the field of the process state: the
#: first and the last address of the command line.
_ARGUMENTS_START, _ARGUMENTS_END = 45, 46
_LENGTH_BYTES: Final = 8
#: The maximum number of descriptors that a client sends with a request: the request's socket,
#: standard input, output and error, and the working directory.
_MOST_DESCRIPTORS: Final = 5


def main(words: Sequence[str]) -> None:
    """Run the fork server; in each forked process, run the program that the client requested."""
    descriptor, parent, *modules, _ = words
    end_with_parent(int(parent))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if SIGCHLD is ignored, exit codes are lost
    connection = socket.socket(fileno=int(descriptor))
    gc.disable()
    for module in modules:
        importlib.import_module(module)
    _check_single_thread()
    generate(("tidelog.",))
    gc.collect()
    gc.freeze()  # a garbage collection would write to each object, and so copy the shared memory
    gc.enable()
    forked = _serve(connection)
    if forked is not None:
        sys.exit(forked)


def _check_single_thread() -> None:
    """Raise RuntimeError if this process has other threads, whose locks a fork would copy."""
    count = len(os.listdir("/proc/self/task"))
    if count > 1:
        raise RuntimeError(
            f"the imported modules have started {count - 1} threads: no fork is safe"
        )


def _serve(connection: socket.socket) -> Any:
    """Answer requests until the parent ends; in a forked process, run the requested program."""
    while True:
        asked, descriptors, _, _ = socket.recv_fds(connection, 1, _MOST_DESCRIPTORS)
        if not asked:
            return None
        with socket.socket(fileno=descriptors[0]) as channel:
            request = receive(channel)
            if request is not None and "reap" in request:
                _answer(channel, {"code": _exit_code(request["reap"])})
            elif request is not None:
                try:
                    pid = os.fork()
                except OSError as error:
                    _answer(channel, {"errno": error.errno})
                else:
                    if pid == 0:
                        connection.close()
                        return _run(request, channel, descriptors[1:])
                    _answer(channel, {"pid": pid})
        for each in descriptors[1:]:
            os.close(each)


def _answer(channel: socket.socket, answer: Mapping[str, Any]) -> None:
    with contextlib.suppress(ConnectionError):  # the client was interrupted, or has ended
        send(channel, answer)


def _exit_code(pid: int) -> int | None:
    """Reap an ended child; return its exit code, or None if another server forked it."""
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status)


def _run(request: Mapping[str, Any], channel: socket.socket, descriptors: Sequence[int]) -> Any:
    """Become the requested process, and return the exit code of its program."""
    if channel.recv(len(GO_ON)) != GO_ON:
        os._exit(1)  # the client was interrupted before it knew of this process
    channel.close()
    if request["new_session"]:
        os.setsid()
    *streams, directory = descriptors
    for stream, descriptor in enumerate(streams):
        os.dup2(descriptor, stream)
    os.fchdir(directory)
    for descriptor in descriptors:
        os.close(descriptor)
    _set_environment(request["environment"])
    _show(request["words"])
    module, _, function = request["entry"].partition(":")
    loaded = importlib.import_module(module)
    sys.argv = [str(loaded.__file__), *request["arguments"]]
    _renew_streams()
    return getattr(loaded, function)()


def _set_environment(wanted: Mapping[str, str]) -> None:
    for name in [name for name in os.environ if name not in wanted and not name.startswith("=")]:
        del os.environ[name]
    for name, value in wanted.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
    time.tzset()


def _show(words: Sequence[str]) -> None:
    """Replace the command line that `ps` shows; the kernel reads it from this process's memory."""
    with open("/proc/self/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    start, end = int(fields[_ARGUMENTS_START]), int(fields[_ARGUMENTS_END])
    title = b"".join(os.fsencode(word) + b"\0" for word in words)
    if len(title) < end - start:
        ctypes.memmove(start, title.ljust(end - start, b"\0"), end - start)


def _renew_streams() -> None:
    """Open Python's standard input and output as an interpreter opens them at its start.

    Standard error needs no new stream: Python writes each line to it at once, also to a file or a
    pipe.
    """
    source, sink = cast(io.TextIOWrapper, sys.stdin), cast(io.TextIOWrapper, sys.stdout)
    reader = io.BufferedReader(io.FileIO(0, closefd=False))
    sys.stdin = io.TextIOWrapper(reader, source.encoding, source.errors)
    raw = io.FileIO(1, "wb", closefd=False)
    sys.stdout = io.TextIOWrapper(
        cast(Any, raw if sink.write_through else io.BufferedWriter(raw)),
        sink.encoding,
        sink.errors,
        line_buffering=os.isatty(1),
        write_through=sink.write_through,
    )


def send(connection: socket.socket, message: Mapping[str, Any]) -> None:
    """Send a message; raise OSError if the peer has ended."""
    data = json.dumps(message).encode()
    connection.sendall(len(data).to_bytes(_LENGTH_BYTES, "big") + data, socket.MSG_NOSIGNAL)


def receive(connection: socket.socket) -> Any:
    """Return a message; None if the peer has ended."""
    data = b""
    needed = _LENGTH_BYTES
    while len(data) < needed:
        piece = connection.recv(needed - len(data))
        if not piece:
            return None
        data += piece
        if len(data) == _LENGTH_BYTES:
            needed += int.from_bytes(data, "big")
    return json.loads(data[_LENGTH_BYTES:])
