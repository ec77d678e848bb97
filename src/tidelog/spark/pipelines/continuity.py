"""Proof that every offset of a topic is in Parquet once, with a list of the failures.

There are two sides. Spark counts rows, distinct offsets and gaps in the files. An offset may have
no row because it is a transaction marker, or because compaction removed it. A gap is explained by
reading the log again at that place; a record found there is lost from the files. Offsets that the
log does not hold count as compacted only for a topic that the caller declares compacted: any other
log has no holes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.core.limits import MIB
from tidelog.core.types import TopicPartition
from tidelog.records.batch import iter_batches
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.decode import PartitionDecoder
from tidelog.spark.planning import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FETCH_BYTES = MIB


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets `[start, end)` that have no row."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class GapContent:
    """The log's content in a gap: markers, absent offsets, records."""

    control: int = 0
    absent: int = 0
    records: int = 0

    def plus(self, other: GapContent) -> GapContent:
        """Return the sum of both."""
        return GapContent(
            self.control + other.control, self.absent + other.absent, self.records + other.records
        )


@dataclass(frozen=True, slots=True)
class PartitionCount:
    """The files' content of one partition."""

    rows: int
    distinct: int
    first: int
    last: int
    gaps: tuple[Gap, ...]


@dataclass(frozen=True, slots=True)
class PartitionProof:
    """One partition: each offset of `wanted` has one row or a reason."""

    wanted: OffsetRange
    rows: int
    doubled: int
    lost: int
    control: int
    compacted: int
    #: Rows with offsets outside of the wanted range.
    stray: int = 0

    @property
    def holds(self) -> bool:
        """Whether the partition is complete and without repetition."""
        return self.doubled == 0 and self.lost == 0 and self.stray == 0


@dataclass(frozen=True, slots=True)
class ContinuityProof:
    """The proofs of all partitions."""

    partitions: tuple[PartitionProof, ...]

    @property
    def holds(self) -> bool:
        """Whether every partition holds."""
        return all(each.holds for each in self.partitions)

    @property
    def lost(self) -> int:
        """Records of the topic without a row."""
        return sum(each.lost for each in self.partitions)

    @property
    def doubled(self) -> int:
        """Rows beyond the first of their offset."""
        return sum(each.doubled for each in self.partitions)

    @property
    def stray(self) -> int:
        """Rows outside of the wanted offsets."""
        return sum(each.stray for each in self.partitions)

    @property
    def rows(self) -> int:
        """Number of all rows."""
        return sum(each.rows for each in self.partitions)


def count_offsets(
    frame: DataFrame, wanted: Sequence[OffsetRange]
) -> dict[TopicPartition, PartitionCount]:
    """Return rows, distinct offsets and gaps per partition, counted by Spark in one pass.

    `frame` needs the columns topic, partition and offset. A gap before the first wanted offset is
    none; one up to the end is.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812 - how all of Spark names it

    by_partition = Window.partitionBy("topic", "partition").orderBy("offset")
    ordered = frame.select("topic", "partition", "offset").withColumn(
        "before", F.lag("offset").over(by_partition)
    )
    step = F.col("offset") - F.col("before")
    gap = F.when(step > 1, F.struct((F.col("before") + 1).alias("start"), F.col("offset")))
    counted = (
        ordered.groupBy("topic", "partition")
        .agg(
            F.count("*").alias("rows"),
            F.count(F.when(step == 0, 1)).alias("repeated"),
            F.min("offset").alias("first"),
            F.max("offset").alias("last"),
            F.sort_array(F.collect_list(gap)).alias("gaps"),
        )
        .collect()
    )
    counts = {
        TopicPartition(row["topic"], row["partition"]): PartitionCount(
            rows=row["rows"],
            distinct=row["rows"] - row["repeated"],
            first=row["first"],
            last=row["last"],
            gaps=tuple(Gap(each["start"], each["offset"]) for each in row["gaps"]),
        )
        for row in counted
    }
    return {**no_rows(wanted), **counts}


def no_rows(wanted: Sequence[OffsetRange]) -> dict[TopicPartition, PartitionCount]:
    """Return the counts of files without rows."""
    return {each.tp: PartitionCount(0, 0, each.end, each.start - 1, ()) for each in wanted}


def prove_ranges(
    counts: Mapping[TopicPartition, PartitionCount],
    wanted: Sequence[OffsetRange],
    look: Callable[[TopicPartition, Gap], GapContent],
    *,
    compacted: bool,
) -> ContinuityProof:
    """Return the proof for `wanted`; `look` reads the log's content in a gap."""
    proofs: list[PartitionProof] = []
    for each in wanted:
        found = counts[each.tp]
        content = GapContent()
        for gap in _gaps_within(found, each):
            content = content.plus(look(each.tp, gap))
        proofs.append(
            PartitionProof(
                wanted=each,
                rows=found.rows,
                doubled=found.rows - found.distinct,
                lost=content.records + (0 if compacted else content.absent),
                control=content.control,
                compacted=content.absent if compacted else 0,
                stray=_outside(found, each),
            )
        )
    for tp, found in counts.items():
        if all(tp != each.tp for each in wanted):
            nothing = OffsetRange(tp, found.first, found.first)
            proofs.append(PartitionProof(nothing, found.rows, 0, 0, 0, 0, stray=found.rows))
    return ContinuityProof(tuple(proofs))


def _gaps_within(found: PartitionCount, wanted: OffsetRange) -> list[Gap]:
    """Return the gaps between rows, and those at both ends of the range."""
    if found.rows == 0:
        return [Gap(wanted.start, wanted.end)] if wanted.size > 0 else []
    gaps = [Gap(wanted.start, found.first), *found.gaps, Gap(found.last + 1, wanted.end)]
    clipped = [Gap(max(gap.start, wanted.start), min(gap.end, wanted.end)) for gap in gaps]
    return [gap for gap in clipped if gap.start < gap.end]


def _outside(found: PartitionCount, wanted: OffsetRange) -> int:
    """Return a lower bound of the rows outside of the range; exact where it is 0."""
    return int(found.rows > 0 and (found.first < wanted.start or found.last >= wanted.end))


class LogGaps:
    """A reader of the log's content in gaps."""

    def __init__(self, client: BlockingClient) -> None:
        self._client = client

    def look(self, tp: TopicPartition, gap: Gap) -> GapContent:
        """Read the log from the gap's start to its end."""
        content = GapContent()
        decoder = PartitionDecoder(tp, gap.start, gap.end, ("offset",))
        empty = 0
        while decoder.next_offset < gap.end and empty < 3:
            before = decoder.next_offset
            chunk = self._client.fetch(tp, before, _FETCH_BYTES, max_wait_ms=200).records
            empty = 0 if len(chunk) else empty + 1
            records = sum(rows.num_rows for rows in decoder.decode(chunk))
            control = _control_offsets(chunk, before, gap.end)
            seen = decoder.next_offset - before
            content = content.plus(GapContent(control, seen - control - records, records))
        return content.plus(GapContent(absent=gap.end - decoder.next_offset))


def _control_offsets(chunk: memoryview, start: int, end: int) -> int:
    """Return the number of offsets of control batches within `[start, end)`."""
    return sum(
        max(0, min(batch.next_offset, end) - max(batch.base_offset, start))
        for batch in iter_batches(chunk)
        if batch.is_control
    )
