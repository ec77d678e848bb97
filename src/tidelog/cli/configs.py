"""`tidelog configs`: what can be configured.

Settings of a running cluster are changed by any Kafka client (AlterConfigs); this prints the
reference that docs/configuration.md holds.
"""

from __future__ import annotations

import typer

from tidelog.cli.output import print_line
from tidelog.core.config_reference import reference

app = typer.Typer(help="What can be configured.", no_args_is_help=True)


@app.callback()
def _root() -> None:
    """What can be configured."""


@app.command("reference")
def print_reference() -> None:
    """Print every configuration key: honoured, without effect, or refused, and why."""
    print_line(reference().rstrip("\n"))
