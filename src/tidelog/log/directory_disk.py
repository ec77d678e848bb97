"""The disk of one log directory: its queue of file operations, and the errors that make the
directory fail.

The first device error or failed fsync makes the directory fail for good, and `on_failure` is called
once (D1, D17). A full disk does not fail the directory, but makes it read-only (D14,
`directory_space`). All calls are on the event loop. This module does not access logs.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable

from tidelog.core.errors import DEVICE_ERRNOS, StorageError
from tidelog.core.ports import Clock, Lane, Tracer

_LOGGER = "log"


class DirectoryDisk:
    """The disk of a log directory; the directory's logs and the watches on its space and speed
    share it.
    """

    def __init__(self, lane: Lane, clock: Clock, tracer: Tracer) -> None:
        self.lane = lane
        self.path = lane.directory
        self.clock = clock
        self.tracer = tracer
        #: The error that made the directory fail. A failed directory gets no further writes.
        self.failure: StorageError | None = None
        #: Whether the directory is closed, so that no file is removed any more.
        self.is_closed = False
        #: Called once when the directory fails.
        self.on_failure: Callable[[StorageError], None] | None = None
        #: Called for each write that the disk refused for lack of space.
        self.on_no_space: Callable[[StorageError], None] = lambda error: None

    def failed(self, error: BaseException) -> None:
        """Handle the error of an operation. The first device error makes the directory fail (D1,
        D17).

        A write refused for lack of space makes the directory read-only (D14). Any error except a
        StorageError is a bug and is raised.
        """
        if not isinstance(error, StorageError):
            raise error
        if not error.is_device_failure:
            self.log_note(logging.WARNING, str(error))
            if error.is_full:
                self.on_no_space(error)
            else:
                self.tracer.mark("files_failed_beside_the_disk")
            return
        if error.errno not in DEVICE_ERRNOS:
            self.tracer.mark("sync_failed_beside_the_device")
        if self.failure is None:
            self.failure = error
            self.log_note(logging.ERROR, str(error))
            self.tracer.event(
                "log_directory_failed", directory=self.path, operation=error.operation,
                error=errno.errorcode.get(error.errno, str(error.errno)),
            )  # fmt: skip
            if self.on_failure is not None:
                self.on_failure(error)

    def mark_bad(self, why: str = "an operator marked it bad") -> None:
        """Fail the directory because an operator marked it bad (D12), or for another reason
        `why`.
        """
        self.failed(self._unusable(why))

    def give_up_hanging(self, why: str) -> None:
        """Fail the directory because its device hangs, and fail every operation that has not
        ended.
        """
        error = self._unusable(why)
        self.failed(error)
        self.lane.abandon(error)

    def _unusable(self, why: str) -> StorageError:
        return StorageError(self.path, "use", self.path, errno.EIO, self.clock.wall_ms(), why)

    def log_note(self, level: int, text: str, logger: str = _LOGGER) -> None:
        """Write a line about this directory to the broker's log, under the name `logger`."""
        self.tracer.log(logger, level, text)
