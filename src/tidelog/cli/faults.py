"""`tidelog break`: faults on the processes and log directories of a local cluster.

To other brokers, `kill` looks like a crash and `pause` like a hang; `stop` is an operator's
shutdown. Faults of a log directory (failed, full, slow) exist for its broker only: the files stay
unchanged.
"""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from tidelog.cli.help import CommandGroup
from tidelog.cli.output import say
from tidelog.cli.target import DEFAULT_DIRECTORY, DirectoryOption, local_cluster
from tidelog.runtime.disk_faults import FAIL, FILL, SLOW, DiskFault

app = CommandGroup("Break a local cluster, and repair it.")

_LogDirArgument = Annotated[
    str, typer.Argument(help="The log directory: its path, or its number in log.dirs, from 0.")
]
_DeviceError = Literal["EIO", "EROFS", "EACCES", "ENOENT", "ENXIO", "ESTALE"]

_BrokerArgument = Annotated[int, typer.Argument(help="The broker.", metavar="ID")]


@app.command(epilog="Example: tidelog break kill 1 --dir /tmp/tide")
def kill(broker: _BrokerArgument, directory: DirectoryOption = DEFAULT_DIRECTORY) -> None:
    """Send SIGKILL to a broker: unwritten data is lost, and its peers get no notice."""
    local_cluster(directory).kill(broker)
    say(f"broker {broker} was killed")


@app.command(epilog="Example: tidelog break stop 1")
def stop(broker: _BrokerArgument, directory: DirectoryOption = DEFAULT_DIRECTORY) -> None:
    """Shut a broker down in a controlled way (SIGTERM)."""
    local_cluster(directory).stop(broker)
    say(f"broker {broker} has stopped")


@app.command(epilog="Example: tidelog break pause 2")
def pause(broker: _BrokerArgument, directory: DirectoryOption = DEFAULT_DIRECTORY) -> None:
    """Send SIGSTOP to a broker: its connections stay open, and it does not respond."""
    local_cluster(directory).pause(broker)
    say(f"broker {broker} is paused")


@app.command(epilog="Example: tidelog break resume 2")
def resume(broker: _BrokerArgument, directory: DirectoryOption = DEFAULT_DIRECTORY) -> None:
    """Resume a paused broker (SIGCONT)."""
    was_paused = local_cluster(directory).resume(broker)
    say(f"broker {broker} goes on" if was_paused else f"broker {broker} was not paused")


@app.command(epilog="Example: tidelog break restart 1")
def restart(broker: _BrokerArgument, directory: DirectoryOption = DEFAULT_DIRECTORY) -> None:
    """Stop a broker if it runs, start it, and return when it responds."""
    local_cluster(directory).restart(broker)
    say(f"broker {broker} runs again")


@app.command("fail-log-dir", epilog="Example: tidelog break fail-log-dir 1 0")
def fail_log_dir(
    broker: _BrokerArgument,
    log_dir: _LogDirArgument,
    error: Annotated[_DeviceError, typer.Option(help="The error of every operation.")] = "EIO",
    directory: DirectoryOption = DEFAULT_DIRECTORY,
) -> None:
    """Let every operation in a log directory fail, so that its broker takes it offline."""
    path = _break(directory, broker, log_dir, DiskFault(FAIL, error))
    say(f"{path} fails with {error}: broker {broker} gives it up at its next operation there")


@app.command("fill-log-dir", epilog="Example: tidelog break fill-log-dir 1 0")
def fill_log_dir(
    broker: _BrokerArgument,
    log_dir: _LogDirArgument,
    directory: DirectoryOption = DEFAULT_DIRECTORY,
) -> None:
    """Let a log directory have no free space (ENOSPC)."""
    path = _break(directory, broker, log_dir, DiskFault(FILL))
    say(f"{path} has no free space for broker {broker}")


@app.command("slow-log-dir", epilog="Example: tidelog break slow-log-dir 1 0 --delay-ms 500")
def slow_log_dir(
    broker: _BrokerArgument,
    log_dir: _LogDirArgument,
    delay_ms: Annotated[
        int, typer.Option("--delay-ms", min=1, max=60_000, help="How much longer each one takes.")
    ] = 100,
    directory: DirectoryOption = DEFAULT_DIRECTORY,
) -> None:
    """Let each read, write and sync in a log directory take longer."""
    path = _break(directory, broker, log_dir, DiskFault(SLOW, delay_ms=delay_ms))
    say(f"each read, write and sync of broker {broker} in {path} takes {delay_ms} ms longer")


@app.command("heal-log-dir", epilog="Example: tidelog break heal-log-dir 1 0")
def heal_log_dir(
    broker: _BrokerArgument,
    log_dir: _LogDirArgument,
    directory: DirectoryOption = DEFAULT_DIRECTORY,
) -> None:
    """End the fault of a log directory. A failed directory returns with the broker's next start."""
    path = _break(directory, broker, log_dir, None)
    say(f"{path} is in order; if it failed, `tidelog break restart {broker}` takes it back")


def _break(directory: str, broker: int, log_dir: str, fault: DiskFault | None) -> str:
    """Inject a fault; return the path of the log directory."""
    cluster = local_cluster(directory)
    return cluster.break_log_dir(broker, int(log_dir) if log_dir.isdecimal() else log_dir, fault)
