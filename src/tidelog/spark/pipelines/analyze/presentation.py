"""The report of an analysis: facts, tables and figures.

Tables show only the worst partitions and failovers; the JSON document has the same rows. All times
are UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Final

from tidelog.core.columns import Column
from tidelog.spark.pipelines.analyze.failover_phases import (
    ACKNOWLEDGE,
    DETECTION,
    ELECTION,
    FIRST_FETCH,
    PHASES,
    PROPAGATION,
    UNTIL_LED,
)
from tidelog.spark.pipelines.analyze.findings import Findings, StateTimes
from tidelog.spark.pipelines.analyze.partition_history import State
from tidelog.spark.pipelines.analyze.suspects import SIGNIFICANCE
from tidelog.spark.pipelines.report import (
    Cell,
    Figure,
    PipelineReport,
    Plot,
    PlotKind,
    Series,
    Span,
    Table,
    Timeline,
)

_ROWS: Final = 30
_GROUPS_PLOTTED: Final = 8
_CDF_PHASES: Final = (DETECTION, ELECTION, PROPAGATION, UNTIL_LED, FIRST_FETCH, ACKNOWLEDGE)
_MINUTE: Final = 60_000
#: States in the order of the timeline's colours: blue, orange, green, red and pink.
_COLOUR_ORDER: Final = (
    str(State.UNKNOWN),
    str(State.UNDER_MIN_ISR),
    str(State.ACKNOWLEDGING),
    str(State.NO_LEADER),
    str(State.FAILING_OVER),
)


def present(findings: Findings, objective: float | None = None) -> PipelineReport:
    """Return the report; its verdict is bad if a partition was available for less than `objective`
    % of the time.
    """
    missed = _below(findings, objective)
    return PipelineReport(
        title=f"What the cluster did: {findings.source}",
        verdict=_verdict(findings, objective, missed),
        holds=not missed,
        facts=_facts(findings),
        tables=tuple(_tables(findings)),
        figures=tuple(_figures(findings)),
    )


def _below(findings: Findings, objective: float | None) -> int:
    if objective is None:
        return 0
    return sum(
        each.times.availability is not None and 100 * each.times.availability < objective
        for each in findings.partitions
    )


def _verdict(findings: Findings, objective: float | None, missed: int) -> str:
    total = findings.total
    if total.availability is None:
        text = "No partition's state is known in this time"
    else:
        text = (
            f"acks=all was served {_percent(total)} % of the time of"
            f" {len(findings.partitions)} partitions;"
            f" {_seconds(total.leaderless_ms)} partition-seconds without a leader,"
            f" {_seconds(total.under_min_isr_ms)} under min ISR"
        )
        unknown_ms = total.ms.get(State.UNKNOWN, 0)
        if unknown_ms:
            text += f", {_seconds(unknown_ms)} unknown, which are no part of the share"
    suspects = sorted({each.broker for each in findings.suspicions if each.is_suspect})
    if suspects:
        text += f"; suspect: broker {', '.join(map(str, suspects))}"
    if objective is not None:
        text += f"; {missed} partitions were below {objective:g} %"
    return text


def _facts(findings: Findings) -> tuple[tuple[str, Cell], ...]:
    quality, total = findings.quality, findings.total
    return (
        ("from", utc(findings.start_ms)),
        ("to", utc(findings.end_ms)),
        ("window, s", findings.window_ms / 1000),
        ("events", quality.events),
        ("repeated events", quality.repeated),
        ("illegible records", quality.illegible),
        ("events dropped by brokers", quality.dropped),
        ("changes without an event", quality.missed),
        ("largest step back of a clock, ms", quality.clock_step_ms),
        ("partitions", len(findings.partitions)),
        ("not available for acks=all, %", _percent_cell(total)),
        ("partition-seconds without a leader", total.leaderless_ms / 1000),
        ("partition-seconds under min ISR", total.under_min_isr_ms / 1000),
        ("partition-seconds unknown", total.ms.get(State.UNKNOWN, 0) / 1000),
        ("failovers", len(findings.failovers)),
        ("controller elections", len(findings.controllers)),
    )


def _tables(findings: Findings) -> Iterable[Table]:
    yield _partitions(findings)
    yield _topics(findings)
    yield _churn(findings)
    yield _suspects(findings)
    yield _phases(findings)
    yield _failovers(findings)
    yield _controllers(findings)
    yield _brokers(findings)
    if findings.losses:
        yield _losses(findings)
    yield _lags(findings)
    if findings.notes:
        yield Table("Notes", ("note",), tuple((each,) for each in findings.notes))


def _partitions(findings: Findings) -> Table:
    bad = [
        each
        for each in findings.partitions
        if each.times.availability is None or each.times.availability < 1
    ]
    shown = f"The {_ROWS} worst of {len(bad)}. " if len(bad) > _ROWS else ""
    return Table.of(
        "Partitions that were not always available",
        bad[:_ROWS],
        (("partition", str), *_STATE_COLUMNS),
        shown + "Available: a leader served acks=all. Failing over: from the first sign of the"
        " leader's death until its successor had taken its role. The time before a partition's"
        " creation counts for nothing.",
    )


def _topics(findings: Findings) -> Table:
    by_topic: dict[str, list[StateTimes]] = {}
    for each in findings.partitions:
        by_topic.setdefault(each.topic, []).append(each.times)
    rows: list[dict[str, Any]] = [
        {"topic": name, "partitions": len(own), "times": StateTimes.sum_of(own)}
        for name, own in by_topic.items()
    ]
    rows.sort(key=lambda row: (row["times"].availability or 0.0, row["topic"]))
    note = f"The {_ROWS} worst of {len(rows)}." if len(rows) > _ROWS else ""
    return Table.of("Topics", rows[:_ROWS], ("topic", "partitions", *_STATE_COLUMNS), note)


def _churn(findings: Findings) -> Table:
    absence = ("mean absence s", lambda it: _rounded(it.absent_ms / 1000 / max(1, it.departures)))
    return Table.of(
        "Departures from ISRs",
        findings.churn,
        ("broker", "cause", "departures", "incidents", absence),
        "Departures of a broker for one cause within ten seconds are one incident.",
    )


def _suspects(findings: Findings) -> Table:
    return Table.of(
        "Suspects",
        findings.suspicions,
        (
            "broker",
            ("as", "role", str),
            "incidents",
            ("expected", "expected", _rounded),
            "departures",
            "main cause",
            ("chance", "chance", _rounded),
            ("suspect", "is_suspect"),
        ),
        "Expected: if incidents struck brokers in proportion to their replicas (as a leader: to the"
        " time that they led). Chance: the probability of at least so many then. Shutdowns do not"
        f" count. Suspect: three or more, and a chance below {SIGNIFICANCE:g} divided by the number"
        " of brokers.",
    )


def _phases(findings: Findings) -> Table:
    shown = {each.phase for each in findings.phases}
    meaning = "; ".join(f"{name}: {text}" for name, text in PHASES.items() if name in shown)
    return Table.of(
        "Phases of failovers, ms",
        findings.phases,
        (
            "phase",
            ("partitions", "count"),
            ("median", lambda each: _rounded(each.at(50))),
            ("90 %", lambda each: _rounded(each.at(90))),
            ("99 %", lambda each: _rounded(each.at(99))),
            ("longest", lambda each: _rounded(each.at(100))),
        ),
        f"{meaning}." if meaning else "",
    )


def _failovers(findings: Findings) -> Table:
    count = len(findings.failovers)
    return Table.of(
        "Failovers",
        findings.failovers[-_ROWS:],
        (
            ("time", "time_ms", utc),
            ("brokers", lambda each: ", ".join(map(str, each.brokers))),
            "cause",
            "partitions",
            "detection ms",
            "election ms",
            "propagation ms",
            "superseded",
            "unanswered",
        ),
        f"The last {_ROWS} of {count}." if count > _ROWS else "",
    )


def _controllers(findings: Findings) -> Table:
    missed = ("epochs without an event before", "missed")
    elected, resigned = ("elected", "time_ms", utc), ("resigned because", "resignation")
    return Table.of(
        "Controllers",
        findings.controllers[-_ROWS:],
        (elected, "controller", "epoch", missed, resigned),
        "A controller that dies reports no resignation.",
    )


def _brokers(findings: Findings) -> Table:
    lost, behind = ("sessions lost", "session_losses"), ("times behind commands", "behind")
    columns = ("broker", "registrations", "shutdowns", lost, behind)
    return Table.of("Brokers", findings.brokers, columns)


def _losses(findings: Findings) -> Table:
    place = ("partition", lambda each: f"{each.topic}-{each.partition}")
    time, lost = ("time", "time_ms", utc), ("committed records lost", "certain")
    return Table.of(
        "Unclean elections",
        findings.losses[-_ROWS:],
        (time, place, "leader", "log end offset", lost),
        "Empty: the new leader had not heard a high watermark, so the number is not known.",
    )


def _lags(findings: Findings) -> Table:
    by_group: dict[str, list[tuple[int, int, str]]] = {}
    for each in findings.lags:
        entry = (each.records, each.age_ms or 0, str(each.tp))
        by_group.setdefault(each.group, []).append(entry)
    rows: list[tuple[Cell, ...]] = []
    for group, entries in sorted(by_group.items(), key=lambda item: -sum(e[0] for e in item[1])):
        records, _, worst = max(entries)
        total = sum(entry[0] for entry in entries)
        oldest = max(entry[1] for entry in entries)
        rows.append((group, len(entries), total, oldest / 1000, worst if records else "", records))
    return Table(
        "Lag of groups now",
        ("group", "partitions", "records", "oldest unread s", "worst partition", "its records"),
        tuple(rows[:_ROWS]),
        "Records: offsets from the committed one to the end of the log. Oldest unread: age of the"
        " first unread record by its own timestamp.",
    )


def _figures(findings: Findings) -> Iterable[Figure]:
    if len(findings.windows) > 1:
        yield _availability_plot(findings)
    if findings.timeline:
        yield _timeline(findings)
    if findings.churn:
        yield _churn_plot(findings)
    if findings.phases:
        yield _cdf(findings)
    yield from _lag_plots(findings)


def _minutes(findings: Findings, time_ms: int) -> float:
    return (time_ms - findings.start_ms) / _MINUTE


def _axis(findings: Findings) -> str:
    return f"minutes after {utc(findings.start_ms)}"


def _availability_plot(findings: Findings) -> Plot:
    series = []
    parts = (
        ("a leader responds", (State.ACKNOWLEDGING, State.UNDER_MIN_ISR)),
        ("acks=all is served", (State.ACKNOWLEDGING,)),
    )
    known = {start: each for start, each in findings.windows.items() if each.known_ms}
    minutes = tuple(_minutes(findings, start) for start in known)
    for label, states in parts:
        percents = [
            100 * sum(each.ms.get(state, 0) for state in states) / each.known_ms
            for each in known.values()
        ]
        series.append(Series(label, minutes, tuple(percents)))
    return Plot(
        "Availability in each window, all partitions",
        _axis(findings),
        "% of the known time",
        tuple(series),
        PlotKind.STEP,
    )


def _timeline(findings: Findings) -> Timeline:
    rows: dict[str, list[Span]] = {}
    for each in findings.timeline:
        if each.state is State.ABSENT:
            continue
        rows.setdefault(f"{each.topic}-{each.partition}", []).append(
            Span(
                _minutes(findings, each.start_ms), _minutes(findings, each.end_ms), str(each.state)
            )
        )
    return Timeline(
        "States of the least available partitions",
        _axis(findings),
        tuple((name, tuple(spans)) for name, spans in rows.items()),
        kinds=_COLOUR_ORDER,
    )


def _churn_plot(findings: Findings) -> Plot:
    brokers = sorted({each.broker for each in findings.churn})
    causes = sorted({each.cause for each in findings.churn})
    counts = {(each.broker, each.cause): each.departures for each in findings.churn}
    heights = {cause: [counts.get((b, cause), 0) for b in brokers] for cause in causes}
    return Plot.bars("Departures from ISRs, by cause", "broker", "departures", brokers, heights)


def _cdf(findings: Findings) -> Plot:
    series = tuple(
        Series(
            each.phase,
            # Durations of 0 ms are drawn as 1 ms, because a logarithmic axis has no zero.
            tuple(max(1.0, value) for value in each.quantiles),
            tuple(float(percent) for percent in range(101)),
        )
        for each in findings.phases
        if each.phase in _CDF_PHASES
    )
    return Plot(
        "How long the phases of failovers took",
        "ms",
        "% of partitions that were done",
        series,
        PlotKind.LINE,
        is_log_x=True,
    )


def _lag_plots(findings: Findings) -> Iterable[Plot]:
    by_group: dict[str, list[tuple[float, float, float]]] = {}
    for each in findings.lag_history:
        at = _minutes(findings, each.time_ms)
        by_group.setdefault(each.group, []).append((at, each.records, each.behind_ms / 1000))
    worst = sorted(by_group, key=lambda group: (-max(p[1] for p in by_group[group]), group))
    shown = worst[:_GROUPS_PLOTTED]
    if not any(len(by_group[group]) > 1 for group in shown):
        return
    hidden = f" ({len(worst) - len(shown)} groups more)" if len(worst) > len(shown) else ""
    for title, label, column in (
        ("Lag of groups in records", "records", 1),
        ("Lag of groups in time, to a window", "s", 2),
    ):
        series = []
        for group in shown:
            columns = tuple(zip(*by_group[group], strict=True))
            series.append(Series(group, columns[0], columns[column]))
        yield Plot(title + hidden, _axis(findings), label, tuple(series), PlotKind.STEP)


def utc(time_ms: int) -> str:
    """Return a time as readable text in UTC."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _percent_cell(times: StateTimes) -> float | None:
    """Return the unavailable share of the time in percent.

    The availability itself would be 99.9... % in nearly all rows.
    """
    if times.availability is None:
        return None
    missing = times.known_ms - times.ms.get(State.ACKNOWLEDGING, 0)
    return _rounded(100 * missing / times.known_ms)


def _rounded(value: float) -> float:
    """Return a value rounded to four digits; more digits would suggest false precision."""
    return float(f"{value:.4g}")


def _percent(times: StateTimes) -> str:
    """Return the availability as a percentage; only full availability is shown as 100."""
    value = 100 * (times.availability or 0.0)
    return f"{value:.3f}" if value == 100 else f"{min(value, 99.999):.3f}"


def _seconds(ms: int) -> str:
    return f"{ms / 1000:,.1f}"


def _seconds_in(state: State) -> Callable[[StateTimes], float]:
    return lambda times: times.ms.get(state, 0) / 1000


#: Columns for rows with an attribute or a key `times`, which has the time in each state.
_STATE_COLUMNS: Final[tuple[Column, ...]] = (
    ("not available %", "times", _percent_cell),
    ("no leader s", "times", _seconds_in(State.NO_LEADER)),
    ("failing over s", "times", _seconds_in(State.FAILING_OVER)),
    ("under min ISR s", "times", _seconds_in(State.UNDER_MIN_ISR)),
    ("unknown s", "times", _seconds_in(State.UNKNOWN)),
)
