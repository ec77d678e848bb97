"""Targets of record batches: what producers send and logs hold, compressed data, producers' state.

Whatever the bytes: batches or a CorruptBatch. What a broker takes from a client, every reader must
be able to read: consumers, compaction, and what rewrites a batch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from random import Random

from crc32c import crc32c

from tidelog.core.errors import KafkaError
from tidelog.log.producer_state import DamagedSnapshot, ProducerState
from tidelog.records import compression
from tidelog.records.batch import (
    COMPRESSION_MASK,
    DELETE_HORIZON_MASK,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    BatchView,
    CorruptBatch,
    assign,
    check,
    check_from_client,
    iter_batches,
    set_log_append_time,
)
from tidelog.records.builder import NewRecord, Producer, build_batch
from tidelog.records.checking import Demands, check_records
from tidelog.records.control import COMMIT, build_end_marker, read_marker
from tidelog.records.reader import (
    KeyedRecord,
    RecordColumns,
    read_columns,
    read_keys,
)
from tidelog.records.rewriting import emptied, rewritten
from tidelog.records.walk import MAX_INT64, MIN_INT64, walk, walk_in_python

#: Small, so that a bomb of a few bytes is refused as early as one of megabytes.
MAX_BYTES = 16 * 1024
NOW_MS = 1_700_000_000_000
RECORDS = [
    NewRecord(b"k", b"v" * 20, NOW_MS, [("h", b"x"), ("", None)]),
    NewRecord(None, b"", NOW_MS + 5),
    NewRecord(b"", None, NOW_MS - 300),
]


def sample_batches() -> Iterator[bytearray]:
    """Well-formed batches of every kind."""
    for codec in compression.NAMES:
        yield build_batch(RECORDS, codec=codec)
        yield build_batch(RECORDS[:1], codec=codec, producer=Producer(5, 0, 0))
        yield build_batch([NewRecord(None, b"a" * 300)], codec=codec)
    yield build_batch(RECORDS, log_append_time_ms=NOW_MS)
    yield build_batch(RECORDS, producer=Producer(5, 1, 2**31 - 2), transactional=True)
    yield build_batch(RECORDS, base_offset=2**40, leader_epoch=9)
    yield build_end_marker(COMMIT, 5, 0, 3, NOW_MS)


def length_of(data: bytes | bytearray, at: int) -> int:
    """The bytes that the batch at a place claims."""
    return LOG_OVERHEAD_BYTES + int.from_bytes(data[at + 8 : at + 12], "big", signed=True)


def with_crc(data: bytes | bytearray) -> bytes:
    """The bytes with the checksum of every batch that is all there made right."""
    made = bytearray(data)
    at = 0
    while at + HEADER_BYTES <= len(made):
        size = length_of(made, at)
        if not HEADER_BYTES <= size <= len(made) - at:
            break
        struct.pack_into(">I", made, at + 17, BatchView(made, at).computed_crc())
        at += size
    return bytes(made)


def repaired(data: bytes, draw: Random) -> bytes:
    """Batches with some of what a mutation broke made right, the checksum last."""
    made = bytearray(data)
    if len(made) < HEADER_BYTES:
        return data
    size = length_of(made, 0)
    if not HEADER_BYTES <= size <= len(made) or draw.random() < 0.2:
        struct.pack_into(">i", made, 8, len(made) - LOG_OVERHEAD_BYTES)
        size = len(made)
    if draw.random() < 0.7:
        made[0:8] = bytes(8)
    if draw.random() < 0.7:
        made[16] = 2
    if draw.random() < 0.5:  # counts that agree
        made[57:61] = (int.from_bytes(made[23:27], "big") + 1 & 0xFFFFFFFF).to_bytes(4, "big")
    if draw.random() < 0.3 and not made[22] & COMPRESSION_MASK:
        codec = draw.choice((1, 2, 3, 4))
        body = compression.compress(codec, bytes(made[HEADER_BYTES:size]))
        made[HEADER_BYTES:size] = body
        made[22] |= codec
        struct.pack_into(">i", made, 8, HEADER_BYTES - LOG_OVERHEAD_BYTES + len(body))
    return with_crc(made)


class Batches:
    """The records of a Produce, or of a log."""

    name = "batches"
    traced = ("records/",)
    max_lines = 600_000
    max_lines_per_byte = 100

    def seeds(self) -> Iterator[bytes]:
        batches = [bytes(batch) for batch in sample_batches()]
        yield from batches
        yield b"".join(batches[:3])
        for batch in (batches[0], batches[3]):
            taken = BatchView(batch)
            payload, keys = read_keys(taken)
            yield bytes(rewritten(taken, payload, keys[1:], NOW_MS))
            yield bytes(emptied(taken))

    def repair(self, data: bytes, draw: Random) -> bytes:
        return repaired(data, draw)

    def run(self, data: bytes) -> None:
        with suppress(CorruptBatch):
            for batch in iter_batches(data):
                examine(batch)
        with suppress(CorruptBatch):
            check(BatchView(data))


def columns_of(batch: BatchView) -> RecordColumns | None:
    """The records, None where they cannot be read."""
    try:
        return read_columns(batch, max_decompressed_bytes=MAX_BYTES)
    except CorruptBatch:
        return None


def examine(batch: BatchView) -> None:
    """Everything that is done with a batch; raises CorruptBatch for one that is none."""
    check(batch)
    repr(batch)
    columns = columns_of(batch)
    _walks_agree(batch)
    _taken_is_readable(batch, columns)
    if columns is not None and batch.is_control:
        with suppress(CorruptBatch):
            read_marker(batch)
    try:
        payload, keys = read_keys(batch, MAX_BYTES)
    except CorruptBatch:
        assert columns is None, "consumers read what compaction cannot"
        return
    if columns is not None:
        assert [each.key for each in keys] == columns.keys
        assert [each.has_value for each in keys] == [each is not None for each in columns.values]
        compacted(batch, columns, payload, keys)
    left = bytearray(emptied(batch))
    check(BatchView(left))
    assert BatchView(left).next_offset == batch.next_offset
    patched = BatchView(bytearray(memoryview(batch.buffer)[batch.position : batch.end_position]))
    assign(patched, 2**62, 7)
    check(patched)
    set_log_append_time(patched, NOW_MS)
    check(patched)


def _taken_is_readable(batch: BatchView, columns: RecordColumns | None) -> None:
    """What a broker checked and took from a client, consumers can read."""
    try:
        check_from_client(batch)
        largest = check_records(batch, MAX_BYTES)
    except CorruptBatch:
        return
    assert columns is not None, "taken, and cannot be read"
    assert columns.offsets == [batch.base_offset + n for n in range(batch.record_count)]
    assert max(columns.timestamps_ms) == largest, "not the largest timestamp"
    try:
        check_records(batch, MAX_BYTES, Demands(keys=True))
    except CorruptBatch:
        assert None in columns.keys
    else:
        assert None not in columns.keys


def _walks_agree(batch: BatchView) -> None:
    """The compiled walk and the one in Python have one verdict; without the former nothing is
    compared."""
    for bounds in ((False, MIN_INT64, MAX_INT64), (True, NOW_MS - 100, NOW_MS)):
        keys, earliest, latest = bounds
        arguments = (
            batch.buffer, batch.position + HEADER_BYTES, batch.end_position,
            max(batch.record_count, 0), batch.base_timestamp, earliest, latest, keys, 3,
        )  # fmt: skip
        assert walk(*arguments) == walk_in_python(*arguments), "the walks differ"


def compacted(
    batch: BatchView, columns: RecordColumns, payload: bytes, keys: Sequence[KeyedRecord]
) -> None:
    """A batch with some of its records reads as these."""
    for some in (slice(None), slice(1, None), slice(0, None, 2)):
        kept = keys[some]
        if not kept:
            continue
        for horizon_ms in (None, NOW_MS):
            if horizon_ms is not None and batch.attributes & DELETE_HORIZON_MASK:
                continue
            again = BatchView(rewritten(batch, payload, kept, horizon_ms))
            check(again)
            # Damaged data may compress to more than the bound again.
            found = read_columns(again)
            assert found.keys == columns.keys[some]
            assert found.values == columns.values[some]
            assert found.offsets == columns.offsets[some]
            assert found.headers == columns.headers[some]
            assert found.timestamps_ms == columns.timestamps_ms[some], "other timestamps"


class Compression:
    """A codec's number, the bound on the output (2 bytes), and what is to be decompressed."""

    name = "compression"
    traced = ("records/compression.py",)
    max_lines = 1_000
    max_lines_per_byte = 20

    def seeds(self) -> Iterator[bytes]:
        for codec in compression.NAMES:
            for plain in (b"", b"abc", b"a" * 70_000, bytes(range(256)) * 3):
                yield bytes([codec]) + b"\x08\0" + compression.compress(codec, plain)
        yield b"\x02\x40\0" + b"\x04\x0cabcd"

    def repair(self, data: bytes, draw: Random) -> bytes:
        return bytes([draw.randrange(6)]) + data[1:] if draw.random() < 0.2 else data

    def run(self, data: bytes) -> None:
        codec, bound = (data[0] if data else 0), int.from_bytes(data[1:3], "big")
        try:
            plain = compression.decompress(codec, data[3:], bound)
        except compression.CompressionError:
            return
        assert len(plain) <= bound, "more than was allowed"
        again = compression.compress(codec, plain)
        assert bytes(compression.decompress(codec, again, bound)) == bytes(plain)


