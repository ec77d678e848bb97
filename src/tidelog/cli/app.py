"""The command tree, and what every command has in common: errors and exit codes.

0 done, 1 failed, 2 wrong usage, 3 the cluster could not be reached. Errors are one message on
standard error, without a traceback: what failed, where, and where possible what would be right.
Ctrl-C is 130, as shells have it. When the reader of our output goes away (`| head`), so do we,
without a word and with 1.
"""

from __future__ import annotations

import signal
import sys

import typer

import tidelog
from tidelog.cli import (
    brokers,
    clusters,
    configs,
    consume,
    dumps,
    events,
    faults,
    groups,
    histories,
    partitions,
    pipeline,
    produce,
    reassign,
    simulation,
    stores,
    strays,
    topics,
)
from tidelog.cli.output import abandon_output, print_line, say
from tidelog.core.errors import ConnectionLost, RequestTimeout, TidelogError

EXIT_FAILED = 1
EXIT_NOT_REACHED = 3

app = typer.Typer(
    name="tidelog",
    help="Kafka's replicated log in Python: clusters, topics, faults, simulation.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
clusters.register(app)
produce.register(app)
consume.register(app)
app.add_typer(topics.app, name="topics")
app.add_typer(configs.app, name="configs")
app.add_typer(groups.app, name="groups")
app.add_typer(brokers.app, name="brokers")
app.add_typer(partitions.leaders_app, name="leaders")
app.add_typer(reassign.app, name="reassign")
app.add_typer(brokers.log_dirs_app, name="log-dirs")
app.add_typer(strays.app, name="strays")
app.add_typer(partitions.records_app, name="records")
app.add_typer(events.app, name="events")
app.add_typer(stores.app, name="store")
app.add_typer(faults.app, name="break")
app.add_typer(simulation.app, name="sim")
app.add_typer(histories.app, name="history")
app.add_typer(pipeline.app, name="pipeline")
dumps.register(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        print_line(f"tidelog {tidelog.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Options before any command."""


def run() -> None:
    """Run the command line of this process and exit with its code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        try:
            app(prog_name="tidelog")
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        abandon_output()
        sys.exit(EXIT_FAILED)
    except (ConnectionLost, RequestTimeout) as error:
        say(f"tidelog: the cluster could not be reached: {error}")
        sys.exit(EXIT_NOT_REACHED)
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        say(f"tidelog: {what}")
        sys.exit(EXIT_FAILED)
    except TidelogError as error:
        say(f"tidelog: {error}")
        sys.exit(EXIT_FAILED)
