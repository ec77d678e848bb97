"""A search over seeds on Spark that can be stopped at any time and continued later.

The results of each finished task are stored at once (`run_table`). A later search with the same
directory makes only the missing runs, and reports on all requested runs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelog.core.errors import ConfigError
from tidelog.sim.policies import UNCHANGED
from tidelog.spark.pipelines.job_progress import Progress, cores_of
from tidelog.spark.pipelines.simulate.fan_out import fan_out
from tidelog.spark.pipelines.simulate.findings import report_of
from tidelog.spark.pipelines.simulate.run_table import Row, RunTable
from tidelog.spark.pipelines.simulate.work import (
    RUN_KEY,
    RunKey,
    code_digest,
    into_tasks,
    key_of,
    missing,
    plan_jobs,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.pipelines.report import PipelineReport

#: Number of runs in a task: a run takes one to four seconds, and Spark needs about 0.1 s for each
#: task.
RUNS_PER_TASK: Final = 4


def simulate(
    spark: SparkSession,
    seeds: Sequence[int],
    *,
    profiles: Sequence[str] = ("default",),
    policies: Sequence[str] = (UNCHANGED,),
    mutant: str = "",
    faults: Sequence[str] = (),
    directory: str | None = None,
    slots: int | None = None,
    runs_per_task: int = RUNS_PER_TASK,
    progress: Progress | None = None,
) -> PipelineReport:
    """Run every seed of every profile (workload and faults) under every policy; return the report.

    A policy is a name of broker settings, `mutant` the name of a defect to inject into the brokers,
    and `faults` replaces the profile's kinds of faults.

    Results are kept in `directory`; runs with results in this directory are not repeated. `slots`
    is the number of concurrent tasks, by default the cores of the session. Raises ConfigError for
    unknown names, and RunTableError for an unusable directory.
    """
    started = time.monotonic()
    jobs = plan_jobs(seeds, profiles, policies, mutant, faults)
    if runs_per_task < 1:
        raise ConfigError(f"{runs_per_task} runs a task: a number from 1 on is expected")
    slots = slots or cores_of(spark)
    code = code_digest()
    with ExitStack() as stack:
        table = RunTable(Path(directory)) if directory is not None else None
        rows: dict[RunKey, Row] = {}
        if table is not None:
            stack.enter_context(table.locked())
            rows = {_key(row): row for row in table.rows() if row["code"] == code}
        to_make = missing(jobs, rows)
        made = 0
        if progress is not None:
            progress(made, len(to_make))
        found = fan_out(spark, into_tasks(to_make, runs_per_task, slots), slots)
        stack.callback(found.close)
        for batch in found:
            if table is not None:
                table.add([row for row in batch if not row["failure"]])
            rows.update((_key(row), row) for row in batch)
            made += len(batch)
            if progress is not None:
                progress(made, len(to_make))
        if table is not None:
            table.compact()
    wanted = [rows[key_of(job)] for job in jobs]
    named = list(dict.fromkeys(policies))
    return report_of(wanted, named, made, time.monotonic() - started)


def _key(row: Row) -> RunKey:
    return tuple(row[name] for name in RUN_KEY)
