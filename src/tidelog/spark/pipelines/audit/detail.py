"""A task that compares batches and records of replicas whose digests differ.

The task first compares header fields of batches. If headers differ, the task compares records by
offset, leader epoch, producer, sequence number, transaction, timestamp, key, value and headers.
Equal records in different batches are reported as different batching. On a compacted topic, a
record that one replica lacks is reported as different compaction. One offset with two contents is
always a divergence. Damaged offsets of either replica are skipped, because findings already cover
them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, field
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ProtocolError
from tidelog.records.batch import BatchView
from tidelog.records.reader import read_columns
from tidelog.spark.pipelines.audit.findings import AuditFinding, FindingKind, Severity
from tidelog.spark.pipelines.audit.ranges import BUCKET_BITS
from tidelog.spark.segments.offset_lookup import floor_position
from tidelog.spark.segments.resync import sound_batches

_DIGEST_BYTES: Final = 12


@dataclass(frozen=True, slots=True)
class Side:
    """A replica to compare with the other replicas of its partition."""

    broker: str
    #: Path, base offset and size of each log file, in order.
    files: tuple[tuple[str, int, int], ...]
    start: int
    end: int
    last_epoch: int
    history: str
    damaged: tuple[tuple[int, int], ...]
    #: Offset below which the replica must have the committed records: its own high watermark, or
    #: the partition's for a member of the ISR.
    committed: int


@dataclass(frozen=True, slots=True)
class DetailJob:
    """Offset buckets of one partition in which the digests of replicas differ."""

    partition: str
    buckets: tuple[int, ...]
    high: int
    is_compacted: bool
    #: The offset up to which compaction may have removed records; None if unknown.
    compacted_below: int | None
    sides: tuple[Side, ...]


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first offset at which the contents of two replicas differ."""

    partition: str
    offset: int
    broker: str
    history: str
    other: str
    other_history: str
    #: Number of offset buckets that differ, from the bucket with `offset` to the end.
    buckets: int


@dataclass(slots=True)
class DetailResult:
    """The outcome of a comparison of replicas."""

    findings: list[AuditFinding] = field(default_factory=list)
    divergences: list[Divergence] = field(default_factory=list)
    #: Whether a log file vanished or changed since the audit scanned it.
    is_gone: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return this result of a comparison as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> DetailResult:
        """Return the result of a comparison from the JSON values of `to_json`."""
        return cls(
            [AuditFinding.from_json(each) for each in values["findings"]],
            [Divergence(**each) for each in values["divergences"]],
            values["is_gone"],
        )


class _Batch(NamedTuple):
    """A batch header in a file."""

    base: int
    last: int
    size: int
    epoch: int
    crc: int
    path: str
    position: int

    @property
    def identity(self) -> tuple[int, int, int, int]:
        """The fields of the header by which batches of two replicas are compared."""
        return self.base, self.size, self.epoch, self.crc


def compare_buckets(job: DetailJob) -> DetailResult:
    """Compare the replicas of a partition, one offset bucket after the other."""
    comparison = _Comparison(job)
    try:
        for place, bucket in enumerate(job.buckets):
            comparison.compare(bucket, len(job.buckets) - place)
    except FileNotFoundError:
        comparison.result.is_gone = True
    except (OSError, ProtocolError) as error:
        # Checksums were right at the scan, so the file has changed since, or its disk fails.
        comparison.result.is_gone = True
        comparison.result.findings.append(
            AuditFinding(
                FindingKind.CHANGING,
                job.sides[0].files[0][0],
                f"replicas could not be compared: {error}",
                severity=Severity.NOTICE,
                partition=job.partition,
            )
        )
    comparison.finish()
    return comparison.result


