"""Cuts a log at a batch boundary (V38): the operation, and what it finds for the log to apply.

Segments beyond the cut go first, last one first, and their names are made durable before the kept
segment is cut: whatever a crash leaves is then a prefix of the old log or the log as cut, never one
with a hole. Before any of this the log has lowered its durable recovery point (`directory`), so
that what is appended at the same offsets afterwards is checked by recovery.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog.core.ports import Files
from tidelog.log import names
from tidelog.log.handles import OpenFile
from tidelog.log.scan import Scan
from tidelog.records.batch import NO_TIMESTAMP


@dataclass(slots=True)
class TruncateOperation:
    """Remove whole segments, then cut the one that contains `offset`."""

    directory: str
    #: Base offsets of segments to remove, last one first.
    remove: list[int]
    #: Snapshots to remove: offsets.
    snapshots: list[int]
    #: File to cut; None where every segment goes and `start_at` begins a new one.
    kept: OpenFile | None
    #: Known batch start of the kept segment to look from, and its size.
    scan_from: int = 0
    kept_bytes: int = 0
    offset: int = 0
    #: Base offset of a new, empty segment.
    start_at: int | None = None

    removed: list[int] = field(default_factory=list)
    #: Where the kept segment was cut, and the offset after its last batch; None: nothing kept.
    cut_position: int = -1
    cut_offset: int | None = None
    #: Largest timestamp between `scan_from` and the cut, and the last offset of its batch.
    max_timestamp_ms: int = NO_TIMESTAMP
    offset_of_max_timestamp: int = -1

    def __call__(self, files: Files) -> TruncateOperation:
        """Do it; returns itself. Raises OSError; `removed` tells how far it came."""
        for offset in self.snapshots:
            _unlink(files, f"{self.directory}/{names.offset_name(offset, names.SNAPSHOT)}")
        for base_offset in self.remove:
            remove_segment_files(files, self.directory, base_offset)
            self.removed.append(base_offset)
        if self.remove:
            files.fsync_directory(self.directory)
        if self.kept is not None:
            self._cut(files, self.kept)
        if self.start_at is not None:
            path = f"{self.directory}/{names.offset_name(self.start_at, names.LOG)}"
            files.close(files.open(path, write=True, create=True))
        return self

    def _cut(self, files: Files, kept: OpenFile) -> None:
        handle = kept.handle(files)
        scan = Scan(
            lambda size, position: files.pread(handle, size, position),
            self.scan_from,
            self.kept_bytes,
        )
        self.cut_position = self.scan_from
        for position, batch in scan:
            if batch.last_offset >= self.offset:
                break
            self.cut_position = position + batch.size_bytes
            self.cut_offset = batch.next_offset
            if batch.max_timestamp > self.max_timestamp_ms:
                self.max_timestamp_ms = batch.max_timestamp
                self.offset_of_max_timestamp = batch.last_offset
        files.truncate(handle, self.cut_position)
        kept.write_failed = False


def remove_segment_files(files: Files, directory: str, base_offset: int) -> None:
    """Remove a segment: the log first, without which the others mean nothing. Raises OSError."""
    for suffix in (names.LOG, names.INDEX, names.TIME_INDEX, names.TRANSACTION_INDEX):
        _unlink(files, f"{directory}/{names.offset_name(base_offset, suffix)}")


def _unlink(files: Files, path: str) -> None:
    if files.exists(path):
        files.unlink(path)
