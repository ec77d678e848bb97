"""The directory of a pipeline's results, with a lock for one run at a time and atomic files.

The lock is an operating system's lock on the file `_lock`, so it ends with its process.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from tidelog.core.errors import TidelogError

_LOCK: Final = "_lock"


@contextmanager
def directory_lock(
    directory: Path, error: Callable[[str], TidelogError], what: str, other: str
) -> Iterator[None]:
    """Create a directory and hold its lock for a `with` block.

    Raises `error` if the directory cannot be made or locked; the message names `what`, the content
    of the directory, and `other`, the program that may hold the lock.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = open(directory / _LOCK, "wb")  # noqa: SIM115 - closed below
    except OSError as failure:
        raise error(
            f"{directory}: {what} cannot be kept there: {failure.strerror}; a directory that may be"
            " written is needed"
        ) from failure
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise error(
                f"{directory}: {other} writes there; wait for its end, or choose another directory"
            ) from None
        yield


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing; it gets its name only when the block ends and it is on disk."""
    half = path.with_name(f"_{path.name}.half")
    with open(half, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    half.rename(path)
