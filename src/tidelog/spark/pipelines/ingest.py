"""ingest: a topic into Parquet, exactly once, with a proof after each run.

A run takes the records committed in the log now, from the end of the last run. Spark reads and
writes them to a staging directory. The files are counted and proved there, and only then become
part of the table (`table.py`). An unproved run is not committed. A rerun goes on where the last run
ended.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelog.client.fetching import EARLIEST, LATEST
from tidelog.core.errors import ErrorCode, KafkaError, TidelogError
from tidelog.core.types import TopicPartition, topic_id_to_text
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.options import offsets_json
from tidelog.spark.pipelines.continuity import (
    ContinuityProof,
    LogGaps,
    PartitionCount,
    PartitionProof,
    count_offsets,
    no_rows,
    prove_ranges,
)
from tidelog.spark.pipelines.table import (
    DataFile,
    PartitionRun,
    TopicTable,
    file_name,
    open_table,
)
from tidelog.spark.planning import DataLossError, OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Rows of one file at most, roughly: large enough for Parquet, small enough for one task.
ROWS_PER_FILE: Final = 2_000_000
_PROGRESS_INTERVAL_S: Final = 0.2

Transform = Callable[["DataFrame"], "DataFrame"]
Progress = Callable[[int, int], None]


class ProofError(TidelogError):
    """Written files that differ from the log; nothing was committed."""


@dataclass(frozen=True, slots=True)
class IngestReport:
    """The result of one run. Without new records there is no proof and no manifest."""

    topic: str
    directory: str
    proof: ContinuityProof
    files: tuple[DataFile, ...]
    manifest: int | None
    seconds: float


@dataclass(frozen=True, slots=True)
class _Source:
    """The topic as it is now."""

    topic: str
    topic_id: str
    cluster_id: str
    ranges: tuple[OffsetRange, ...]


def ingest(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    directory: str,
    *,
    include_headers: bool = False,
    transform: Transform | None = None,
    compacted: bool = False,
    rows_per_file: int = ROWS_PER_FILE,
    progress: Progress | None = None,
) -> IngestReport:
    """Append the new records of `topic` to the table in `directory`.

    `transform` turns the source's columns into the table's; it must keep one row for each record
    and the columns topic, partition and offset. `compacted`: the topic is compacted, so offsets
    that its log no longer holds are no loss. `progress` gets (tasks done, tasks). Raises
    TableError, KafkaError, DataLossError, ProofError (nothing committed), or Spark's errors.
    """
    started = time.monotonic()
    with (
        open_table(directory, create=True) as table,
        BlockingClient(bootstrap, "tidelog-ingest") as client,
    ):
        source = _look_at(client, topic, table)
        if not source.ranges:
            return IngestReport(
                topic, directory, ContinuityProof(()), (), None, time.monotonic() - started
            )
        frame = _read(spark, bootstrap, source, include_headers, rows_per_file)
        if transform is not None:
            frame = transform(frame)
        staged = table.staging / "run"
        with _reported(spark, progress):
            frame.write.mode("overwrite").option("compression", "zstd").parquet(str(staged))
        counts = _count_files(spark, staged, source.ranges)
        proof = prove_ranges(counts, source.ranges, LogGaps(client).look, compacted=compacted)
        if not proof.holds:
            raise ProofError(describe_failure(proof))
        runs = [_run_of(each) for each in proof.partitions]
        files = _data_files(staged, topic)
        manifest = table.commit(topic, source.topic_id, source.cluster_id, runs, files)
    seconds = time.monotonic() - started
    return IngestReport(topic, directory, proof, manifest.files, manifest.number, seconds)


def prove_table(spark: SparkSession, directory: str) -> ContinuityProof:
    """Count a table again and compare it with its manifests. Raises TableError.

    Independent of the cluster: the manifests have the record count of each range.
    """
    with open_table(directory, create=False) as table:
        if not table.manifests:
            return ContinuityProof(())
        topic = table.manifests[0].topic
        runs: dict[int, PartitionRun] = {}
        for manifest in table.manifests:
            for run in manifest.partitions:
                runs[run.partition] = _joined(runs.get(run.partition), run)
        ranges = [
            OffsetRange(TopicPartition(topic, run.partition), run.start, run.end)
            for run in runs.values()
        ]
        counts = _count_files(spark, table.directory, ranges)
    proofs = []
    for wanted in ranges:
        found, run = counts[wanted.tp], runs[wanted.tp.partition]
        in_range = wanted.start <= found.first and found.last < wanted.end
        stray = 0 if found.rows == 0 or in_range else 1
        proofs.append(
            PartitionProof(
                wanted=wanted,
                rows=found.rows,
                doubled=found.rows - found.distinct,
                lost=max(0, run.rows - found.distinct),
                control=run.control,
                compacted=run.compacted,
                stray=max(stray, found.distinct - run.rows),
            )
        )
    return ContinuityProof(tuple(proofs))


def describe_failure(proof: ContinuityProof) -> str:
    """Return which partitions fail, and how."""
    lines = [
        f"{each.wanted.tp} from {each.wanted.start} to {each.wanted.end}: {each.lost} lost,"
        f" {each.doubled} doubled, {each.stray} stray"
        for each in proof.partitions
        if not each.holds
    ]
    return "nothing was committed: " + "; ".join(lines)


def _joined(before: PartitionRun | None, run: PartitionRun) -> PartitionRun:
    if before is None:
        return run
    return PartitionRun(
        run.partition,
        before.start,
        run.end,
        before.rows + run.rows,
        before.control + run.control,
        before.compacted + run.compacted,
    )


def _look_at(client: BlockingClient, topic: str, table: TopicTable) -> _Source:
    """Return the topic with its new offsets for this table."""
    metadata = client.metadata([topic])
    found = metadata.topics.get(topic)
    if found is None or found.error is not ErrorCode.NONE:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if found is None else found.error
        raise KafkaError(code, f"topic {topic!r} cannot be ingested")
    topic_id, cluster_id = topic_id_to_text(found.topic_id), metadata.cluster_id or ""
    table.belongs_to(topic, topic_id, cluster_id)
    partitions = [TopicPartition(topic, number) for number in found.partitions]
    earliest = client.list_offsets(dict.fromkeys(partitions, EARLIEST))
    latest = client.list_offsets(dict.fromkeys(partitions, LATEST))
    following = table.next_offsets()
    ranges = []
    for tp in partitions:
        first, end = earliest[tp].offset, latest[tp].offset
        start = following.get(tp.partition, first)
        if not first <= start <= end:
            raise DataLossError(
                f"{tp} was ingested up to {start}, but its log now holds {first} to {end}: the"
                " records between were deleted before their ingest"
            )
        if start < end:
            ranges.append(OffsetRange(tp, start, end))
    return _Source(topic, topic_id, cluster_id, tuple(ranges))


def _read(
    spark: SparkSession,
    bootstrap: str,
    source: _Source,
    include_headers: bool,
    rows_per_file: int,
) -> DataFrame:
    offsets = sum(each.size for each in source.ranges)
    assigned = json.dumps({source.topic: [each.tp.partition for each in source.ranges]})
    return (
        spark.read.format("tidelog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.client.id", "tidelog-ingest")
        .option("assign", assigned)
        .option("startingOffsets", offsets_json({each.tp: each.start for each in source.ranges}))
        .option("endingOffsets", offsets_json({each.tp: each.end for each in source.ranges}))
        .option("includeHeaders", str(include_headers).lower())
        .option("minPartitions", str(max(1, -(-offsets // rows_per_file))))
        .load()
    )


def _count_files(
    spark: SparkSession, directory: Path, ranges: Sequence[OffsetRange]
) -> dict[TopicPartition, PartitionCount]:
    if not any(directory.glob("*.parquet")):
        return no_rows(ranges)  # Spark cannot infer columns without files
    return count_offsets(spark.read.parquet(str(directory)), ranges)


def _run_of(proof: PartitionProof) -> PartitionRun:
    wanted = proof.wanted
    return PartitionRun(
        wanted.tp.partition, wanted.start, wanted.end, proof.rows, proof.control, proof.compacted
    )


def _data_files(staged: Path, topic: str) -> dict[Path, DataFile]:
    """Return the files that Spark wrote, named after the offsets in their footers."""
    from pyarrow import parquet

    files: dict[Path, DataFile] = {}
    for path in sorted(staged.glob("*.parquet")):
        footer = parquet.read_metadata(path)
        if footer.num_rows == 0:
            continue
        low, high = _bounds(footer, "offset")
        partition, same = _bounds(footer, "partition")
        if partition != same:
            raise ProofError(f"{path} mixes partitions {partition} to {same}")
        name = file_name(topic, partition, low, high + 1)
        files[path] = DataFile(name, partition, low, high + 1, footer.num_rows)
    return files


def _bounds(footer: object, column: str) -> tuple[int, int]:
    """Return smallest and largest value of a column, from the statistics of a Parquet footer."""
    from pyarrow.parquet import FileMetaData

    assert isinstance(footer, FileMetaData)
    place = footer.schema.names.index(column)
    groups = [footer.row_group(i).column(place).statistics for i in range(footer.num_row_groups)]
    return min(each.min for each in groups), max(each.max for each in groups)


@contextmanager
def _reported(spark: SparkSession, progress: Progress | None) -> Iterator[None]:
    """Call `progress` with the done and all tasks of the jobs started meanwhile."""
    if progress is None:
        yield
        return
    tracker = spark.sparkContext.statusTracker()
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_PROGRESS_INTERVAL_S):
            for stage_id in tracker.getActiveStageIds():
                stage = tracker.getStageInfo(stage_id)
                if stage is not None:
                    progress(stage.numCompletedTasks, stage.numTasks)

    watcher = threading.Thread(target=watch, name="ingest-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
