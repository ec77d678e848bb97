"""`tidelog doctor`: present and coming faults of a cluster, with a command as the remedy of each.

`local.doctor` makes the examination, so that other programs can show the same findings. The exit
codes are those of `tidelog health`, whose findings are also findings of the doctor.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.cli.documents import prints
from tidelog.cli.health import LEVEL_STYLES, place_of, read_health
from tidelog.cli.output import OutputFormat, OutputOption, print_document, print_text, say
from tidelog.cli.target import (
    BootstrapOption,
    OptionalDirectoryOption,
    TimeoutOption,
    choose_target,
)
from tidelog.core.errors import TidelogError
from tidelog.core.wording import counted
from tidelog.local.doctor.cluster_findings import examine_cluster
from tidelog.local.doctor.cluster_survey import survey
from tidelog.local.doctor.diagnosis import Diagnosis
from tidelog.local.health import HEALTHY, UNREACHABLE


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(
        epilog="Example: tidelog doctor\n\nExample: tidelog doctor -b 127.0.0.1:9092 -o json"
    )(doctor)


@prints(Diagnosis)
def doctor(
    bootstrap: BootstrapOption = None,
    directory: OptionalDirectoryOption = None,
    watch: Annotated[
        float,
        typer.Option(
            "--watch",
            min=0.0,
            help="Seconds between two looks at moves and groups; 0 looks once. Commits of consumers"
            " are 5 s apart by default.",
        ),
    ] = 6.0,
    output: OutputOption = OutputFormat.TABLE,
    timeout: TimeoutOption = 10.0,
) -> None:
    """Examine a cluster: its faults, coming faults, and the commands that help.

    The examination begins with the findings of `tidelog health`. The examination also covers
    addresses, clocks and versions of brokers, and the causes for which replicas are out of sync.
    The examination compares min.insync.replicas with replication factors. The examination looks for
    moves that cannot end, for groups without progress, and at the placement of coordinators. The
    command only reads. If moves are under way or groups are behind, the command looks at them
    twice.

    Exit codes are those of `tidelog health`: 0 healthy, 1 degraded, 2 unavailable in part, 3 not
    reached. Notices do not change the exit code. The last lines name what could not be examined.
    Brokers of Apache Kafka, for example, do not report why a replica is out of sync.
    """
    place = place_of(bootstrap, directory)
    try:
        target = choose_target(bootstrap, directory)
        health, addresses = read_health(target, place, timeout)
        facts = None
        if health.exit_code != UNREACHABLE:
            facts = survey(addresses, timeout, watch)
    except TidelogError as error:
        say(f"tidelog: {error}")
        raise typer.Exit(UNREACHABLE) from error
    found = examine_cluster(health, facts, place)
    if output is OutputFormat.JSON:
        print_document(found)
    else:
        print_diagnosis(found)
    if found.exit_code != HEALTHY:
        raise typer.Exit(found.exit_code)


def print_diagnosis(found: Diagnosis) -> None:
    """Print the findings, each with its remedy, and then the facts that could not be read."""
    count = counted(len(found.findings), "finding") if found.findings else "nothing found"
    summary = f"{found.level}: {found.subject} {found.name}; {count}"
    print_text(summary, LEVEL_STYLES.get(found.level, ""))
    for each in found.findings:
        print_text(f"- {each.level}: {each.message}", LEVEL_STYLES.get(each.level, ""))
        print_text(f"  next: {each.next}")
    for sentence in found.unexamined:
        print_text(f"not examined: {sentence}")
