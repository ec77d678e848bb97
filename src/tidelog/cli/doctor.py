"""`tidelog doctor`: present and coming faults of a cluster, with a command as the remedy of each.

The command examines a cluster, a log directory or a configuration file. `local.doctor` makes the
examination, so that other programs can show the same findings. The exit codes are those of `tidelog
health`, whose findings are also findings of the doctor.
"""

from __future__ import annotations

import os
from typing import Annotated

import typer

from tidelog.cli.documents import prints
from tidelog.cli.health import LEVEL_STYLES, place_of, read_health
from tidelog.cli.output import OutputFormat, OutputOption, print_document, print_text, say
from tidelog.cli.parameters import finite
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
from tidelog.local.doctor.config_findings import examine_config, read_config
from tidelog.local.doctor.diagnosis import Diagnosis
from tidelog.local.doctor.directory_facts import read_directory
from tidelog.local.doctor.directory_findings import examine_directory
from tidelog.local.doctor.machine_facts import (
    needed_open_files,
    read_cluster_machine,
    read_machine,
)
from tidelog.local.health import HEALTHY, UNREACHABLE


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(
        epilog="Example: tidelog doctor\n\nExample: tidelog doctor -b 127.0.0.1:9092 -o json"
        "\n\nExample: tidelog doctor server.properties"
    )(doctor)


@prints(Diagnosis)
def doctor(
    where: Annotated[
        str | None,
        typer.Argument(
            metavar="PATH",
            help="A log directory, a cluster's directory or a configuration file; default: the"
            " cluster of the options.",
        ),
    ] = None,
    bootstrap: BootstrapOption = None,
    directory: OptionalDirectoryOption = None,
    watch: Annotated[
        float,
        typer.Option(
            "--watch",
            min=0.0,
            max=3_600.0,
            callback=finite,
            help="Seconds between two looks at moves and groups; 0 looks once. Commits of consumers"
            " are 5 s apart by default.",
        ),
    ] = 6.0,
    output: OutputOption = OutputFormat.TABLE,
    timeout: TimeoutOption = 10.0,
) -> None:
    """Examine a cluster, a log directory or a configuration file: faults, and commands that help.

    The examination of a cluster begins with the findings of `tidelog health`. The examination also
    covers addresses, clocks and versions of brokers, and the causes for which replicas are out of
    sync. The examination compares min.insync.replicas with replication factors. The examination
    looks for moves that cannot end, for groups without progress, and at the placement of
    coordinators. The command only reads. If moves are under way or groups are behind, the command
    looks at them twice.

    For a log directory and for the brokers of a local cluster, the examination covers limits of
    open files and memory maps, disks, file systems and mount options. The command finds a directory
    that is missing, is no log directory, is in use, or was not closed cleanly. `tidelog pipeline
    audit` checks the logs themselves. In a configuration file, the command finds values that
    brokers refuse, and keys that they do not know. The command also examines the log directories
    that the file names.

    Exit codes are those of `tidelog health`: 0 healthy, 1 degraded, 2 unavailable in part, 3 not
    reached. Exit code 2 also means that a broker cannot start with the log directory or the
    configuration file. Notices do not change the exit code. The last lines name the facts that
    could not be examined. Brokers of Apache Kafka, for example, do not report why a replica is out
    of sync.
    """
    if where is not None and (bootstrap is not None or directory is not None):
        raise typer.BadParameter("give PATH, --bootstrap-server or --dir, not several of them")
    if where is not None and os.path.isfile(f"{where}/cluster.json"):
        where, directory = None, where
    if where is None:
        found = _of_cluster(bootstrap, directory, timeout, watch)
    elif os.path.isfile(where) or where.endswith((".properties", ".toml")):
        found = examine_config(read_config(where))
    else:
        machine = read_machine([where], [], needed_open_files())
        found = examine_directory(read_directory(where), machine)
    if output is OutputFormat.JSON:
        print_document(found)
    else:
        print_diagnosis(found)
    if found.exit_code != HEALTHY:
        raise typer.Exit(found.exit_code)


def _of_cluster(
    bootstrap: str | None, directory: str | None, timeout_s: float, watch_s: float
) -> Diagnosis:
    place = place_of(bootstrap, directory)
    try:
        target = choose_target(bootstrap, directory)
        health, addresses = read_health(target, place, timeout_s)
        facts = None
        if health.exit_code != UNREACHABLE:
            facts = survey(addresses, timeout_s, watch_s)
    except TidelogError as error:
        say(f"tidelog: {error}")
        raise typer.Exit(UNREACHABLE) from error
    machine = None if target.local is None else read_cluster_machine(target.local)
    return examine_cluster(health, facts, place, machine)


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
