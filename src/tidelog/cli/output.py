"""What commands print: results on standard output as a table or JSON, messages on standard error.

JSON is for programs: one document, stable keys, nothing else on standard output. Tables are for
people; without a terminal they are plain text of unlimited width.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

#: Wide enough for any row: a table in a file or a pipe is never folded.
_PIPE_WIDTH = 10_000


class OutputFormat(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[
    OutputFormat, typer.Option("-o", "--output", help="Print a table, or JSON for programs.")
]


def print_json(document: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(json.dumps(document, indent=2) + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """A table on standard output."""
    table = Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PIPE_WIDTH)
    console.print(table, crop=False)


def print_line(text: str) -> None:
    """One line of the result."""
    sys.stdout.write(text + "\n")


def say(text: str) -> None:
    """A message for people, on standard error."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple | list):
        return ",".join(str(each) for each in value) or "-"
    return str(value)
