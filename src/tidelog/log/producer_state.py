"""Idempotent producers of a partition: their epochs and their last five batches.

The producer state decides whether a client's batch is new, a duplicate, or out of order (KIP-98).
The log applies a batch to the producer state when the append is planned, before it is written. The
log undoes a batch's change of the producer state if the write fails (`undo`) or the log is
truncated (V38). Entries are immutable values, so an undo restores the old entry. The number of
entries is bounded; the producer that was silent longest is forgotten first. This module accesses no
files and handles the `.snapshot` format as bytes. Sources: ProducerStateManager,
ProducerAppendInfo, ProducerStateEntry.

A snapshot holds one entry per remembered batch, oldest first; Kafka writes only the last batch.
Kafka's reader keeps only the last entry of a producer. tidelog's reader keeps all entries, so that
a broker recognises duplicates of all remembered batches after a restart, too.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from tidelog.core.checksums import crc32c
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.limits import (
    MAX_PRODUCERS_PER_PARTITION,
    MAX_REFUSED_PRODUCERS_PER_PARTITION,
    PRODUCER_BATCHES_REMEMBERED,
)
from tidelog.log.refused_batches import RefusedBatches
from tidelog.records.batch import MAX_SEQUENCE, NO_SEQUENCE, NO_TIMESTAMP, BatchView
from tidelog.records.control import read_marker

SNAPSHOT_VERSION = 1
_SNAPSHOT_HEADER = struct.Struct(">hIi")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_START = 6
#: The value of `transaction_start` for a producer without an open transaction.
NO_OFFSET = -1


class DamagedSnapshot(ValueError):
    """The error for a producer snapshot with invalid content."""


class BatchMetadata(NamedTuple):
    """A batch that the log remembers, because its producer may send it again."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_offset(self) -> int:
        """The offset of the batch's first record."""
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        """The sequence number of the batch's first record."""
        return (self.last_sequence - self.offset_delta) & MAX_SEQUENCE


class ProducerEntry(NamedTuple):
    """The state of one producer: its epoch and its last batches in this epoch, oldest first."""

    producer_epoch: int
    batches: tuple[BatchMetadata, ...]
    last_timestamp_ms: int
    coordinator_epoch: int = -1
    #: First offset of the open transaction, or -1.
    transaction_start: int = NO_OFFSET
    #: Offset of the producer's first batch that the log saw; no batch of this entry is before this
    #: offset.
    first_offset: int = 0
    #: This broker's monotonic clock at the producer's last append, or when a snapshot was loaded.
    #: Timestamps of records may be years old, and a wall clock may jump.
    seen_ms: int = 0

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record, or -1 if there is none in this epoch."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def is_transactional(self) -> bool:
        """Whether the producer has an open transaction, or has ended one, in this partition."""
        return self.transaction_start != NO_OFFSET or self.coordinator_epoch >= 0


#: The argument of `undo`, which undoes an append: (producer id, the producer's earlier entry or
#: None).
Undo = tuple[int, ProducerEntry | None]


