"""Jobs of an audit as Spark tasks: coarse, with results as lines of JSON.

Ranges are put into tasks of about half a GB, in order, so that a task reads files from front to
back. A task needs no shuffle and no data from the driver but its own jobs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from tidelog.core.limits import MIB
from tidelog.spark.pipelines.audit.detail import DetailJob, DetailResult, compare_buckets
from tidelog.spark.pipelines.audit.kept_results import KeptResults
from tidelog.spark.pipelines.audit.range_scan import scan_range
from tidelog.spark.pipelines.audit.ranges import RangeJob, RangeResult
from tidelog.spark.pipelines.job_progress import Progress, cores_of, reported

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

#: Bytes that one task reads, about.
TASK_BYTES: Final = 512 * MIB
_Job = TypeVar("_Job")


class SparkTasks:
    """The tasks of an audit on a Spark session."""

    def __init__(self, spark: SparkSession, progress: Progress | None = None) -> None:
        self._spark = spark
        self._progress = progress

    def scan(self, jobs: Sequence[RangeJob], kept: KeptResults | None) -> list[RangeResult]:
        """Scan ranges in parallel; results in the order of the jobs."""
        tasks = grouped(jobs, [job.end - job.start for job in jobs], cores_of(self._spark))
        work = partial(scan_and_keep, kept=kept)
        lines = _run(self._spark, tasks, work, self._progress)
        return [RangeResult.from_json(line) for line in lines]

    def compare(self, jobs: Sequence[DetailJob]) -> list[DetailResult]:
        """Compare buckets in parallel; results in the order of the jobs."""
        sizes = [TASK_BYTES * len(job.buckets) // 16 for job in jobs]
        tasks = grouped(jobs, sizes, cores_of(self._spark))
        lines = _run(self._spark, tasks, compare_to_line, self._progress)
        return [DetailResult.from_json(json.loads(line)) for line in lines]


def scan_and_keep(job: RangeJob, kept: KeptResults | None) -> str:
    """Scan a range, keep the result, return it as a line."""
    result = scan_range(job)
    if kept is not None and not result.is_gone:
        kept.write(job, result)
    return result.to_json()


def compare_to_line(job: DetailJob) -> str:
    """Compare buckets and return the result as a line."""
    return json.dumps(compare_buckets(job).to_json())


def grouped(jobs: Sequence[_Job], sizes: Sequence[int], cores: int) -> list[list[_Job]]:
    """Return the jobs in order, in groups of TASK_BYTES, or smaller to give every core two."""
    limit = max(1, min(TASK_BYTES, sum(sizes) // (2 * cores) + 1))
    groups: list[list[_Job]] = []
    held = 0
    for job, size in zip(jobs, sizes, strict=True):
        if not groups or held >= limit:
            groups.append([])
            held = 0
        groups[-1].append(job)
        held += size
    return groups


def _run(
    spark: SparkSession,
    tasks: Sequence[Sequence[_Job]],
    work: Callable[[_Job], str],
    progress: Progress | None,
) -> list[str]:
    if not tasks:
        return []

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for number in batch.column(0).to_pylist():
                lines = [work(job) for job in tasks[number]]
                yield pa.RecordBatch.from_pydict(
                    {
                        "task": pa.array([number] * len(lines), pa.int64()),
                        "place": pa.array(range(len(lines)), pa.int64()),
                        "result": pa.array(lines, pa.string()),
                    }
                )

    numbers = spark.range(0, len(tasks), 1, len(tasks))
    with reported(spark, progress):
        rows = numbers.mapInArrow(run, "task long, place long, result string").collect()
    rows.sort(key=lambda row: (row["task"], row["place"]))
    return [row["result"] for row in rows]
