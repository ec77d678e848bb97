"""Operations on the files of segments: indexes, producer state, and swaps by compaction.

The functions of this module run inside file operations. The functions raise OSError for a failure
of the disk, DamagedIndex for invalid index files, and DamagedSegment for invalid batches. Indexes
are only hints, because readers verify the checksums of the batches that they find. Nothing would
reveal a wrong producer state, so a batch's checksum is verified before the batch changes the
producer state (V68).

A compacted segment replaces its source segments as in LocalLog.replaceSegments. The new segment's
files end in `.cleaned` while they are written and synced. Next, the new segment's files are renamed
to `.swap` and the directory is synced: this makes the new segment valid in place of the old
segments. Then the files of the old segments are renamed to `.deleted`. After another sync of the
directory, the suffix `.swap` is removed; without this sync, names could reach the disk in another
order. A last sync ends the swap. `finish_swaps` completes an interrupted swap after a crash, like
Kafka's LogLoader.
"""

from __future__ import annotations

from dataclasses import field
from typing import NamedTuple

from tidelog.core.dataclass import dataclass
from tidelog.core.ports import Files, Handle
from tidelog.log import names
from tidelog.log.index import OFFSET_ENTRY_BYTES, DamagedIndex, OffsetIndex, TimeIndex
from tidelog.log.producer_state import DamagedSnapshot, ProducerState
from tidelog.log.scan import Scan
from tidelog.log.segment import Segment
from tidelog.records.batch import HEADER_BYTES, NO_PRODUCER_ID, BatchView, CorruptBatch, check

#: Suffixes of a segment's files, the log file first.
SEGMENT_SUFFIXES = (names.LOG, names.INDEX, names.TIME_INDEX, names.TRANSACTION_INDEX)


class DamagedSegment(CorruptBatch):
    """The error for damaged batches of a segment, with the file and the first offset that cannot be
    trusted.
    """

    def __init__(self, path: str, position: int, offset: int, reason: str) -> None:
        super().__init__(position, reason)
        self.path = path
        self.offset = offset


class SegmentFile(NamedTuple):
    """A segment's log file in a partition's directory."""

    base_offset: int
    size_bytes: int
    #: Wall-clock time of the file's last write or truncation.
    modified_ms: int

    @classmethod
    def of(cls, segment: Segment) -> SegmentFile:
        """Return the log file of a loaded segment."""
        return cls(segment.base_offset, segment.size_bytes, segment.last_modified_ms)


def read_indexes(files: Files, segment: Segment) -> None:
    """Read the index files of a segment whose size is known. Raises DamagedIndex, OSError."""
    index_path, time_path = segment.path(names.INDEX), segment.path(names.TIME_INDEX)
    if not files.exists(index_path) or not files.exists(time_path):
        raise DamagedIndex("a file is missing")
    index = OffsetIndex.from_bytes(
        segment.base_offset, files.read_file(index_path), segment.size_bytes
    )
    time_index = TimeIndex.from_bytes(segment.base_offset, files.read_file(time_path))
    if len(index) and not len(time_index) and not begins_without_timestamp(files, segment):
        raise DamagedIndex("the time index is empty")
    segment.index, segment.time_index = index, time_index
    segment.max_timestamp_ms, segment.offset_of_max_timestamp = time_index.last()


def begins_without_timestamp(files: Files, segment: Segment) -> bool:
    """Return whether the first batch of a segment has no timestamp. Raises OSError.

    The time index of such a segment may be empty without being damaged, because only a record with
    a timestamp adds an entry.
    """
    handle = files.open(segment.path(names.LOG))
    try:
        header = files.pread(handle, HEADER_BYTES, 0)
    finally:
        files.close(handle)
    try:
        return BatchView(header).max_timestamp < 0
    except CorruptBatch:
        return False


class IndexEntry(NamedTuple):
    """The last entry of an offset index."""

    offset: int
    position: int


def last_entry(files: Files, segment: Segment) -> IndexEntry | None:
    """Return the last entry of a segment's index file.

    The result is None if the file is missing. If the file has no entry, the result is an entry with
    the offset before the segment's base offset. Raises OSError.
    """
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