class ProducerState:
    """The idempotent producers of one partition."""

    __slots__ = ("_entries", "_limit", "refused")

    def __init__(self, limit: int = MAX_PRODUCERS_PER_PARTITION) -> None:
        #: Entries by producer id, ordered by last append, oldest first.
        self._entries: dict[int, ProducerEntry] = {}
        #: Batches that this broker refused with retriable errors.
        self.refused = RefusedBatches(min(limit, MAX_REFUSED_PRODUCERS_PER_PARTITION))
        self._limit = limit

    def __len__(self) -> int:
        return len(self._entries)

    def entry(self, producer_id: int) -> ProducerEntry | None:
        """Return the entry of a producer, or None if the producer is unknown."""
        return self._entries.get(producer_id)

    def entries(self) -> dict[int, ProducerEntry]:
        """Return a copy of the entries by producer id, in the order of the last append."""
        return dict(self._entries)

    def last_offsets(self, below: int) -> dict[int, int]:
        """Return, by producer id, the last offset of the producer's newest remembered batch that
        ends below `below`.

        Producers without such a batch are left out.
        """
        last: dict[int, int] = {}
        for producer_id, entry in self._entries.items():
            for batch in reversed(entry.batches):
                if batch.last_offset < below:
                    last[producer_id] = batch.last_offset
                    break
        return last

    def before(self, offset: int) -> ProducerState:
        """Return the state of the producers whose remembered batches all lie below `offset`.

        A replay of the log from `offset` on cannot restore these producers, because it finds no
        batch of them.
        """
        other = ProducerState(self._limit)
        other._entries = {
            producer_id: entry
            for producer_id, entry in self._entries.items()
            if not entry.batches or entry.batches[-1].last_offset < offset
        }
        return other

    def copy(self) -> ProducerState:
        """Return an independent copy, which shares the immutable entries."""
        other = ProducerState(self._limit)
        other._entries = dict(self._entries)
        return other

    def check(self, batch: BatchView, now_ms: int) -> BatchMetadata | None:
        """Check a client's batch; return None if it is new, or the original batch if it is a
        duplicate.

        `now_ms` is this broker's monotonic clock. Raises KafkaError INVALID_PRODUCER_EPOCH or
        OUT_OF_ORDER_SEQUENCE_NUMBER. Raises EarlierBatchRefusedError with a retriable code if an
        earlier batch of the producer was refused with that code. Raises NOT_LEADER_OR_FOLLOWER if
        the former leader may have refused an earlier batch. An unknown producer may start with any
        sequence number that does not follow a refused batch, because retention may have removed all
        its records.
        """
        entry = self._entries.get(batch.producer_id)
        if entry is None:
            self._check_awaited(batch, now_ms)
            return None
        epoch = batch.producer_epoch
        first = batch.base_sequence
        if epoch == entry.producer_epoch:
            last = batch.last_sequence
            for known in entry.batches:
                if known.last_sequence == last and known.first_sequence == first:
                    self.refused.check_stored(batch, now_ms)
                    return known
            expected = (entry.last_sequence + 1) & MAX_SEQUENCE
            if first != expected:
                self.refused.check_behind(batch, expected, now_ms)
                self.refused.check_skipped(batch, expected, now_ms)
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {batch.producer_id} sent sequence {first}, expected {expected}",
                )
            if self.refused:
                self.refused.check_next(batch, now_ms)
        elif epoch < entry.producer_epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {batch.producer_id} has epoch {entry.producer_epoch}, "
                f"{epoch} is an older one",
            )
        elif first != 0:
            self.refused.check_behind(batch, 0, now_ms)
            self.refused.check_skipped(batch, 0, now_ms)
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {batch.producer_id} sent sequence {first} in its new epoch {epoch}, "
                "which starts at 0",
            )
        return None

    def _check_awaited(self, batch: BatchView, now_ms: int) -> None:
        self.refused.check_unknown(batch, now_ms)
        self.refused.check_skipped(batch, 0, now_ms)

    def append(self, batch: BatchView, now_ms: int) -> Undo:
        """Note a batch of an idempotent producer whose offsets are assigned; return the argument of
        `undo`.

        `now_ms` is this broker's monotonic clock. The leader (this broker or another) has already
        checked the batch. Raises CorruptBatch and changes nothing for a control batch without a
        readable marker.
        """
        producer_id = batch.producer_id
        old = self._entries.get(producer_id)
        if batch.is_control:
            new = _after_marker(batch, old, now_ms)
        else:
            metadata = BatchMetadata(
                batch.last_sequence,
                batch.base_offset + batch.last_offset_delta,
                batch.last_offset_delta,
                batch.max_timestamp,
            )
            new = _after_data(batch, old, metadata, now_ms)
        if old is not None:
            del self._entries[producer_id]
        self._entries[producer_id] = new
        if self.refused and not batch.is_control:
            self.refused.stored(producer_id, batch.producer_epoch, batch.last_sequence)
        if len(self._entries) > self._limit:
            del self._entries[next(iter(self._entries))]
        return producer_id, old

    def take_back(self, undo: Undo, error: ErrorCode, now_ms: int) -> None:
        """Undo a producer's last append, which failed with `error`, and expect the producer to
        resend the batch.

        `now_ms` is this broker's monotonic clock.
        """
        producer_id, old = undo
        taken = self._entries.get(producer_id)
        self.undo(undo)
        if taken is None or not taken.batches or (old is not None and taken.batches == old.batches):
            return  # a transaction marker has no sequence number
        batch = taken.batches[-1]
        sequences = (batch.first_sequence, batch.last_sequence)
        self.refused.add(producer_id, taken.producer_epoch, sequences, error, now_ms)

    def undo(self, undo: Undo) -> None:
        """Restore a producer's entry from before its last append."""
        producer_id, old = undo
        if old is None:
            self._entries.pop(producer_id, None)
        else:
            self._entries[producer_id] = old

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that have sent nothing for `expiration_ms`, except those with an open
        transaction; return the number of forgotten producers.
        """
        silent = [
            producer_id
            for producer_id, entry in self._entries.items()
            if entry.transaction_start == NO_OFFSET and now_ms - entry.seen_ms >= expiration_ms
        ]
        for producer_id in silent:
            del self._entries[producer_id]
        self.refused.expire(now_ms)
        return len(silent)

    def truncate_to(self, offset: int) -> bool:
        """Forget batches at or beyond `offset`; return False if the caller must read the log
        instead (V38).

        A producer first seen at or beyond `offset` is forgotten. A producer first seen before
        `offset` keeps its remembered batches before `offset`. If the remembered batches of a
        producer do not reach back to `offset`, this method changes nothing, and the caller rebuilds
        the state from a snapshot and the log's batches.
        """
        changed: dict[int, ProducerEntry | None] = {}
        for producer_id, entry in self._entries.items():
            if not entry.batches or entry.is_transactional:
                if entry.first_offset >= offset:
                    changed[producer_id] = None
                    continue
                return False
            if entry.batches[-1].last_offset < offset:
                continue
            kept = tuple(known for known in entry.batches if known.last_offset < offset)
            if kept:
                changed[producer_id] = entry._replace(
                    batches=kept, last_timestamp_ms=kept[-1].timestamp_ms
                )
            elif entry.first_offset >= offset:
                changed[producer_id] = None
            else:
                return False
        for producer_id, changed_entry in changed.items():
            if changed_entry is None:
                del self._entries[producer_id]
            else:
                self._entries[producer_id] = changed_entry
        return True

    def clear(self) -> None:
        """Forget all producers."""
        self._entries.clear()
        self.refused.clear()

    def to_snapshot(self) -> bytes:
        """Return the content of a `.snapshot` file."""
        parts = [
            _SNAPSHOT_ENTRY.pack(
                producer_id,
                entry.producer_epoch,
                batch.last_sequence,
                batch.last_offset,
                batch.offset_delta,
                batch.timestamp_ms,
                entry.coordinator_epoch,
                entry.transaction_start,
            )
            for producer_id, entry in self._entries.items()
            for batch in (entry.batches or (_no_batch(entry),))
        ]
        body = struct.pack(">i", len(parts)) + b"".join(parts)
        return struct.pack(">hI", SNAPSHOT_VERSION, crc32c(body)) + body

    @classmethod
    def from_snapshot(
        cls, data: bytes, now_ms: int, limit: int = MAX_PRODUCERS_PER_PARTITION
    ) -> ProducerState:
        """Read a `.snapshot` file, Kafka's or tidelog's. Raises DamagedSnapshot."""
        state = cls(limit)
        for row in read_snapshot(data):
            old = state._entries.pop(row.producer_id, None)
            batches: tuple[BatchMetadata, ...] = ()
            if old is not None and old.producer_epoch == row.producer_epoch:
                batches = old.batches
            if row.last_offset >= 0:
                metadata = BatchMetadata(
                    row.last_sequence, row.last_offset, row.offset_delta, row.timestamp_ms
                )
                batches = (*batches[1 - PRODUCER_BATCHES_REMEMBERED :], metadata)
            state._entries[row.producer_id] = ProducerEntry(
                row.producer_epoch,
                batches,
                row.timestamp_ms,
                row.coordinator_epoch,
                row.transaction_start,
                seen_ms=now_ms,
            )
        while len(state._entries) > limit:
            del state._entries[next(iter(state._entries))]
        return state


class SnapshotRow(NamedTuple):
    """One entry of a `.snapshot` file."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    transaction_start: int


