"""The state of one partition's log, which all operations share, and its transitions.

The operations of a log (`append_queue`, `log_reads`, `flush`, `retention`, `truncation`,
`log_cleaner`) work on this state; `PartitionLog` offers them as methods. Only one operation at a
time changes the files of a log: each operation takes a turn (`take_turn`), and ends its turn when
it is done. Truncations and rolls wait in a queue until no other operation has the turn. All calls
are on the event loop. This module imports none of the modules with operations, and decides nothing
about replication.

Offsets rise in this order: first segment, log start, log end (written), next offset (assigned). The
recovery point is not above the log end. The recovery point may be below the log start, because
records may be deleted before they are flushed. Every transition asserts the log's invariants
(`check_invariants`); an append only asserts that it continues the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from tidelog.core.epochs import LeaderEpochs
from tidelog.core.types import TopicId, TopicPartition
from tidelog.log import names
from tidelog.log.append_plan import AppendPlan
from tidelog.log.config import LogConfig
from tidelog.log.directory_state import DirectoryState, LogOffsets
from tidelog.log.held_requests import HeldRequests
from tidelog.log.producer_state import ProducerState
from tidelog.log.segment import BatchStarts, Segment


class Damage(NamedTuple):
    """The first known offset at which the log's files differ from the bytes that were written
    (V68).
    """

    #: The first offset that cannot be trusted.
    offset: int
    #: The damaged file, the position of the damage, and the error at this position.
    reason: str


class _Turn(NamedTuple):
    """An operation that waits for its turn, until the log's current operation has ended."""

    start: Callable[[], None]
    #: Whether the operation must wait until all planned appends are written.
    after_queue: bool


