"""The standard streams of a broker process, which may be closed, gone or blocked.

The terminal of a broker may hang up, and the reader of its pipe may end or stop reading. None of
this may end the broker or keep it from ending.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading

_STANDARD_ERROR = 2
#: How long a message before the end may wait for a reader.
_PATIENCE_S = 1.0


def open_closed() -> None:
    """Open /dev/null for each standard stream that is closed.

    The next file that opens would have its number otherwise, and get what is meant for people.
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
    """Write a line to standard error, unless its reader is gone or does not read.

    For messages before the end: it waits a second at most, and raises nothing.
    """
    data = f"{message}\n".encode(errors="backslashreplace")
    # Another thread: a write to a blocked pipe or terminal returns at no time.
    writing = threading.Thread(target=_write, args=(data,), daemon=True)
    try:
        writing.start()
    except RuntimeError:  # no thread can be started any more
        return
    writing.join(_PATIENCE_S)


def _write(data: bytes) -> None:
    with contextlib.suppress(OSError):
        while data:
            data = data[os.write(_STANDARD_ERROR, data) :]