def ends_at_entry(files: Files, segment: Segment, entry: IndexEntry) -> tuple[bool, int]:
    """Return (whether a log file agrees with its last index entry, its largest timestamp or -1).

    The log file agrees with the entry if its batches from the entry on are complete and reach the
    entry's offset. The returned timestamp covers only the batches from the entry's batch on. Raises
    OSError.
    """
    if entry.position >= segment.size_bytes:
        return not segment.size_bytes and entry.offset < segment.base_offset, -1
    handle = files.open(segment.file.path)
    try:
        scan = Scan(
            lambda size, at: files.pread(handle, size, at),
            segment.base_offset,
            entry.position,
            segment.size_bytes,
        )
        last = newest_ms = -1
        for _, batch in scan:
            last = batch.last_offset
            newest_ms = max(newest_ms, batch.max_timestamp)
    finally:
        files.close(handle)
    return scan.problem is None and last >= entry.offset, newest_ms


def rebuild_indexes(files: Files, segment: Segment, interval_bytes: int) -> None:
    """Rebuild both indexes of a segment from its batches. Raises OSError.

    The time index gets timestamps only from batches with valid checksums. A timestamp with a
    flipped bit would misdirect all later lookups by time (V68).
    """
    size_bytes = segment.size_bytes
    segment.index = OffsetIndex(segment.base_offset)
    segment.time_index = TimeIndex(segment.base_offset)
    segment.size_bytes = segment.bytes_since_index = 0
    # Forget the timestamps from the old index, which may belong to removed records.
    segment.max_timestamp_ms = segment.first_timestamp_ms = -1
    segment.offset_of_max_timestamp = segment.base_offset
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
    # Invalid bytes at the end stay in the file, and a later read finds them.
    segment.size_bytes = size_bytes


