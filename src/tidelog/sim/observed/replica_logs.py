"""The replicas' logs as their files show them, followed write by write.

The module keeps the parsed batches of each log file. When a file changes, the module drops the
batches after the changed position and parses the file from there. The module reads Kafka's names
(`topic-partition/<base offset>.log`, `partition.metadata`) and format v2 with the simulator's own
reader. The module reads files as the page cache has them, because a running broker sees nothing
else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import field
from typing import Final, NamedTuple

from tidelog.core.dataclass import dataclass
from tidelog.core.types import TopicId, topic_id_from_text
from tidelog.log import names
from tidelog.sim.batches import GONE, BrokenBatch, ReadBatch, read_batches
from tidelog.sim.disk import Directory, File, SimDisk

_METADATA_NAME: Final = "partition.metadata"
_LOG: Final = ".log"
_SWAP: Final = ".log.swap"
_CLEANED: Final = ".cleaned"
_SET_ASIDE: Final = ("-delete", "-stray", "-future")
#: Name prefix of topics that are always compacted.
_INTERNAL: Final = "__"


class LogKey(NamedTuple):
    """Key of a log: topic id, partition number, and the incarnation of the partition."""

    topic_id: TopicId
    partition: int
    #: The incarnation, identified by its first leader epoch. It is above 0 if the partition was
    #: removed from its topic, which only tidelog allows, and was added again (V71).
    life: int = 0

    def __str__(self) -> str:
        again = f"+{self.life}" if self.life else ""
        return f"{self.topic_id.hex()[:8]}-{self.partition}{again}"


@dataclass(slots=True, eq=False)
class _Segment:
    """The batches of one log file."""

    file: File
    batches: list[ReadBatch] = field(default_factory=list)
    #: End position of each batch.
    ends: list[int] = field(default_factory=list)

    def follow(self, changed_from: int) -> tuple[list[ReadBatch], list[ReadBatch]]:
        """Parse the file from a changed position on; return the removed and the new batches."""
        kept = len(self.ends)
        while kept and self.ends[kept - 1] > changed_from:
            kept -= 1
        gone = self.batches[kept:]
        del self.batches[kept:], self.ends[kept:]
        position = self.ends[-1] if self.ends else 0
        came: list[ReadBatch] = []
        try:
            for batch in read_batches(bytes(memoryview(self.file.undamaged())[position:])):
                position += batch.size_bytes
                came.append(batch)
                self.ends.append(position)
        except BrokenBatch:
            # The file ends in an incomplete batch, which is no part of the log until a write
            # completes or replaces it.
            pass
        self.batches += came
        return gone, came


class ReplicaLog:
    """The records of one replica on one node, as far as its files can be read."""

    __slots__ = (
        "_gaps", "agreed", "disk", "epochs", "key", "node_id", "numbers", "segments",
        "skipped_before", "start", "version",
    )  # fmt: skip

    def __init__(self, node_id: int, key: LogKey, disk: SimDisk, gaps: bool = False) -> None:
        self.node_id = node_id
        self.key = key
        #: The disk that holds the files.
        self.disk = disk
        self.start = 0
        #: Start offset of the log when it last restarted beyond its former end, and so skipped
        #: records (V67).
        self.skipped_before = 0
        #: Whether offsets may be missing because compaction removed records.
        self._gaps = gaps
        #: Leader epoch at each offset from `start` on; `numbers` has the record numbers. An offset
        #: without a record has -1 and GONE.
        self.epochs: list[int] = []
        self.numbers: list[int] = []
        #: Number that rises with each change of the log other than an append.
        self.version = 0
        #: Offset below which `replication_checker` found no difference from the committed records.
        self.agreed = 0
        #: Base offset and parsed batches of each log file.
        self.segments: list[tuple[int, _Segment]] = []

    @property
    def end(self) -> int:
        """Offset after the last record."""
        return self.start + len(self.numbers)

    def rebuild(self, segments: list[tuple[int, _Segment]]) -> None:
        """Rebuild the log from its present files.

        Without gaps by compaction, the log ends before the first file that does not continue the
        previous file. A follower that replaces its log by an empty log at a later offset has no log
        file for a moment, or for good if its disk fails then. The log then counts as empty and
        keeps its former start offset.
        """
        self.segments = segments
        if segments:
            self.start = segments[0][0]
        self.epochs.clear()
        self.numbers.clear()
        self.version += 1
        self.agreed = 0
        for base_offset, segment in segments:
            self._fill(base_offset)
            if base_offset != self.end and self.numbers:
                return
            if not self.extend(segment.batches):
                return

    def is_last(self, segment: _Segment) -> bool:
        """Return whether a segment is the last, so that appends to its file extend the log."""
        return bool(self.segments) and self.segments[-1][1] is segment

    def extend(self, batches: list[ReadBatch]) -> bool:
        """Append batches; return False at the first batch that does not continue the log."""
        for batch in batches:
            self._fill(batch.base_offset)
            if batch.base_offset != self.end:
                if self.numbers:
                    return False
                self.start = batch.base_offset
            count = len(batch.numbers)
            self.epochs += [batch.leader_epoch] * count
            self.numbers += batch.numbers
        return True

    def _fill(self, offset: int) -> None:
        """Mark missing records up to `offset` as compacted, if offsets may be missing."""
        missing = offset - self.end
        if self._gaps and missing > 0:
            self.epochs += [-1] * missing
            self.numbers += [GONE] * missing


class NodeLogs:
    """All replicas in the log directories of a node."""

    def __init__(
        self,
        node_id: int,
        disks: Sequence[SimDisk],
        *,
        gaps: bool = False,
        compacted: Collection[str] = (),
    ) -> None:
        """Follow the logs on `disks`, one disk for each log directory.

        With `gaps`, all topics are compacted; otherwise, only internal topics and the topics in
        `compacted`.
        """
        self.node_id = node_id
        self._gaps = gaps
        self._compacted = compacted
        #: Returns the first leader epochs of a partition's incarnations, ascending.
        self.lives_of: Callable[[LogKey], Sequence[int]] = lambda key: (0,)
        #: The disk of each log directory.
        self.disks = tuple(disks)
        self.logs: dict[LogKey, ReplicaLog] = {}
        #: Called when a change in a file makes records of a log unreadable: (log, former end).
        self.on_cut: Callable[[ReplicaLog, int], None] = lambda log, end_before: None
        #: Called when a replica is no longer hosted, even if its files still exist.
        self.on_gone: Callable[[ReplicaLog], None] = lambda log: None
        #: Called for new records: (log, first offset).
        self.on_grown: Callable[[ReplicaLog, int], None] = lambda log, first: None
        #: By directory without a readable topic id: the partition to which its broker assigns it.
        #: The key is the directory itself, because a directory that is created later under the same
        #: name may belong to another topic.
        self._adopted: dict[Directory, LogKey] = {}
        self._segments: dict[File, _Segment] = {}
        self._owners: dict[File, ReplicaLog] = {}
        #: Whether the directories must be scanned again, because a file that belongs to no known
        #: log has changed.
        self._must_scan = False

    def follow(self) -> list[ReplicaLog]:
        """Follow the changes on the disk; return the changed logs."""
        for disk in self.disks:
            if disk.touched or disk.names_changed:
                break
        else:
            return []
        changed: dict[ReplicaLog, None] = {}
        rebuilt: dict[ReplicaLog, int] = {}
        for disk in self.disks:
            touched, disk.touched = disk.touched, {}
            for file, position in touched.items():
                self._follow_file(file, position, changed, rebuilt)
        for log, end in rebuilt.items():
            self._rebuild(log, log.segments, end)
        if self._must_scan or any(disk.names_changed for disk in self.disks):
            self._must_scan = False
            for disk in self.disks:
                disk.names_changed = False
            for log in self._scan():
                changed[log] = None
        return list(changed)

    def _follow_file(
        self,
        file: File,
        position: int,
        changed: dict[ReplicaLog, None],
        rebuilt: dict[ReplicaLog, int],
    ) -> None:
        """Follow a file's change from `position` on; note that its log grew or must be rebuilt."""
        segment = self._segments.get(file)
        if segment is None:
            return
        gone, came = segment.follow(position)
        log = self._owners.get(file)
        if log is None:
            # The file may belong to the copy of a replica that the broker ignored so far, and may
            # now keep.
            self._must_scan = self._must_scan or bool(came)
            return
        changed[log] = None
        if gone or not log.is_last(segment):
            rebuilt.setdefault(log, log.end)
        elif log not in rebuilt:
            first = log.end
            log.extend(came)
            if log.end > first:
                self.on_grown(log, first)

    def holder(self, directory_name: str) -> SimDisk | None:
        """Return the disk that has a directory of the given name; None if there is none."""
        for disk in self.disks:
            if disk.find(f"{disk.root}/{directory_name}") is not None:
                return disk
        return None

    def copy_on(self, disk: SimDisk, directory_name: str) -> ReplicaLog | None:
        """Return the log in the directory of the given name on one disk, as its files are now.

        Return None if the disk has no directory of the given name. While a broker moves a replica,
        two disks may have such a directory.
        """
        directory = disk.find(f"{disk.root}/{directory_name}")
        if not isinstance(directory, Directory):
            return None
        key = _key_of(directory_name, directory) or self._adopted.get(directory)
        if key is None:
            return None
        is_compacted = directory_name.rpartition("-")[0] in self._compacted
        gaps = self._gaps or is_compacted or directory_name.startswith(_INTERNAL)
        log = ReplicaLog(self.node_id, key, disk, gaps)
        log.rebuild(self._segments_of(directory))
        return log

    def adopt(self, directory_name: str, key: LogKey) -> ReplicaLog | None:
        """Assign a directory without a readable topic id to the given partition, as its broker
        does.

        Return the log of the partition; None if there is none.
        """
        holder = self.holder(directory_name)
        directory = None if holder is None else holder.find(f"{holder.root}/{directory_name}")
        if isinstance(directory, Directory) and self._adopted.get(directory) != key:
            self._adopted[directory] = key
            self._scan()
        return self.logs.get(key)

    def _rebuild(self, log: ReplicaLog, segments: list[tuple[int, _Segment]], end: int) -> None:
        before = list(zip(log.epochs, log.numbers, strict=True))
        before_start = log.start
        log.rebuild(segments)
        if log.start > before_start + len(before):
            log.skipped_before = log.start
        kept_end = log.start
        if log.start >= before_start:
            # If only the first records are gone (retention), the later records are compared with
            # the former ones.
            known = before[log.start - before_start :]
            kept_end += _common(known, list(zip(log.epochs, log.numbers, strict=True)))
        if kept_end < end:
            self.on_cut(log, end)
        if log.end > kept_end:
            self.on_grown(log, kept_end)

    def _scan(self) -> list[ReplicaLog]:
        """Scan all directories for new, removed and changed replicas; return the logs that
        changed.
        """
        found: dict[LogKey, _Copy] = {}
        with_gaps: dict[LogKey, None] = {}
        for disk, name, entry in self._entries():
            partition = _key_of(name, entry) or self._adopted.get(entry)
            if partition is not None:
                segments = self._segments_of(entry)
                partition = self._in_its_life(entry, partition, segments)
                copy = _Copy(disk, segments, *_moved_from(entry))
                known = found.get(partition)
                if known is not None and _is_kept(known, copy):
                    continue
                found[partition] = copy
                if name.startswith(_INTERNAL) or name.rpartition("-")[0] in self._compacted:
                    with_gaps[partition] = None
        changed: list[ReplicaLog] = []
        for key, (disk, segments, _, _) in found.items():
            log = self.logs.get(key)
            if log is None:
                gaps = self._gaps or key in with_gaps
                log = self.logs[key] = ReplicaLog(self.node_id, key, disk, gaps)
            log.disk = disk
            if segments != log.segments:
                for _, segment in segments:
                    self._owners[segment.file] = log
                self._rebuild(log, segments, log.end)
                changed.append(log)
        for key in [key for key in self.logs if key not in found]:
            gone = self.logs.pop(key)
            end = gone.end
            for _, segment in gone.segments:
                # A file of the removed log may already belong to the log of another incarnation.
                if self._owners.get(segment.file) is gone:
                    del self._owners[segment.file]
            gone.rebuild([])
            changed.append(gone)
            self.on_gone(gone)
            if end:
                self.on_cut(gone, end)
        return changed

    def _entries(self) -> Iterator[tuple[SimDisk, str, Directory]]:
        """Yield the disk, the directory's name and the directory of each replica.

        Directories of deleted, stray and future replicas are left out.
        """
        for disk in self.disks:
            root = disk.find(disk.root)
            entries = root.entries if isinstance(root, Directory) else {}
            for name, entry in entries.items():
                if isinstance(entry, Directory) and not name.endswith(_SET_ASIDE):
                    yield disk, name, entry

    def _in_its_life(
        self, directory: Directory, key: LogKey, segments: list[tuple[int, _Segment]]
    ) -> LogKey:
        """Return `key` with the incarnation to which the log's first record belongs.

        For a log without records, return the incarnation that its broker assumes, or else the
        latest incarnation.
        """
        lives = self.lives_of(key)
        if len(lives) < 2:
            return key
        batches = [batch for _, segment in segments for batch in segment.batches]
        if batches:
            life = life_at(lives, batches[0].leader_epoch)
        else:
            adopted = self._adopted.get(directory)
            is_same = adopted is not None and adopted[:2] == key[:2]
            life = adopted.life if adopted is not None and is_same else lives[-1]
        return LogKey(key.topic_id, key.partition, life)

    def _segments_of(self, directory: Directory) -> list[tuple[int, _Segment]]:
        """Return the files of a log.

        Compaction replaces files by a `.swap` file. The `.swap` file counts instead of the replaced
        files, unless some file of the log still ends in `.cleaned`.
        """
        found: dict[int, _Segment] = {}
        swaps: dict[int, _Segment] = {}
        for name, entry in directory.entries.items():
            if not isinstance(entry, File):
                continue
            if name.endswith(_LOG) and name[: -len(_LOG)].isdigit():
                found[int(name[: -len(_LOG)])] = self._segment(entry)
            elif name.endswith(_SWAP) and name[: -len(_SWAP)].isdigit():
                swaps[int(name[: -len(_SWAP)])] = self._segment(entry)
        if swaps and not any(name.endswith(_CLEANED) for name in directory.entries):
            for base_offset, segment in swaps.items():
                end = segment.batches[-1].next_offset if segment.batches else base_offset
                for other in [other for other in found if base_offset <= other < end]:
                    del found[other]
                found[base_offset] = segment
        return sorted(found.items(), key=lambda item: item[0])

    def _segment(self, file: File) -> _Segment:
        segment = self._segments.get(file)
        if segment is None:
            segment = self._segments[file] = _Segment(file)
            segment.follow(0)
        return segment


