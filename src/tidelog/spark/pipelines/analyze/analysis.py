"""analyze: availability, ISR departures, failover phases and lag, from a cluster's events.

Events come from the topic `__cluster_events` of a cluster, or from a Parquet table into which they
were ingested. With a cluster, the analysis also asks the cluster for the current state of every
partition and for the groups' lag. The analysis changes nothing.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ConfigError, TidelogError
from tidelog.core.names import CLUSTER_EVENTS
from tidelog.runtime.blocking import BlockingClient
from tidelog.spark.pipelines.analyze import event_tables, summaries
from tidelog.spark.pipelines.analyze.event_tables import Judgement
from tidelog.spark.pipelines.analyze.findings import EventQuality, Findings
from tidelog.spark.pipelines.analyze.group_lag import present_lags
from tidelog.spark.pipelines.analyze.lag_tables import lag_history
from tidelog.spark.pipelines.analyze.partition_history import Scope
from tidelog.spark.pipelines.analyze.present_state import PresentState, present_state
from tidelog.spark.pipelines.analyze.presentation import present
from tidelog.spark.pipelines.analyze.suspects import DepartureRole, incidents_of, normal, suspicions
from tidelog.spark.pipelines.job_progress import Progress
from tidelog.spark.pipelines.report import PipelineReport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Maximum number of time windows in a report if the user gives no window size.
_WINDOWS: Final = 60
#: Maximum number of windows; more would make no readable report.
MAX_WINDOWS: Final = 10_000
_SECOND: Final = 1_000
_SIZES_MS: Final = tuple(
    _SECOND * each for each in (1, 5, 15, 60, 300, 900, 3_600, 6 * 3_600, 86_400, 7 * 86_400)
)
_STEPS: Final = 5


class AnalysisError(TidelogError):
    """The error for events that cannot be analyzed; the message states a valid request."""


@dataclass(frozen=True, slots=True)
class AnalyzeOptions:
    """The events to analyze. At least one of `bootstrap` and `events` is set.

    `events` is a Parquet table with the events' records. `default_min_isr` applies to topics of
    unknown configuration. `intervals` is a directory for the state intervals of all partitions, as
    Parquet.
    """

    bootstrap: str | None = None
    events: str | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    window_ms: int | None = None
    default_min_isr: int = 1
    with_lag: bool = True
    objective: float | None = None
    intervals: str | None = None


def analyze(
    spark: SparkSession, options: AnalyzeOptions, progress: Progress | None = None
) -> PipelineReport:
    """Analyze the events and return the report; `progress` is called with the number of finished
    steps and of all steps.

    The report's verdict is bad if a partition was available for less than `objective` % of the
    time. Raises AnalysisError, ConfigError, KafkaError, or Spark's errors.
    """
    return present(find(spark, options, progress), options.objective)


def find(
    spark: SparkSession, options: AnalyzeOptions, progress: Progress | None = None
) -> Findings:
    """Return the findings as plain data; raise the errors of `analyze`."""
    _check(options)
    step = _AnalysisSteps(progress)
    with ExitStack() as stack:
        client: BlockingClient | None = None
        present_now: PresentState | None = None
        if options.bootstrap is not None:
            client = stack.enter_context(BlockingClient(options.bootstrap, "tidelog-analyze"))
            present_now = present_state(client)
        records, source = _records(spark, options, present_now)
        events = summaries.unique(event_tables.legible(records)).persist()
        stack.callback(events.unpersist)
        step.done()
        quality = summaries.quality(events)
        if quality.events == 0:
            raise AnalysisError(
                f"{source} has no events: brokers write them after tidelog configs alter --brokers"
                " -c cluster.events.enable=true"
            )
        judgement = judgement_of(options, quality, present_now)
        snapshots = {} if present_now is None else present_now.partitions
        led = event_tables.led_rows(events)
        history = event_tables.histories(
            events, led, event_tables.snapshot_rows(spark, snapshots), judgement
        ).persist()
        stack.callback(history.unpersist)
        findings = _judged(history, events, judgement, quality, source, present_now, step)
        if options.intervals is not None:
            _write_intervals(history, options.intervals)
        if client is not None and options.with_lag:
            findings = _with_lag(spark, client, options, findings)
        step.done()
    return findings


def _judged(
    history: DataFrame,
    events: DataFrame,
    judgement: Judgement,
    quality: EventQuality,
    source: str,
    present_now: PresentState | None,
    step: _AnalysisSteps,
) -> Findings:
    scope = judgement.scope
    totals = summaries.totals(history)
    step.done()
    counts = summaries.departures(history)
    churn = incidents_of(counts, DepartureRole.FOLLOWER)
    # If a broker left an ISR because it died as the leader, it did not fall behind as a follower.
    as_follower = incidents_of(
        [each for each in counts if each.broker != each.leader], DepartureRole.FOLLOWER
    )
    replicas = totals.replicas if present_now is None else present_now.replicas
    shares = {DepartureRole.FOLLOWER: normal(replicas), DepartureRole.LEADER: normal(totals.led_ms)}
    step.done()
    within = events.where(events.time_ms.between(scope.start_ms, scope.end_ms))
    cluster = summaries.cluster_events(within)
    phases = summaries.phases(within)
    step.done()
    return Findings(
        source=source,
        start_ms=scope.start_ms,
        end_ms=scope.end_ms,
        window_ms=judgement.window_ms,
        quality=replace(
            quality,
            missed=totals.missed,
            clock_step_ms=totals.clock_step_ms,
            illegible=quality.illegible + totals.illegible + cluster.illegible,
        ),
        partitions=totals.partitions,
        windows=summaries.window_times(history, scope.start_ms, judgement.window_ms),
        timeline=summaries.timeline(history, totals.partitions),
        churn=tuple(churn),
        suspicions=tuple(
            suspicions([*as_follower, *incidents_of(counts, DepartureRole.LEADER)], shares)
        ),
        failovers=cluster.failovers,
        phases=phases,
        controllers=cluster.controllers,
        brokers=cluster.brokers,
        losses=cluster.losses,
        notes=_notes(judgement, quality, present_now),
    )


def _check(options: AnalyzeOptions) -> None:
    if options.bootstrap is None and options.events is None:
        raise ConfigError("give a cluster, or a Parquet table of its events, or both")
    if options.window_ms is not None and options.window_ms < 1:
        raise ConfigError(f"the window is {options.window_ms} ms: at least 1 ms expected")
    if options.default_min_isr < 1:
        raise ConfigError(f"min ISR is {options.default_min_isr}: at least 1 expected")
    kept = options.intervals
    if kept is not None and "://" not in kept and os.path.exists(kept):
        raise AnalysisError(f"{kept} exists: intervals are written to a new directory only")
    if options.objective is not None and not 0 < options.objective <= 100:
        raise ConfigError(f"the objective is {options.objective}: a percentage, 99.9, expected")


def _records(
    spark: SparkSession, options: AnalyzeOptions, present_now: PresentState | None
) -> tuple[DataFrame, str]:
    """Return the records of the events, and the name of their source."""
    if options.events is not None:
        return _table(spark, options.events), options.events
    assert options.bootstrap is not None and present_now is not None
    if CLUSTER_EVENTS not in {tp.topic for tp in present_now.partitions}:
        raise AnalysisError(
            f"the cluster at {options.bootstrap} has no topic {CLUSTER_EVENTS}: its brokers write"
            " one after tidelog configs alter --brokers -c cluster.events.enable=true"
        )
    reader = spark.read.format("tidelog").option("kafka.bootstrap.servers", options.bootstrap)
    records = reader.option("subscribe", CLUSTER_EVENTS).load().select("key", "value")
    return records, f"{CLUSTER_EVENTS} at {options.bootstrap}"


def _table(spark: SparkSession, path: str) -> DataFrame:
    from pyspark.errors import AnalysisException

    try:
        table = spark.read.parquet(path)
    except AnalysisException as error:
        reason = str(error).splitlines()[0]
        raise AnalysisError(f"{path} is no Parquet table of events: {reason}") from error
    if "value" not in table.columns:
        raise AnalysisError(
            f"{path} has the columns {', '.join(table.columns)}, and no column value: a table as"
            f" tidelog pipeline ingest --topic {CLUSTER_EVENTS} writes it is expected"
        )
    return table


def judgement_of(
    options: AnalyzeOptions, quality: EventQuality, present_now: PresentState | None
) -> Judgement:
    """Return the time range to analyse, and its windows; raise AnalysisError for an empty range."""
    start = quality.first_ms if options.start_ms is None else options.start_ms
    last = quality.last_ms + 1 if present_now is None else present_now.time_ms
    end = last if options.end_ms is None else min(options.end_ms, last)
    if start >= end:
        raise AnalysisError(
            f"the time from {_utc(start)} to {_utc(end)} is empty: the events are from"
            f" {_utc(quality.first_ms)} to {_utc(quality.last_ms)}"
        )
    window = options.window_ms or window_size(end - start)
    if (end - start) // window > MAX_WINDOWS:
        raise AnalysisError(
            f"{(end - start) // window} windows of {window} ms are too many: {MAX_WINDOWS} at"
            " most, so take a larger window"
        )
    min_isr = {} if present_now is None else present_now.min_isr
    scope = Scope(start, end, quality.first_ms, present_now is not None)
    return Judgement(scope, min_isr, options.default_min_isr, window)


def window_size(length_ms: int) -> int:
    """Return a round window size that divides a length into a readable number of windows."""
    for size in _SIZES_MS:
        if length_ms <= size * _WINDOWS:
            return size
    return _SIZES_MS[-1]


def _write_intervals(history: DataFrame, path: str) -> None:
    columns = ["topic", "partition", "topic_id", "start_ms", "end_ms", "state", "leader", "isr"]
    rows = history.where(history.row == event_tables.INTERVAL).select(*columns)
    rows.write.mode("errorifexists").parquet(path)


def _with_lag(
    spark: SparkSession, client: BlockingClient, options: AnalyzeOptions, findings: Findings
) -> Findings:
    assert options.bootstrap is not None
    now = present_lags(client)
    notes = findings.notes
    if now.without_leader:
        names = ", ".join(map(str, now.without_leader[:10]))
        notes = (*notes, f"No lag is known of partitions without a leader: {names}.")
    past = lag_history(spark, client, options.bootstrap, findings)
    return replace(findings, lags=now.lags, lag_history=past, notes=notes)


def _notes(
    judgement: Judgement, quality: EventQuality, present_now: PresentState | None
) -> tuple[str, ...]:
    notes = []
    scope = judgement.scope
    if scope.start_ms < scope.complete_from_ms:
        notes.append(f"States are unknown before the first event, {_utc(scope.complete_from_ms)}.")
    if present_now is None:
        notes.append(
            "No cluster was asked: partitions without an event are missing, every topic is judged"
            f" with min.insync.replicas={judgement.default_min_isr}, and deleted topics count as"
            " if they still existed."
        )
    if quality.dropped:
        notes.append(f"Brokers dropped {quality.dropped} events: see events_dropped.")
    return tuple(notes)


def _utc(time_ms: int) -> str:
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time_ms / 1000))
    return f"{moment}Z"


class _AnalysisSteps:
    """The progress of an analysis with a fixed number of steps."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._done = 0

    def done(self) -> None:
        """Count one step."""
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, _STEPS)
