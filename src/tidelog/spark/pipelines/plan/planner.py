"""plan: a reassignment plan from a cluster and samples of its load.

Planning reads the cluster and never changes it: `tidelog reassign` executes the files. Sizes are
current, and rates are a percentile of the samples; without samples, only disks and leaders are
balanced. The rate of a partition without samples is 0.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ConfigError
from tidelog.core.names import is_internal_topic
from tidelog.core.types import TopicPartition
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.pipelines.job_progress import Progress
from tidelog.spark.pipelines.plan.balance_report import balance_report
from tidelog.spark.pipelines.plan.cluster_model import (
    ClusterModel,
    GoalError,
    Goals,
    PartitionLoad,
    check,
)
from tidelog.spark.pipelines.plan.load_samples import Observed, observe, readers_of, take_samples
from tidelog.spark.pipelines.plan.load_tables import rate_percentiles
from tidelog.spark.pipelines.plan.moves import (
    Batch,
    PartitionMove,
    batches_of,
    moves_of,
    plan_files,
)
from tidelog.spark.pipelines.plan.placement import Planned, place
from tidelog.spark.pipelines.report import PipelineReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The options of a plan; times are in seconds, the bandwidth in bytes a second per broker.

    `samples` is a directory (or Parquet table) with samples. With `sample_s`, samples are taken
    until all samples in the directory span `sample_s`. `replication_factors` are by topic; the key
    None means all topics that are not internal.
    """

    bootstrap: str
    samples: str | None = None
    sample_s: float | None = None
    every_s: float = 10.0
    percentile: float = 95.0
    tolerance: float = 0.1
    drain: frozenset[int] = frozenset()
    replication_factors: Mapping[str | None, int] = field(default_factory=dict)
    with_racks: bool = True
    bandwidth: float = 50 * 1024 * 1024
    batch_s: float = 600.0
    time_limit_s: float = 60.0


@dataclass(frozen=True, slots=True)
class ReassignmentPlan:
    """The result of planning: moves, batches and the report."""

    cluster: ClusterModel
    goals: Goals
    planned: Planned
    moves: tuple[PartitionMove, ...]
    batches: tuple[Batch, ...]
    report: PipelineReport

    def files(self) -> dict[str, dict[str, Any]]:
        """Return the documents of the plan by file name."""
        listed = [
            {
                "topic": move.tp.topic,
                "partition": move.tp.partition,
                "replicas_before": list(move.before),
                "replicas": list(move.after),
                "bytes": move.size_bytes,
                "batch": number,
                "reason": move.reason,
            }
            for number, batch in enumerate(self.batches, 1)
            for move in batch.moves
        ]
        return {**plan_files(self.batches), "moves.json": {"moves": listed}}


def plan(
    spark: SparkSession, options: PlanOptions, progress: Progress | None = None
) -> ReassignmentPlan:
    """Plan the reassignment.

    While samples are taken, `progress` is called with the elapsed seconds and the total seconds.

    Raises GoalError (impossible goals), SolverError, ConfigError, KafkaError, Spark's errors.
    """
    _check(options)
    with BlockingClient(options.bootstrap, "tidelog-plan") as client:
        check_first(client, options)
        rates = _rates(spark, client, options, progress)
        observed = observe(client)
        cluster = cluster_model(observed, rates, readers_of(client, observed.metadata))
        moving = client.list_reassignments()
    if moving:
        names = ", ".join(str(tp) for tp in sorted(moving)[:5])
        raise GoalError(
            f"{len(moving)} partitions are being moved already ({names}): wait until tidelog"
            " reassign list shows none"
        )
    return plan_for(cluster, goals_of(cluster, options), options, bool(rates))


def plan_for(
    cluster: ClusterModel, goals: Goals, options: PlanOptions, with_rates: bool = True
) -> ReassignmentPlan:
    """Make a plan for a known cluster, without a broker and without Spark."""
    check(cluster, goals)
    planned = place(cluster, goals, options.time_limit_s)
    moves = moves_of(cluster, goals, planned)
    batches = batches_of(moves, options.bandwidth, options.batch_s)
    report = balance_report(
        cluster, goals, planned, moves, batches, options.bandwidth, with_rates=with_rates
    )
    return ReassignmentPlan(cluster, goals, planned, tuple(moves), tuple(batches), report)