def life_at(lives: Sequence[int], leader_epoch: int) -> int:
    """Return the incarnation that contains a leader epoch.

    `lives` are the first leader epochs of the incarnations, ascending.
    """
    return max((life for life in lives if life <= leader_epoch), default=0)


class _Copy(NamedTuple):
    """One copy of a replica on a broker's disks."""

    disk: SimDisk
    segments: list[tuple[int, _Segment]]
    #: Log directories whose copies this copy replaced; `moves` is how often the replica moved
    #: between directories (D11).
    older: tuple[str, ...]
    moves: int

    def replaced(self, other: _Copy) -> bool:
        """Return whether this copy of the replica replaced the copy `other`."""
        if other.disk.root not in self.older:
            return False
        return self.disk.root not in other.older or self.moves > other.moves


def _moved_from(directory: Directory) -> tuple[tuple[str, ...], int]:
    """Return the paths from which a replica was moved, and the number of its moves."""
    file = directory.entries.get(names.MOVED_FROM)
    lines = bytes(file.data).decode().split() if isinstance(file, File) else []
    return (tuple(lines[:-1]), int(lines[-1])) if lines else ((), 0)


def _is_kept(copy: _Copy, other: _Copy) -> bool:
    """Return whether a broker with two copies of a replica keeps `copy` and not `other`.

    The broker does not see a copy in a failed directory. Otherwise it keeps the copy that replaced
    the other (D11), or, if neither did, the copy with the higher last leader epoch and log end
    (D6).
    """
    if copy.disk.is_failed != other.disk.is_failed:
        return other.disk.is_failed
    if copy.replaced(other) != other.replaced(copy):
        return copy.replaced(other)
    return _last(copy.segments) >= _last(other.segments)


