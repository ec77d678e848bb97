"""Proof that every offset of a topic is in a table once, with a list of the failures.

Spark counts rows, distinct offsets and gaps in the files. An offset may have no row because it is a
transaction marker or an aborted transaction's record, or because compaction removed its record. To
explain a gap, the proof reads the log again at the offsets of the gap. If the log has a record at
an offset without a row, the files have lost the record. Offsets that the log does not hold count as
compacted only for a topic that the caller declares compacted: the log of any other topic has no
missing offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from tidelog.client.aborted_transactions import AbortedTransactions
from tidelog.core.dataclass import dataclass
from tidelog.core.limits import MIB
from tidelog.core.types import READ_COMMITTED, TopicPartition
from tidelog.records.batch import BatchView
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.decode import PartitionDecoder
from tidelog.spark.planning import OffsetRange

_FETCH_BYTES: Final = MIB
#: Number of consecutive empty fetches after which the log counts as ended.
_EMPTY_FETCHES: Final = 3

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets `[start, end)` of a partition for which no row was found."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class GapContent:
    """Numbers of the offsets of a gap at which the log has a marker, a record or nothing."""

    #: Number of transaction markers and of records of aborted transactions.
    control: int = 0
    absent: int = 0
    records: int = 0

    def plus(self, other: GapContent) -> GapContent:
        """Return the content of two gaps together, as sums of their counts."""
        return GapContent(
            self.control + other.control, self.absent + other.absent, self.records + other.records
        )


@dataclass(frozen=True, slots=True)
class PartitionCount:
    """Counts of one partition's rows in the files."""

    rows: int
    distinct: int
    first: int
    last: int
    gaps: tuple[Gap, ...]


@dataclass(frozen=True, slots=True)
class PartitionProof:
    """The proof that each offset of `wanted` in a partition has one row, or needs none."""

    wanted: OffsetRange
    rows: int
    doubled: int
    lost: int
    control: int
    compacted: int
    #: Number of rows with offsets outside the wanted range.
    stray: int = 0
    #: Records of the range that were written to the dead-letter path.
    dead: int = 0

    @property
    def holds(self) -> bool:
        """Whether the partition is complete and has no duplicates."""
        return self.doubled == 0 and self.lost == 0 and self.stray == 0


@dataclass(frozen=True, slots=True)
class ContinuityProof:
    """The continuity proofs of all partitions of a topic."""

    partitions: tuple[PartitionProof, ...]

    @property
    def holds(self) -> bool:
        """Whether the proof of every partition holds."""
        return all(each.holds for each in self.partitions)

    @property
    def lost(self) -> int:
        """Number of records of the topic without a row."""
        return sum(each.lost for each in self.partitions)

    @property
    def doubled(self) -> int:
        """Number of surplus rows: each offset should have only one row."""
        return sum(each.doubled for each in self.partitions)

    @property
    def stray(self) -> int:
        """Number of rows whose offsets lie outside the wanted ranges."""
        return sum(each.stray for each in self.partitions)

    @property
    def rows(self) -> int:
        """Number of rows in all partitions."""
        return sum(each.rows for each in self.partitions)

    @property
    def dead(self) -> int:
        """Number of dead letters in all partitions."""
        return sum(each.dead for each in self.partitions)


def no_rows(wanted: Sequence[OffsetRange]) -> dict[TopicPartition, PartitionCount]:
    """Return zero counts for each wanted partition."""
    return {each.tp: PartitionCount(0, 0, each.end, each.start - 1, ()) for each in wanted}


def prove_ranges(
    counts: Mapping[TopicPartition, PartitionCount],
    wanted: Sequence[OffsetRange],
    look: Callable[[TopicPartition, Sequence[Gap]], GapContent],
    *,
    compacted: bool,
    dead: Mapping[TopicPartition, int] | None = None,
) -> ContinuityProof:
    """Return the proof for the offsets `wanted`; `look` reads the log in the gaps between rows.

    `counts` counts rows and dead letters together; `dead` counts dead letters alone.
    """
    proofs: list[PartitionProof] = []
    for each in wanted:
        found = counts[each.tp]
        gaps = gaps_within(found, each)
        content = look(each.tp, gaps) if gaps else GapContent()
        letters = (dead or {}).get(each.tp, 0)
        proofs.append(
            PartitionProof(
                wanted=each,
                rows=found.rows - letters,
                doubled=found.rows - found.distinct,
                lost=content.records + (0 if compacted else content.absent),
                control=content.control,
                compacted=content.absent if compacted else 0,
                stray=_outside(found, each),
                dead=letters,
            )
        )
    for tp, found in counts.items():
        if all(tp != each.tp for each in wanted):
            nothing = OffsetRange(tp, found.first, found.first)
            proofs.append(PartitionProof(nothing, found.rows, 0, 0, 0, 0, stray=found.rows))
    return ContinuityProof(tuple(proofs))


