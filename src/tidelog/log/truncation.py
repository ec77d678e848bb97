"""Cuts a log at a batch boundary (V38): the operation, and what it finds for the log to apply.

Segments beyond the cut go first, last one first, and their names are made durable before the kept
segment is cut: whatever a crash leaves is then a prefix of the old log or the log as cut, never one
with a hole. Before any of this the log has lowered its durable recovery point (`directory`), so
that what is appended at the same offsets afterwards is checked by recovery.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog.core.ports import Buffer, Files
from tidelog.log import names
from tidelog.log.open_files import OpenFile
from tidelog.log.scan import Scan
from tidelog.log.segment_files import remove_segment_files, unlink_if_present
from tidelog.records.batch import NO_TIMESTAMP


@dataclass(slots=True)
class Cut:
    """Where a segment is to be cut: behind its last batch that is wholly below an offset."""

    position: int
    #: Offset after that batch, None when nothing is kept.
    end_offset: int | None = None
    #: Base offset of the first batch that goes; where none does, what was asked for.
    first_gone: int = -1
    #: Largest timestamp from where the search began to the cut, and the last offset of its batch.
    max_timestamp_ms: int = NO_TIMESTAMP
    offset_of_max_timestamp: int = -1


def find_cut(
    files: Files,
    file: OpenFile,
    base_offset: int,
    scan_from: int,
    size_bytes: int,
    offset: int,
    cached: bool,
) -> Cut | None:
    """Look for the cut of a segment from a known batch start on. Raises OSError.

    With `cached`, None where the disk would have to be waited for.
    """
    handle = file.handle(files)
    missed = False

    def read(size: int, position: int) -> Buffer:
        nonlocal missed
        if not cached:
            return files.pread(handle, size, position)
        data = files.pread_cached(handle, size, position)
        missed = missed or data is None
        return data if data is not None else b""

    scan = Scan(read, base_offset, scan_from, size_bytes)
    cut = Cut(scan_from)
    for position, batch in scan:
        if batch.last_offset >= offset:
            cut.first_gone = batch.base_offset
            break
        cut.position = position + batch.size_bytes
        cut.end_offset = batch.next_offset
        if batch.max_timestamp > cut.max_timestamp_ms:
            cut.max_timestamp_ms = batch.max_timestamp
            cut.offset_of_max_timestamp = batch.last_offset
    else:
        if scan.problem is None:
            cut.first_gone = offset
    return None if missed else cut


@dataclass(slots=True)
class TruncateOperation:
    """Remove whole segments, then cut the last one that stays."""

    directory: str
    #: Base offsets of segments to remove, last one first.
    remove: list[int]
    #: Snapshots to remove: offsets.
    snapshots: list[int]
    #: File to cut; None where every segment goes and `start_at` begins a new one.
    kept: OpenFile | None
    cut_position: int = 0
    #: Base offset of a new, empty segment.
    start_at: int | None = None

    removed: list[int] = field(default_factory=list)

    def __call__(self, files: Files) -> None:
        """Do it. Raises OSError; `removed` tells how far it came."""
        for offset in self.snapshots:
            unlink_if_present(
                files, f"{self.directory}/{names.offset_name(offset, names.SNAPSHOT)}"
            )
        for base_offset in self.remove:
            remove_segment_files(files, self.directory, base_offset)
            self.removed.append(base_offset)
        if self.remove:
            files.fsync_directory(self.directory)
        if self.kept is not None:
            files.truncate(self.kept.handle(files), self.cut_position)
            self.kept.write_failed = False
        if self.start_at is not None:
            path = f"{self.directory}/{names.offset_name(self.start_at, names.LOG)}"
            files.close(files.open(path, write=True, create=True))