class _Comparison:
    def __init__(self, job: DetailJob) -> None:
        self._job = job
        self.result = DetailResult()
        #: Replicas whose first divergence was found; their later divergences are not reported.
        self._diverged: set[str] = set()
        #: Harmless differences by (kind, replica, other replica): number of buckets, first offset,
        #: number of missing records.
        self._harmless: dict[tuple[FindingKind, str, str], list[int]] = {}

    def compare(self, bucket: int, left: int) -> None:
        """Compare the replicas in one offset bucket with the content that most of them have.

        `left` is the number of differing buckets from this bucket on, for the report.
        """
        low, high = bucket << BUCKET_BITS, (bucket + 1) << BUCKET_BITS
        sides = [
            each
            for each in self._job.sides
            if each.broker not in self._diverged and each.start < high and each.end > low
        ]
        if len(sides) < 2:
            return
        held = {each.broker: list(self._batches(each, low, high)) for each in sides}
        reference = _reference(sides, held)
        for side in sides:
            if side is not reference:
                self._compare_pair(side, reference, held, left)

    def _batches(self, side: Side, low: int, high: int) -> Iterator[_Batch]:
        bases = [*(base for _, base, _ in side.files[1:]), side.end]
        for (path, base, size), following in zip(side.files, bases, strict=True):
            if following <= low or base >= high:
                continue
            if os.stat(path).st_size < size:
                raise FileNotFoundError(path)
            start = floor_position(path, base, size, low)
            for rows in sound_batches(path, start, size, low):
                for row in rows[(rows["base"] >= low) & (rows["base"] < high)]:
                    if int(row["last"]) < self._job.high:
                        yield _Batch(
                            int(row["base"]), int(row["last"]), int(row["size"]), int(row["epoch"]),
                            int(row["crc"]), path, int(row["position"]),
                        )  # fmt: skip
                if len(rows) and rows["base"][-1] >= high:
                    break

    def _compare_pair(
        self, side: Side, reference: Side, held: dict[str, list[_Batch]], left: int
    ) -> None:
        start, end = max(side.start, reference.start), min(side.end, reference.end)
        hidden = (*side.damaged, *reference.damaged)

        def seen(broker: str) -> list[_Batch]:
            return [
                each
                for each in held[broker]
                if each.last >= start
                and each.base < end
                and not any(each.base <= high and each.last >= low for low, high in hidden)
            ]

        mine, theirs = seen(side.broker), seen(reference.broker)
        same = {each.identity for each in mine} & {each.identity for each in theirs}
        mine = [each for each in mine if each.identity not in same]
        theirs = [each for each in theirs if each.identity not in same]
        if not mine and not theirs:
            return
        my_records, their_records = _records(mine), _records(theirs)
        lacking = 0
        for offset in sorted({*my_records, *their_records}):
            if not start <= offset < end or any(a <= offset <= b for a, b in hidden):
                continue
            here, there = my_records.get(offset), their_records.get(offset)
            if here is not None and there is not None:
                if here.digest != there.digest:
                    self._diverge(side, reference, offset, here, there, left)
                    return
            elif self._explained(offset):
                lacking += 1
            else:
                self._diverge(side, reference, offset, here, there, left)
                return
        kind = FindingKind.COMPACTED if self._job.is_compacted else FindingKind.BATCHED
        key = kind, side.broker, reference.broker
        first = min(each.base for each in (*mine, *theirs))
        entry = self._harmless.setdefault(key, [0, first, 0])
        entry[0] += 1
        entry[2] += lacking

    def _explained(self, offset: int) -> bool:
        below = self._job.compacted_below
        return self._job.is_compacted and (below is None or offset < below)

    def _diverge(
        self,
        side: Side,
        reference: Side,
        offset: int,
        here: _DigestPlace | None,
        there: _DigestPlace | None,
        left: int,
    ) -> None:
        self._diverged.add(side.broker)
        holding = [path for path, base, _ in side.files if base <= offset] or [side.files[0][0]]
        path = here.batch.path if here is not None else holding[-1]
        # A former leader that died keeps the records that it had not committed.
        is_old = (
            here is not None
            and there is not None
            and offset >= side.committed
            and here.batch.epoch < there.batch.epoch
        )
        what = "; it had not committed that, and truncates it when it follows" if is_old else ""
        self.result.findings.append(
            AuditFinding(
                FindingKind.DIVERGED,
                path,
                f"offset {offset}, below the high watermark {self._job.high}: {side.broker} has"
                f" {_described(here)}, {reference.broker} has {_described(there, with_path=True)}"
                f"{what}",
                here.batch.position if here is not None else None,
                offset,
                Severity.NOTICE if is_old else Severity.DAMAGE,
                partition=self._job.partition,
                broker=side.broker,
            )
        )
        self.result.divergences.append(
            Divergence(
                self._job.partition,
                offset,
                side.broker,
                side.history,
                reference.broker,
                reference.history,
                left,
            )
        )

    def finish(self) -> None:
        """Add the harmless differences to the result as findings."""
        for (kind, broker, other), (buckets, first, lacking) in self._harmless.items():
            if kind is FindingKind.COMPACTED:
                what = f"{lacking} records are in one replica only; all others are equal"
            else:
                what = "the records are equal, their batches are not"
            sides = {each.broker: each for each in self._job.sides}
            self.result.findings.append(
                AuditFinding(
                    kind,
                    sides[broker].files[0][0],
                    f"{broker} and {other} differ in {buckets} digests of {1 << BUCKET_BITS}"
                    f" offsets, from offset {first} on: {what}",
                    None,
                    first,
                    Severity.NOTICE,
                    partition=self._job.partition,
                    broker=broker,
                )
            )


class _DigestPlace(NamedTuple):
    """A record's digest, and the batch that holds the record."""

    digest: bytes
    batch: _Batch


def _records(batches: Sequence[_Batch]) -> dict[int, _DigestPlace]:
    """Return the records of batches by offset."""
    found: dict[int, _DigestPlace] = {}
    for batch in batches:
        with open(batch.path, "rb") as file:
            data = os.pread(file.fileno(), batch.size, batch.position)
        view = BatchView(data, 0)
        columns = read_columns(view)
        for offset, stamp, key, value, headers in zip(
            columns.offsets,
            columns.timestamps_ms,
            columns.keys,
            columns.values,
            columns.headers,
            strict=True,
        ):
            place = offset - view.base_offset if view.has_producer_id else 0
            content = repr(
                (
                    batch.epoch,
                    (view.producer_id, view.producer_epoch, view.base_sequence + place),
                    (view.is_control, view.is_transactional, view.timestamp_type),
                    (stamp, key, value, headers),
                )
            ).encode()
            digest = blake2b(content, digest_size=_DIGEST_BYTES).digest()
            found[offset] = _DigestPlace(digest, batch)
    return found


def _reference(sides: Sequence[Side], held: dict[str, list[_Batch]]) -> Side:
    """Return the replica with the most common content; among equals, the replica that ends last."""
    contents = {
        broker: tuple(each.identity for each in batches) for broker, batches in held.items()
    }
    agreeing = list(contents.values())
    return max(
        sides, key=lambda side: (agreeing.count(contents[side.broker]), side.last_epoch, side.end)
    )


def _described(place: _DigestPlace | None, *, with_path: bool = False) -> str:
    if place is None:
        return "no such record"
    batch = place.batch
    path = f" of {batch.path}" if with_path else ""
    return (
        f"a record of leader epoch {batch.epoch} in the batch {batch.base} to {batch.last}"
        f" (checksum {batch.crc:#010x}, byte {batch.position}{path})"
    )
