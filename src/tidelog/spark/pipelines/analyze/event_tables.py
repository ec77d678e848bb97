"""Events as Spark tables: valid events without duplicates, partition states, ISR departures.

Spark groups the events by topic and partition, and one task judges each group with
`partition_history`, `failover_phases` and `suspects`. Topics are grouped by name, so that all
incarnations of a topic form one row of a timeline.

The module queries no cluster: the caller passes the current states of partitions as rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from tidelog.core.dataclass import dataclass
from tidelog.core.types import TopicPartition
from tidelog.spark.pipelines.analyze.failover_phases import Failover, SampledPartition, durations
from tidelog.spark.pipelines.analyze.partition_history import (
    ISR_CHANGE,
    LEADER_CHANGE,
    Handover,
    ObservedChange,
    Scope,
    Snapshot,
    partition_history,
    windowed,
)
from tidelog.spark.pipelines.task_rows import arrow_table
from tidelog.spark.shipping import shipped

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

FAILOVER: Final = "failover"
TAKEOVER: Final = "takeover"
#: Kinds of rows that are not events: `led` is a partition that a failover event lists, and
#: `snapshot` is a partition as the cluster describes it now.
_LED: Final = "led"
_SNAPSHOT: Final = "snapshot"
#: Kinds of rows of `history_rows`: state intervals, ISR departures, quality of a partition's
#: events.
INTERVAL: Final = "interval"
DEPARTURE: Final = "departure"
QUALITY: Final = "quality"

HISTORY_DDL: Final = (
    "row string, topic string, partition int, topic_id string, start_ms long, end_ms long,"
    " state string, leader int, isr array<int>, broker int, cause string"
)
_PARTITION_ROWS_DDL: Final = "kind string, topic string, partition int, epoch int, json string"
_PHASES_DDL: Final = "topic string, partition int, epoch int, phase string, ms long"


@dataclass(frozen=True, slots=True)
class Judgement:
    """Parameters of an analysis: the time to analyse, min.insync.replicas, window length."""

    scope: Scope
    min_isr: Mapping[str, int]
    default_min_isr: int
    window_ms: int

    def min_isr_of(self, topic: str) -> int:
        """Return min.insync.replicas of a topic."""
        return self.min_isr.get(topic, self.default_min_isr)


def legible(records: DataFrame) -> DataFrame:
    """Return the events in records as columns: kind, time, topic, partition, epoch, json, identity.

    `records` has a column `value`, and a column `key` if the caller kept the keys. A record that is
    not an event has a null kind. Copies of one event have equal identities.
    """
    from pyspark.sql import functions as sf

    text = sf.col("value").cast("string")
    key = sf.col("key").cast("string") if "key" in records.columns else sf.lit(None).cast("string")

    def of(path: str, kind: str) -> Any:
        return sf.get_json_object("json", f"$.{path}").cast(kind)

    documents = records.select(text.alias("json"), key.alias("event_key"))
    known = documents.select(
        "json",
        of("kind", "string").alias("kind"),
        of("time_ms", "long").alias("time_ms"),
        of("told_by", "int").alias("told_by"),
        of("topic", "string").alias("topic"),
        of("partition", "int").alias("partition"),
        of("leader_epoch", "int").alias("epoch"),
        of("count", "long").alias("count"),
        sf.coalesce("event_key", sf.sha2("json", 256)).alias("identity"),
    )
    # A JSON document without time or reporting broker is not an event; documents with a null kind
    # are counted as illegible.
    is_event = sf.col("time_ms").isNotNull() & sf.col("told_by").isNotNull()
    return known.withColumn("kind", sf.when(is_event, sf.col("kind")))


def led_rows(events: DataFrame) -> DataFrame:
    """Return one row for each partition that a failover event lists."""
    failovers = events.where(events.kind == FAILOVER).select("json")
    return failovers.mapInArrow(shipped(_led_rows), _PARTITION_ROWS_DDL)


def _led_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows: list[tuple[Any, ...]] = []
        for text in batch.column("json").to_pylist():
            failover = _parsed(text, Failover.from_event)
            for led in failover.led if failover is not None else ():
                document = json.dumps(asdict(led))
                rows.append((_LED, led.topic, led.partition, led.leader_epoch, document))
        yield from arrow_table(rows, _PARTITION_ROWS_DDL).to_batches()


def snapshot_rows(spark: SparkSession, partitions: Mapping[TopicPartition, Snapshot]) -> DataFrame:
    """Return a row for each partition in the present state of the cluster."""
    rows = [
        (_SNAPSHOT, tp.topic, tp.partition, each.leader_epoch, json.dumps(asdict(each)))
        for tp, each in partitions.items()
    ]
    return spark.createDataFrame(rows, _PARTITION_ROWS_DDL)


def histories(
    events: DataFrame, led: DataFrame, snapshots: DataFrame, judgement: Judgement
) -> DataFrame:
    """Return all partitions' state intervals (split at windows), ISR departures, event quality."""
    columns = ["kind", "topic", "partition", "epoch", "json"]
    changes = events.where(events.kind.isin(LEADER_CHANGE, ISR_CHANGE)).select(*columns)
    rows = changes.unionByName(led).unionByName(snapshots)
    return rows.groupBy("topic", "partition").applyInArrow(shipped(_judge(judgement)), HISTORY_DDL)


