"""`tidelog pipeline copy`: copies of topics in another cluster, with a table of offsets.

Ctrl-C ends `--follow` after the round of copies that is under way. A second Ctrl-C ends the command
at once; the next run with the same directory continues without loss.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli.documents import prints
from tidelog.cli.help import CommandGroup
from tidelog.cli.pipelines.running import progress
from tidelog.cli.pipelines.showing import REPORT_DOCUMENT, ReportOptions
from tidelog.cli.reading import Interrupts

_SourceOption = Annotated[
    str, typer.Option("--from", help="Brokers of the source: host:port,...", show_default=False)
]
_TargetOption = Annotated[
    str, typer.Option("--into", help="Brokers of the target: host:port,...", show_default=False)
]
_TopicOption = Annotated[
    list[str],
    typer.Option("--topic", help="A topic, or SOURCE:TARGET for another name.", show_default=False),
]
_TableOption = Annotated[
    Path,
    typer.Option("--table", help="Directory of the copy: its offset table.", show_default=False),
]
_GroupOption = Annotated[
    list[str] | None, typer.Option("--group", help="A group whose offsets are translated.")
]
_WithoutOption = Annotated[
    list[str] | None,
    typer.Option(help="A config of the source topics that new target topics do not get."),
]
_ReplicasOption = Annotated[
    int | None, typer.Option(min=1, help="Replicas of new target topics [those of the source].")
]
_SkipOption = Annotated[
    bool,
    typer.Option(
        "--skip-deleted", help="Go on where records were deleted before they were copied."
    ),
]


def add_to(app: CommandGroup) -> None:
    """Add the verb of this module to `tidelog pipeline`."""
    app.command(
        epilog="Example: tidelog pipeline copy --from old:9092 --into new:9092 --topic flights"
        " --table flights.copy"
    )(copy)


@prints(REPORT_DOCUMENT)
def copy(
    how: ReportOptions,
    source: _SourceOption,
    target: _TargetOption,
    topic: _TopicOption,
    directory: _TableOption,
    group: _GroupOption = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with new records until Ctrl-C.")
    ] = False,
    replication_factor: _ReplicasOption = None,
    without_config: _WithoutOption = None,
    skip_deleted: _SkipOption = False,
    verify: Annotated[bool, typer.Option(help="Read back what was copied.")] = True,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds for which a request is retried.")
    ] = 60.0,
) -> None:
    """Copy topics from one cluster to another, with a table of every offset.

    Keys, values, headers, timestamps and the order of each partition stay as they are. A rerun goes
    on where the last run ended; no record is lost or stored twice. The exit code is 1 if a range of
    copied records differs when it is read back.
    """
    topics = _topics(topic)
    asked = Interrupts("ending after this round")
    with how.session("tidelog copy") as spark, asked if follow else nullcontext():
        from tidelog.spark.pipelines.copy.run import CopyPlan
        from tidelog.spark.pipelines.copy.run import copy as run_copy

        plan = CopyPlan(
            source,
            target,
            topics,
            str(directory),
            replication_factor=replication_factor,
            without_configs=without_config or (),
            groups=group or (),
            skip_deleted=skip_deleted,
            verify=verify,
            timeout_ms=int(timeout * 1000),
        )
        with progress("copying") as show_progress:
            report = run_copy(
                spark,
                plan,
                follow=follow,
                stop=lambda: asked.signal is not None,
                progress=show_progress,
            )
    how.show(report)


def _topics(words: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        source, separator, target = word.partition(":")
        if not source or (separator and not target):
            raise typer.BadParameter(f"--topic {word!r}: NAME or SOURCE:TARGET expected")
        if source in found:
            raise typer.BadParameter(f"--topic {source} is named twice")
        found[source] = target or source
    return found
