"""Columns of tables, declared by the attributes of the rows.

The tables of commands and of reports share them. What a cell looks like is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

#: A heading that names an attribute of the rows (with `_` for blanks), or a heading with an
#: attribute and perhaps the function that shows its value, or a heading with a function of a row.
#: Rows that are mappings have keys in place of attributes.
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
