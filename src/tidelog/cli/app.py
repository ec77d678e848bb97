"""The command tree, and the errors and exit codes that all commands share.

The exit codes are 0 for done, 1 for failed, 2 for wrong usage, and 3 for a cluster that could not
be reached. An error is one message on standard error, without a traceback. An error message states
what failed, where, and if possible the remedy. Ctrl-C exits with 130, as shells do. When the reader
of the output goes away (`| head`), the command exits with 1 and prints no message.
"""

from __future__ import annotations

import gc
import importlib
import io
import os
import signal
import sys
from typing import Annotated, Final

import typer

import tidelog
from tidelog.cli.help import CommandGroup
from tidelog.cli.output import abandon_output, print_line, say
from tidelog.core.errors import ConnectionLost, RequestTimeout, TidelogError
from tidelog.runtime import extensions

EXIT_FAILED = 1
EXIT_NOT_REACHED = 3

#: Each entry has the first words of commands, the module of `cli` that has these commands, and the
#: command group in this module. If the module has no group, its function `register` adds the
#: commands. Help pages list the commands in the order of the entries.
_COMMANDS: Final = (
    ("up down status broker", "clusters", "register"),
    ("health", "health", "register"),
    ("doctor", "doctor", "register"),
    ("console", "console", "register"),
    ("top", "top", "register"),
    ("produce", "produce", "register"),
    ("consume", "consume", "register"),
    ("topics", "topics", "app"),
    ("configs", "configs", "app"),
    ("groups", "groups", "app"),
    ("brokers", "brokers", "app"),
    ("leaders", "partitions", "leaders_app"),
    ("reassign", "reassign", "app"),
    ("log-dirs", "log_dirs", "app"),
    ("strays", "strays", "app"),
    ("records", "partitions", "records_app"),
    ("events", "events", "app"),
    ("metrics", "metrics", "register"),
    ("store", "stores", "app"),
    ("break", "faults", "app"),
    ("sim", "simulation", "app"),
    ("history", "histories", "app"),
    ("pipeline", "pipeline", "app"),
    ("dump-log", "dumps", "register"),
)


def command_tree(first: str | None = None) -> CommandGroup:
    """Return all commands, or only the commands of the module that has the command `first`.

    With `first`, a command loads only the libraries that it needs, which saves half a second of
    processor time.
    """
    tree = CommandGroup(
        "Kafka's replicated log in Python: clusters, topics, faults, simulation.",
        name="tidelog",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    tree.callback()(_root)
    for words, module, name in _COMMANDS:
        if first is None or first in words.split():
            found = getattr(importlib.import_module(f"tidelog.cli.{module}"), name)
            if name == "register":
                found(tree)
            else:
                tree.add_typer(found, name=words)
    return tree


def first_word() -> str | None:
    """Return the command of this process; None if help or completion needs all commands."""
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    is_known = word == "--version" or any(word in words.split() for words, _, _ in _COMMANDS)
    return word if is_known and "_TIDELOG_COMPLETE" not in os.environ else None


def _print_version(wanted: bool) -> None:
    if wanted:
        print_line(f"tidelog {tidelog.__version__}")
        if absent := extensions.missing():
            say(f"tidelog: {extensions.missing_text(absent)}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Declare the options that precede a command, such as `--version`."""


def allow_any_output() -> None:
    """Escape characters that standard output cannot encode, instead of ending with an error.

    Clients choose the names of groups, which a terminal without UTF-8 may not be able to show.
    """
    if isinstance(sys.stdout, io.TextIOWrapper) and "utf" not in sys.stdout.encoding.lower():
        sys.stdout.reconfigure(errors="backslashreplace")


def run() -> None:
    """Run the command line of this process and exit with its code.

    Python's garbage collection is off during imports, because imports leave no garbage, and
    collections would take an eighth of their time.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    allow_any_output()
    try:
        try:
            tree = command_tree(first_word())
            gc.enable()
            tree(prog_name="tidelog")
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        abandon_output()
        sys.exit(EXIT_FAILED)
    except (ConnectionLost, RequestTimeout) as error:
        notes = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
        say(f"tidelog: the cluster could not be reached: {error}{notes}")
        sys.exit(EXIT_NOT_REACHED)
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        say(f"tidelog: {what}")
        sys.exit(EXIT_FAILED)
    except TidelogError as error:
        say(f"tidelog: {error}")
        sys.exit(EXIT_FAILED)