def _sound_timestamp(files: Files, handle: Handle, position: int, batch: BatchView) -> int:
    """Return the largest timestamp of a batch, or -1 if its checksum is wrong. Raises OSError."""
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
    """Return the producer state at `end_offset`, from the newest valid snapshot and later batches.

    Snapshots before the log's first segment are ignored, because retention has removed the records
    between snapshot and segment. Such a snapshot lacks the last sequence numbers of producers of
    the removed records, so the broker would reject these producers for ever. Without the snapshot,
    the broker does not know these producers and accepts them. Raises OSError, DamagedSegment.
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
    """Verify the checksums of a segment's batches that begin within `offsets`, and apply these
    batches to `state`.
    """
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
                # An illegible transaction marker ends no transaction.
                continue
    finally:
        files.close(handle)
    if scan.problem is not None:
        raise DamagedSegment(log_path, scan.position, end, scan.problem)


@dataclass(slots=True)
class SwapOperation:
    """An operation that replaces the segments at the base offsets `old` by a compacted segment."""

    directory: str
    old: list[int]
    #: Offsets of the producer snapshots to remove, which lie inside the new segment.
    snapshots: list[int]

    #: Whether the new segment has replaced the old segments. A failure of a later step does not
    #: undo the replacement.
    committed: bool = False
    #: Paths of renamed files that may be removed.
    deleted: list[str] = field(default_factory=list)

    def __call__(self, files: Files) -> None:
        """Swap the files. Raises OSError."""
        directory = self.directory
        new = [f"{directory}/{names.offset_name(self.old[0], s)}" for s in SEGMENT_SUFFIXES]
        new = [path for path in new if files.exists(path + names.CLEANED)]
        for path in new:
            files.rename(path + names.CLEANED, path + names.SWAP)
        files.fsync_directory(directory)
        self.committed = True
        gone = [
            f"{directory}/{names.offset_name(offset, suffix)}"
            for offset in self.old
            for suffix in SEGMENT_SUFFIXES
        ]
        gone += [f"{directory}/{names.offset_name(s, names.SNAPSHOT)}" for s in self.snapshots]
        for path in gone:
            if files.exists(path):
                files.rename(path, path + names.DELETED)
                self.deleted.append(path + names.DELETED)
        files.fsync_directory(directory)
        for path in new:
            files.rename(path + names.SWAP, path)
        # A power loss must not restore the suffix `.swap` beside the `.cleaned` files of the
        # segment's next compaction: `finish_swaps` would take this segment for a part of that
        # unfinished compaction, and remove the only copy of its records.
        files.fsync_directory(self.directory)


def remove_cleaned(files: Files, directory: str, base_offset: int) -> None:
    """Remove the files that an earlier compaction of the segment left behind because it failed
    before its swap.

    Raises OSError.
    """
    for suffix in SEGMENT_SUFFIXES:
        path = f"{directory}/{names.offset_name(base_offset, suffix)}"
        # If a compaction failed before its swap, at least one file still ends in `.cleaned`. Remove
        # the `.cleaned` files last, because `finish_swaps` ignores `.swap` files while one of them
        # exists.
        for name in (path + names.SWAP, path + names.CLEANED):
            if files.exists(name):
                files.unlink(name)


def finish_swaps(files: Files, directory: str) -> list[str]:
    """Repair a partition's directory after a crash during a swap.

    After the repair, the log has either the old segments or the new segment. Returns descriptions
    of the repairs, as lines for the broker's log. Raises OSError.
    """
    present = files.listdir(directory)
    cleaned = _with_suffix(present, names.CLEANED)
    swaps = _with_suffix(present, names.SWAP)
    notes: list[str] = []
    first_cleaned = min(cleaned.values(), default=2**63)
    for name, offset in list(swaps.items()):
        if offset >= first_cleaned:
            files.unlink(f"{directory}/{name}")
            del swaps[name]
    if swaps:
        notes.append(_take_place(files, directory, present, swaps))
    if cleaned:
        notes.append("a compaction that was not finished is undone")
        # The removal of the swap files must be durable before the cleaned files are removed,
        # because a crash must not restore swap files without the cleaned files.
        files.fsync_directory(directory)
        for name in cleaned:
            files.unlink(f"{directory}/{name}")
    return notes


def _take_place(files: Files, directory: str, present: list[str], swaps: dict[str, int]) -> str:
    """Remove the segments that a compacted segment replaces, then remove the suffix `.swap` from
    the compacted segment's files.
    """
    logs = {name: at for name, at in swaps.items() if name.endswith(names.LOG + names.SWAP)}
    if logs:
        first = min(logs.values())
        end = max(_next_offset(files, directory, name, at) for name, at in logs.items())
        for name in present:
            parsed = names.parse_offset_name(name)
            if parsed is None or not first <= parsed[0] < end:
                continue
            if parsed[1] in SEGMENT_SUFFIXES or (parsed[1] == names.SNAPSHOT and parsed[0] > first):
                files.unlink(f"{directory}/{name}")
        files.fsync_directory(directory)
    for name in swaps:
        files.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(names.SWAP)}")
    files.fsync_directory(directory)
    return f"a compaction is finished: {', '.join(swaps)}"


def _next_offset(files: Files, directory: str, name: str, base_offset: int) -> int:
    """Return the offset after a log file's last batch."""
    end = base_offset
    handle = files.open(f"{directory}/{name}")
    try:
        size = files.size(handle)
        scan = Scan(lambda count, at: files.pread(handle, count, at), base_offset, 0, size)
        for _, batch in scan:
            end = batch.next_offset
    finally:
        files.close(handle)
    return end


def _with_suffix(present: list[str], suffix: str) -> dict[str, int]:
    """Return the names of the segment files with a suffix, each with its base offset."""
    found: dict[str, int] = {}
    for name in present:
        parsed = names.parse_offset_name(name.removesuffix(suffix))
        if name.endswith(suffix) and parsed is not None:
            found[name] = parsed[0]
    return found


def index_files(segment: Segment) -> list[tuple[str, bytes]]:
    """Return (path, content) of both index files of a segment whose indexes are in memory."""
    segment.finish_time_index()
    if segment.index is None or segment.time_index is None:
        raise AssertionError(f"the index of {segment.file.path} is not in memory")
    return [
        (segment.path(names.INDEX), segment.index.to_bytes()),
        (segment.path(names.TIME_INDEX), segment.time_index.to_bytes()),
    ]


def remove_segment_files(files: Files, directory: str, base_offset: int) -> None:
    """Remove a segment's files, the log file first, because the broker's next start ignores the
    other files if the log file is missing.

    Raises OSError.
    """
    for suffix in SEGMENT_SUFFIXES:
        unlink_if_present(files, f"{directory}/{names.offset_name(base_offset, suffix)}")


def unlink_if_present(files: Files, path: str) -> None:
    """Remove a file if it exists. Raises OSError."""
    if files.exists(path):
        files.unlink(path)