def gaps_within(found: PartitionCount, wanted: OffsetRange) -> list[Gap]:
    """Return the gaps between rows, and the gaps at both ends of the range."""
    if found.rows == 0:
        return [Gap(wanted.start, wanted.end)] if wanted.size > 0 else []
    gaps = [Gap(wanted.start, found.first), *found.gaps, Gap(found.last + 1, wanted.end)]
    clipped = [Gap(max(gap.start, wanted.start), min(gap.end, wanted.end)) for gap in gaps]
    return [gap for gap in clipped if gap.start < gap.end]


def _outside(found: PartitionCount, wanted: OffsetRange) -> int:
    """Return 1 if any row has an offset outside the wanted range, else 0."""
    return int(found.rows > 0 and (found.first < wanted.start or found.last >= wanted.end))


class LogGaps:
    """A reader of the log at offsets without a row."""

    def __init__(self, client: BlockingClient) -> None:
        self._client = client

    def look(self, tp: TopicPartition, gaps: Sequence[Gap]) -> GapContent:
        """Read the log at gaps (offsets without a row), which must be in order of offset.

        One fetch covers neighbouring gaps, so that a topic with a marker after each record is read
        about once.
        """
        content = GapContent()
        starts, ends = _bounds(gaps)
        reached = int(starts[0]) if len(gaps) else 0
        for place, end, offsets, left_out in self._reads(tp, starts, ends):
            records = sum(_inside(found, starts, ends) for found in offsets)
            control = sum(
                _overlap(max(first, place), min(last, end), starts, ends)
                for first, last in left_out
            )
            seen = _overlap(place, end, starts, ends)
            content = content.plus(GapContent(control, seen - control - records, records))
            reached = end
        last = int(ends[-1]) if len(gaps) else 0
        return content.plus(GapContent(absent=_overlap(reached, last, starts, ends)))

    def left_out(self, tp: TopicPartition, gaps: Sequence[Gap]) -> list[tuple[int, int]]:
        """Return ranges of markers and aborted records that the log has in or near these gaps."""
        return [each for read in self._reads(tp, *_bounds(gaps)) for each in read[3]]

    def _reads(
        self, tp: TopicPartition, starts: Ints, ends: Ints
    ) -> Iterator[tuple[int, int, list[Ints], list[tuple[int, int]]]]:
        """Read the log at gaps; yield each fetch's bounds, record offsets and omitted ranges.

        The omitted ranges are offsets of markers and of aborted records.
        """
        place = int(starts[0]) if len(starts) else 0
        last = int(ends[-1]) if len(ends) else 0
        empty = 0
        while place < last and empty < _EMPTY_FETCHES:
            fetched = self._client.fetch(
                tp, place, _FETCH_BYTES, max_wait_ms=200, isolation_level=READ_COMMITTED
            )
            left_out = _LeftOut(AbortedTransactions(fetched.aborted))
            decoder = PartitionDecoder(tp, place, last, ("offset",))
            decoded = decoder.decode(fetched.records, left_out)
            offsets = [rows.column("offset").to_numpy() for rows in decoded]
            reached = decoder.next_offset
            empty = 0 if reached > place else empty + 1
            yield place, reached, offsets, left_out.ranges
            place = _next_gap(reached, starts, ends)


def _bounds(gaps: Sequence[Gap]) -> tuple[Ints, Ints]:
    """Return the starts and the ends of gaps."""
    starts = np.array([gap.start for gap in gaps], np.int64)
    return starts, np.array([gap.end for gap in gaps], np.int64)


class _LeftOut:
    """The offsets of markers and of aborted records, collected while a decoder filters batches."""

    def __init__(self, aborted: AbortedTransactions) -> None:
        self._aborted = aborted
        self.ranges: list[tuple[int, int]] = []

    def __call__(self, batch: BatchView) -> bool:
        is_aborted = self._aborted(batch)
        if is_aborted or batch.is_control:
            self.ranges.append((batch.base_offset, batch.next_offset))
        return is_aborted


def _inside(offsets: Ints, starts: Ints, ends: Ints) -> int:
    """Return how many of `offsets` lie in the gaps."""
    gap = np.searchsorted(starts, offsets, "right") - 1
    return int(((gap >= 0) & (offsets < ends[gap])).sum())


def _overlap(start: int, end: int, starts: Ints, ends: Ints) -> int:
    """Return how many offsets of the gaps lie in `[start, end)`."""
    return int(np.maximum(0, np.minimum(ends, end) - np.maximum(starts, start)).sum())


def _next_gap(reached: int, starts: Ints, ends: Ints) -> int:
    """Return the first offset from `reached` on that lies in a gap; `reached` if none does."""
    gap = int(np.searchsorted(ends, reached, "right"))
    return max(reached, int(starts[gap])) if gap < len(starts) else reached
