"""The proof of a table with the latest row of each key: a replay of its topic, key by key.

Spark reads the log up to the table's next offsets, takes the latest record of each key, and joins
it with the table. The proof names keys that are missing, extra, stale or doubled, or whose columns
differ. If the log has a later record of a key, compaction may have removed the record of the key's
row. The log can confirm neither such a row nor a row below the log start offset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final

from tidelog.client.fetching import EARLIEST, LATEST
from tidelog.core.dataclass import dataclass
from tidelog.core.types import READ_COMMITTED
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.lake.commits import offsets_before
from tidelog.spark.lake.places import lake_at
from tidelog.spark.lake.protocol import NO_VERSION
from tidelog.spark.lake.state import LakeState, TableError, check_origin
from tidelog.spark.options import HEADERS
from tidelog.spark.pipelines.counting import FileFault, count_files
from tidelog.spark.pipelines.landed import read_landed
from tidelog.spark.pipelines.landing import LandingOptions, Transform, rows_of
from tidelog.spark.pipelines.latest_rows import TOMBSTONE_COLUMN
from tidelog.spark.pipelines.new_offsets import origin_of
from tidelog.spark.pipelines.writing import ERROR_COLUMN
from tidelog.spark.planning import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: Number of faulty keys that a proof names.
SHOWN_KEYS: Final = 100
_HELD: Final = "held"
_UNREACHED: Final = "unreached"


class KeyFaultKind(StrEnum):
    """The kind of a key's fault."""

    #: The log has a latest value for the key, but the table has no row of the key.
    MISSING = "missing"
    #: The key's row comes from an earlier record than the latest, or from a record that the log
    #: does not have.
    STALE = "stale"
    #: The table has a row, although the log has a tombstone or no record of the key.
    EXTRA = "extra"
    DOUBLED = "doubled"
    #: The key's row comes from the latest record, but has other values than this record.
    DIFFERING = "differing"


@dataclass(frozen=True, slots=True)
class KeyFault:
    """A key whose row does not match its latest record.

    The offset of the row or of the record is None if there is no row or no record.
    """

    kind: KeyFaultKind
    key: str
    partition: int
    offset: int | None
    log_offset: int | None


