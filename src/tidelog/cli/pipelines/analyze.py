"""`tidelog pipeline analyze`: the history of a cluster, computed from its events.

Times on the command line are in UTC, or ages before the present.
"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from tidelog.cli.documents import prints
from tidelog.cli.help import CommandGroup
from tidelog.cli.pipelines.running import absolute, progress
from tidelog.cli.pipelines.showing import REPORT_DOCUMENT, ReportOptions
from tidelog.cli.target import BootstrapOption, OptionalDirectoryOption, choose_target
from tidelog.cli.times import duration_ms, timestamp_ms

EventsOption = Annotated[
    str | None,
    typer.Option(
        help="Parquet table of ingested events, instead of the topic.", show_default=False
    ),
]
FromOption = Annotated[
    str | None,
    typer.Option("--from", help="Begin: 2026-01-31T12:00, or an age: 6h.", show_default=False),
]
ToOption = Annotated[
    str | None,
    typer.Option("--to", help="End: 2026-01-31T12:00, or an age: 6h.", show_default=False),
]
WindowOption = Annotated[
    str | None,
    typer.Option(help="Size of windows: 30s, 5m; default 60 or fewer.", show_default=False),
]
ObjectiveOption = Annotated[
    float | None,
    typer.Option(
        help="Availability in percent that every partition must reach.", show_default=False
    ),
]
IntervalsOption = Annotated[
    str | None, typer.Option(help="Directory for every interval, as Parquet.", show_default=False)
]


def add_to(app: CommandGroup) -> None:
    """Add the verb to `tidelog pipeline`."""
    app.command(epilog="Example: tidelog pipeline analyze --from 24h --html week.html")(analyze)


@prints(REPORT_DOCUMENT)
def analyze(
    how: ReportOptions,
    events: EventsOption = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Ask no cluster: --events alone.")
    ] = False,
    start: FromOption = None,
    end: ToOption = None,
    window: WindowOption = None,
    min_isr: Annotated[
        int, typer.Option(min=1, help="min.insync.replicas of topics that are gone.")
    ] = 1,
    objective: ObjectiveOption = None,
    lag: Annotated[bool, typer.Option("--lag/--no-lag", help="Lag of groups as well.")] = True,
    intervals: IntervalsOption = None,
    bootstrap: BootstrapOption = None,
    directory: OptionalDirectoryOption = None,
) -> None:
    """Report availability, ISR changes, suspect brokers, failovers and lag from cluster events.

    Brokers write events with cluster.events.enable=true. The exit code is 1 if a partition was less
    available than --objective.
    """
    if offline and events is None:
        raise typer.BadParameter("--offline needs --events")
    if offline and (bootstrap is not None or directory is not None):
        raise typer.BadParameter("give --offline or a cluster, not both")
    now_ms = time.time_ns() // 1_000_000
    begin_ms, end_ms = moment_ms(start, now_ms), moment_ms(end, now_ms)
    window_ms = None if window is None else duration_ms(window)
    address = None if offline else choose_target(bootstrap, directory).bootstrap
    with how.session("tidelog analyze") as spark:
        from tidelog.spark.pipelines.analyze.analysis import AnalyzeOptions
        from tidelog.spark.pipelines.analyze.analysis import analyze as run_analyze

        options = AnalyzeOptions(
            bootstrap=address,
            events=None if events is None else absolute(events),
            start_ms=begin_ms,
            end_ms=end_ms,
            window_ms=window_ms,
            default_min_isr=min_isr,
            with_lag=lag,
            objective=objective,
            intervals=None if intervals is None else absolute(intervals),
        )
        with progress("analyzing events") as show_progress:
            report = run_analyze(spark, options, show_progress)
    how.show(report)


def moment_ms(text: str | None, now_ms: int) -> int | None:
    """Return milliseconds since 1970 of a time or of an age before now, or raise a usage error."""
    if text is None:
        return None
    try:
        return now_ms - duration_ms(text)
    except typer.BadParameter:
        pass
    try:
        return timestamp_ms(text)
    except typer.BadParameter:
        raise typer.BadParameter(
            f"{text!r} is no time: 2026-01-31T12:00, milliseconds since 1970, or an age before now"
            " such as 6h or P2D expected"
        ) from None
