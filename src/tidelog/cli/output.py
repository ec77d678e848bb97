"""The output of commands: results on standard output, messages on standard error.

Results are a table or JSON.

JSON is for programs: one document, stable keys, nothing else on standard output. Tables are for
people; without a terminal they are plain text of unlimited width.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidelog.core.columns import Column, cells, headings
from tidelog.core.dataclass import dataclass
from tidelog.core.types import NO_LEADER

#: Colours that draw attention to a value, on terminals only, and never with NO_COLOR.
WRONG = "red"
DOUBTFUL = "yellow"

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")

#: Width of tables in a file or a pipe, so that no row is ever folded.
_PIPE_WIDTH = 10_000


class OutputFormat(StrEnum):
    """The format of printed results."""

    TABLE = "table"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Marked:
    """A cell of a table: a value, and its colour on a terminal; an empty `style` is no colour."""

    value: object
    style: str

    @classmethod
    def where(cls, holds: bool, value: object, style: str) -> Marked:
        """Return the value, coloured if a condition holds."""
        return cls(value, style if holds else "")


def address_text(broker: Any) -> str | None:
    """Return the address of a broker; None if it is unknown."""
    return None if broker.host is None else f"{broker.host}:{broker.port}"


def marked_out_of_sync(broker: Any) -> Marked:
    """Return how many replicas of a broker are out of sync."""
    return Marked.where(broker.out_of_sync > 0, broker.out_of_sync, DOUBTFUL)


def marked_leader(partition: Any) -> Marked:
    """Return the leader of a partition for a table, coloured if there is no leader."""
    return Marked.where(partition.leader == NO_LEADER, partition.leader, WRONG)


def marked_isr(partition: Any) -> Marked:
    """Return the ISR of a partition for a table, coloured if a replica is missing."""
    return Marked.where(len(partition.isr) < len(partition.replicas), partition.isr, DOUBTFUL)


OutputOption = Annotated[
    OutputFormat, typer.Option("-o", "--output", help="Print a table, or JSON for programs.")
]

CompactOption = Annotated[
    bool, typer.Option("--compact", help="With -o json: the document on one line.")
]


class _Layout:
    """The choice between JSON documents of one line and of several lines, for this process."""

    is_compact = False


def compact_json(wanted: bool) -> None:
    """Choose whether JSON documents take one line or several from now on."""
    _Layout.is_compact = wanted


def print_json(document: Any) -> None:
    """Print one JSON document on standard output."""
    if _Layout.is_compact:
        text = json.dumps(document, separators=(",", ":"))
    else:
        text = json.dumps(document, indent=2)
    sys.stdout.write(text + "\n")


def print_document(document: Any) -> None:
    """Print a document of `cli/documents.py`, or a list of documents, as JSON."""
    if isinstance(document, list | tuple):
        print_json([asdict(each) for each in document])
    else:
        print_json(asdict(document))


def printed(document: Any, output: OutputFormat) -> bool:
    """Print a document or a list of documents if `output` is JSON.

    Returns whether `output` is JSON; otherwise the caller has to print a table.
    """
    if output is OutputFormat.JSON:
        print_document(document)
    return output is OutputFormat.JSON


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """Print a table on standard output."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    cells = [tuple(row) for row in rows]
    for index, column in enumerate(columns):
        numeric = all(_is_number(row[index]) for row in cells) and bool(cells)
        table.add_column(Text(column), justify="right" if numeric else "left", overflow="fold")
    for row in cells:
        table.add_row(*(_styled(value) for value in row))
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PIPE_WIDTH)
    if title:
        console.print(Text(title, style="italic"), soft_wrap=True)
    console.print(table, crop=False)


def print_rows(
    rows: Sequence[Any],
    columns: Sequence[Column],
    output: OutputFormat = OutputFormat.TABLE,
    empty: str = "",
) -> None:
    """Print documents as JSON or as a table; print the sentence `empty` if there are none."""
    if printed(rows, output):
        return
    if empty and not rows:
        say(empty)
        return
    print_table(headings(columns), cells(rows, columns))


def or_none(value: str) -> str | None:
    """Return a text, but None for an empty text."""
    return value or None


def print_line(text: str) -> None:
    """Print one line of the result."""
    sys.stdout.write(text + "\n")


def print_text(text: str, style: str = "") -> None:
    """Print a sentence of the result: wrapped and coloured on a terminal, else one plain line."""
    console = Console()
    if console.is_terminal:
        console.print(Text(text, style=style))
    else:
        print_line(text)


def abandon_output() -> None:
    """Discard the remaining standard output when its reader is gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(text: str) -> None:
    """Print a message for people on standard error."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def say_in_handler(text: str) -> None:
    """Print a message on standard error from a signal handler.

    The signal may have interrupted `say`, whose buffered writer refuses a second call.
    """
    with contextlib.suppress(OSError):
        os.write(2, f"{text}\n".encode())


def size_text(size_bytes: int | None) -> str:
    """Return a size in bytes as text with three digits and a unit, such as `1.50 KiB`; "-" for
    None.
    """
    if size_bytes is None:
        return "-"
    value, unit = float(size_bytes), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    digits = 0 if unit == 0 or value >= 100 else 1
    return f"{value:.{digits}f} {_UNITS[unit]}"


def time_text(time_ms: int | None) -> str | None:
    """Return a time for people, in UTC to the second; None for an unknown time."""
    if time_ms is None:
        return None
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _is_number(value: object) -> bool:
    """Return whether to right-align a value: a number, or an unknown value."""
    if isinstance(value, Marked):
        value = value.value
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


def printable(text: str) -> str:
    """Return a text from a client as one line, with control characters escaped.

    Clients choose the names of groups, clients and members, which may contain control characters.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def _styled(value: object) -> Text:
    if isinstance(value, Marked):
        return Text(_cell(value.value), style=value.style)
    return Text(_cell(value))


def _cell(value: object) -> str:
    return printable(_cell_text(value))


def _cell_text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple | list):
        return ",".join(str(each) for each in value) or "-"
    return str(value)
