"""Writes planned appends: the operation behind produce and replication.

One operation per log is under way at a time. It holds one step per segment it writes to; a step may
first make its segment's file. Short writes are continued until the disk refuses; then how many
appends are whole is left in `plans_written` for the log, which cuts the file back to their end
(`cut`; the next write would, if that failed too), while the error goes the lane's way.
"""

from __future__ import annotations

from tidelog.core.limits import MAX_IOVECS
from tidelog.core.ports import Buffer, Files, Handle
from tidelog.log.open_files import OpenFile


class WriteStep:
    """Appends to one file, in order, from `position` on."""

    __slots__ = ("buffers", "create", "file", "position")

    def __init__(self, file: OpenFile, position: int, create: bool = False) -> None:
        self.file = file
        self.position = position
        self.create = create
        self.buffers: list[Buffer] = []


class WriteOperation:
    """All steps of one submission."""

    __slots__ = ("files_created", "plans_written", "steps")

    def __init__(self, steps: list[WriteStep]) -> None:
        self.steps = steps
        #: Appends written whole; fewer than all only where the operation failed.
        self.plans_written = 0
        #: Files made; a roll is done even where the write behind it failed.
        self.files_created = 0

    def __call__(self, files: Files) -> None:
        """Write everything. Raises OSError, with what was written in the counters."""
        for step in self.steps:
            file = step.file
            handle = file.handle(files, create=step.create)
            if step.create or file.write_failed:
                files.truncate(handle, step.position)
                file.write_failed = False
            if step.create:
                self.files_created += 1
            try:
                self._write(files, handle, step)
            except OSError:
                file.write_failed = True
                raise

    def _write(self, files: Files, handle: Handle, step: WriteStep) -> None:
        buffers = step.buffers
        position = step.position
        done = 0
        while done < len(buffers):
            part = buffers[done : done + MAX_IOVECS] if len(buffers) > 1 else buffers
            written = files.pwritev(handle, part, position)
            for buffer in part:
                size = len(buffer)
                if written < size:
                    _write_rest(files, handle, buffer, written, position)
                    written = size
                written -= size
                position += size
                done += 1
                self.plans_written += 1
                if not written:
                    break


def _write_rest(files: Files, handle: Handle, buffer: Buffer, written: int, position: int) -> None:
    """Go on where a write was short; the system says why when it refuses."""
    view = memoryview(buffer)
    while written < len(view):
        written += files.pwritev(handle, [view[written:]], position + written)


def cut(file: OpenFile, size_bytes: int, files: Files) -> None:
    """Cut off what a failed write may have left behind the end. Raises OSError."""
    files.truncate(file.handle(files), size_bytes)
    file.write_failed = False
