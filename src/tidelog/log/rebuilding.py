"""What can be made anew from a log's batches: its indexes, and the state of its producers.

Used by recovery, by truncation, and by a reader that finds an index file damaged. Runs inside
operations; raises OSError for what the disk does, DamagedIndex where files must not be believed,
DamagedSegment where batches must not. Indexes are only hints for readers, who compare what they
find with its checksums themselves; of producers nobody would notice afterwards (V68).
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.core.ports import Files, Handle
from tidelog.log import names
from tidelog.log.index import OFFSET_ENTRY_BYTES, DamagedIndex, OffsetIndex, TimeIndex
from tidelog.log.producer_state import DamagedSnapshot, ProducerState
from tidelog.log.scan import Scan
from tidelog.log.segment import Segment
from tidelog.records.batch import NO_PRODUCER_ID, BatchView, CorruptBatch, check


class DamagedSegment(CorruptBatch):
    """Batches of a segment that cannot be believed: its file, and the offset from which on."""

    def __init__(self, path: str, position: int, offset: int, reason: str) -> None:
        super().__init__(position, reason)
        self.path = path
        self.offset = offset


class SegmentFile(NamedTuple):
    """A segment as the directory shows it."""

    base_offset: int
    size_bytes: int


def read_indexes(files: Files, segment: Segment) -> None:
    """Read the index files of a segment whose size is known. Raises DamagedIndex, OSError."""
    index_path, time_path = segment.path(names.INDEX), segment.path(names.TIME_INDEX)
    if not files.exists(index_path) or not files.exists(time_path):
        raise DamagedIndex("a file is missing")
    index = OffsetIndex.from_bytes(
        segment.base_offset, files.read_file(index_path), segment.size_bytes
    )
    time_index = TimeIndex.from_bytes(segment.base_offset, files.read_file(time_path))
    if segment.size_bytes and not len(time_index) and len(index):
        raise DamagedIndex("the time index is empty")
    segment.index, segment.time_index = index, time_index
    segment.max_timestamp_ms, segment.offset_of_max_timestamp = time_index.last()


class IndexEntry(NamedTuple):
    """The last entry of an offset index."""

    offset: int
    position: int


def last_entry(files: Files, segment: Segment) -> IndexEntry | None:
    """What the index file of a segment ends with; None where there is none, or none that could be
    one. Raises OSError."""
    path = segment.path(names.INDEX)
    if not files.exists(path):
        return None
    handle = files.open(path)
    try:
        size = files.size(handle)
        at = max(0, size - OFFSET_ENTRY_BYTES)
        data = files.pread(handle, OFFSET_ENTRY_BYTES, at)
    finally:
        files.close(handle)
    if len(data) < OFFSET_ENTRY_BYTES:
        return IndexEntry(segment.base_offset - 1, 0)
    relative, position = int.from_bytes(data[:4], "big"), int.from_bytes(data[4:], "big")
    return IndexEntry(segment.base_offset + relative, position)


def ends_as_told(files: Files, segment: Segment, told: IndexEntry) -> tuple[bool, int]:
    """(Whether a log file goes on, in whole batches, from its last index entry to its end, and has
    the offsets that its indexes tell of; the largest timestamp there, -1 for none). Raises
    OSError."""
    if told.position >= segment.size_bytes:
        return not segment.size_bytes and told.offset < segment.base_offset, -1
    handle = files.open(segment.file.path)
    try:
        scan = Scan(
            lambda size, at: files.pread(handle, size, at),
            segment.base_offset,
            told.position,
            segment.size_bytes,
        )
        last = newest_ms = -1
        for _, batch in scan:
            last = batch.last_offset
            newest_ms = max(newest_ms, batch.max_timestamp)
    finally:
        files.close(handle)
    return scan.problem is None and last >= told.offset, newest_ms


def rebuild_indexes(files: Files, segment: Segment, interval_bytes: int) -> None:
    """Make both indexes of a whole segment from its batches. Raises OSError.

    The time index takes timestamps from batches with right checksums only: lookups by time trust
    it, and a flipped bit in a header would move them for good (V68).
    """
    size_bytes = segment.size_bytes
    segment.index = OffsetIndex(segment.base_offset)
    segment.time_index = TimeIndex(segment.base_offset)
    segment.size_bytes = segment.bytes_since_index = 0
    handle = files.open(segment.file.path)
    try:
        scan = Scan(
            lambda size, at: files.pread(handle, size, at), segment.base_offset, 0, size_bytes
        )
        for position, batch in scan:
            timestamp_ms = _sound_timestamp(files, handle, position, batch)
            segment.note_batch(batch.last_offset, batch.size_bytes, timestamp_ms, interval_bytes)
    finally:
        files.close(handle)
    # What is no batch is found by whoever reads it; the file stays as it is.
    segment.size_bytes = size_bytes


def _sound_timestamp(files: Files, handle: Handle, position: int, batch: BatchView) -> int:
    """Return the largest timestamp of a batch, -1 where its checksum is wrong. Raises OSError."""
    try:
        check(BatchView(files.pread(handle, batch.size_bytes, position)))
    except CorruptBatch:
        return -1
    return batch.max_timestamp


def producers_at(
    files: Files,
    path: str,
    segments: list[SegmentFile],
    snapshots: list[int],
    end_offset: int,
    now_ms: int,
) -> ProducerState:
    """Producer state at `end_offset`: the newest good snapshot and the batches after it.

    A snapshot from before the log's first segment does not count: of what stood in between, which
    retention has taken, nothing can be known, and a producer that wrote there would be refused for
    ever. One that is not known may go on. Raises OSError, DamagedSegment.
    """
    state = ProducerState()
    start = 0
    first = segments[0].base_offset if segments else 0
    for offset in sorted((s for s in snapshots if first <= s <= end_offset), reverse=True):
        name = names.offset_name(offset, names.SNAPSHOT)
        try:
            state = ProducerState.from_snapshot(files.read_file(f"{path}/{name}"), now_ms)
        except DamagedSnapshot:
            continue
        start = offset
        break
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else end_offset
        if following > start and segment.size_bytes:
            _replay(files, path, segment, state, range(start, end_offset), now_ms)
    return state


def _replay(
    files: Files,
    path: str,
    segment: SegmentFile,
    state: ProducerState,
    offsets: range,
    now_ms: int,
) -> None:
    """Note the batches of a segment that begin within `offsets`, each as its checksum has it."""
    log_path = f"{path}/{names.offset_name(segment.base_offset, names.LOG)}"
    handle = files.open(log_path)
    try:
        scan = Scan(
            lambda size, at: files.pread(handle, size, at),
            segment.base_offset, 0, segment.size_bytes, offsets.start,
        )  # fmt: skip
        end = segment.base_offset
        for _, batch in scan:
            if batch.base_offset >= offsets.stop:
                return
            end = batch.next_offset
            if batch.producer_id == NO_PRODUCER_ID or batch.base_offset < offsets.start:
                continue
            try:
                state.append(batch, now_ms)
            except CorruptBatch:
                # A marker that is not legible ends nobody's transaction.
                continue
    finally:
        files.close(handle)
    if scan.problem is not None:
        raise DamagedSegment(log_path, scan.position, end, scan.problem)
