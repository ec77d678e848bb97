"""Declarations of table columns, each with a heading and an attribute of the rows.

The commands and the reports declare the columns of their tables with this module. The printing code
decides how a cell looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

#: A column of a table. A column given as a string is a heading that also names the attribute of the
#: rows (with `_` for blanks). A column given as a pair has a heading, and an attribute's name or a
#: function of a row. A column given as a triple has a heading, an attribute's name, and the
#: function that formats the attribute's value. If a row is a mapping, an attribute's name is a key
#: of the mapping.
Column = (
    str | tuple[str, str] | tuple[str, str, Callable[[Any], Any]] | tuple[str, Callable[[Any], Any]]
)


def headings(columns: Sequence[Column]) -> tuple[str, ...]:
    """Return the headings of columns."""
    return tuple(each if isinstance(each, str) else each[0] for each in columns)


def cells(rows: Iterable[Any], columns: Sequence[Column]) -> tuple[tuple[Any, ...], ...]:
    """Return the values of the columns in each row."""
    sources = [(each.replace(" ", "_"),) if isinstance(each, str) else each[1:] for each in columns]
    return tuple(tuple(_value(row, *source) for source in sources) for row in rows)


def _value(row: Any, source: Any, show: Callable[[Any], Any] | None = None) -> Any:
    if not isinstance(source, str):
        return source(row)
    value = row[source] if isinstance(row, Mapping) else getattr(row, source)
    return value if show is None else show(value)
