"""Decisions of compaction: which part of a log to compact, how to group segments, which records to
keep.

A log is clean up to its cleaner checkpoint and dirty from there on. A run is one compaction of one
log. A run compacts only whole dirty segments that are flushed, not active, wholly below the high
watermark, and older than `min.compaction.lag.ms`. The run first notes the last offset of each key
in the dirty segments (`OffsetMap`). Next, the run rewrites all segments up to the last offset in
the `OffsetMap` and keeps the last record of each key. A run removes a tombstone if
`delete.retention.ms` have passed since a run first saw it (KIP-534). A run removes a batch without
remaining records, unless the batch is its producer's last batch or ends the compacted range.
Transaction markers stay. Transactional records replace no earlier records, because their
transaction may be aborted.

This module does no I/O and gets the time as an argument; `log_cleaner` carries out the decisions.
Sources: LogCleaner, LogCleanerManager, Cleaner, SkimpyOffsetMap.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from hashlib import blake2b

from tidelog.core.dataclass import dataclass
from tidelog.core.ports import Buffer
from tidelog.log.config import LogConfig
from tidelog.log.index import MAX_RELATIVE_OFFSET
from tidelog.log.segment import Segment
from tidelog.records.batch import NO_PRODUCER_ID, BatchView
from tidelog.records.reader import KeyedRecord, read_keys
from tidelog.records.rewriting import emptied, rewritten

#: Maximum memory of a map entry in bytes: its key (49), its offset (32), and its share of a growing
#: dictionary (94).
ENTRY_BYTES = 176
_DIGEST_BYTES = 16


class OffsetMap:
    """A map from each key to its largest offset."""

    __slots__ = ("_capacity", "_offsets", "latest_offset")

    def __init__(self, max_bytes: int, load_factor: float = 1.0) -> None:
        self._capacity = max(1, int(max_bytes * load_factor) // ENTRY_BYTES)
        self._offsets: dict[bytes, int] = {}
        #: The map has the keys of all dirty records up to this offset; -1 before the first batch.
        self.latest_offset = -1

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        """Whether the map has no room for another batch."""
        return len(self._offsets) >= self._capacity

    def put(self, key: bytes, offset: int) -> None:
        """Note the offset of a record; offsets must rise."""
        if len(key) >= _DIGEST_BYTES:
            key = blake2b(key, digest_size=_DIGEST_BYTES).digest()
        self._offsets[key] = offset

    def offset_of(self, key: bytes) -> int:
        """Return the largest offset noted for the key, or -1."""
        if len(key) >= _DIGEST_BYTES:
            key = blake2b(key, digest_size=_DIGEST_BYTES).digest()
        return self._offsets.get(key, -1)


@dataclass(frozen=True, slots=True)
class CleanableLog:
    """Which part of a log could be compacted now, and how much of it was never compacted."""

    first_dirty_offset: int
    #: Base offset of the first segment that must not be compacted. It may be below the first dirty
    #: offset if there is nothing to compact.
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    #: Whether the cleaner checkpoint is outside the log, because the log was truncated or its first
    #: records were removed. Compaction then begins at the log start.
    checkpoint_is_void: bool = False
    #: Whether dirty records are older than `max.compaction.lag.ms`.
    is_overdue: bool = False

    @property
    def dirty_ratio(self) -> float:
        """The share of compactable bytes that were never compacted."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, config: LogConfig) -> bool:
        """Return whether the log should be compacted now."""
        return self.cleanable_bytes > 0 and (
            self.is_overdue or self.dirty_ratio > config.min_cleanable_dirty_ratio
        )


def cleanable(
    segments: Sequence[Segment],
    config: LogConfig,
    checkpoint: int | None,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    recovery_point: int,
    now_ms: int,
) -> CleanableLog:
    """Return which part of a log may be compacted; `checkpoint` is the end offset of the last
    compaction, or None.
    """
    first_dirty = log_start_offset if checkpoint is None else checkpoint
    void = not log_start_offset <= first_dirty <= log_end_offset
    if void:
        first_dirty = log_start_offset
    bases = [segment.base_offset for segment in segments]
    dirty = segments[max(bisect_right(bases, first_dirty) - 1, 0) : -1]
    # The segment that contains `bound`, and all later segments, are not compacted.
    bound = min(high_watermark, recovery_point)
    first_uncleanable = min(bases[max(bisect_right(bases, bound) - 1, 0)], bases[-1])
    for segment in dirty:
        young = now_ms - config.min_compaction_lag_ms
        if not segment.sealed or (
            config.min_compaction_lag_ms > 0 and segment.largest_timestamp_ms > young
        ):
            first_uncleanable = min(first_uncleanable, segment.base_offset)
            break
    # The segment with the first dirty offset may extend beyond `bound`. It is then not compacted,
    # and the first uncleanable offset is below the first dirty offset.
    clean_bytes = cleanable_bytes = 0
    oldest_ms = now_ms
    for number, segment in enumerate(segments[:-1]):
        if segment.base_offset >= first_uncleanable:
            break
        if bases[number + 1] <= first_dirty:
            clean_bytes += segment.size_bytes
        else:
            cleanable_bytes += segment.size_bytes
            if segment.first_timestamp_ms > 0:
                oldest_ms = min(oldest_ms, segment.first_timestamp_ms)
    return CleanableLog(
        first_dirty,
        first_uncleanable,
        clean_bytes,
        cleanable_bytes,
        void,
        oldest_ms < now_ms - config.max_compaction_lag_ms,
    )


