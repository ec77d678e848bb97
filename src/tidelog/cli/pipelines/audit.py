"""`tidelog pipeline audit`: checks and comparison of all log files of all replicas.

Damage gives exit code 1. The command loads Spark when it runs.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.cli.documents import prints
from tidelog.cli.help import CommandGroup
from tidelog.cli.output import say
from tidelog.cli.pipelines.running import progress
from tidelog.cli.pipelines.showing import REPORT_DOCUMENT, ReportOptions
from tidelog.cli.target import DEFAULT_DIRECTORY, BootstrapOption, OptionalDirectoryOption
from tidelog.local import LocalCluster


def add_to(app: CommandGroup) -> None:
    """Add the verb to `tidelog pipeline`."""
    app.command(epilog="Example: tidelog pipeline audit '/data/broker-*/log-0' --html audit.html")(
        audit
    )


@prints(REPORT_DOCUMENT)
def audit(
    how: ReportOptions,
    directories: Annotated[
        list[str] | None,
        typer.Argument(help="Log directories, as paths or globs.", show_default=False),
    ] = None,
    bootstrap: BootstrapOption = None,
    directory: OptionalDirectoryOption = None,
    compacted: Annotated[
        list[str] | None,
        typer.Option("--compacted", help="A compacted topic: its gaps are no damage. Repeatable."),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option("--keep", help="Directory for results: a stopped audit goes on there."),
    ] = None,
    range_mib: Annotated[
        int, typer.Option("--range-mib", min=1, help="MiB of a log file that are read at once.")
    ] = 256,
) -> None:
    """Check every batch of every replica, and compare the replicas up to the high watermark.

    The command reads the log directories of tidelog's or Apache Kafka's brokers, which may be
    running. If a cluster is given, the command also asks its brokers for assignments, ISRs and
    compacted topics. The report names damage by file, byte and offset.
    """
    paths, asked = _what(directories or [], bootstrap, directory)
    with how.session("tidelog audit") as spark:
        from tidelog.core.limits import MIB
        from tidelog.spark.pipelines.audit.reporting import audit as run_audit

        with progress("auditing") as show_progress:
            report = run_audit(
                spark,
                paths,
                bootstrap=asked,
                compacted=compacted or (),
                keep=keep,
                range_bytes=range_mib * MIB,
                progress=show_progress,
            )
    how.show(report)


def _what(
    directories: list[str], bootstrap: str | None, directory: str | None
) -> tuple[list[str], str | None]:
    """Return the log directories, and the addresses of brokers to ask (None if no broker runs)."""
    if directories:
        if directory is not None:
            raise typer.BadParameter("give log directories or --dir, not both")
        return directories, bootstrap
    cluster = LocalCluster.existing(directory or DEFAULT_DIRECTORY)
    if bootstrap is None and any(cluster.process(number) for number in cluster.broker_ids):
        bootstrap = cluster.bootstrap
    if bootstrap is None:
        say("no broker runs: assignment and ISR are not known")
    return list(cluster.log_directories()), bootstrap
