"""The proof that a table's rows have the content of the log's records, if the log still has them.

The driver gives each task a few files, whose rows the task compares with the records at the same
offsets (`content_blocks`). The proof compares the columns that the table has unchanged from the
source. Rows below the log's start, and rows that compaction removed from the log, cannot be
compared: the proof counts them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tidelog.client.fetching import EARLIEST, LATEST
from tidelog.core.dataclass import dataclass
from tidelog.core.types import READ_COMMITTED, topic_id_from_text
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.lake.places import lake_at
from tidelog.spark.lake.protocol import NO_VERSION
from tidelog.spark.lake.state import LakeFile, Origin, TableError
from tidelog.spark.option_values import OptionError
from tidelog.spark.options import COLUMNS, HEADERS, parse_options
from tidelog.spark.pipelines.counting import FileFault, OffsetColumns
from tidelog.spark.pipelines.new_offsets import origin_of
from tidelog.spark.pipelines.task_rows import run_tasks

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from tidelog.spark.lake.table import Lake
    from tidelog.spark.pipelines.content_blocks import LogBounds

#: Maximum number of rows whose checksums a task holds at a time.
BLOCK_ROWS: Final = 500_000
#: Columns of records that a table may contain unchanged, and that can so be compared with the log.
COMPARABLE: Final = tuple(
    name for name in (*COLUMNS, HEADERS) if name not in ("topic", "partition", "offset")
)
#: Names of the counts that a task returns, in the order of the fields of PartitionContent.
_COUNTS: Final = ("rows", "compared", "differing", "unknown", "beyond", "unreached", "removed")


@dataclass(frozen=True, slots=True)
class ContentFault:
    """Rows of a file at offsets `[start, end)` whose `columns` differ from the log's records.

    If `columns` is empty, the log has no committed record at these offsets.
    """

    partition: int
    start: int
    end: int
    columns: tuple[str, ...]
    file: str


@dataclass(frozen=True, slots=True)
class PartitionContent:
    """Counts of a partition's rows; the table has offsets `[start, end)`."""

    partition: int
    start: int
    end: int
    #: The log start offset; `log_end` is the last stable offset.
    log_start: int
    log_end: int
    rows: int
    compared: int
    differing: int
    #: Rows at offsets within the log where the log has no committed record.
    unknown: int
    #: Rows beyond the log's end: the log lost records, or the topic was recreated.
    beyond: int
    #: Rows below the log's start.
    unreached: int
    #: Rows whose records compaction removed from the log.
    removed: int = 0


