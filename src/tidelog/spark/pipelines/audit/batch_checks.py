"""Checks of batch headers, over many batches at once, in the order of the file.

Base offset and leader epoch lie outside the checksum, so only neighbouring batches reveal a flipped
bit in these fields. A batch counts as wrong if its two neighbours would fit each other without this
batch. The last offset of a batch with a wrong checksum is taken from the next batch. A digest
covers base offset, size, epoch and checksum. The checksum covers all other bytes of a batch, so two
batches with equal digests are equal, except with a probability of 2^-32. Sums of digests do not
depend on the borders of ranges. The module opens no file.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tidelog.core.dataclass import dataclass
from tidelog.spark.pipelines.audit.findings import KEPT_OF_A_KIND, Collector, FindingKind
from tidelog.spark.pipelines.audit.ranges import BUCKET_BITS, RangeJob, RangeResult
from tidelog.spark.segments.batch_scan import Rows

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

#: Maximum number of offsets that a batch with a wrong checksum may claim.
_BELIEVED_OFFSETS: Final = 1 << 20
#: The largest codec number (zstd). `_KNOWN_BITS` are the bits of a batch's attributes that have a
#: meaning.
_LAST_CODEC: Final = 4
_KNOWN_BITS: Final = 0x7F
_SEEDS: Final = tuple(np.uint64(each) for each in (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03))
_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)


@dataclass(slots=True)
class Columns:
    """The header fields of the batches that one step of a scan has read, as columns.

    Wrong offsets are corrected from the neighbouring batches.
    """

    positions: Ints
    bases: Ints
    lasts: Ints
    max_timestamps: Ints
    #: Whether the checksum of each batch is right.
    sound: Flags


class BatchChecks:
    """Checks of a range, step by step; the results go into a RangeResult."""

    def __init__(self, job: RangeJob, result: RangeResult, findings: Collector) -> None:
        self._job = job
        self._result = result
        self._findings = findings
        #: Last offset of the previous batch, and `_epoch` its leader epoch; None if unknown.
        self._last: int | None = None
        self._epoch: int | None = None

    def forget_order(self) -> None:
        """Accept any offset in the next batch, because the bytes before it are not a batch."""
        self._last = None

    def fold(self, rows: Rows) -> Columns:
        """Check the next batches of the range; return their header fields for the checks of
        indexes.
        """
        result = self._result
        sound = rows["crc"] == rows["computed_crc"]
        columns = Columns(
            rows["position"].copy(),
            rows["base"].copy(),
            rows["last"].copy(),
            rows["max_timestamp"].copy(),
            sound,
        )
        epochs = rows["epoch"].copy()
        self._check_sums(rows, columns)
        self._check_headers(rows, columns)
        self._check_offsets(rows, columns)
        self._check_epochs(columns, epochs)
        self._note_epochs(columns, epochs)
        self._digest(rows, columns)
        result.batches += len(rows)
        result.records += int(rows["count"][sound].clip(min=0).sum())
        if sound.any():
            result.max_timestamp = max(
                result.max_timestamp, int(columns.max_timestamps[sound].max())
            )
        if result.first is None:
            result.first = int(columns.bases[0])
            result.first_last = int(columns.lasts[0])
        result.last = int(columns.lasts[-1])
        self._last = result.last if sound[-1] else None
        return columns

    def _check_sums(self, rows: Rows, columns: Columns) -> None:
        wrong = np.flatnonzero(~columns.sound)
        for place in wrong:
            base = int(columns.bases[place])
            following = place + 1
            if following < len(rows) and columns.bases[following] > base:
                columns.lasts[place] = columns.bases[following] - 1
            elif not 0 <= columns.lasts[place] - base < _BELIEVED_OFFSETS:
                columns.lasts[place] = base
            last = int(columns.lasts[place])
            self._findings.add(
                FindingKind.CHECKSUM,
                f"the batch of {int(rows['size'][place])} bytes has the checksum"
                f" {int(rows['crc'][place]):#010x}, its bytes give"
                f" {int(rows['computed_crc'][place]):#010x}",
                int(columns.positions[place]),
                base,
            )
            self._result.damaged.append((base, max(base, last)))

    def _check_headers(self, rows: Rows, columns: Columns) -> None:
        """Check record counts: a batch has at most one record for each of its offsets."""
        spans = columns.lasts - columns.bases + 1
        counts = rows["count"]
        wrong = columns.sound & ((spans < 1) | (counts < 0) | (counts > spans))
        for place in np.flatnonzero(wrong):
            self._findings.add(
                FindingKind.HEADER,
                f"the batch claims {int(counts[place])} records at offsets"
                f" {int(columns.bases[place])} to {int(columns.lasts[place])}",
                int(columns.positions[place]),
                int(columns.bases[place]),
            )
        attributes = rows["attributes"]
        odd = columns.sound & ((attributes & 7 > _LAST_CODEC) | (attributes & ~_KNOWN_BITS != 0))
        for place in np.flatnonzero(odd):
            self._findings.add(
                FindingKind.HEADER,
                f"the batch has the attributes {int(attributes[place]) & 0xFFFF:#06x}, which name a"
                f" codec or a flag that Kafka does not have",
                int(columns.positions[place]),
                int(columns.bases[place]),
            )
        hollow = columns.sound & ~wrong & (counts < spans)
        if hollow.any():
            self._result.hollow += int((spans - counts)[hollow].sum())
            if self._result.hollow_at is None:
                self._result.hollow_at = int(columns.positions[np.flatnonzero(hollow)[0]])

    def _check_offsets(self, rows: Rows, columns: Columns) -> None:
        expected = self._expected(columns)
        known = expected >= 0
        off = np.flatnonzero(known & (columns.bases != expected))
        if not len(off):
            return
        self._correct_outliers(off, expected, columns)
        expected = self._expected(columns)
        back = np.flatnonzero(known & (columns.bases < expected))
        for place in back:
            self._findings.add(
                FindingKind.OFFSET_ORDER,
                f"the batch has the base offset {int(columns.bases[place])}, and the one before"
                f" ends at {int(expected[place]) - 1}",
                int(columns.positions[place]),
                int(columns.bases[place]),
            )
        ahead = np.flatnonzero(known & (columns.bases > expected))
        result = self._result
        result.gap_count += len(ahead)
        for place in ahead[: max(0, KEPT_OF_A_KIND - len(result.gaps))]:
            result.gaps.append(
                (int(expected[place]), int(columns.bases[place]) - 1, int(columns.positions[place]))
            )

    def _expected(self, columns: Columns) -> Ints:
        """Return the base offset that should follow the previous batch; -1 if unknown."""
        first = -1 if self._last is None else self._last + 1
        # The scan checks batches in steps. After a step whose last batch has a wrong checksum,
        # `_last` is None, because that batch's offsets cannot be trusted.
        return np.concatenate(([first], columns.lasts[:-1] + 1))

    def _correct_outliers(self, off: Ints, expected: Ints, columns: Columns) -> None:
        """Report batches whose base offset alone is wrong, and continue with the right offset."""
        for place in off:
            following = place + 1
            if following >= len(columns.bases) or not columns.sound[place]:
                continue
            span = int(columns.lasts[place] - columns.bases[place]) + 1
            right = int(expected[place])
            if int(columns.bases[following]) == right + span:
                self._findings.add(
                    FindingKind.OFFSET_ORDER,
                    f"the batch has the base offset {int(columns.bases[place])}; its neighbours"
                    f" fit {right}",
                    int(columns.positions[place]),
                    right,
                )
                columns.bases[place], columns.lasts[place] = right, right + span - 1
                self._result.damaged.append((right, right + span - 1))

    def _check_epochs(self, columns: Columns, epochs: Ints) -> None:
        previous = np.concatenate(([-1 if self._epoch is None else self._epoch], epochs[:-1]))
        for place in np.flatnonzero((epochs >= 0) & (epochs < previous)):
            blamed, expected = int(place), f"at least {int(previous[place])}"
            before = int(epochs[place - 2]) if place > 1 else self._epoch
            if place > 0 and (before is None or epochs[place] >= before):
                # The previous batch is at fault, because its epoch is above the epochs of both its
                # neighbours.
                blamed, expected = int(place) - 1, f"{int(epochs[place])} at most"
            self._findings.add(
                FindingKind.EPOCH_ORDER,
                f"the batch has leader epoch {int(epochs[blamed])}; {expected} is expected here",
                int(columns.positions[blamed]),
                int(columns.bases[blamed]),
            )
            self._result.damaged.append((int(columns.bases[blamed]), int(columns.lasts[blamed])))
            epochs[blamed] = epochs[place] if blamed < place else previous[place]

    def _note_epochs(self, columns: Columns, epochs: Ints) -> None:
        changes = np.flatnonzero(np.diff(epochs)) + 1
        if self._epoch is None or epochs[0] != self._epoch:
            changes = np.concatenate(([0], changes))
        lasts: Any = columns.lasts
        for place in changes:
            before = self._last if place == 0 else int(lasts[place - 1])
            self._result.epochs.append((int(epochs[place]), int(columns.bases[place]), before))
        self._epoch = int(epochs[-1])

    def _digest(self, rows: Rows, columns: Columns) -> None:
        counted = columns.lasts < self._job.high
        if not counted.all():
            rows, bases = rows[counted], columns.bases[counted]
        else:
            bases = columns.bases
        if not len(rows):
            return
        digests = batch_digests(bases, rows["size"], rows["epoch"], rows["crc"])
        buckets = bases >> BUCKET_BITS
        if (np.diff(buckets) < 0).any():
            order = np.argsort(buckets, kind="stable")
            buckets, digests = buckets[order], digests[order]
        firsts = np.concatenate(([0], np.flatnonzero(np.diff(buckets)) + 1))
        sums = np.add.reduceat(digests, firsts)
        counts = np.diff(np.concatenate((firsts, [len(buckets)])))
        kept = self._result.buckets
        for bucket, count, total in zip(buckets[firsts], counts, sums, strict=True):
            before = kept.get(int(bucket), (0, 0))
            kept[int(bucket)] = (
                before[0] + int(count),
                (before[1] + int(total)) & 0xFFFF_FFFF_FFFF_FFFF,
            )


def batch_digests(bases: Ints, sizes: Ints, epochs: Ints, crcs: Ints) -> npt.NDArray[np.uint64]:
    """Return a digest of each batch, which differs if any of the given fields differs."""
    mixed = _mixed(bases.astype(np.uint64) + _SEEDS[0])
    place = sizes.astype(np.uint64) << np.uint64(32) ^ epochs.astype(np.uint64)
    return _mixed(_mixed(mixed ^ place) + crcs.astype(np.uint64) * _SEEDS[1])


def _mixed(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return hashes of the values (splitmix64)."""
    values = (values ^ values >> np.uint64(30)) * _FIRST
    values = (values ^ values >> np.uint64(27)) * _SECOND
    return values ^ values >> np.uint64(31)
