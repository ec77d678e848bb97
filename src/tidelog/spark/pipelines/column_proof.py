"""The proof of a table that another tool has written, by its columns of partition and offset.

Sinks of other projects keep a record's partition and offset as columns. The proof counts these
columns in the files of the table's newest version. The proof names offsets that no row has and
offsets that several rows have, with the files and the versions that added them. With a client of
the cluster, the proof looks in the log for a record at each offset without a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from tidelog.client.fetching import EARLIEST, LATEST
from tidelog.core.dataclass import dataclass
from tidelog.core.types import READ_COMMITTED, partitions_text
from tidelog.spark.lake.places import lake_at
from tidelog.spark.lake.protocol import NO_VERSION
from tidelog.spark.lake.state import LakeFile, TableError
from tidelog.spark.lake.stores import LakeStore
from tidelog.spark.option_values import OptionError, whole_number
from tidelog.spark.pipelines.continuity import Gap, GapContent, LogGaps
from tidelog.spark.pipelines.counting import (
    MISSING_FILE,
    FileCounts,
    FileFault,
    OffsetColumns,
    count_files,
    described,
)
from tidelog.spark.pipelines.new_offsets import origin_of
from tidelog.spark.pipelines.offset_faults import OffsetFault, OffsetFaultKind, offset_faults

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.runtime.blocking import BlockingClient

#: Marks a number as unknown in a file's description. The proof marks partition, start and end of
#: all files so, because it does not rely on statistics that another program wrote.
_UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """The counts of a proof for one partition: rows, and missing and doubled offsets.

    The table has rows of the partition at offsets in `[start, end)`.
    """

    partition: int
    start: int
    end: int
    rows: int
    missing: int
    doubled: int
    #: Number of missing offsets at which the topic's log has a transaction marker or an aborted
    #: record; None if the log was not read.
    control: int | None = None
    #: Number of missing offsets at which the topic's log has nothing, either; None if the log was
    #: not read.
    absent: int | None = None
    #: The partition's log start offset, and in `log_end` its last stable offset; None if the log
    #: was not read.
    log_start: int | None = None
    log_end: int | None = None

    @property
    def lost(self) -> int:
        """Number of missing offsets at which the log has a record, or which it no longer covers."""
        return self.missing - (self.control or 0) - (self.absent or 0)


@dataclass(frozen=True, slots=True)
class ColumnProof:
    """The proof that a table has each record once, from its partition and offset columns."""

    version: int
    partitions: tuple[PartitionOffsets, ...]
    offsets: tuple[OffsetFault, ...]
    #: By path of each file that a fault names: the versions that added the file, if known.
    added_in: Mapping[str, tuple[int, ...]]
    files: tuple[FileFault, ...] = ()
    #: What the numbers in `added_in` identify: "version" (Delta) or "snapshot" (Iceberg).
    commit_noun: str = "version"

    @property
    def holds(self) -> bool:
        """Whether each offset has one row, or none because the log has no record there."""
        return not self.files and all(
            each.lost == 0 and each.doubled == 0 for each in self.partitions
        )


def prove_columns(
    spark: SparkSession,
    table: str,
    columns: OffsetColumns,
    *,
    client: BlockingClient | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> ColumnProof:
    """Prove a table by its columns of partition and offset.

    With a client, `columns.topic` must name the topic. Raises TableError, OptionError, KafkaError.
    """
    if client is not None and columns.topic is None:
        raise OptionError("a proof with the cluster's log needs the topic of the table's records")
    if columns.topic_column is not None and columns.topic is None:
        raise OptionError("topic_column needs a topic, whose rows are counted")
    lake = lake_at(table, storage_options)
    version = lake.newest()
    if version == NO_VERSION:
        raise TableError(f"{table} is no table of Delta or Iceberg")
    lake.check_files_are_rows(version)
    _check_names(table, columns, lake.schema(version).names)
    files = lake.files(version, (columns.partition, columns.offset))
    counted = _counted(spark, lake.store, files, columns)
    if columns.topic_column is not None and not counted.by_file and not counted.faults:
        raise TableError(f"{table} has no row of topic {columns.topic!r}")
    faults = offset_faults(counted.by_file)
    partitions = _partitions(counted, faults)
    if client is not None and columns.topic is not None:
        partitions, faults = _explained(client, columns.topic, partitions, faults)
    named = {name for fault in faults for name in fault.files}
    return ColumnProof(
        version,
        tuple(partitions),
        tuple(faults),
        lake.added_in(named),
        counted.faults,
        lake.commit_noun,
    )


def _counted(
    spark: SparkSession, store: LakeStore, files: Sequence[LakeFile], columns: OffsetColumns
) -> FileCounts:
    """Count the offsets in files, whatever the table's log says about them.

    Only the fault of a missing file names offsets: those that the table's log states for the file.
    """
    unbounded = [replace(file, partition=_UNKNOWN, start=_UNKNOWN, end=_UNKNOWN) for file in files]
    counted = count_files(spark, store, unbounded, columns)
    by_path = {file.path: _with_value(file, columns) for file in files}
    faults = (
        replace(fault, reason=fault.reason + described(by_path[fault.path]))
        if fault.reason == MISSING_FILE
        else fault
        for fault in counted.faults
    )
    return replace(counted, faults=tuple(faults))


def _with_value(file: LakeFile, columns: OffsetColumns) -> LakeFile:
    """Return `file` with its partition, if `columns.partition` is a partition column of the table.

    The partition is then the value of this column in `file.values`.
    """
    partition = whole_number(file.values.get(columns.partition) or "")
    return file if partition is None else replace(file, partition=partition)


def _check_names(table: str, columns: OffsetColumns, offered: Sequence[str]) -> None:
    """Raise TableError for a column that the table does not have."""
    for name in (columns.partition, columns.offset, columns.topic_column):
        if name is not None and name not in offered and name.partition(".")[0] not in offered:
            raise TableError(f"{table} has no column {name!r}; it has {', '.join(offered)}")


def _partitions(counted: FileCounts, faults: Sequence[OffsetFault]) -> list[PartitionOffsets]:
    """Return, for each partition, its offsets and the counts of missing and doubled offsets."""
    from tidelog.spark.pipelines.spans import counts_of

    missing = _sizes(fault for fault in faults if fault.kind is OffsetFaultKind.MISSING)
    return [
        PartitionOffsets(
            tp.partition,
            found.first,
            found.last + 1,
            found.rows,
            missing.get(tp.partition, 0),
            found.rows - found.distinct,
        )
        for tp, found in counts_of("", counted.spans).items()
    ]


def _sizes(faults: Iterable[OffsetFault]) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for fault in faults:
        sizes[fault.partition] = sizes.get(fault.partition, 0) + fault.end - fault.start
    return sizes


def _explained(
    client: BlockingClient,
    topic: str,
    partitions: Sequence[PartitionOffsets],
    faults: Sequence[OffsetFault],
) -> tuple[list[PartitionOffsets], list[OffsetFault]]:
    """Read the topic's log at missing offsets.

    Return the partitions with the counts of what the log has there, and the faults that the log
    does not explain. Offsets outside the log count as lost, because the log no longer shows what
    they contained. A partition of the topic without a row has no offsets. Raises TableError for a
    partition that the topic does not have.
    """
    _, known = origin_of(client, topic)
    starts = client.list_offsets(dict.fromkeys(known, EARLIEST))
    ends = client.list_offsets(dict.fromkeys(known, LATEST), READ_COMMITTED)
    held = {each.partition: each for each in partitions}
    foreign = sorted(held.keys() - {tp.partition for tp in known})
    if foreign:
        raise TableError(
            f"the table has rows of partition {foreign[0]}; topic {topic!r} has"
            f" {partitions_text(len(known))}"
        )
    explained: list[PartitionOffsets] = []
    left = [fault for fault in faults if fault.kind is not OffsetFaultKind.MISSING]
    for tp in known:
        start, end = starts[tp].offset, ends[tp].offset
        each = held.get(tp.partition) or PartitionOffsets(tp.partition, start, start, 0, 0, 0)
        control = absent = 0
        for fault in faults:
            if fault.kind is not OffsetFaultKind.MISSING or fault.partition != tp.partition:
                continue
            gap = Gap(max(fault.start, start), min(fault.end, end))
            content = LogGaps(client).look(tp, [gap]) if gap.start < gap.end else GapContent()
            control += content.control
            absent += content.absent
            if content.control + content.absent < fault.end - fault.start:
                left.append(fault)
        explained.append(
            replace(each, control=control, absent=absent, log_start=start, log_end=end)
        )
    return explained, sorted(left, key=attrgetter("partition", "start"))