@dataclass(frozen=True, slots=True)
class ContentProof:
    """The result of comparing a table's rows, at one version, with the log."""

    version: int
    #: The compared columns.
    columns: tuple[str, ...]
    partitions: tuple[PartitionContent, ...]
    #: The first ranges with faults of each task, in order of partition and offset.
    faults: tuple[ContentFault, ...] = ()
    #: Files that were not compared.
    files: tuple[FileFault, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether each row between log start and log end has the content of its record."""
        return not self.files and not any(
            each.differing or each.unknown or each.beyond for each in self.partitions
        )

    @property
    def verdict(self) -> str:
        """The verdict of the proof as one line of text."""
        sums = Counter[str]()
        for each in self.partitions:
            sums += Counter(
                compared=each.compared,
                differing=each.differing,
                unknown=each.unknown + each.beyond,
                unreached=each.unreached + each.removed,
            )
        unknown = f", {sums['unknown']} without a record" if sums["unknown"] else ""
        return (
            f"{sums['compared']} rows compared with the log in {', '.join(self.columns)}:"
            f" {sums['differing']} differ{unknown}, {sums['unreached']} beyond the log's reach"
        )


def prove_content(
    spark: SparkSession,
    table: str,
    bootstrap: str,
    *,
    offsets: OffsetColumns | None = None,
    compare: Sequence[str] = (),
    block_rows: int = BLOCK_ROWS,
    storage_options: Mapping[str, str] | None = None,
) -> ContentProof:
    """Compare the rows of a table's newest version with the log of its topic.

    `offsets` names the topic and the offset columns of another tool's table. `compare` are the
    columns to compare, by default all columns with the name and type of a source column. A task
    holds the checksums of `block_rows` rows at a time, some 70 bytes for a row. Raises TableError
    (also for a recreated topic or another cluster), OptionError, KafkaError.
    """
    from tidelog.spark.pipelines.content_blocks import BlockJob, compare_files

    lake = lake_at(table, storage_options)
    version = lake.newest()
    if version == NO_VERSION:
        raise TableError(f"{table} holds no table: ingest a topic to it first")
    lake.check_files_are_rows(version)
    files = lake.files(version)
    # The data files of a Delta table lack its partition columns.
    lacking = {name for file in files for name in file.values}
    fields = [field for field in lake.schema(version) if field.name not in lacking]
    columns = _compared_columns(table, fields, compare)
    with BlockingClient(bootstrap, "tidelog-prove") as client:
        topic = _checked_topic(client, lake, offsets)
        logs = _logs(client, topic)
    options = parse_options(
        {
            "kafka.bootstrap.servers": bootstrap,
            "kafka.client.id": "tidelog-prove",
            "kafka.isolation.level": "read_committed",
            "failOnDataLoss": "false",  # deleted records are no error: tasks count their rows
            "assign": json.dumps({topic: [0]}),
            "columns": ",".join(("offset", *columns)),
        }
    )
    jobs = [
        BlockJob(lake.store, group, offsets or OffsetColumns(), topic, logs, options, block_rows)
        for group in _groups(files, block_rows)
    ]
    rows = run_tasks(spark, jobs, compare_files)
    return ContentProof(
        version,
        columns,
        _partitions(rows, logs),
        _faults(rows),
        tuple(FileFault(row["path"], row["reason"]) for row in rows if "path" in row),
    )


def _compared_columns(
    table: str, fields: Iterable[pa.Field], compare: Sequence[str]
) -> tuple[str, ...]:
    """Return the columns to compare; raise TableError if there is no key and no value."""
    held = {field.name: field for field in fields}
    same = [name for name in COMPARABLE if name in held and _is_same(held[name], name)]
    for name in compare:
        if name not in same:
            raise OptionError(
                f"column {name!r} cannot be compared with the log; {table} has"
                f" {', '.join(same) or 'no column'} with the name and the type of a record's field"
            )
    if not {"key", "value"} & {*same}:
        raise TableError(
            f"{table} has neither the key nor the value of the records, as binary columns of these"
            " names: its content cannot be compared with the log"
        )
    return tuple(name for name in same if not compare or name in compare)


def _is_same(field: pa.Field, name: str) -> bool:
    """Return whether a table's column has the type of the source's column."""
    import pyarrow as pa

    from tidelog.spark.columns import arrow_schema

    kind = field.type
    if name in ("key", "value"):
        return bool(
            pa.types.is_binary(kind)
            or pa.types.is_large_binary(kind)
            or pa.types.is_binary_view(kind)
        )
    if name == "timestamp":
        return bool(pa.types.is_timestamp(kind) and kind.tz is not None)
    if name == HEADERS:
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        parts = kind.value_type if is_list else None
        if parts is None or not pa.types.is_struct(parts) or parts.num_fields != 2:
            return False
        texts = parts.field(0), parts.field(1)
        return [each.name for each in texts] == ["key", "value"] and _is_same(texts[1], "value")
    return bool(kind == arrow_schema([name]).field(0).type)


def _checked_topic(client: BlockingClient, lake: Lake, offsets: OffsetColumns | None) -> str:
    """Return the topic of a table; raise TableError if the topic was recreated since."""
    if offsets is not None:
        if offsets.topic is None:
            raise OptionError("a comparison with the log needs the topic of the table's records")
        return offsets.topic
    origin = lake.read().origin
    assert origin is not None  # `read` raises for tables of other tools
    now, _ = origin_of(client, origin.topic)
    _check_same(lake.location, origin, now)
    return origin.topic


def _check_same(location: str, before: Origin, now: Origin) -> None:
    """Raise TableError if a table was filled from another topic, or in another cluster."""
    if before.cluster_id != now.cluster_id:
        raise TableError(
            f"{location} was filled from topic {before.topic!r} in cluster {before.cluster_id};"
            f" these brokers are of cluster {now.cluster_id}, whose log says nothing about the"
            " table"
        )
    if before.topic_id != now.topic_id:
        raise TableError(
            f"{location} was filled from a topic {before.topic!r} with id {before.topic_id}, which"
            f" was deleted: the topic of this name now has id {now.topic_id}, and its log says"
            " nothing about the table"
        )


def _logs(client: BlockingClient, topic: str) -> dict[int, LogBounds]:
    """Return the bounds of the log of each partition of a topic. Raises KafkaError."""
    from tidelog.spark.pipelines.content_blocks import LogBounds

    origin, partitions = origin_of(client, topic)
    starts = client.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = client.list_offsets(dict.fromkeys(partitions, LATEST), READ_COMMITTED)
    topic_id = topic_id_from_text(origin.topic_id)
    return {
        tp.partition: LogBounds(topic_id, starts[tp].offset, ends[tp].offset) for tp in partitions
    }


def _groups(files: Iterable[LakeFile], most: int) -> list[tuple[LakeFile, ...]]:
    """Return files in groups of about `most` rows, each with neighbouring offsets."""
    groups: list[list[LakeFile]] = []
    rows = most
    for file in sorted(files, key=lambda each: (each.partition, each.start, each.path)):
        size = most if file.rows < 0 else file.rows
        if rows + size > most:
            groups.append([])
            rows = 0
        groups[-1].append(file)
        rows += size
    return [tuple(group) for group in groups]


def _partitions(
    rows: Iterable[Mapping[str, Any]], logs: Mapping[int, LogBounds]
) -> tuple[PartitionContent, ...]:
    """Return the sums of the tasks' counts for each partition."""
    blocks: dict[int, list[Mapping[str, Any]]] = {}
    for row in rows:
        if "rows" in row:
            blocks.setdefault(row["partition"], []).append(row)
    found = []
    for partition, parts in sorted(blocks.items()):
        log = logs.get(partition)
        found.append(
            PartitionContent(
                partition,
                min(part["start"] for part in parts),
                max(part["end"] for part in parts),
                0 if log is None else log.start,
                0 if log is None else log.end,
                *(sum(part.get(name, 0) for part in parts) for name in _COUNTS),
            )
        )
    return tuple(found)


def _faults(rows: Iterable[Mapping[str, Any]]) -> tuple[ContentFault, ...]:
    faults = [
        ContentFault(row["partition"], row["from"], row["to"], tuple(row["columns"]), row["file"])
        for row in rows
        if "from" in row
    ]
    return tuple(sorted(faults, key=lambda each: (each.partition, each.start, each.file)))
