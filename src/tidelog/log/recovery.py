"""The loading of one partition's directory, and the recovery of its log after a crash.

After a clean shutdown, the broker trusts the files and reads only the end of the last segment.
After a crash, recovery reads and checks every batch from the recovery point on. Recovery truncates
the log at the first incomplete or invalid batch, and at a gap between segments. Recovery rebuilds
indexes, leader epochs and producer state above the recovery point from the batches. The recovered
files are made durable, so that a second crash loses no further records. Checkpoints are caches, so
recovery ignores checkpointed leader epochs at or beyond the recovery point or the log end (V39).

All records below the recovery point were flushed, so a crash cannot have damaged them. Recovery
never truncates below the recovery point, because other replicas may rely on flushed records, and
valid records may follow the damage. If batches below the recovery point are invalid or out of
order, or the log ends below the recovery point, the broker does not start; the error names file and
position. Gaps below the recovery point are valid, because the topic is or was compacted. This
module runs on the directory's thread, and exchanges only plain values with the event loop.
"""

from __future__ import annotations

from dataclasses import field

from tidelog.core.dataclass import dataclass
from tidelog.core.epochs import LeaderEpochs
from tidelog.core.errors import FULL_ERRNOS
from tidelog.core.ports import Buffer, Files, FileStatus
from tidelog.core.types import ZERO_TOPIC_ID, TopicId, topic_id_to_text
from tidelog.log import names
from tidelog.log.checkpoints import (
    LEADER_EPOCHS,
    DamagedCheckpoint,
    format_leader_epochs,
    parse_leader_epochs,
)
from tidelog.log.directory_files import (
    PARTITION_METADATA,
    format_partition_metadata,
    parse_partition_metadata,
    write_beside,
)
from tidelog.log.index import TIME_ENTRY_BYTES, DamagedIndex, OffsetIndex, TimeIndex
from tidelog.log.moved_from import MovedFrom, parse_moved_from
from tidelog.log.producer_state import ProducerState
from tidelog.log.recovery_walk import DamagedLog, DoubtfulBatch, Walk
from tidelog.log.scan import Scan
from tidelog.log.segment import Segment
from tidelog.log.segment_files import (
    DamagedSegment,
    SegmentFile,
    begins_without_timestamp,
    ends_at_entry,
    finish_swaps,
    index_files,
    last_entry,
    producers_at,
    read_indexes,
    rebuild_indexes,
    remove_segment_files,
)
from tidelog.records.batch import HEADER_BYTES, MAGIC, BatchView, CorruptBatch


@dataclass(slots=True)
class LoadRequest:
    """The facts about a partition that the broker knows before it reads the partition's
    directory.
    """

    path: str
    clean: bool
    #: Offset below which all records were flushed; 0 if the checkpoint has no entry for the
    #: partition.
    recovery_point: int
    log_start_offset: int
    index_interval_bytes: int
    #: Whether compaction on this broker or on the leader may have caused gaps within a segment.
    compacted: bool
    #: Wall clock.
    now_ms: int
    #: Monotonic time of the load, from which the expiry of each loaded producer counts.
    monotonic_ms: int
    #: The replica's topic id in the file of new replicas; zeros if the file does not have the
    #: replica (V23).
    noted_topic_id: TopicId = ZERO_TOPIC_ID


@dataclass(slots=True)
class LoadedLog:
    """The content of a partition's directory, as loaded.

    `notes` are lines for the broker's log: (whether the line is a warning, text).
    """

    topic_id: TopicId = ZERO_TOPIC_ID
    #: Whether the topic is unknown, because `partition.metadata` is damaged and the file of new
    #: replicas does not name the topic id.
    is_topic_unknown: bool = False
    segments: list[Segment] = field(default_factory=list)
    log_start_offset: int = 0
    log_end_offset: int = 0
    recovery_point: int = 0
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    producers: ProducerState = field(default_factory=ProducerState)
    snapshots: list[int] = field(default_factory=list)
    #: Whether the directory never held a topic id or a record.
    is_unfinished: bool = False
    #: Whether the index files and the producer snapshot on disk cover the log up to
    #: `log_end_offset`, so that closing the log need not write them again.
    is_sealed: bool = False
    #: Whether changed file names in the directory may not have reached the disk.
    names_changed: bool = False
    #: Number of truncated bytes: invalid bytes and all bytes after them.
    cut_bytes: int = 0
    #: The directories of older copies of a replica that moved; None without a move (D11).
    moved_from: MovedFrom | None = None
    #: Paths of files whose new content is still in temporary files; after a sync, the temporary
    #: files are renamed to these paths.
    beside: list[str] = field(default_factory=list)
    notes: list[tuple[bool, str]] = field(default_factory=list)


