"""The jobs of an audit (scans and comparisons) as coarse Spark tasks with JSON results.

A task gets consecutive ranges of about half a GB, so that it reads files from front to back. A task
needs no shuffle, and receives only its own jobs from the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from tidelog.core.limits import MIB
from tidelog.spark.pipelines.audit.detail import DetailJob, DetailResult, compare_buckets
from tidelog.spark.pipelines.audit.kept_results import KeptResults
from tidelog.spark.pipelines.audit.range_scan import scan_range
from tidelog.spark.pipelines.audit.ranges import RangeJob, RangeResult
from tidelog.spark.pipelines.job_progress import Progress, cores_of, reported
from tidelog.spark.pipelines.task_rows import Row, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Approximate number of bytes that one task reads.
TASK_BYTES: Final = 512 * MIB
_Job = TypeVar("_Job")


class SparkTasks:
    """The tasks of an audit on a Spark session."""

    def __init__(self, spark: SparkSession, progress: Progress | None = None) -> None:
        self._spark = spark
        self._progress = progress

    def scan(self, jobs: Sequence[RangeJob], kept: KeptResults | None) -> list[RangeResult]:
        """Scan ranges in parallel; return the results in the order of the jobs."""
        sizes = [job.end - job.start for job in jobs]
        rows = self._run(jobs, sizes, partial(scan_and_keep, kept=kept))
        return [RangeResult.from_json(row) for row in rows]

    def compare(self, jobs: Sequence[DetailJob]) -> list[DetailResult]:
        """Compare offset buckets in parallel; return the results in the order of the jobs."""
        sizes = [TASK_BYTES * len(job.buckets) // 16 for job in jobs]
        rows = self._run(jobs, sizes, compare_to_row)
        return [DetailResult.from_json(row) for row in rows]

    def _run(
        self, jobs: Sequence[_Job], sizes: Sequence[int], work: Callable[[_Job], Row]
    ) -> list[Row]:
        tasks = grouped(jobs, sizes, cores_of(self._spark))
        with reported(self._spark, self._progress):
            return run_tasks(self._spark, tasks, partial(_each, work))


def _each(work: Callable[[_Job], Row], jobs: Sequence[_Job]) -> Iterator[Row]:
    return map(work, jobs)


def scan_and_keep(job: RangeJob, kept: KeptResults | None) -> Row:
    """Scan a range, keep the result, return it as plain values."""
    result = scan_range(job)
    if kept is not None and not result.is_gone:
        kept.write(job, result)
    return result.to_json()


def compare_to_row(job: DetailJob) -> Row:
    """Compare offset buckets and return the result as plain values."""
    return compare_buckets(job).to_json()


def grouped(jobs: Sequence[_Job], sizes: Sequence[int], cores: int) -> list[list[_Job]]:
    """Return the jobs in order, in groups of at most TASK_BYTES, with two groups for every core."""
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
