"""Comparison of copied ranges, read back from both clusters: counts, digests, first difference.

A digest covers target offset, timestamp, key, value and headers of each record, in order. The
digest of source records uses the target offsets of the offset table, so equal digests prove the
offset table, too. If digests differ, both clusters are read again record by record.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from typing import Final

from tidelog.client.consuming import read_records
from tidelog.client.fetching import EARLIEST
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.types import READ_COMMITTED, READ_UNCOMMITTED, TopicPartition
from tidelog.records.reader import Record
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.pipelines.copy.offset_map import RECORDS, Piece
from tidelog.spark.pipelines.copy.transfer import FETCH_BYTES, CopyError
from tidelog.spark.pipelines.task_rows import Row

#: What the digest of a record begins with: target offset, timestamp, lengths of key and value (-1:
#: null), number of headers.
_RECORD: Final = struct.Struct(">qqiii")
_HEADER: Final = struct.Struct(">ii")
_EMPTY_ANSWERS: Final = 3
_MAX_WAIT_MS: Final = 500


@dataclass(frozen=True, slots=True)
class RangeCheck:
    """A range of the offset table to read back."""

    source: str
    target: str
    source_partition: TopicPartition
    target_partition: TopicPartition
    pieces: tuple[Piece, ...]
    timeout_ms: int


def check_range(wanted: RangeCheck) -> Iterator[Row]:
    """Return one row: counts and digests in both clusters, and the difference."""
    with (
        BlockingClient(wanted.source, "tidelog-copy", wanted.timeout_ms) as source,
        BlockingClient(wanted.target, "tidelog-copy", wanted.timeout_ms) as target,
    ):
        first = _digest(_mapped(source, wanted))
        second = _digest(_stored(target, wanted))
        row: Row = {
            "topic": wanted.source_partition.topic,
            "partition": wanted.source_partition.partition,
            "source_from": wanted.pieces[0].start,
            "source_to": wanted.pieces[-1].end,
            "target_from": wanted.pieces[0].target,
            "target_to": wanted.pieces[-1].target_end,
            "source_records": first[0],
            "target_records": second[0],
            "source_digest": first[1],
            "target_digest": second[1],
            "missing": 0,
            "surplus": 0,
            "changed": 0,
            "first": None,
        }
        if first != second:
            row |= _differences(_mapped(source, wanted), _stored(target, wanted))
        yield row


def _digest(records: Iterator[Record]) -> tuple[int, str]:
    digest = hashlib.blake2b(digest_size=16)
    count = 0
    for record in records:
        digest.update(canonical(record))
        count += 1
    return count, digest.hexdigest()


def canonical(record: Record) -> bytes:
    """Return the bytes of a record that a digest covers; only equal records have equal bytes."""
    key, value = record.key, record.value
    parts = [
        _RECORD.pack(
            record.offset,
            record.timestamp_ms,
            -1 if key is None else len(key),
            -1 if value is None else len(value),
            len(record.headers),
        ),
        key or b"",
        value or b"",
    ]
    for name, content in record.headers:
        encoded = name.encode()
        parts.append(_HEADER.pack(len(encoded), -1 if content is None else len(content)))
        parts += [encoded, content or b""]
    return b"".join(parts)


def _mapped(client: BlockingClient, wanted: RangeCheck) -> Iterator[Record]:
    """Yield the source's records with the target offsets of the offset table."""
    tp = wanted.source_partition
    for piece in wanted.pieces:
        if piece.kind != RECORDS:
            continue
        shift = piece.target - piece.start
        for record in _read(client, tp, piece.start, piece.end, READ_COMMITTED):
            yield record._replace(offset=record.offset + shift)


def _stored(client: BlockingClient, wanted: RangeCheck) -> Iterator[Record]:
    start, end = wanted.pieces[0].target, wanted.pieces[-1].target_end
    return _read(client, wanted.target_partition, start, end, READ_UNCOMMITTED)


def _read(
    client: BlockingClient, tp: TopicPartition, start: int, end: int, isolation_level: int
) -> Iterator[Record]:
    """Yield the records `[start, end)` that a partition still has."""
    position = start
    empty = 0
    while position < end:
        try:
            fetched = client.fetch(
                tp, position, FETCH_BYTES, max_wait_ms=_MAX_WAIT_MS, isolation_level=isolation_level
            )
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise CopyError(f"reading {tp} back: {error}") from error
            first = client.list_offsets({tp: EARLIEST})[tp].offset
            if first <= position:
                return  # the log ends before the range does
            position = first
            continue
        records, following = read_records(fetched.records, position, fetched.aborted)
        for record in records:
            if record.offset >= end:
                return
            yield record
        empty = 0 if following > position else empty + 1
        if empty >= _EMPTY_ANSWERS:
            return
        position = following


def _differences(source: Iterator[Record], target: Iterator[Record]) -> Row:
    """Compare both clusters' records; return counts, and the first difference's target offset."""
    missing = surplus = changed = 0
    first: int | None = None
    ours, theirs = next(source, None), next(target, None)
    while ours is not None or theirs is not None:
        at = min(each.offset for each in (ours, theirs) if each is not None)
        has_ours = ours is not None and ours.offset == at
        has_theirs = theirs is not None and theirs.offset == at
        if has_ours and has_theirs and ours is not None and theirs is not None:
            is_equal = canonical(ours) == canonical(theirs)
            changed += not is_equal
        else:
            is_equal = False
            missing += has_ours
            surplus += has_theirs
        if not is_equal and first is None:
            first = at
        if has_ours:
            ours = next(source, None)
        if has_theirs:
            theirs = next(target, None)
    return {"missing": missing, "surplus": surplus, "changed": changed, "first": first}
