"""Charts of the last 24 hours, each with a bounded number of points, and pages that show them.

A chart has a point for every ten seconds of the last minutes, and for the day before them the mean
of every five minutes. The line has a gap where a broker was down. A series is sent as a start time,
a step and its values, without a time for each value. This keeps the document short, which is sent
again whenever a live page has changed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tidelog.console.readings import BrokerHistory, ClusterReading, Samples
from tidelog.console.views.tables import Document, number
from tidelog.controller import cluster_events as kinds
from tidelog.core.types import NO_LEADER
from tidelog.local.admin_ports import LISTENER_KEY, NOT_SET, HistoryWindow
from tidelog.local.status import brokers_of

#: Interval in seconds between two points of the day.
DAY_STEP_S: Final = 300
_LINES: Final = 6
#: Maximum number of partitions that the page of a broker names as out of sync.
_OUT_OF_ISRS: Final = 50


def chart_document(
    title: str, label: str, unit: str, lines: Iterable[tuple[str, Sequence[Document]]]
) -> Document:
    """Return a chart; `unit` is `bytes`, `rate`, `count`, `ms` or `cores`."""
    return {
        "title": title,
        "label": label,
        "unit": unit,
        "series": [{"name": name, "runs": runs} for name, runs in lines if runs],
    }


def runs_of(histories: Iterable[BrokerHistory], series: str) -> list[Document]:
    """Return the sum of a series over brokers, as runs: values at regular times without a gap."""
    known = list(histories)
    recent = _summed([each.recent for each in known], series, None)
    first_s = min(recent, default=None)
    day = _summed([each.day for each in known], series, DAY_STEP_S)
    if first_s is not None:
        day = {at_s: value for at_s, value in day.items() if at_s + DAY_STEP_S <= first_s}
    step_s = next((each.recent.step_s for each in known), DAY_STEP_S)
    return [*_runs(day, DAY_STEP_S), *_runs(recent, step_s)]


def _summed(windows: Sequence[HistoryWindow], series: str, step_s: int | None) -> dict[int, float]:
    """Return the sums over brokers by time.

    Each broker's values are first averaged over `step_s`; None keeps the broker's own step. Times
    for which a broker has no value yet are left out at the end, because the sum would be too low
    there.
    """
    sums: dict[int, float] = {}
    latest: list[int] = []
    for window in windows:
        means = _means(window, series, step_s or window.step_s)
        latest += [max(means)] if means else []
        for at_s, value in means.items():
            sums[at_s] = sums.get(at_s, 0.0) + value
    if latest and max(latest) - min(latest) <= (step_s or 10):
        return {at_s: value for at_s, value in sums.items() if at_s <= min(latest)}
    return sums


def _means(window: HistoryWindow, series: str, step_s: int) -> dict[int, float]:
    slots: dict[int, list[float]] = {}
    for at_s, value in zip(window.times_s, window.series.get(series, ()), strict=False):
        if value is not None:
            slots.setdefault(at_s // step_s * step_s, []).append(value)
    return {at_s: sum(values) / len(values) for at_s, values in slots.items()}


def _runs(values: Mapping[int, float], step_s: int) -> list[Document]:
    """Return the values as runs: each run has values at every `step_s`, without a gap."""
    runs: list[Document] = []
    last_s = None
    for at_s in sorted(values):
        if last_s is None or at_s - last_s != step_s:
            runs.append({"start_s": at_s, "step_s": step_s, "values": []})
        runs[-1]["values"].append(float(f"{values[at_s]:.4g}"))
        last_s = at_s
    return runs


def history_note(reading: ClusterReading, brokers: Iterable[int]) -> str | None:
    """Return why the charts lack brokers, as a sentence; None if they lack none."""
    reasons = [
        reading.silent_histories[each] for each in brokers if each in reading.silent_histories
    ]
    if not reasons:
        return None
    more = f" The same holds for {len(reasons) - 1} more." if len(reasons) > 1 else ""
    advice = ""
    if reasons[0].endswith(NOT_SET):
        advice = f" Set {LISTENER_KEY} in the broker's configuration to keep a history."
    return f"The charts lack a broker: {reasons[0]}.{more}{advice}"


def cluster_history(reading: ClusterReading) -> Document:
    """Return the charts of the cluster: sums over its brokers, and the CPU use of each broker."""
    histories = reading.histories
    all_of = list(histories.values())
    return {
        "note": history_note(reading, brokers_known(reading)),
        "charts": [
            chart_document(
                "Traffic",
                "bytes a second of clients",
                "bytes",
                [
                    ("in", runs_of(all_of, "bytes_in_per_s")),
                    ("out", runs_of(all_of, "bytes_out_per_s")),
                ],
            ),
            chart_document(
                "Records",
                "records a second that clients produced",
                "rate",
                [("in", runs_of(all_of, "records_in_per_s"))],
            ),
            chart_document(
                "Under-replicated partitions",
                "partitions with a replica out of the ISR",
                "count",
                [("partitions", runs_of(all_of, "under_replicated"))],
            ),
            chart_document(
                "Processors",
                "cores that each broker uses",
                "cores",
                [
                    (f"broker {broker}", runs_of([history], "cpu_cores"))
                    for broker, history in sorted(histories.items())[:_LINES]
                ],
            ),
        ],
    }


def brokers_known(reading: ClusterReading) -> list[int]:
    """Return the ids of live brokers."""
    return [] if reading.metadata is None else sorted(reading.metadata.brokers)


def broker_view(reading: ClusterReading, samples: Samples, params: Mapping[str, str]) -> Document:
    """Return the page of one broker: its partitions in numbers, and its last 24 hours."""
    broker = number(params, "id", NO_LEADER)
    known = () if reading.metadata is None else brokers_of(reading.metadata)
    found = next((each for each in known if each.id == broker), None)
    if found is None:
        return {"broker": broker, "missing": f"There is no broker {broker} in this cluster now."}
    history = reading.histories.get(broker)
    own = [] if history is None else [history]
    return {
        "broker": broker,
        "is_registered": found.registered,
        "is_controller": found.controller,
        "address": f"{found.host}:{found.port}" if found.host else None,
        "leaders": found.leaders,
        "replicas": found.replicas,
        "out_of_sync": found.out_of_sync,
        "behind": out_of_isrs(reading, broker),
        "history": {
            "note": history_note(reading, [broker]),
            "charts": [
                chart_document(
                    "Traffic",
                    "bytes a second",
                    "bytes",
                    [
                        ("in", runs_of(own, "bytes_in_per_s")),
                        ("out", runs_of(own, "bytes_out_per_s")),
                        ("fetched of leaders", runs_of(own, "replication_bytes_in_per_s")),
                    ],
                ),
                chart_document(
                    "Latency",
                    "99th percentiles",
                    "ms",
                    [
                        ("acks=all", runs_of(own, "acknowledged_p99_ms")),
                        ("turn of the loop", runs_of(own, "loop_turn_p99_ms")),
                    ],
                ),
                chart_document(
                    "Processors", "cores in use", "cores", [("cores", runs_of(own, "cpu_cores"))]
                ),
                chart_document(
                    "Memory", "resident bytes", "bytes", [("memory", runs_of(own, "memory_bytes"))]
                ),
            ],
        },
    }


def out_of_isrs(reading: ClusterReading, broker: int) -> list[Document]:
    """Return partitions with the broker's replica out of the ISR, with cause and time if known.

    Cause and time are those of the last event about the replica's exit from the ISR.
    """
    if reading.metadata is None:
        return []
    exits: dict[tuple[object, object], tuple[str, object]] = {}
    for event in reading.events:
        left = event.get("left") if event["kind"] == kinds.ISR_CHANGE else None
        for each in left if isinstance(left, list) else ():
            if isinstance(each, dict) and each.get("broker") == broker:
                place = (event.get("topic"), event.get("partition"))
                exits[place] = (str(each.get("cause")), event.get("time_ms"))
    found = [
        (tp, each)
        for tp, each in reading.metadata.all_partitions()
        if broker in each.replicas and broker not in each.isr
    ]
    rows = []
    for tp, each in found[:_OUT_OF_ISRS]:
        cause, since_ms = exits.get((tp.topic, tp.partition), (None, None))
        rows.append(
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "leader": None if each.leader == NO_LEADER else each.leader,
                "cause": cause,
                "since_ms": since_ms if isinstance(since_ms, int) else None,
            }
        )
    return rows


def topic_day(reading: ClusterReading, samples: Samples, name: str) -> list[tuple[int, float]]:
    """Return a topic's records a second of the last day as (time in ms, rate), from its log.

    The points begin about half an hour before the first record, and end where the samples of this
    process begin.
    """
    live = samples.topics.points(name)
    known = list(reading.topic_days.get(name, ()))
    without = sum(1 for _ in itertools.takewhile(lambda point: point[1] == 0, known))
    known = known[max(0, without - 2) :] if without < len(known) else []
    if live:
        known = [*(each for each in known if each[0] < live[0][0]), live[0]]
    return [
        (at_ms, max(0, records - before) * 1000 / (at_ms - before_ms))
        for (before_ms, before), (at_ms, records) in itertools.pairwise(known)
    ]