class Producers:
    """A byte that tells where a snapshot ends, the snapshot, and batches that are appended."""

    name = "producers"
    traced = ("log/producer_state.py", "records/batch.py")
    max_lines = 5_000
    max_lines_per_byte = 60

    def seeds(self) -> Iterator[bytes]:
        state = ProducerState()
        for number, batch in enumerate(
            (
                build_batch(RECORDS, producer=Producer(5, 0, 0)),
                build_batch(RECORDS[:1], producer=Producer(5, 0, 3), transactional=True),
                build_end_marker(COMMIT, 5, 1, 3, NOW_MS),
                build_batch(RECORDS, producer=Producer(6, 0, 2**31 - 2)),
            )
        ):
            assign(BatchView(batch), 3 * number, 0)
            snapshot = state.to_snapshot()
            yield bytes([len(snapshot) % 256]) + snapshot + bytes(batch)
            state.append(BatchView(batch), NOW_MS)

    def repair(self, data: bytes, draw: Random) -> bytes:
        """The snapshot's count and checksum, and those of the batches."""
        if not data:
            return data
        size = data[0]
        snapshot, batches = bytearray(data[1 : 1 + size]), with_crc(data[1 + size :])
        if draw.random() < 0.3:
            state = ProducerState()
            snapshot = bytearray(state.to_snapshot())
        if len(snapshot) >= 10:
            snapshot[0:2] = b"\0\1"
            if draw.random() < 0.5:
                snapshot[6:10] = ((len(snapshot) - 10) // 52).to_bytes(4, "big")
            snapshot[2:6] = crc32c(bytes(snapshot[6:])).to_bytes(4, "big")
        return bytes([len(snapshot) % 256]) + bytes(snapshot) + batches

    def run(self, data: bytes) -> None:
        size = 1 + (data[0] if data else 0)
        state = ProducerState(limit=3)
        with suppress(DamagedSnapshot):
            state = ProducerState.from_snapshot(data[1:size], NOW_MS, 3)
        self._is_stable(state)
        try:
            next_offset = 0
            for batch in iter_batches(bytearray(data[size:])):
                check(batch)
                assign(batch, next_offset, 0)  # as a log does
                self._append(state, batch)
                next_offset = batch.next_offset
        except CorruptBatch:
            pass
        self._is_stable(state)
        state.last_offsets(2**62)
        state.truncate_to(3)
        state.expire(NOW_MS + 10, 5)
        self._is_stable(state)

    @staticmethod
    def _append(state: ProducerState, batch: BatchView) -> None:
        if not batch.has_producer_id:
            return
        try:
            if not batch.is_control and state.check(batch, NOW_MS) is not None:
                return  # repeated: not appended again
        except KafkaError:
            return
        before = state.entries()
        undo = state.append(batch, NOW_MS)
        state.undo(undo)
        after = state.entries()
        # Whoever had to go for a newcomer does not come back; it may write again all the same.
        assert after.items() <= before.items(), "an append that is taken back leaves something"
        assert len(after) >= min(len(before), 2)
        state.append(batch, NOW_MS)

    @staticmethod
    def _is_stable(state: ProducerState) -> None:
        assert len(state) <= 3, "more producers than the limit"
        snapshot = state.to_snapshot()
        again = ProducerState.from_snapshot(snapshot, NOW_MS, 3)
        assert again.to_snapshot() == snapshot, "a snapshot that reads otherwise than written"
