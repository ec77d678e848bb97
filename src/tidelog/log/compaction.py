"""What compaction does to a log: which part, in which groups, and what of each batch stays.

A log is clean up to its cleaner checkpoint and dirty from there on. Of the dirty part only whole
segments are looked at that are flushed, not active, wholly below the high watermark, and older
than `min.compaction.lag.ms`. A run notes the last offset of each key there (`OffsetMap`), then goes
through all segments up to the end of what it noted and keeps the last record of each key. A
tombstone goes a run or more after `delete.retention.ms` have passed since it was first seen
(KIP-534). A batch that loses all records goes, unless its producer's sequence or the end of the
range hangs on it. Transactions: their markers stay, and their records displace no others, for they
may be aborted.

Decides only: no files, the time is an argument. `log_cleaner` carries it out. Sources: LogCleaner,
LogCleanerManager, Cleaner, SkimpyOffsetMap.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from tidelog.core.ports import Buffer
from tidelog.log.config import LogConfig
from tidelog.log.index import MAX_RELATIVE_OFFSET
from tidelog.log.segment import Segment
from tidelog.records.batch import NO_PRODUCER_ID, BatchView
from tidelog.records.reader import KeyedRecord, read_keys
from tidelog.records.rewriting import emptied, rewritten

#: What an entry costs at most: its key (49 bytes), its offset (32), its share of a dictionary while
#: it grows (94).
ENTRY_BYTES = 176
_DIGEST_BYTES = 16


class OffsetMap:
    """Key -> the largest offset at which it stands."""

    __slots__ = ("_capacity", "_offsets", "latest_offset")

    def __init__(self, max_bytes: int, load_factor: float = 1.0) -> None:
        self._capacity = max(1, int(max_bytes * load_factor) // ENTRY_BYTES)
        self._offsets: dict[bytes, int] = {}
        #: Everything up to here is in the map; -1 before anything was looked at.
        self.latest_offset = -1

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        """Whether no further batch should be looked at."""
        return len(self._offsets) >= self._capacity

    def put(self, key: bytes, offset: int) -> None:
        """Note a record; offsets rise."""
        if len(key) >= _DIGEST_BYTES:
            key = blake2b(key, digest_size=_DIGEST_BYTES).digest()
        self._offsets[key] = offset

    def offset_of(self, key: bytes) -> int:
        """The largest offset noted for the key, -1 for none."""
        if len(key) >= _DIGEST_BYTES:
            key = blake2b(key, digest_size=_DIGEST_BYTES).digest()
        return self._offsets.get(key, -1)


@dataclass(frozen=True, slots=True)
class CleanableLog:
    """How much of a log could be compacted now."""

    first_dirty_offset: int
    #: Base offset of the first segment that is left alone; with nothing to compact, it may be below
    #: the first dirty offset.
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    #: The checkpoint does not fit the log, which was truncated or lost its start: begin where it
    #: starts.
    checkpoint_is_void: bool = False
    #: Records wait for longer than `max.compaction.lag.ms`.
    is_overdue: bool = False

    @property
    def dirty_ratio(self) -> float:
        """Share of bytes that were never compacted."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, config: LogConfig) -> bool:
        """Whether compaction pays."""
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
    """What may be compacted; `checkpoint` is where the last run ended, None before the first."""
    first_dirty = log_start_offset if checkpoint is None else checkpoint
    void = not log_start_offset <= first_dirty <= log_end_offset
    if void:
        first_dirty = log_start_offset
    bases = [segment.base_offset for segment in segments]
    dirty = segments[max(bisect_right(bases, first_dirty) - 1, 0) : -1]
    # The segment that holds the bound is left alone with all behind it.
    bound = min(high_watermark, recovery_point)
    first_uncleanable = min(bases[max(bisect_right(bases, bound) - 1, 0)], bases[-1])
    for segment in dirty:
        young = now_ms - config.min_compaction_lag_ms
        if not segment.sealed or (
            config.min_compaction_lag_ms > 0 and segment.max_timestamp_ms > young
        ):
            first_uncleanable = min(first_uncleanable, segment.base_offset)
            break
    # It may lie below what is dirty, which begins within a segment where the log does: then there
    # is nothing to compact, for that segment reaches beyond the bound.
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
    """Segments side by side that become one: no larger than one may be before anything goes.

    `index_bytes` holds the sizes of both indexes of each segment; the last one ends at
    `end_offset` at the latest.
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
    """Put the records of a batch from `start_offset` on into the map. Raises CorruptBatch."""
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
    """Says what is left of each batch in one run over one log."""

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
        """`upper_bound` is the end of the cleanable range, `last_offsets` the last offset below it
        of each producer that is known."""
        self._map = offset_map
        self._upper_bound = upper_bound
        self._last_offsets = last_offsets
        self._delete_retention_ms = config.delete_retention_ms
        self._max_decompressed_bytes = config.max_decompressed_bytes
        self._now_ms = now_ms

    def __call__(self, batch: BatchView) -> Buffer | None:
        """What is kept of a batch, None for nothing. Raises CorruptBatch."""
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
        """Whether offsets or sequences would go back without this batch."""
        if batch.next_offset == self._upper_bound:
            return True
        return (
            batch.producer_id != NO_PRODUCER_ID
            and self._last_offsets.get(batch.producer_id, -1) == batch.last_offset
        )


def _as_it_is(batch: BatchView) -> memoryview:
    return memoryview(batch.buffer)[batch.position : batch.end_position]