def _judge(judgement: Judgement) -> Callable[[pa.Table], pa.Table]:
    def judge(rows: pa.Table) -> pa.Table:
        first = rows.slice(0, 1).to_pylist()[0]
        documents = list(
            zip(rows.column("kind").to_pylist(), rows.column("json").to_pylist(), strict=True)
        )
        found = history_rows(first["topic"], first["partition"], documents, judgement)
        return arrow_table(found, HISTORY_DDL)

    return judge


def history_rows(
    topic: str, partition: int, documents: Iterable[tuple[str, str]], judgement: Judgement
) -> list[tuple[Any, ...]]:
    """Return the rows of HISTORY_DDL for one partition, from pairs (kind, document)."""
    changes: list[ObservedChange] = []
    handovers: list[Handover] = []
    snapshot: Snapshot | None = None
    illegible = 0
    for kind, text in documents:
        if kind == _LED:
            handovers.append(SampledPartition(**json.loads(text)).handover)
        elif kind == _SNAPSHOT:
            values = json.loads(text)
            snapshot = Snapshot(**{**values, "isr": tuple(values["isr"])})
        else:
            change = _parsed(text, ObservedChange.from_event)
            if change is None:
                illegible += 1
            else:
                changes.append(change)
    if not changes and snapshot is None:
        return []  # this partition has only a failover event, no change event and no snapshot
    scope = judgement.scope
    found = partition_history(changes, snapshot, handovers, scope, judgement.min_isr_of(topic))
    rows: list[tuple[Any, ...]] = [
        (
            INTERVAL,
            *(topic, partition, each.topic_id, each.start_ms, each.end_ms, str(each.state)),
            *(each.leader, list(each.isr), None, None),
        )
        for each in windowed(found.intervals, scope.start_ms, judgement.window_ms)
    ]
    rows += [
        (
            DEPARTURE,
            *(topic, partition, None, each.start_ms, each.end_ms, None, each.leader, []),
            *(each.broker, each.cause),
        )
        for each in found.departures
        if scope.start_ms <= each.start_ms < scope.end_ms
    ]
    # In a quality row, `start_ms` is the number of missing events, `end_ms` the largest step back
    # of the clocks, and `broker` the number of illegible events.
    judged = (found.missed, found.clock_step_ms, None, -1, None, illegible, None)
    return [*rows, (QUALITY, topic, partition, None, *judged)]


def phase_rows(events: DataFrame, led: DataFrame) -> DataFrame:
    """Return the durations of failover phases, one row for each partition and phase."""
    columns = ["kind", "topic", "partition", "epoch", "json"]
    takeovers = events.where(events.kind == TAKEOVER).select(*columns)
    rows = led.unionByName(takeovers).groupBy("topic", "partition", "epoch")
    return rows.applyInArrow(shipped(_phases), _PHASES_DDL)


def _phases(rows: pa.Table) -> pa.Table:
    led: list[SampledPartition] = []
    takeover: dict[str, Any] | None = None
    for row in rows.to_pylist():
        document = json.loads(row["json"])
        if row["kind"] == _LED:
            led.append(SampledPartition(**document))
        elif isinstance(document.get("phases_ms"), dict):
            takeover = document
    place = (row["topic"], row["partition"], row["epoch"])
    found = [(*place, phase, ms) for phase, ms in durations(led, takeover)]
    return arrow_table(found, _PHASES_DDL)


def _parsed(text: str, parse: Callable[[Mapping[str, Any]], Any]) -> Any:
    """Return the result of `parse` for a JSON document; None if it lacks fields of its kind."""
    try:
        return parse(json.loads(text))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