def read_snapshot(data: bytes) -> list[SnapshotRow]:
    """Return the rows of a `.snapshot` file. Raises DamagedSnapshot."""
    if len(data) < _SNAPSHOT_HEADER.size:
        raise DamagedSnapshot(f"{len(data)} bytes are fewer than a header")
    version, crc, count = _SNAPSHOT_HEADER.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise DamagedSnapshot(f"version is {version}, only {SNAPSHOT_VERSION} is known")
    computed = crc32c(data[_CRC_START:])
    if crc != computed:
        raise DamagedSnapshot(f"CRC is {crc:#010x}, the bytes give {computed:#010x}")
    body = data[_SNAPSHOT_HEADER.size :]
    if count < 0 or count * _SNAPSHOT_ENTRY.size != len(body):
        raise DamagedSnapshot(f"{len(body)} bytes are not {count} entries")
    return [SnapshotRow(*row) for row in _SNAPSHOT_ENTRY.iter_unpack(body)]


def _no_batch(entry: ProducerEntry) -> BatchMetadata:
    """Return the placeholder that a snapshot holds if a producer has no batch in its epoch."""
    return BatchMetadata(NO_SEQUENCE, -1, 0, entry.last_timestamp_ms)


def _after_data(
    batch: BatchView, old: ProducerEntry | None, metadata: BatchMetadata, now_ms: int
) -> ProducerEntry:
    base_offset = batch.base_offset
    if old is None:
        start = base_offset if batch.is_transactional else NO_OFFSET
        return ProducerEntry(
            batch.producer_epoch, (metadata,), metadata.timestamp_ms, -1, start, base_offset, now_ms
        )
    batches: tuple[BatchMetadata, ...] = (metadata,)
    if old.producer_epoch == batch.producer_epoch:
        batches = (*old.batches[1 - PRODUCER_BATCHES_REMEMBERED :], metadata)
    start = old.transaction_start
    if start == NO_OFFSET and batch.is_transactional:
        start = base_offset
    return ProducerEntry(
        batch.producer_epoch,
        batches,
        metadata.timestamp_ms,
        old.coordinator_epoch,
        start,
        old.first_offset,
        now_ms,
    )


def _after_marker(batch: BatchView, old: ProducerEntry | None, now_ms: int) -> ProducerEntry:
    """Return a producer's entry after a transaction marker, which ends the producer's transaction.

    A marker may begin a new producer epoch, which starts without batches.
    """
    marker = read_marker(batch)
    same_epoch = old is not None and old.producer_epoch == batch.producer_epoch
    coordinator_epoch = old.coordinator_epoch if old is not None else -1
    timestamp_ms = batch.max_timestamp
    if marker is not None:
        coordinator_epoch = max(coordinator_epoch, marker.coordinator_epoch)
        timestamp_ms = marker.timestamp_ms
    elif old is not None:
        timestamp_ms = old.last_timestamp_ms
    return ProducerEntry(
        batch.producer_epoch,
        old.batches if old is not None and same_epoch else (),
        timestamp_ms if timestamp_ms >= 0 else NO_TIMESTAMP,
        coordinator_epoch,
        NO_OFFSET,
        old.first_offset if old is not None else batch.base_offset,
        now_ms,
    )