def grouped(
    segments: Sequence[Segment],
    config: LogConfig,
    index_bytes: Mapping[Segment, tuple[int, int]],
    end_offset: int,
) -> list[list[Segment]]:
    """Group adjacent segments; compaction makes one segment of each group.

    The size of a group, before any record is removed, is at most the size limit of one segment.
    `index_bytes` holds the sizes of both indexes of each segment. `end_offset` is an upper bound of
    the offset at which the last segment ends.
    """
    groups: list[list[Segment]] = []
    size = index = times = 0
    for number, segment in enumerate(segments):
        own_index, own_times = index_bytes[segment]
        last = number + 1 == len(segments)
        end = end_offset if last else segments[number + 1].base_offset
        fits = (
            groups
            and size + segment.size_bytes <= config.segment_bytes
            and index + own_index <= config.segment_index_bytes
            and times + own_times <= config.segment_index_bytes
            and end - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET
        )
        if not fits:
            groups.append([])
            size = index = times = 0
        groups[-1].append(segment)
        size += segment.size_bytes
        index += own_index
        times += own_times
    return groups


def note_keys(
    batch: BatchView, offset_map: OffsetMap, start_offset: int, max_decompressed_bytes: int
) -> None:
    """Add the keys of a batch's records from `start_offset` on to the map. Raises CorruptBatch."""
    if batch.last_offset < start_offset:
        return
    if not batch.is_control and not batch.is_transactional and batch.record_count:
        _, records = read_keys(batch, max_decompressed_bytes)
        base = batch.base_offset
        put = offset_map.put
        for record in records:
            key, offset = record.key, base + record.offset_delta
            if key is not None and offset >= start_offset:
                put(key, offset)
    offset_map.latest_offset = batch.last_offset


class BatchFilter:
    """The filter that selects the records that one compaction of one log keeps."""

    __slots__ = (
        "_delete_retention_ms",
        "_last_offsets",
        "_map",
        "_max_decompressed_bytes",
        "_now_ms",
        "_upper_bound",
    )

    def __init__(
        self,
        offset_map: OffsetMap,
        upper_bound: int,
        last_offsets: Mapping[int, int],
        config: LogConfig,
        now_ms: int,
    ) -> None:
        """`upper_bound` is the end of the cleanable range.

        `last_offsets` holds the last offset of each known producer below `upper_bound`.
        """
        self._map = offset_map
        self._upper_bound = upper_bound
        self._last_offsets = last_offsets
        self._delete_retention_ms = config.delete_retention_ms
        self._max_decompressed_bytes = config.max_decompressed_bytes
        self._now_ms = now_ms

    def __call__(self, batch: BatchView) -> Buffer | None:
        """Return the batch with only the kept records, or None if no record is kept. Raises
        CorruptBatch.
        """
        if batch.is_control or batch.base_offset > self._map.latest_offset:
            return _as_it_is(batch)
        if batch.record_count == 0:
            return _as_it_is(batch) if self._is_needed(batch) else None
        payload, records = read_keys(batch, self._max_decompressed_bytes)
        kept = [record for record in records if self._stays(batch, record)]
        if not kept:
            return emptied(batch) if self._is_needed(batch) else None
        horizon_ms: int | None = None
        if batch.delete_horizon_ms is None and not all(record.has_value for record in kept):
            horizon_ms = self._now_ms + self._delete_retention_ms
        if len(kept) == len(records) and horizon_ms is None:
            return _as_it_is(batch)
        return rewritten(batch, payload, kept, horizon_ms)

    def _stays(self, batch: BatchView, record: KeyedRecord) -> bool:
        offset = batch.base_offset + record.offset_delta
        if offset > self._map.latest_offset:
            return True
        if record.key is None or offset < self._map.offset_of(record.key):
            return False
        horizon_ms = batch.delete_horizon_ms
        return record.has_value or horizon_ms is None or self._now_ms < horizon_ms

    def _is_needed(self, batch: BatchView) -> bool:
        """Return whether a batch must stay although no record in it is kept.

        A batch must stay if it ends the compacted range, or has the last sequence number of its
        producer.
        """
        if batch.next_offset == self._upper_bound:
            return True
        return (
            batch.producer_id != NO_PRODUCER_ID
            and self._last_offsets.get(batch.producer_id, -1) == batch.last_offset
        )


def _as_it_is(batch: BatchView) -> memoryview:
    return memoryview(batch.buffer)[batch.position : batch.end_position]