@dataclass(frozen=True, slots=True)
class UpsertProof:
    """The proof of a table of latest rows at one version."""

    version: int
    #: Number of rows of the table; `unreached` counts the rows that the log can no longer confirm.
    rows: int = 0
    unreached: int = 0
    #: Number of rows or keys with each fault.
    counts: Mapping[KeyFaultKind, int] = field(default_factory=dict)
    #: The first faulty keys.
    faults: tuple[KeyFault, ...] = ()
    #: Files that readers cannot read, or that differ from the table's log.
    files: tuple[FileFault, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether the table has only the latest row of each key, as far as the log shows."""
        return not self.files and not any(self.counts.values())

    @property
    def verdict(self) -> str:
        """The result of the proof as one line of text."""
        if self.files:
            return f"{len(self.files)} wrong files; the topic was not replayed"
        faults = ", ".join(f"{self.counts.get(kind, 0)} {kind}" for kind in KeyFaultKind)
        return f"{self.rows} rows, {faults}, {self.unreached} beyond the log's reach"


@dataclass(frozen=True, slots=True)
class _ReplayOffsets:
    """Ranges of a topic's log to replay, ranges beyond the table's offsets, and log starts."""

    ranges: tuple[OffsetRange, ...]
    later: tuple[OffsetRange, ...]
    starts: Mapping[int, int]


def prove_upserts(
    spark: SparkSession,
    table: str,
    bootstrap: str,
    *,
    transform: Transform | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> UpsertProof:
    """Compare a table of latest rows with a replay of its topic, by the ingest's own `transform`.

    Raises TableError (also for a recreated topic, or a table with a row for each record),
    KafkaError, or Spark's errors.
    """
    lake = lake_at(table, storage_options)
    state = lake.read()
    if state.version == NO_VERSION or state.origin is None:
        raise TableError(f"{table} holds no table: ingest a topic to it first")
    if not state.origin.upsert_key:
        raise TableError(f"{table} has a row for each record, whose proof needs no replay")
    added = offsets_before(lake, lake.schema(state.version).names)
    counted = count_files(spark, lake.store, lake.files(state.version))
    if counted.faults:
        return UpsertProof(state.version, files=counted.faults)
    replay = _replay_of(bootstrap, state, lake.location)
    held = read_landed(spark, table, version=state.version, storage_options=storage_options)
    options = LandingOptions(
        include_headers=HEADERS in held.columns,
        transform=transform or (lambda frame: frame),
        upsert_by=state.origin.keys,
    )
    nulled = () if lake.keeps_partition_columns else state.partition_by
    joined = _joined(spark, bootstrap, state, held, replay, options, nulled, added)
    found = {row["kind"]: row["count"] for row in joined.groupBy("kind").count().collect()}
    counts = {kind: found.get(kind, 0) for kind in KeyFaultKind}
    missing = counts[KeyFaultKind.MISSING]
    rows = sum(found.values()) - missing - found.get("none", 0)
    faults = _named(joined) if any(counts.values()) else ()
    return UpsertProof(state.version, rows, found.get(_UNREACHED, 0), counts, faults)


def _replay_of(bootstrap: str, state: LakeState, where: str) -> _ReplayOffsets:
    """Return the offsets of the topic's log. Raises TableError for another topic."""
    assert state.origin is not None
    with BlockingClient(bootstrap, "tidelog-prove") as client:
        origin, partitions = origin_of(client, state.origin.topic)
        check_origin(state.origin, replace(origin, upsert_key=state.origin.upsert_key), where)
        starts = client.list_offsets(dict.fromkeys(partitions, EARLIEST))
        ends = client.list_offsets(dict.fromkeys(partitions, LATEST), READ_COMMITTED)
    following = state.following()
    ranges, later = [], []
    for tp in partitions:
        start, end = starts[tp].offset, ends[tp].offset
        reached = min(max(start, following.get(tp.partition, start)), end)
        ranges.append(OffsetRange(tp, start, reached))
        later.append(OffsetRange(tp, reached, end))
    return _ReplayOffsets(
        tuple(each for each in ranges if each.size),
        tuple(each for each in later if each.size),
        {tp.partition: starts[tp].offset for tp in partitions},
    )


def _joined(
    spark: SparkSession,
    bootstrap: str,
    state: LakeState,
    held: DataFrame,
    replay: _ReplayOffsets,
    options: LandingOptions,
    nulled: tuple[str, ...],
    added: Mapping[str, Mapping[int, int]],
) -> DataFrame:
    """Return one row for each key that the table or the log has.

    The columns are `kind` (see `_kind`), `key` (the values of the key columns as one text),
    `partition`, `offset` (of the table's row) and `log_offset` (of the key's latest record).
    `nulled` are columns whose empty texts are null in the table. `added` has, by column and
    partition, the offset below which rows may lack the column.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812 - how all of Spark names it

    assert state.origin is not None
    topic, keys = state.origin.topic, options.upsert_by
    # Spark cannot compare columns with maps.
    maps = [each.name for each in held.schema if "map<" in each.dataType.simpleString()]
    own = (*keys, "partition", "offset", *maps)
    log, later = (
        _records(spark, bootstrap, topic, ranges, options, nulled)
        for ranges in (replay.ranges, replay.later)
    )
    others = [name for name in held.columns if name not in own and name in log.columns]
    key_names = [f"k{number}" for number in range(len(keys))]
    place = ("partition", "offset")
    names = [*key_names, *place, *(f"c{number}" for number in range(len(others)))]
    columns = [F.col(f"`{name}`") for name in (*keys, *place, *others)]
    rows = held.select(*columns).toDF(*names)
    rows = rows.withColumn("times", F.count("*").over(Window.partitionBy(*key_names)))
    records = log.select(*columns, F.col(TOMBSTONE_COLUMN)).toDF(*names, "tombstone")
    by_key = Window.partitionBy(*key_names, "partition").orderBy(F.col("offset").desc())
    latest = records.withColumn("rank", F.row_number().over(by_key)).where("rank = 1")
    goes_on = later.select(*columns[: len(keys)]).toDF(*key_names).distinct()
    goes_on = goes_on.withColumn("is_later", F.lit(True))
    table, log = _prefixed(rows, "t_"), _prefixed(latest, "e_")
    shared = (*key_names, "partition")
    same = [F.col(f"t_{name}") == F.col(f"e_{name}") for name in shared]
    joined = table.join(log, same, "full_outer")
    for name in shared:
        joined = joined.withColumn(name, F.coalesce(f"t_{name}", f"e_{name}"))
    joined = joined.join(goes_on, key_names, "left")
    differs = []
    for number, name in enumerate(others):
        row, record = F.col(f"t_c{number}"), F.col(f"e_c{number}")
        differs.append(~row.eqNullSafe(record) & ~(row.isNull() & _is_below(added[name])))
    text = F.concat_ws(", ", *[F.col(name).cast("string") for name in key_names])
    return joined.select(
        _kind(differs, replay.starts).alias("kind"),
        text.alias("key"),
        "partition",
        F.col("t_offset").alias("offset"),
        F.col("e_offset").alias("log_offset"),
    )


def _kind(differs: Sequence[Column], starts: Mapping[int, int]) -> Column:
    """Return a column with the KeyFaultKind of each joined row, or a word for a row without fault.

    Columns of the table's row have the prefix `t_`, columns of the log's record the prefix `e_`.
    """
    from pyspark.sql import functions as F  # noqa: N812 - how all of Spark names it

    has_row, has_record = F.col("t_offset").isNotNull(), F.col("e_offset").isNotNull()
    is_live = has_record & ~F.col("e_tombstone")
    is_same = F.col("t_offset") == F.col("e_offset")
    is_beyond = F.col("is_later").isNotNull() | _is_below(starts)
    return (
        F.when(~has_row & ~is_live, "none")
        .when(~has_row, str(KeyFaultKind.MISSING))
        .when(F.col("t_times") > 1, str(KeyFaultKind.DOUBLED))
        .when(is_live & is_same & reduce(or_, differs, F.lit(False)), str(KeyFaultKind.DIFFERING))
        .when(is_live & is_same, _HELD)
        .when(~has_record & is_beyond, _UNREACHED)
        .when(is_live, str(KeyFaultKind.STALE))
        .otherwise(str(KeyFaultKind.EXTRA))
    )


def _is_below(offsets: Mapping[int, int]) -> Column:
    """Return whether the table's row lies below the offset that `offsets` has for its partition."""
    from pyspark.sql import functions as F  # noqa: N812 - how all of Spark names it

    found = F.lit(False)
    for partition, offset in offsets.items():
        found |= (F.col("partition") == partition) & (F.col("t_offset") < offset)
    return found


def _records(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    ranges: Sequence[OffsetRange],
    options: LandingOptions,
    nulled: tuple[str, ...],
) -> DataFrame:
    """Return the transformed records of ranges, without bad records."""
    from pyspark.sql import functions as F  # noqa: N812 - how all of Spark names it
    from pyspark.sql.types import StringType

    frame = rows_of(spark, bootstrap, topic, ranges, options, nulled).frame
    assert frame is not None
    for name in nulled:
        if name in frame.columns and isinstance(frame.schema[name].dataType, StringType):
            value = F.col(f"`{name}`")
            frame = frame.withColumn(name, F.when(value != "", value))
    return frame.where(F.col(ERROR_COLUMN).isNull())


def _prefixed(frame: DataFrame, prefix: str) -> DataFrame:
    return frame.toDF(*[f"{prefix}{name}" for name in frame.columns])


def _named(joined: DataFrame) -> tuple[KeyFault, ...]:
    """Return the first faulty keys, each once."""
    from pyspark.sql import functions as F  # noqa: N812 - how all of Spark names it

    faulty = joined.where(F.col("kind").isin([str(kind) for kind in KeyFaultKind]))
    found = faulty.orderBy("key", "partition", "offset").limit(SHOWN_KEYS).collect()
    return tuple(
        KeyFault(
            KeyFaultKind(row["kind"]),
            row["key"],
            row["partition"],
            row["offset"],
            row["log_offset"],
        )
        for row in found
    )
