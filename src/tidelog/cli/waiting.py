"""`--wait`: repeated checks until a condition holds, and a progress bar on standard error.

The progress bar is drawn on terminals only. NotYetError reports the progress of a condition that
does not hold in time; the requested change stays in force.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tidelog.core.errors import TidelogError

_POLL_S = 0.05

WaitOption = Annotated[
    bool, typer.Option("--wait/--no-wait", help="Wait until the change is in force everywhere.")
]


class NotYetError(TidelogError):
    """The error for a condition that did not become true within the time limit."""


def wait_for(
    what: str,
    total: int,
    count: Callable[[], int],
    timeout_s: float,
    left: Callable[[], str] = lambda: "",
) -> None:
    """Return when `count` reaches `total`. Raises NotYetError after `timeout_s`, naming `what`.

    `left` returns a text that is shown beside the progress bar.
    """
    deadline = time.monotonic() + timeout_s
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    quiet = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=quiet) as bar:
        task = bar.add_task(what, total=total)
        while True:
            done = count()
            bar.update(task, completed=done, description=f"{what} {left()}".rstrip())
            if done >= total:
                return
            if time.monotonic() > deadline:
                raise NotYetError(
                    f"{what}: {done} of {total} after {timeout_s:g} s; the change was accepted,"
                    " and goes on without being waited for"
                )
            time.sleep(_POLL_S)
