"""`tidelog top`: a cluster live in the terminal.

The screen needs the extra `top` (textual), which is imported when the screen opens. One frame as
text or JSON needs no extra and no terminal.
"""

from __future__ import annotations

import re
import shutil
import sys
import time
from typing import Annotated

import typer

from tidelog.cli.documents import prints
from tidelog.cli.live.frame import TopFrame
from tidelog.cli.live.look import FRAME_S, ClusterLook
from tidelog.cli.live.views import plain_lines
from tidelog.cli.output import print_document, print_line
from tidelog.cli.parameters import finite
from tidelog.cli.target import (
    BootstrapOption,
    OptionalDirectoryOption,
    TimeoutOption,
    choose_target,
)
from tidelog.core.errors import ConfigError
from tidelog.runtime.extras import install_command

_ADMIN = re.compile(r"([0-9]{1,10})=(\S+):([0-9]{1,5})")
#: Time in s that the end of the command waits for a look at a broker that hangs.
_END_S = 2.0
_ONCE_ROWS = 10


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(epilog="Example: tidelog top\n\nExample: tidelog top --once -b 127.0.0.1:9092")(top)


@prints(TopFrame)
def top(
    bootstrap: BootstrapOption = None,
    directory: OptionalDirectoryOption = None,
    admin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="BROKER=HOST:PORT",
            help="A broker's admin port, instead of the one in its configuration.",
        ),
    ] = None,
    interval: Annotated[
        float,
        typer.Option(
            min=0.5, max=60.0, callback=finite, help="Seconds between two looks at the cluster."
        ),
    ] = 2.0,
    rows: Annotated[
        int | None,
        typer.Option(min=1, max=10_000, help="Most rows of a table [10 with --once, else 200]."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print one frame as text, and end.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one frame as JSON, and end.")] = False,
    timeout: TimeoutOption = 10.0,
) -> None:
    """Show a cluster live: brokers, hottest partitions, groups, moves, under-replicated partitions.

    Numbers of brokers come from their admin ports, whose addresses are in the brokers'
    configuration, and everything else from Kafka's protocol. Without an admin port, a broker's CPU,
    loop, bytes out and its groups' lags in seconds are missing, and bytes in are the growth of
    logs. In a file or a pipe, the command prints one frame as with --once. One frame takes two
    looks, because rates need two.

    Keys: b, p, g, m and u open the tables, tab the next one; s sorts by the next column, r turns
    the order round, space pauses, q ends.
    """
    given = dict(map(_admin_port, admin or ()))
    target = choose_target(bootstrap, directory)
    with target.client(timeout) as client:
        client.metadata([])  # a cluster that cannot be reached ends the command with its exit code
    is_single = once or json or not sys.stdout.isatty()
    rows = rows or (_ONCE_ROWS if is_single else 200)
    look = ClusterLook(target.bootstrap, given, rows, timeout if is_single else FRAME_S)
    try:
        if is_single:
            _print_frame(look, interval, json)
        else:
            _open_screen(look, interval)
    finally:
        look.close()


def _print_frame(look: ClusterLook, interval_s: float, as_json: bool) -> None:
    look.frame()
    time.sleep(interval_s)
    frame = look.frame()
    if as_json:
        print_document(frame)
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in plain_lines(frame, width):
        print_line(line)


def _open_screen(look: ClusterLook, interval_s: float) -> None:
    try:
        from tidelog.cli.live.screen import TopScreen
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "textual":
            raise
        raise ConfigError(
            f"the live view needs textual: {install_command('top')}; --once prints a frame without"
        ) from error
    screen = TopScreen(look.frame, interval_s)
    screen.run()
    screen.finish(_END_S)


def _admin_port(text: str) -> tuple[int, str]:
    match = _ADMIN.fullmatch(text)
    if match is None or not 0 < int(match[3]) <= 65_535:
        raise typer.BadParameter(
            f"{text!r} is no admin port: BROKER=HOST:PORT expected, as 1=127.0.0.1:9644",
            param_hint="--admin",
        )
    return int(match[1]), f"{match[2]}:{match[3]}"
