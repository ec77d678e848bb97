"""The output of the demo: a few lines and a progress bar; plain text without a terminal.

Knows nothing of clusters. Times are seconds since the story began.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

#: Number of lines that replace a bar without a terminal, one for each part of the whole.
_PLAIN_PARTS: Final = 8
_PLAIN_WIDTH: Final = 100


class Bar:
    """The progress of one activity."""

    def __init__(self, story: Story, title: str, total: int, progress: Progress | None) -> None:
        self._story = story
        self._title = title
        self._total = total
        self._progress = progress
        self._task = None if progress is None else progress.add_task(title, total=total)
        self._parts_printed = 0

    def at(self, done: int, note: str = "", total: int | None = None) -> None:
        """Show that `done` of the total is done; the total may become known on the way."""
        self._total = self._total if total is None else total
        if self._progress is not None and self._task is not None:
            self._progress.update(
                self._task,
                completed=done,
                total=self._total,
                description=f"{self._title}  {note}".strip(),
            )
            return
        part = done * _PLAIN_PARTS // max(1, self._total)
        if part > self._parts_printed:
            self._parts_printed = part
            self._story.line(f"{done:,} of {self._total:,} {self._title}  {note}".rstrip())


class Story:
    """Chapters, lines, bars and one table, on standard output."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = Console(highlight=False) if console is None else console
        if not self._console.is_terminal and console is None:
            self._console = Console(highlight=False, width=_PLAIN_WIDTH)
        self._began = time.monotonic()
        self._chapters = 0

    @property
    def now_s(self) -> float:
        """Return seconds since the story began."""
        return time.monotonic() - self._began

    def title(self, text: str) -> None:
        """Print the first line."""
        self._console.print(f"[bold]{text}[/bold]")

    def chapter(self, text: str) -> None:
        """Print a numbered heading."""
        self._chapters += 1
        self._console.print(f"\n[bold]{self._chapters}. {text}[/bold]")

    def line(self, text: str, style: str = "") -> None:
        """Print one line with the time before it."""
        stamp = f"[dim]{self.now_s:6.1f} s[/dim]"
        self._console.print(f"  {stamp}  {text}", style=style, soft_wrap=True)

    @contextmanager
    def bar(self, title: str, total: int) -> Iterator[Bar]:
        """Show a progress bar while the block runs; lines may be printed meanwhile."""
        if not self._console.is_terminal:
            yield Bar(self, title, total, None)
            return
        columns = (
            TextColumn("  {task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self._console, transient=True) as progress:
            yield Bar(self, title, total, progress)

    def table(self, rows: Sequence[tuple[str, str, str]]) -> None:
        """Print the measurements: name, value and expectation."""
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 2))
        table.add_column()
        table.add_column(justify="right")
        table.add_column(style="dim")
        for row in rows:
            table.add_row(*row)
        self._console.print(table)

    def verdict(self, text: str, good: bool) -> None:
        """Print the last line."""
        self._console.print(f"\n{text}", style="bold green" if good else "bold red")