def check_first(client: BlockingClient, options: PlanOptions) -> None:
    """Raise GoalError for impossible goals, before samples are taken for hours."""
    observed = observe(client)
    cluster = cluster_model(observed, {}, {})
    check(cluster, goals_of(cluster, options))


def cluster_model(
    observed: Observed, rates: Mapping[TopicPartition, float], readers: Mapping[TopicPartition, int]
) -> ClusterModel:
    """Return the model of an observed cluster; `readers` are consumer groups by partition."""
    partitions = tuple(
        PartitionLoad(
            tp,
            found.replicas,
            found.leader,
            observed.sizes.get(tp, 0),
            rates.get(tp, 0.0),
            readers.get(tp, 0),
        )
        for tp, found in observed.metadata.all_partitions()
    )
    return ClusterModel(observed.brokers, partitions)


def goals_of(cluster: ClusterModel, options: PlanOptions) -> Goals:
    """Return the goals, with the number of replicas by topic."""
    factors = {name: each for name, each in options.replication_factors.items() if name is not None}
    everywhere = options.replication_factors.get(None)
    if everywhere is not None:
        for load in cluster.partitions:
            if not is_internal_topic(load.tp.topic):
                factors.setdefault(load.tp.topic, everywhere)
    return Goals(options.tolerance, options.drain, factors, options.with_racks)


def check_target(directory: str) -> None:
    """Raise GoalError if a plan's files cannot be written to this directory; write nothing.

    Callers check the directory first, because the samples for a plan may take hours.
    """
    target = Path(directory).absolute()
    held = next(each for each in (target, *target.parents) if each.exists())
    try:
        if held == target and any(target.iterdir()):
            raise GoalError(
                f"{directory} is not empty: an older plan's batches would be mixed with this one's;"
                " name a new directory"
            )
    except OSError as error:
        raise GoalError(f"the plan cannot be written to {directory}: {error}") from error
    if not (held.is_dir() and os.access(held, os.W_OK)):
        raise GoalError(f"the plan cannot be written to {directory}: {held} takes no files")


def write_plan(made: ReassignmentPlan, directory: str) -> list[Path]:
    """Write the files of a plan to a new or empty directory; return their paths.

    Raises GoalError if the files cannot be written.
    """
    check_target(directory)
    target = Path(directory)
    try:
        target.mkdir(parents=True, exist_ok=True)
        paths = []
        for name, document in made.files().items():
            path = target / name
            path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
            paths.append(path)
    except OSError as error:
        raise GoalError(f"the plan cannot be written to {directory}: {error}") from error
    return paths


def _rates(
    spark: SparkSession, client: BlockingClient, options: PlanOptions, progress: Progress | None
) -> Mapping[TopicPartition, float]:
    if options.sample_s is None:
        if options.samples is None:
            return {}
        return rate_percentiles(spark, options.samples, options.percentile)
    with tempfile.TemporaryDirectory(prefix="tidelog-samples-") as scratch:
        directory = options.samples or scratch
        take_samples(client, directory, options.sample_s, options.every_s, progress)
        return rate_percentiles(spark, directory, options.percentile)


def _check(options: PlanOptions) -> None:
    for name, value, low, high in (
        ("percentile", options.percentile, 0.0, 100.0),
        ("tolerance", options.tolerance, 0.0, 1.0),
    ):
        if not low <= value <= high:
            raise ConfigError(f"the {name} is {value:g}: {low:g} to {high:g} expected")
    for name, value in (
        ("bandwidth", options.bandwidth),
        ("length of a batch", options.batch_s),
        ("time limit", options.time_limit_s),
        ("time between samples", options.every_s),
    ):
        if value <= 0:
            raise ConfigError(f"the {name} is {value:g}: more than 0 expected")
