"""Aggregates of events and histories, computed by Spark and returned as plain data.

Every function of this module starts Spark jobs. `partition_history` defines the states, and
`suspects` defines a suspect. The number of collected rows grows with partitions, brokers and
windows, but not with events.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tidelog.core.dataclass import dataclass
from tidelog.spark.pipelines.analyze import event_tables
from tidelog.spark.pipelines.analyze.event_tables import DEPARTURE, INTERVAL, QUALITY
from tidelog.spark.pipelines.analyze.failover_phases import PHASES, Failover
from tidelog.spark.pipelines.analyze.findings import (
    BrokerLife,
    ControllerTerm,
    EventQuality,
    PartitionTimes,
    PhaseTimes,
    StateSpan,
    StateTimes,
    UncleanLoss,
)
from tidelog.spark.pipelines.analyze.partition_history import State, joined
from tidelog.spark.pipelines.analyze.suspects import DepartureCount

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

T = TypeVar("T")

#: Number of partitions in the timeline, which shows the least available partitions.
TIMELINE_PARTITIONS: Final = 60
#: Maximum number of collected events of the whole cluster; the newest are kept.
_MOST_EVENTS: Final = 20_000
_CLUSTER_KINDS: Final = (
    "failover",
    "controller_election",
    "controller_resignation",
    "registration",
    "shutdown",
    "session_loss",
    "commands_behind",
    "unclean_election",
)


def unique(documents: DataFrame) -> DataFrame:
    """Return each event once, with the number of its copies."""
    from pyspark.sql import functions as sf

    columns = [each for each in documents.columns if each != "identity"]
    first = sf.first(sf.struct(*columns)).alias("event")
    grouped = documents.groupBy("identity").agg(first, sf.count("*").alias("copies"))
    return grouped.select("event.*", "identity", "copies")


def quality(events: DataFrame) -> EventQuality:
    """Return counts of the events, and their first and last time."""
    from pyspark.sql import functions as sf

    dropped = sf.when(events.kind == "events_dropped", events["count"])
    found = events.agg(
        sf.count("kind").alias("events"),
        sf.sum(sf.col("copies") - 1).alias("repeated"),
        sf.sum(sf.when(events.kind.isNull(), 1).otherwise(0)).alias("illegible"),
        sf.sum(dropped).alias("dropped"),
        sf.min(sf.when(events.kind.isNotNull(), events.time_ms)).alias("first_ms"),
        sf.max(sf.when(events.kind.isNotNull(), events.time_ms)).alias("last_ms"),
    ).collect()[0]
    counted = {name: value or 0 for name, value in found.asDict().items()}
    return EventQuality(missed=0, clock_step_ms=0, **counted)


@dataclass(frozen=True, slots=True)
class AvailabilityTotals:
    """Sums over all partitions: time in each state, load of each broker, quality of the events."""

    partitions: tuple[PartitionTimes, ...]
    #: By broker: the time in ms for which it led partitions, summed over the partitions. `replicas`
    #: is the number of replicas of each broker that were seen in ISRs.
    led_ms: Mapping[int, int]
    replicas: Mapping[int, int]
    missed: int
    clock_step_ms: int
    illegible: int


def totals(history: DataFrame) -> AvailabilityTotals:
    """Return the total time in each state, and the time of each partition, the least available
    first.
    """
    from pyspark.sql import functions as sf

    rows = history.where(history.row != DEPARTURE)
    grouped = rows.groupBy("row", "topic", "partition", "state", "leader", "isr").agg(
        sf.sum(sf.col("end_ms") - sf.col("start_ms")).alias("length_ms"),
        sf.sum("start_ms").alias("missed"),
        sf.max("end_ms").alias("clock_step_ms"),
        sf.sum("broker").alias("illegible"),
    )
    return totals_of(row.asDict() for row in grouped.collect())


def totals_of(rows: Iterable[Mapping[str, Any]]) -> AvailabilityTotals:
    """Return the sums over all partitions from rows that Spark has grouped."""
    times: dict[tuple[str, int], dict[State, int]] = {}
    led_ms: Counter[int] = Counter()
    replicas: set[tuple[int, str, int]] = set()
    missed = clock_step_ms = illegible = 0
    for row in rows:
        if row["row"] == QUALITY:
            missed += row["missed"]
            clock_step_ms = max(clock_step_ms, row["clock_step_ms"])
            illegible += row["illegible"]
            continue
        place = (row["topic"], row["partition"])
        own = times.setdefault(place, {})
        state = State(row["state"])
        own[state] = own.get(state, 0) + row["length_ms"]
        if row["leader"] >= 0:
            led_ms[row["leader"]] += row["length_ms"]
        replicas |= {(broker, *place) for broker in row["isr"] or ()}
    found = [PartitionTimes(*place, StateTimes(ms)) for place, ms in times.items()]
    return AvailabilityTotals(
        tuple(sorted(found, key=_least_available)),
        dict(led_ms),
        dict(Counter(broker for broker, _, _ in replicas)),
        missed,
        clock_step_ms,
        illegible,
    )


def _least_available(each: PartitionTimes) -> tuple[float, str, int]:
    available = each.times.availability
    return (2.0 if available is None else available, each.topic, each.partition)


def window_times(history: DataFrame, start_ms: int, window_ms: int) -> dict[int, StateTimes]:
    """Return the time by state of all partitions, by the start of each window."""
    from pyspark.sql import functions as sf

    place = sf.floor((sf.col("start_ms") - start_ms) / window_ms).alias("place")
    rows = _lengths(history).groupBy(place, "state").sum("length_ms").collect()
    times: dict[int, dict[State, int]] = {}
    for number, state, length_ms in rows:
        times.setdefault(start_ms + int(number) * window_ms, {})[State(state)] = length_ms
    return {start: StateTimes(times[start]) for start in sorted(times)}


def _lengths(history: DataFrame) -> DataFrame:
    rows = history.where(history.row == INTERVAL)
    return rows.withColumn("length_ms", rows.end_ms - rows.start_ms)


def timeline(history: DataFrame, partitions: Sequence[PartitionTimes]) -> tuple[StateSpan, ...]:
    """Return a timeline: the least available partitions that changed state, with their states."""
    from pyspark.sql import functions as sf

    changed = [
        each
        for each in partitions
        if each.times.availability is not None and sum(1 for ms in each.times.ms.values() if ms) > 1
    ][:TIMELINE_PARTITIONS]
    names = [str(each) for each in changed]
    rows = history.where(history.row == INTERVAL)
    name = sf.concat_ws("-", "topic", sf.col("partition").cast("string"))
    found = rows.where(name.isin(names)).select("topic", "partition", "start_ms", "end_ms", "state")
    spans = [
        StateSpan(row.topic, row.partition, row.start_ms, row.end_ms, State(row.state))
        for row in found.collect()
    ]
    places = {name: place for place, name in enumerate(names)}
    spans.sort(key=lambda each: (places[f"{each.topic}-{each.partition}"], each.start_ms))
    return tuple(joined(spans))


def departures(history: DataFrame) -> list[DepartureCount]:
    """Return the numbers of ISR departures by broker, leader, cause and second."""
    from pyspark.sql import functions as sf

    rows = history.where(history.row == DEPARTURE)
    second = sf.floor(sf.col("start_ms") / 1000).alias("second")
    grouped = rows.groupBy("broker", "leader", "cause", second).agg(
        sf.count("*").alias("departures"),
        sf.sum(sf.col("end_ms") - sf.col("start_ms")).alias("absent_ms"),
    )
    return [
        DepartureCount(row.broker, row.leader, row.cause, row.second, row.departures, row.absent_ms)
        for row in grouped.collect()
    ]


def phases(events: DataFrame) -> tuple[PhaseTimes, ...]:
    """Return the distribution of each phase of the failovers."""
    from pyspark.sql import functions as sf

    rows = event_tables.phase_rows(events, event_tables.led_rows(events))
    parts = sf.array(*[sf.lit(number / 100) for number in range(101)])
    found = rows.groupBy("phase").agg(
        sf.count("*").alias("count"), sf.percentile("ms", parts).alias("quantiles")
    )
    by_phase = {row.phase: row for row in found.collect()}
    return tuple(
        PhaseTimes(phase, by_phase[phase]["count"], tuple(by_phase[phase].quantiles))
        for phase in PHASES
        if phase in by_phase
    )


@dataclass(frozen=True, slots=True)
class ClusterWide:
    """Events of the whole cluster, such as failovers, and unclean elections."""

    failovers: tuple[Failover, ...]
    controllers: tuple[ControllerTerm, ...]
    brokers: tuple[BrokerLife, ...]
    losses: tuple[UncleanLoss, ...]
    #: Number of events that lack the fields of their kind.
    illegible: int


def cluster_events(events: DataFrame) -> ClusterWide:
    """Return the newest events of the whole cluster, such as failovers, in order of time."""
    from pyspark.sql import functions as sf

    rows = events.where(events.kind.isin(*_CLUSTER_KINDS)).orderBy(sf.desc("time_ms"))
    newest = rows.select("kind", "json").limit(_MOST_EVENTS).collect()
    documents: dict[str, list[dict[str, Any]]] = {}
    for row in reversed(newest):
        documents.setdefault(row.kind, []).append(json.loads(row.json))
    return cluster_wide(documents)


def cluster_wide(documents: Mapping[str, Sequence[Mapping[str, Any]]]) -> ClusterWide:
    """Parse the cluster's events; `documents` has them by kind, in order of time."""
    illegible: Counter[str] = Counter()

    def legible(kind: str, parse: Callable[[Mapping[str, Any]], T]) -> list[T]:
        found = []
        for each in documents.get(kind, ()):
            try:
                found.append(parse(each))
            except (KeyError, TypeError, ValueError, AttributeError):
                illegible[kind] += 1
        return found

    lives: dict[int, list[int]] = {}
    for place, kind in enumerate(("registration", "shutdown", "session_loss", "commands_behind")):
        for broker, is_over in legible(
            kind, lambda it: (int(it["broker"]), bool(it.get("is_over", False)))
        ):
            lives.setdefault(broker, [0, 0, 0, 0])[place] += not is_over
    elections = legible(
        "controller_election",
        lambda it: (int(it["controller_epoch"]), int(it["time_ms"]), int(it["controller"])),
    )
    resignations = legible(
        "controller_resignation", lambda it: (int(it["controller_epoch"]), str(it["cause"]))
    )
    return ClusterWide(
        failovers=tuple(legible("failover", Failover.from_event)),
        controllers=_terms(elections, dict(resignations)),
        brokers=tuple(BrokerLife(broker, *lives[broker]) for broker in sorted(lives)),
        losses=tuple(legible("unclean_election", _loss)),
        illegible=illegible.total(),
    )


def _terms(
    elections: Iterable[tuple[int, int, int]], resignations: Mapping[int, str]
) -> tuple[ControllerTerm, ...]:
    terms: list[ControllerTerm] = []
    for epoch, time_ms, controller in sorted(elections):
        missed = epoch - terms[-1].epoch - 1 if terms else 0
        cause = resignations.get(epoch, "")
        terms.append(ControllerTerm(time_ms, controller, epoch, missed, cause))
    return tuple(terms)


def _loss(event: Mapping[str, Any]) -> UncleanLoss:
    committed, end = event["told_high_watermark"], event["log_end_offset"]
    return UncleanLoss(
        event["time_ms"],
        event["topic"],
        event["partition"],
        event["leader"],
        end,
        None if committed < 0 else max(0, committed - end),
    )