def _last(segments: list[tuple[int, _Segment]]) -> tuple[int, int]:
    """Return leader epoch and end of a log's last batch, (-1, -1) for a log without batches."""
    for _, segment in reversed(segments):
        if segment.batches:
            return segment.batches[-1].leader_epoch, segment.batches[-1].next_offset
    return -1, -1


def _common(before: list[tuple[int, int]], after: list[tuple[int, int]]) -> int:
    """Return how many of the first entries of `before` and `after` are equal.

    A removed record (GONE) in `after` counts as equal.
    """
    for index, (one, other) in enumerate(zip(before, after, strict=False)):
        if one != other and other[1] != GONE:
            return index
    return min(len(before), len(after))


def _key_of(name: str, directory: Directory) -> LogKey | None:
    """Return the key of a directory's partition; None if its metadata has no readable topic id
    (yet).
    """
    _, dash, number = name.rpartition("-")
    metadata = directory.entries.get(_METADATA_NAME)
    if not dash or not number.isdigit() or not isinstance(metadata, File):
        return None
    for line in bytes(metadata.data).decode("ascii", "replace").splitlines():
        field, _, value = line.partition(":")
        if field.strip() == "topic_id":
            try:
                return LogKey(topic_id_from_text(value.strip()), int(number))
            except ValueError:
                return None
    return None
