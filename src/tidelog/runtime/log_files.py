"""The log file of a broker, and its rotation by the broker or by another program.

The log file is the file to which standard error is redirected. The broker rotates the file only if
a maximum size or a rotation period is configured. `broker.log` becomes `broker.log.1`, and the
oldest file is removed. The log thread makes all calls of this module.
"""

from __future__ import annotations

import contextlib
import os
import stat

from tidelog.core.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Rotation:
    """Limits at which the log is rotated, 0 for none; `files` is the number of old files kept."""

    max_bytes: int = 0
    max_hours: int = 0
    files: int = 8

    @property
    def is_wanted(self) -> bool:
        """Whether the broker rotates its log at all."""
        return self.max_bytes > 0 or self.max_hours > 0

    def is_due(self, size_bytes: int, last_s: float, now_s: float) -> bool:
        """Return whether the next line belongs to a new file.

        `last_s` and `now_s` are the times of the file's last line and of the next line, in seconds
        since 1970. Periods of `max_hours` are counted from midnight UTC, so that a restart does not
        move them.
        """
        if not size_bytes:
            return False
        if 0 < self.max_bytes <= size_bytes:
            return True
        period_s = self.max_hours * 3_600
        return period_s > 0 and int(last_s // period_s) != int(now_s // period_s)


#: No rotation by the broker.
NEVER = Rotation()


@dataclass(frozen=True, slots=True)
class LogFile:
    """The log file of this process: its path at the start, and its open descriptors."""

    path: str
    descriptors: tuple[int, ...]

    @classmethod
    def of(cls, *descriptors: int) -> LogFile | None:
        """Return the file of `descriptors[0]`, or None for a terminal, pipe or removed file.

        The LogFile keeps all `descriptors` that refer to the file of `descriptors[0]`.
        """
        link = f"/proc/self/fd/{descriptors[0]}"
        try:
            found, path = os.fstat(descriptors[0]), os.readlink(link)
            if not (stat.S_ISREG(found.st_mode) and os.path.samestat(found, os.stat(path))):
                return None
        except OSError:
            return None
        return cls(path, tuple(each for each in descriptors if _leads_to(each, found)))

    def reopen(self) -> None:
        """Reopen the log file by name for all descriptors; an OSError leaves them unchanged."""
        mode = stat.S_IMODE(os.fstat(self.descriptors[0]).st_mode)
        opened = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, mode)
        try:
            for each in self.descriptors:
                os.dup2(opened, each)
        finally:
            os.close(opened)

    def state(self) -> tuple[int, float]:
        """Return the size of the open file in bytes, and the time of its last line in seconds."""
        found = os.fstat(self.descriptors[0])
        return found.st_size, found.st_mtime

    def rotate(self, files: int) -> None:
        """Rename the log file and its predecessors, keep `files` of them, and open a new log file.

        After an OSError, the log continues in the open file.
        """
        names = [self.path, *(f"{self.path}.{number}" for number in range(1, files + 1))]
        for older, newer in zip(reversed(names), [*reversed(names[:-1])], strict=False):
            with contextlib.suppress(FileNotFoundError):
                os.replace(newer, older)
        if not files:
            os.unlink(self.path)
        self.reopen()


def _leads_to(descriptor: int, file: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), file)
    except OSError:
        return False
