"""Protection of a broker process against closed or blocked standard streams.

A broker's terminal may hang up, and the reader of its pipe may end or stop reading. Neither a
hangup nor a blocked pipe may end the broker, or keep it from ending.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading

_STANDARD_ERROR = 2
#: How long the last message of the process may wait for a reader.
_PATIENCE_S = 1.0


def open_closed() -> None:
    """Open /dev/null for each standard stream that is closed.

    If a stream stayed closed, the next opened file would get its descriptor, and log lines would be
    written into that file.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            opened = os.open(os.devnull, os.O_RDWR)
            assert opened == descriptor, f"descriptor {opened} is above a closed one"
    if sys.stderr is None:
        sys.stderr = open(_STANDARD_ERROR, "w", closefd=False)  # noqa: SIM115 (until the end)


def say_last(message: str) -> None:
    """Write a line to standard error, unless its reader is gone or blocked.

    For the last message of a process: the call takes at most a second and raises no error.
    """
    data = f"{message}\n".encode(errors="backslashreplace")
    # The write runs on a thread, because a write to a blocked pipe or terminal never returns.
    writing = threading.Thread(target=_write, args=(data,), daemon=True)
    try:
        writing.start()
    except RuntimeError:  # the interpreter can start no more threads
        return
    writing.join(_PATIENCE_S)


def abandon_unwritten() -> None:
    """Discard the buffered output of each of Python's standard streams whose reader is gone.

    Otherwise the interpreter would try to write this output at its exit, fail, and exit with code
    120.
    """
    for stream in filter(None, (sys.stdout, sys.stderr)):  # a stream closed at the start is None
        try:
            stream.flush()
        except OSError:
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, stream.fileno())
            os.close(nothing)


def _write(data: bytes) -> None:
    with contextlib.suppress(OSError):
        while data:
            data = data[os.write(_STANDARD_ERROR, data) :]
