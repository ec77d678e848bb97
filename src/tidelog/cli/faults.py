"""`tidelog break`: faults on the processes of a local cluster.

kill and pause look like a crash and a hang from outside; stop is an operator's shutdown.
"""

from __future__ import annotations

from typing import Annotated

import typer

from tidelog.cli.help import CommandGroup
from tidelog.cli.output import say
from tidelog.cli.target import DEFAULT_DIRECTORY, DirectoryOption
from tidelog.local import LocalCluster

app = CommandGroup("Break a local cluster, and repair it.")

_BrokerArgument = Annotated[int, typer.Argument(help="The broker.", metavar="ID")]


@app.command(epilog="Example: tidelog break kill 1 --dir /tmp/tide")
def kill(broker: _BrokerArgument, directory: DirectoryOption = DEFAULT_DIRECTORY) -> None:
    """Send SIGKILL to a broker: unwritten data is lost, and its peers get no notice."""
    LocalCluster.existing(directory).kill(broker)
    say(f"broker {broker} was killed")


@app.command(epilog="Example: tidelog break stop 1")
def stop(broker: _BrokerArgument, directory: DirectoryOption = DEFAULT_DIRECTORY) -> None:
    """Shut a broker down in a controlled way (SIGTERM)."""
    LocalCluster.existing(directory).stop(broker)
    say(f"broker {broker} has stopped")


@app.command(epilog="Example: tidelog break pause 2")
def pause(broker: _BrokerArgument, directory: DirectoryOption = DEFAULT_DIRECTORY) -> None:
    """Send SIGSTOP to a broker: its connections stay open, and it does not respond."""
    LocalCluster.existing(directory).pause(broker)
    say(f"broker {broker} is paused")


@app.command(epilog="Example: tidelog break resume 2")
def resume(broker: _BrokerArgument, directory: DirectoryOption = DEFAULT_DIRECTORY) -> None:
    """Resume a paused broker (SIGCONT)."""
    was_paused = LocalCluster.existing(directory).resume(broker)
    say(f"broker {broker} goes on" if was_paused else f"broker {broker} was not paused")


@app.command(epilog="Example: tidelog break restart 1")
def restart(broker: _BrokerArgument, directory: DirectoryOption = DEFAULT_DIRECTORY) -> None:
    """Stop a broker if it runs, start it, and return when it responds."""
    LocalCluster.existing(directory).restart(broker)
    say(f"broker {broker} runs again")