def load(files: Files, request: LoadRequest) -> LoadedLog:
    """Load a partition's directory. Raises OSError, DamagedLog.

    After an unclean shutdown, the caller must rename the temporary files of `LoadedLog.beside`
    (`put_in_place`) before it uses the log.
    """
    return _Loader(files, request).load()


class _Loader:
    def __init__(self, files: Files, request: LoadRequest) -> None:
        self.files = files
        self.request = request
        self.path = request.path
        self.loaded = LoadedLog()
        self.epochs_known = True
        #: Whether the loader read the active segment's indexes from their files, instead of
        #: building them from the batches.
        self.resumed = False
        #: Whether the disk had room for the files with rebuilt indexes and leader epochs. Without
        #: these files, the recovery point must not rise, because later starts trust the files below
        #: the recovery point.
        self.has_room = True

    def load(self) -> LoadedLog:
        """Load the directory; after an unclean shutdown, recover the log."""
        loaded, request = self.loaded, self.request
        found = self._list_files()
        self._read_topic_id()
        start = request.log_start_offset
        if not found:
            found = [self._create(start)]
        loaded.is_unfinished = loaded.topic_id == ZERO_TOPIC_ID and not any(
            segment.size_bytes for segment in found
        )
        scan_from = None if request.clean else request.recovery_point
        self._read_epochs(scan_from, max(start, found[0].base_offset), found)
        self._load_segments(found, scan_from)
        loaded.log_start_offset = max(start, loaded.segments[0].base_offset)
        if loaded.log_end_offset < start:
            self._restart_at(start)
        loaded.epochs.truncate_from_end(loaded.log_end_offset)
        loaded.epochs.truncate_from_start(loaded.log_start_offset)
        self._load_producers()
        if not request.clean:
            self._write_down()
        end = loaded.log_end_offset
        loaded.recovery_point = end if self.has_room else min(request.recovery_point, end)
        loaded.is_sealed = self.resumed and end in loaded.snapshots and not loaded.cut_bytes
        return loaded

    def _note(self, text: str, *, warning: bool = True) -> None:
        self.loaded.notes.append((warning, f"{self.path}: {text}"))

    # files, topic id and leader epochs in the directory

    def _list_files(self) -> list[SegmentFile]:
        found: list[SegmentFile] = []
        for note in finish_swaps(self.files, self.path):
            self._note(note, warning=False)
        present = self.files.listdir(self.path)
        for name in present:
            if name.endswith((names.DELETED, names.TEMPORARY)):
                self.files.unlink(f"{self.path}/{name}")
                continue
            if name == names.MOVED_FROM:
                data = self.files.read_file(f"{self.path}/{name}")
                self.loaded.moved_from = parse_moved_from(data)
            parsed = names.parse_offset_name(name)
            if parsed is None:
                continue
            offset, suffix = parsed
            if suffix == names.LOG:
                found.append(SegmentFile(offset, *self._status_of(f"{self.path}/{name}")))
            elif suffix == names.SNAPSHOT:
                self.loaded.snapshots.append(offset)
            elif names.offset_name(offset, names.LOG) not in present:
                self._note(f"{name} has no log file and is removed")
                self.files.unlink(f"{self.path}/{name}")
        return found

    def _status_of(self, path: str) -> FileStatus:
        handle = self.files.open(path)
        try:
            return self.files.status(handle)
        finally:
            self.files.close(handle)

    def _create(self, base_offset: int) -> SegmentFile:
        path = f"{self.path}/{names.offset_name(base_offset, names.LOG)}"
        self.files.close(self.files.open(path, write=True, create=True))
        self.loaded.names_changed = True
        return SegmentFile(base_offset, 0, self.request.now_ms)

    def _read_topic_id(self) -> None:
        """Read the topic id in `partition.metadata`, or else in the file of new replicas.

        A power loss before the first flush can destroy the file with the topic id (V23). A replica
        without its topic id counts as lost. If the ISR has no other member, the partition is then
        lost, too (D3).
        """
        path = f"{self.path}/{PARTITION_METADATA}"
        problem = "is missing"
        if self.files.exists(path):
            try:
                self.loaded.topic_id = parse_partition_metadata(self.files.read_file(path))
                return
            except ValueError as error:
                problem = f"cannot be read: {error}"
                self.loaded.is_topic_unknown = True
        noted = self.request.noted_topic_id
        if noted != ZERO_TOPIC_ID:
            self.files.replace_file(path, format_partition_metadata(noted), sync=True)
            self.loaded.topic_id = noted
            self.loaded.is_topic_unknown = False
            problem += f"; {names.NEW_REPLICAS} has the topic id, {topic_id_to_text(noted)}"
        if noted != ZERO_TOPIC_ID or self.loaded.is_topic_unknown:
            self._note(f"{PARTITION_METADATA} {problem}")

    def _read_epochs(self, scan_from: int | None, start: int, found: list[SegmentFile]) -> None:
        """Read the checkpointed leader epochs below the recovery point; the later epochs come from
        the batches.

        If a crash brought back segments that retention had removed, the checkpoint lacks their
        epochs, so all epochs are rebuilt from the batches.
        """
        path = f"{self.path}/{LEADER_EPOCHS}"
        entries: list[tuple[int, int]] | None = None
        if self.files.exists(path):
            try:
                entries = parse_leader_epochs(self.files.read_file(path))
            except DamagedCheckpoint as error:
                self._note(f"{LEADER_EPOCHS} is rebuilt from the batches: {error}")
        if entries is not None and any(segment.size_bytes for segment in found):
            reach = entries[0][1] if entries else 2**63
            if reach > start and (scan_from is None or scan_from > start):
                self._note(f"{LEADER_EPOCHS} is rebuilt: it does not reach back to {start}")
                entries = None
        self.epochs_known = entries is not None
        self.loaded.epochs = LeaderEpochs(entries or ())
        if scan_from is not None:
            self.loaded.epochs.truncate_from_end(scan_from)

    # segments

    def _load_segments(self, found: list[SegmentFile], scan_from: int | None) -> None:
        """Load or scan each segment in order; remove the segments after the end of the log."""
        loaded = self.loaded
        end = found[0].base_offset
        for number, segment_file in enumerate(found):
            last = number + 1 == len(found)
            segment_end = None if last else found[number + 1].base_offset
            if segment_end is not None and self._is_believed(segment_end, scan_from):
                if segment_end == scan_from:
                    segment_file = self._without_stale_tail(segment_file, segment_end)
                loaded.segments.append(self._load_old(segment_file, segment_end))
                end = segment_end
                continue
            if segment_file.base_offset != end and not self._may_follow(segment_file, end):
                self._drop(found[number:], f"ends at offset {end}, the next segment is at")
                break
            segment, end, is_whole = self._scan(segment_file, scan_from, segment_end)
            loaded.segments.append(segment)
            if not is_whole and not last:
                self._drop(
                    found[number + 1 :], f"was truncated at offset {end}, before the segment at"
                )
                break
        loaded.log_end_offset = end
        flushed = self.request.recovery_point
        if end < flushed and end >= self.request.log_start_offset and not loaded.cut_bytes:
            tail = loaded.segments[-1]
            raise DamagedLog(
                tail.file.path, tail.size_bytes, end,
                f"the file ends here, and offset {flushed - 1} had been flushed",
                self.request.now_ms,
            )  # fmt: skip

    def _is_believed(self, segment_end: int, scan_from: int | None) -> bool:
        if not self.epochs_known:
            return False
        return scan_from is None or segment_end <= scan_from

    def _without_stale_tail(self, segment_file: SegmentFile, segment_end: int) -> SegmentFile:
        """Remove the bytes at the end of a segment's file that lie beyond the segment's end.

        A log may be truncated, and then roll at the offset of the truncation. After a crash, the
        disk may have the next segment's file, while the earlier segment's file still has the
        truncated bytes. These bytes are no part of the log.
        """
        segment = self._new_segment(segment_file)
        position = self._resume_from_index(segment, segment_file.size_bytes)
        if segment.index is not None and segment.index.last_offset() >= segment_end:
            # The index may have been written before the truncation, so its last entry may point to
            # a batch that must be removed: scan from the segment's start.
            position = 0
        self.resumed = False
        handle = self.files.open(segment.file.path, write=True)
        try:
            scan = Scan(
                lambda size, at: self.files.pread(handle, size, at),
                segment.base_offset,
                position,
                segment_file.size_bytes,
            )
            for at, batch in scan:
                if batch.base_offset >= segment_end:
                    self._note(
                        f"{names.offset_name(segment.base_offset, names.LOG)} is truncated at byte"
                        f" {at} of {segment_file.size_bytes}: the next segment begins at"
                        f" {segment_end}"
                    )
                    self.loaded.cut_bytes += segment_file.size_bytes - at
                    self.files.truncate(handle, at)
                    self.files.fsync(handle)
                    segment.size_bytes = at
                    self._rebuild_indexes(segment)
                    return segment_file._replace(size_bytes=at, modified_ms=self.request.now_ms)
        finally:
            self.files.close(handle)
        return segment_file

    def _may_follow(self, segment_file: SegmentFile, end: int) -> bool:
        """Return whether a gap before a segment is valid.

        Compaction leaves gaps only in flushed records. A gap in unflushed records means that a
        crash lost the end of a segment.
        """
        if segment_file.base_offset < end:
            return False
        if self.request.clean or segment_file.base_offset <= self.request.recovery_point:
            self._note(f"offsets {end}..{segment_file.base_offset - 1} are missing, as expected",
                       warning=False)  # fmt: skip
            return True
        return False

    def _drop(self, rest: list[SegmentFile], why: str) -> None:
        """Remove the segments after the log end, the last segment first."""
        loaded = self.loaded
        self._note(f"the log {why} {rest[0].base_offset}: {len(rest)} segments are removed")
        for segment_file in reversed(rest):
            remove_segment_files(self.files, self.path, segment_file.base_offset)
            loaded.cut_bytes += segment_file.size_bytes
        self.loaded.names_changed = True

    def _new_segment(self, segment_file: SegmentFile) -> Segment:
        """Return a new Segment object for a file; the segment's age counts from the file's last
        write.

        A restart thus does not reset the segment's age to 0. The segment seems younger than it is,
        because the last write came after its creation, so it never rolls too early.
        """
        begun_ms = min(segment_file.modified_ms, self.request.now_ms)
        segment = Segment(self.path, segment_file.base_offset, begun_ms)
        segment.last_modified_ms = segment_file.modified_ms
        return segment

    def _load_old(self, segment_file: SegmentFile, segment_end: int) -> Segment:
        """Load an inactive segment; its indexes stay on disk if they are valid.

        Raises DamagedLog if the segment ends before an offset in its indexes.
        """
        segment = self._new_segment(segment_file)
        segment.size_bytes = segment_file.size_bytes
        segment.sealed = True
        has_records = segment.size_bytes or self.files.exists(segment.path(names.TIME_INDEX))
        known = not has_records or self._read_last_timestamp(segment)
        entry = last_entry(self.files, segment)
        if (
            entry is not None
            and segment.max_timestamp_ms >= 0
            and segment.offset_of_max_timestamp < segment_end
        ):
            entry = entry._replace(offset=max(entry.offset, segment.offset_of_max_timestamp))
        # If a segment has no index entry, its damage is found only when its batches are read (V68).
        if entry is not None and entry.offset >= segment.base_offset:
            is_whole, newest_ms = ends_at_entry(self.files, segment, entry)
            if not is_whole:
                self._check_whole(segment, entry.offset, segment_end)
            # If the segment rolled at the recovery point and was not flushed later, its index may
            # cover only its beginning. Lookups by timestamp would then miss the segment's later
            # records, so the indexes are rebuilt.
            known = known and is_whole and newest_ms <= segment.max_timestamp_ms
        if not known:
            self._rebuild_indexes(segment)
        segment.index = segment.time_index = None
        return segment

    def _check_whole(self, segment: Segment, indexed_offset: int, segment_end: int) -> None:
        """Check all batches of a segment, because its index contradicts its log file.

        The log file is valid if it consists of valid batches up to the next segment, or at least up
        to the last offset in the index. Raises DamagedLog if the log file is invalid.
        """
        handle = self.files.open(segment.file.path)
        try:
            scan = Scan(
                lambda size, at: self.files.pread(handle, size, at),
                segment.base_offset, 0, segment.size_bytes, segment.base_offset,
            )  # fmt: skip
            end = segment.base_offset
            for _, batch in scan:
                end = batch.next_offset
        finally:
            self.files.close(handle)
        reason = scan.problem
        if reason is None and end <= indexed_offset < segment_end:
            reason = f"the file ends here, and its index names offset {indexed_offset}"
        if reason is not None:
            raise DamagedLog(segment.file.path, scan.position, end, reason, self.request.now_ms)

    def _read_last_timestamp(self, segment: Segment) -> bool:
        """Set the segment's largest timestamp from its time index; return whether both indexes look
        valid.
        """
        path = segment.path(names.TIME_INDEX)
        if not self.files.exists(path) or not self.files.exists(segment.path(names.INDEX)):
            self._note(f"the index at {segment.base_offset} is rebuilt: a file is missing")
            return False
        handle = self.files.open(path)
        try:
            size = self.files.size(handle)
            data = self.files.pread(handle, TIME_ENTRY_BYTES, max(0, size - TIME_ENTRY_BYTES))
        finally:
            self.files.close(handle)
        if size == 0:
            is_small = segment.size_bytes < self.request.index_interval_bytes * 2
            return is_small or begins_without_timestamp(self.files, segment)
        try:
            last = TimeIndex.from_bytes(segment.base_offset, data).last()
        except DamagedIndex:
            last = (-1, 0)
        if size % TIME_ENTRY_BYTES or last[0] < 0:
            self._note(f"the index at {segment.base_offset} is rebuilt: its end is damaged")
            return False
        segment.max_timestamp_ms, segment.offset_of_max_timestamp = last
        return True

    def _rebuild_indexes(self, segment: Segment) -> None:
        rebuild_indexes(self.files, segment, self.request.index_interval_bytes)
        for path, data in index_files(segment):
            self.files.replace_file(path, data, sync=True)

    def _scan(
        self, segment_file: SegmentFile, scan_from: int | None, segment_end: int | None
    ) -> tuple[Segment, int, bool]:
        """Scan a segment; return the segment, its end offset, and whether later segments may stay.

        After a clean shutdown, the scan starts at the last index entry, otherwise at the segment's
        start. Batches at or beyond `scan_from` are checked with their CRC. The next segment begins
        at `segment_end`. If a crash undid a truncation, this segment may have records beyond
        `segment_end`; the scan removes these records and keeps the next segment.
        """
        segment = self._new_segment(segment_file)
        position = 0
        if scan_from is None and self.epochs_known:
            position = self._resume_from_index(segment, segment_file.size_bytes)
        handle = self.files.open(segment.file.path, write=True)

        def scan(start: int, end: int) -> Scan:
            def read(size: int, at: int) -> Buffer:
                return self.files.pread(handle, size, at)

            return Scan(read, segment.base_offset, start, end, scan_from)

        walk = self._walk()
        try:
            try:
                batches = scan(position, segment_file.size_bytes)
                found = walk.note_batches(segment, batches, segment_end)
            except DoubtfulBatch as doubtful:
                self._reset(segment)
                self.loaded.epochs.truncate_from_end(doubtful.offset)
                batches = scan(0, doubtful.position)
                found = walk.note_batches(segment, batches, segment_end, behind=doubtful.problem)
            if found.problem is not None:
                self._note(
                    f"{names.offset_name(segment.base_offset, names.LOG)} is truncated at byte "
                    f"{segment.size_bytes}, offset {found.offset}: {found.problem}"
                )
            size = segment.size_bytes
            if size < segment_file.size_bytes:
                self.loaded.cut_bytes += segment_file.size_bytes - size
                self.files.truncate(handle, size)
                segment.last_modified_ms = self.request.now_ms
            if self.request.clean and size < segment_file.size_bytes:
                self.files.fsync(handle)
        finally:
            self.files.close(handle)
        return segment, found.offset, found.goes_on

    def _walk(self) -> Walk:
        request = self.request
        return Walk(
            request.recovery_point,
            request.clean,
            request.compacted,
            request.index_interval_bytes,
            request.now_ms,
            self.loaded.epochs,
        )

    def _resume_from_index(self, segment: Segment, size_bytes: int) -> int:
        """Read the indexes that a clean shutdown wrote; return the position from which to scan."""
        segment.size_bytes = size_bytes
        try:
            read_indexes(self.files, segment)
        except DamagedIndex as error:
            if size_bytes > HEADER_BYTES:
                self._note(f"the index at {segment.base_offset} is rebuilt: {error}",
                           warning=False)  # fmt: skip
            self._reset(segment)
            return 0
        self.resumed = True
        index = segment.index or OffsetIndex(segment.base_offset)
        position = index.last_position()
        segment.size_bytes = position
        segment.bytes_since_index = 0
        handle = self.files.open(segment.file.path)
        try:
            first = self.files.pread(handle, HEADER_BYTES, 0)
            entry = self.files.pread(handle, HEADER_BYTES, position)
        finally:
            self.files.close(handle)
        try:
            segment.first_timestamp_ms = BatchView(first).max_timestamp
            batch = BatchView(entry)
            # In an index that Kafka wrote, an entry has the last offset of a whole append. The
            # append may consist of several batches, so the entry's offset may be above the end of
            # this batch.
            if len(index) and (
                batch.magic != MAGIC
                or not segment.base_offset <= batch.last_offset <= index.last_offset()
            ):
                raise CorruptBatch(position, "not the batch that the index names")
        except CorruptBatch as error:
            if size_bytes > HEADER_BYTES:
                self._note(f"the index at {segment.base_offset} is not believed: {error}")
            self._reset(segment)
            self.resumed = False
            return 0
        return position

    @staticmethod
    def _reset(segment: Segment) -> None:
        segment.index = OffsetIndex(segment.base_offset)
        segment.time_index = TimeIndex(segment.base_offset)
        segment.size_bytes = segment.bytes_since_index = 0
        segment.max_timestamp_ms = segment.first_timestamp_ms = -1
        segment.offset_of_max_timestamp = segment.base_offset

    def _restart_at(self, start: int) -> None:
        """Make the log empty at its log start offset, because all its records are below this
        offset.
        """
        loaded = self.loaded
        self._note(f"the log ends at {loaded.log_end_offset}, before its start {start}: it "
                   "starts over there")  # fmt: skip
        for segment in reversed(loaded.segments):
            remove_segment_files(self.files, self.path, segment.base_offset)
        loaded.segments = [self._new_segment(self._create(start))]
        loaded.log_start_offset = loaded.log_end_offset = start
        loaded.epochs.clear()

    # producers, durability

    def _load_producers(self) -> None:
        loaded, request = self.loaded, self.request
        end = loaded.log_end_offset
        # Producer snapshots beyond the recovery point are ignored, because they may include records
        # that were truncated later. A snapshot at the start of the first segment is valid:
        # retention wrote it when it removed older segments, and retention removes only committed
        # records (V64).
        first = loaded.segments[0].base_offset if loaded.segments else 0
        limit = end if request.clean else min(max(request.recovery_point, first), end)
        for offset in [offset for offset in loaded.snapshots if offset > limit]:
            self.files.unlink(f"{self.path}/{names.offset_name(offset, names.SNAPSHOT)}")
            self.loaded.names_changed = True
        loaded.snapshots = [offset for offset in loaded.snapshots if offset <= limit]
        self._drop_useless_snapshots()
        segments = [SegmentFile.of(segment) for segment in loaded.segments]
        try:
            loaded.producers = producers_at(
                self.files, self.path, segments, loaded.snapshots, end, request.monotonic_ms
            )
        except DamagedSegment as error:
            raise DamagedLog(
                error.path, error.position, error.offset, error.reason, request.now_ms
            ) from None

    def _drop_useless_snapshots(self) -> None:
        """Keep only the newest snapshot and the snapshots at the beginnings of segments."""
        loaded = self.loaded
        bases = [segment.base_offset for segment in loaded.segments]
        kept = [s for s in loaded.snapshots if s in bases or s == loaded.snapshots[-1]]
        for offset in loaded.snapshots:
            if offset not in kept:
                self.files.unlink(f"{self.path}/{names.offset_name(offset, names.SNAPSHOT)}")
        loaded.snapshots = kept

    def _write_down(self) -> None:
        """Write indexes and leader epochs to temporary files, which the caller renames.

        If the disk is full, the recovery point stays low until the next flush writes the indexes
        and epochs (D14).
        """
        try:
            self._write_files()
        except OSError as error:
            if error.errno not in FULL_ERRNOS:
                raise
            self.has_room = False
            self.loaded.epochs.changed |= not self.epochs_known
            self._note("the disk is full: indexes and leader epochs are written later")
        self.loaded.names_changed = False

    def _write_files(self) -> None:
        loaded = self.loaded
        for segment in loaded.segments[:-1]:
            if not segment.sealed:
                for path, data in index_files(segment):
                    self._write_beside(path, data)
                segment.sealed = True
        if loaded.epochs.changed or not self.epochs_known:
            data = format_leader_epochs(loaded.epochs.entries())
            self._write_beside(f"{self.path}/{LEADER_EPOCHS}", data)
            loaded.epochs.changed = False

    def _write_beside(self, path: str, data: bytes) -> None:
        try:
            write_beside(self.files, path, data)
        except OSError:
            if self.files.exists(path + names.TEMPORARY):
                self.files.unlink(path + names.TEMPORARY)
            raise
        self.loaded.beside.append(path)
