"""Committed offsets over time, read from `__consumer_offsets` by Spark.

Each task decodes commits and keeps the last commit of each group in each partition and time window.
The topic is compacted: an old commit that a later commit replaced may be gone, so a window can lack
commits. `group_lag` computes the lags from the committed offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from tidelog.core.errors import ProtocolError
from tidelog.core.names import CONSUMER_OFFSETS
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.pipelines.analyze.findings import Findings
from tidelog.spark.pipelines.analyze.group_lag import (
    Commit,
    LagPoint,
    commit_of,
    log_ends,
    past_lags,
    window_ends,
)
from tidelog.spark.pipelines.task_rows import arrow_table
from tidelog.spark.shipping import shipped

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_COMMITS_DDL: Final = "group string, topic string, partition int, window int, place long, at long"
#: Maximum number of window ends for which the ends of logs are read; if there are more windows,
#: some window ends are left out.
_MOST_TIMES: Final = 120


def lag_history(
    spark: SparkSession, client: BlockingClient, bootstrap: str, findings: Findings
) -> tuple[LagPoint, ...]:
    """Return the lag of every group at the ends of windows. Raises KafkaError, Spark's errors."""
    if CONSUMER_OFFSETS not in client.metadata().topics:
        return ()
    length = findings.end_ms - findings.start_ms
    window_ms = max(findings.window_ms, -(-length // _MOST_TIMES))
    times = window_ends(findings.start_ms, findings.end_ms, window_ms)
    reader = spark.read.format("tidelog").option("kafka.bootstrap.servers", bootstrap)
    records = reader.option("subscribe", CONSUMER_OFFSETS).load()
    commits = list(_last_commits(records, findings.start_ms, window_ms, len(times)))
    ends = log_ends(client, {tp for _, tp, _, _ in commits}, times)
    return tuple(past_lags(commits, ends, times))


def _last_commits(
    records: DataFrame, start_ms: int, window_ms: int, windows: int
) -> Iterator[Commit]:
    from pyspark.sql import functions as sf

    placed = records.select("key", "value", sf.unix_millis("timestamp").alias("time_ms"), "offset")
    rows = placed.mapInArrow(shipped(_decoded(start_ms, window_ms, windows)), _COMMITS_DDL)
    # All commits of a group are in one partition of `__consumer_offsets`, so offsets give their
    # order.
    last = rows.groupBy("group", "topic", "partition", "window").agg(
        sf.max_by("at", "place").alias("at")
    )
    for row in last.collect():
        yield row.group, TopicPartition(row.topic, row.partition), row.window, row.at


def _decoded(
    start_ms: int, window_ms: int, windows: int
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = []
            for row in batch.to_pylist():
                found = commit_row(row["key"], row["value"], row["time_ms"], start_ms, window_ms)
                if found is not None and found[3] < windows:
                    rows.append((*found[:4], row["offset"], found[4]))
            yield from arrow_table(rows, _COMMITS_DDL).to_batches()

    return decode


def commit_row(
    key: bytes | None, value: bytes | None, time_ms: int, start_ms: int, window_ms: int
) -> tuple[Any, ...] | None:
    """Return (group, topic, partition, window, offset) of a commit; None for other records.

    Commits before `start_ms` count for the first window, because they are still valid in it.
    """
    try:
        found = commit_of(key, value)
    except ProtocolError:
        return None
    if found is None:
        return None
    committed, offset, at_ms = found
    window = max(0, ((time_ms if at_ms < 0 else at_ms) - start_ms) // window_ms)
    return committed.group, committed.topic, committed.partition, window, offset