class LogState(LogOffsets):
    """The state of one replica's log.

    The replica's directory is named `name`, or after the partition by default. A broker may have
    ten thousand logs; to save memory, containers that are nearly always empty are lists (56 bytes),
    not deques (760).
    """

    __slots__ = (
        "_appends",
        "_busy",
        "_closed",
        "_truncating",
        "_turns",
        "batch_starts",
        "closed_state",
        "config",
        "damage",
        "directory",
        "epochs",
        "held",
        "is_removing",
        "is_write_wanted",
        "log_end_offset",
        "metadata_unsynced",
        "names_changed",
        "names_syncing",
        "new_snapshots",
        "next_offset",
        "oldest_unflushed_ms",
        "path",
        "planned",
        "producers",
        "read_ends",
        "segments",
        "size_bytes",
        "snapshots",
        "topic_id",
        "topic_partition",
        "truncating_to",
        "truncation_unsynced",
        "truncations",
    )

    #: A function that writes the planned appends, then begins the log's next waiting operation.
    _appends: Callable[[], None]

    def __init__(
        self,
        directory: DirectoryState,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
        segments: list[Segment],
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        epochs: LeaderEpochs,
        producers: ProducerState,
        name: str = "",
    ) -> None:
        self.directory = directory
        self.topic_partition = topic_partition
        #: The topic id; all zeros if the directory has none.
        self.topic_id = topic_id
        #: The settings, which may be replaced at any time and apply from the next append on.
        self.config = config
        self.path = f"{directory.path}/{name or names.directory_name(topic_partition)}"
        #: Segments, oldest first, never empty; appends go only to the last segment.
        self.segments = segments
        self.base_offsets = [segment.base_offset for segment in segments]
        self.log_start_offset = log_start_offset
        #: Offset that the next planned record gets.
        self.next_offset = log_end_offset
        #: Offset after the last written record.
        self.log_end_offset = log_end_offset
        self.recovery_point = recovery_point
        self.epochs = epochs
        self.producers = producers
        #: Bytes of all segments.
        self.size_bytes = sum(segment.size_bytes for segment in segments)
        #: Ascending offsets of producer snapshots on disk; unwritten ones are in `new_snapshots`.
        self.snapshots: list[int] = []
        self.new_snapshots: dict[int, bytes] = {}
        #: Whether files were created, renamed or removed since the directory was last synced.
        self.names_changed = False
        #: Whether a flush syncs the directory now; whether files of removed segments get new names.
        self.names_syncing = self.is_removing = False
        #: Whether the active segment was truncated and not synced since.
        self.truncation_unsynced = False
        #: Wall-clock time of the first append after the last flush began.
        self.oldest_unflushed_ms = 0
        #: `truncations` and log end at the last time of complete indexes and snapshot on disk.
        self.closed_state: tuple[int, int] | None = None
        #: Whether `partition.metadata` may not have reached the disk.
        self.metadata_unsynced = False
        #: Log end after the truncation under way, or None; it limits checkpoints and reads.
        self.truncating_to: int | None = None
        #: Number of truncations; it shows an operation whether a truncation came during its run.
        self.truncations = 0
        self.batch_starts = BatchStarts()
        #: Ends of recent reads: offset -> (base offset of the segment, position).
        self.read_ends: dict[int, tuple[int, int]] = {}
        #: Appends that are not being written yet, in the order of their offsets.
        self.planned: list[AppendPlan] = []
        self.is_write_wanted = False  # whether to write `planned` when the current operation ends
        self._busy = False
        self._turns: list[_Turn] = []
        #: Number of truncations that wait or run; appends are planned only while it is 0.
        self._truncating = 0
        #: The first known damage; None if no read has found any.
        self.damage: Damage | None = None
        #: Flushes and truncations held while a future log replaces this log; None at other times.
        self.held: HeldRequests[Any] | None = None
        #: Reason why the log accepts no operations, such as a deletion; empty while it is open.
        self._closed = ""
        self.check_invariants()

    def __repr__(self) -> str:
        return (
            f"PartitionLog({self.topic_partition}, {self.log_start_offset}..{self.log_end_offset})"
        )

    @property
    def active_segment(self) -> Segment:
        """The last segment, to which appends go."""
        return self.segments[-1]

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the last stable offset: no record below it belongs to an open transaction
        (KIP-98).

        It equals the high watermark, because this version has no transactions.
        """
        return high_watermark

    @property
    def names_unsynced(self) -> bool:
        """Whether a power loss may remove the directory entries of created files.

        No new segment is created before the names of older segments are durable. A power loss could
        otherwise remove the name of only the first segment, and the log start would seem to have
        risen (V39).
        """
        return self.names_changed or self.names_syncing

    @property
    def may_regain_segments(self) -> bool:
        """Whether a power loss may bring back removed segments, because no sync of the directory
        has followed their removal.
        """
        return self.is_removing or self.names_unsynced

    @property
    def is_closed(self) -> bool:
        """Whether the log accepts no more operations."""
        return bool(self._closed)

    @property
    def is_truncating(self) -> bool:
        """Whether a truncation waits or runs; until it ends, no append can be planned."""
        return self._truncating > 0

    # turns, by which only one operation at a time changes the log's files

    def submit_planned(self) -> None:
        """Write all planned appends; each completion is done when its append is written.

        On a fast disk, `submit_planned` itself writes the appends before it returns. If another
        operation of this log is under way, the appends are written after that operation.
        """
        if self._busy:
            self.is_write_wanted = True
        elif self.planned:
            self._busy = True
            self._appends()

    def take_turn(self, start: Callable[[], None], *, after_queue: bool) -> None:
        """Run `start` when no other operation of the log is under way; `end_turn` ends the turn."""
        self._turns.append(_Turn(start, after_queue))
        if not self._busy:
            self._next_turn()

    def take_next_turn(self, start: Callable[[], None]) -> None:
        """Run `start` after the log's current operation and before all waiting operations."""
        self._turns.insert(0, _Turn(start, after_queue=False))

    def end_turn(self) -> None:
        """End the turn of the log's current operation, which is done and applied."""
        assert self._busy, f"{self.path}: a turn ended that nobody had"
        self._busy = False
        self._next_turn()

    def _next_turn(self) -> None:
        while not self._busy:
            turns = self._turns
            if turns and not (turns[0].after_queue and self.planned):
                self._busy = True
                turns.pop(0).start()
            elif self.planned and (turns or self.is_write_wanted):
                self.submit_planned()
            else:
                return

    # transitions

    def check_invariants(self) -> None:
        """Assert the invariants that hold whenever no transition is under way.

        This method visits each segment and each leader epoch, so only rare transitions call it.
        """
        bases = self.base_offsets
        assert bases and bases == [segment.base_offset for segment in self.segments], self.path
        assert _rise(bases), f"{self.path}: base offsets of segments do not rise: {bases}"
        assert bases[0] <= self.log_start_offset <= self.log_end_offset <= self.next_offset, (
            f"{self.path}: first segment {bases[0]}, log start {self.log_start_offset}, log end "
            f"{self.log_end_offset} and next offset {self.next_offset} are not in order"
        )
        assert 0 <= self.recovery_point <= self.log_end_offset, (
            f"{self.path}: recovery point {self.recovery_point}, log end {self.log_end_offset}"
        )
        epochs = self.epochs.entries()
        assert _rise([epoch for epoch, _ in epochs]), f"{self.path}: leader epochs {epochs}"
        assert _rise([start for _, start in epochs]), f"{self.path}: leader epochs {epochs}"
        assert self.epochs.latest_start_offset <= self.next_offset, (
            f"{self.path}: leader epochs {epochs}, next offset {self.next_offset}"
        )
        assert _rise(self.snapshots), f"{self.path}: producer snapshots {self.snapshots}"
        size_bytes = sum(segment.size_bytes for segment in self.segments)
        assert self.size_bytes == size_bytes, f"{self.path}: {self.size_bytes}, not {size_bytes}"

    def add_segment(self, segment: Segment) -> None:
        """Make a new segment, whose file was created, the active segment."""
        assert segment.base_offset > self.base_offsets[-1], (
            f"{self.path}: a segment at {segment.base_offset} behind {self.base_offsets[-1]}"
        )
        assert segment.base_offset >= self.log_end_offset, (
            f"{self.path}: a segment at {segment.base_offset}, the log ends at "
            f"{self.log_end_offset}"
        )
        self.segments.append(segment)
        self.base_offsets.append(segment.base_offset)
        self.batch_starts.clear()
        self.names_changed = True

    def reset_ends(self, log_end_offset: int) -> None:
        """Set the log end after a truncation, and forget remembered positions of the old end."""
        self.truncations += 1
        self.truncation_unsynced = True
        self.log_end_offset = self.next_offset = log_end_offset
        self.log_start_offset = min(self.log_start_offset, log_end_offset)
        self.recovery_point = min(self.recovery_point, log_end_offset)
        self.epochs.truncate_from_end(log_end_offset)
        self.base_offsets = [segment.base_offset for segment in self.segments]
        self.size_bytes = sum(segment.size_bytes for segment in self.segments)
        self.batch_starts.clear()
        self.read_ends.clear()
        self.snapshots = [offset for offset in self.snapshots if offset <= log_end_offset]
        for offset in [offset for offset in self.new_snapshots if offset > log_end_offset]:
            del self.new_snapshots[offset]
        if self.damage is not None and log_end_offset <= self.damage.offset:
            self.damage = None
        self.names_changed = True
        self.check_invariants()

    def drop_oldest(self, count: int) -> None:
        """Remove the oldest segments from the log; the caller removes their files."""
        for segment in self.segments[:count]:
            self.directory.open_files.forget(segment.file)
            self.directory.indexes.forget(segment)
            self.size_bytes -= segment.size_bytes
        del self.segments[:count], self.base_offsets[:count]
        start = self.base_offsets[0]
        if start > self.log_start_offset:
            self.log_start_offset = start
            self.epochs.truncate_from_start(start)
            self.forget_damage_before_start()
        self.check_invariants()
        self.directory.tracer.event(
            "log_segments_deleted", partition=str(self.topic_partition), segments=count,
            log_start_offset=self.log_start_offset,
        )  # fmt: skip

    def replaced(self, old: list[Segment], new: Segment) -> None:
        """Replace the adjacent segments `old` by the compacted segment `new`."""
        first = self.segments.index(old[0])
        assert new.base_offset == old[0].base_offset, f"{new.file.path} in another one's place"
        assert self.segments[first : first + len(old)] == old, f"{self.path}: not side by side"
        self.segments[first : first + len(old)] = [new]
        self.base_offsets = [segment.base_offset for segment in self.segments]
        self.size_bytes += new.size_bytes - sum(segment.size_bytes for segment in old)
        for segment in old:
            self.directory.open_files.forget(segment.file)
            self.directory.indexes.forget(segment)
        self.directory.indexes.used(new)
        # The remembered read positions refer to the replaced files, so they are no longer valid.
        self.read_ends.clear()
        merged = self.base_offsets[first + 1]
        self.snapshots = [
            offset for offset in self.snapshots if not new.base_offset < offset < merged
        ]
        self.names_changed = True
        self.check_invariants()

    def note_damage(self, offset: int, reason: str) -> None:
        """Note that the log is damaged from `offset` on; the lowest damaged offset counts (V68)."""
        offset = max(offset, self.log_start_offset)
        if self.damage is None or offset < self.damage.offset:
            self.damage = Damage(offset, reason)

    def forget_damage_before_start(self) -> None:
        """Forget damage before the log start, which no reader reads.

        If the damaged batch extends beyond the log start, the next read of the batch finds the
        damage again.
        """
        if self.damage is not None and self.damage.offset < self.log_start_offset:
            self.damage = None

    def renamed(self, path: str) -> None:
        """Note the new path of the log's directory and of all its files."""
        self.path = path
        for segment in self.segments:
            segment.renamed(path)

    def break_off(self, why: str) -> None:
        """Reject all further operations, because the log's state in memory may contradict its
        files.
        """
        self._closed = f"broken: {why}"

    def forget_files(self) -> None:
        """Close the files as soon as no operation reads them."""
        for segment in self.segments:
            self.directory.open_files.forget(segment.file)
            self.directory.indexes.forget(segment)


def _rise(numbers: Sequence[int]) -> bool:
    """Return whether the numbers rise strictly."""
    return all(before < after for before, after in pairwise(numbers))
