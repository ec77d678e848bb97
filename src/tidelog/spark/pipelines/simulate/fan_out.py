"""Runs of the simulator as Spark jobs of one task each, with several jobs at a time.

Each job returns the rows of its runs when it ends, so that the rows are stored at once; one job of
many tasks would return all rows at its end. If an executor's code differs from the driver's, the
search fails, because the executor would simulate another version of the brokers. An error in a run
is a defect of the simulator, and the run's row has the error as its reason.
"""

from __future__ import annotations

import time
import traceback
import uuid
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

from tidelog.core.errors import TidelogError
from tidelog.sim.job import Job
from tidelog.sim.results import RunResult
from tidelog.spark.pipelines.simulate.work import RUN_KEY, code_digest, key_of
from tidelog.spark.pipelines.task_rows import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.pipelines.simulate.run_table import Row

#: Maximum number of lines of a traceback that a row keeps.
_TRACE_LINES = 12


class OtherCodeError(TidelogError):
    """The error of an executor whose code differs from the driver's."""


def fan_out(
    spark: SparkSession, tasks: Sequence[Sequence[Job]], slots: int
) -> Generator[list[Row], None, None]:
    """Yield the rows of each task when the task ends; run `slots` tasks at a time.

    The generator cancels running tasks if the caller stops early. Raises OtherCodeError.
    """
    tag = f"tidelog-simulate-{uuid.uuid4().hex}"
    code = code_digest()
    pool = ThreadPoolExecutor(max_workers=slots, thread_name_prefix="simulate")
    queue = iter(tasks)
    running: set[Future[list[Row]]] = set()
    try:
        while True:
            for jobs in _taken(queue, slots - len(running)):
                running.add(pool.submit(_run_job, spark, tag, jobs, code))
            if not running:
                return
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                yield future.result()
    finally:
        if running:
            spark.interruptTag(tag)
        pool.shutdown(wait=True, cancel_futures=True)


def _taken(queue: Iterator[Sequence[Job]], count: int) -> Iterator[Sequence[Job]]:
    for _ in range(count):
        jobs = next(queue, None)
        if jobs is None:
            return
        yield jobs


def _run_job(spark: SparkSession, tag: str, jobs: Sequence[Job], code: str) -> list[Row]:
    """Make the runs of one task on an executor."""
    spark.addTag(tag)
    rows = run_tasks(spark, [tuple(jobs)], _rows_of)
    for row in rows:
        if row["code"] != code:
            raise OtherCodeError(
                f"an executor runs tidelog with the code {row['code']}, the driver {code}: ship the"
                " driver's package to the executors (--py-files), or install the same version"
            )
    return rows


def _rows_of(jobs: tuple[Job, ...]) -> list[dict[str, Any]]:
    """Make the given runs inside a Spark task."""
    code = code_digest()
    return [row_of(job, code) for job in jobs]


def row_of(job: Job, code: str) -> dict[str, Any]:
    """Make a run and return its row (`run_table.SCHEMA`)."""
    started = time.perf_counter()
    failure = ""
    try:
        result = job.run()
    except Exception:
        failure = "\n".join(traceback.format_exc().splitlines()[-_TRACE_LINES:])
        result = RunResult(job.seed, job.profile, "", 0, 0, {})
    return {
        **dict(zip(RUN_KEY, key_of(job), strict=True)),
        "code": code,
        "command": job.command(),
        "trace_hash": result.trace_hash,
        "events": result.events,
        "simulated_ns": result.simulated_ns,
        "violation": result.violation,
        "failure": failure,
        "counters": result.counters,
        "played": result.faults,
        "marks": result.marks,
        "outcomes": result.outcomes,
        "seconds": time.perf_counter() - started,
    }
