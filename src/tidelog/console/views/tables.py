"""Windows of tables: the rows that the server filters, sorts and sends to a viewer.

A page of ten thousand rows costs the browser as much as a page of two hundred, because only the
first `limit` matching rows are sent. The page's address has the viewer's filter, order and limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tidelog.core.dataclass import dataclass

#: A JSON document, or a row of a table within one.
Document = dict[str, Any]

DEFAULT_LIMIT: Final = 200
MAX_LIMIT: Final = 5_000


class BadQuery(ValueError):
    """The error for an invalid parameter of a page; the message states valid values."""


@dataclass(frozen=True, slots=True)
class TableQuery:
    """The viewer's choice: words that rows must contain, the order, and the number of rows."""

    words: tuple[str, ...] = ()
    sort: str = ""
    descending: bool = False
    limit: int = DEFAULT_LIMIT

    @classmethod
    def from_params(cls, params: Mapping[str, str], default_sort: str) -> TableQuery:
        """Return the query in the parameters `q`, `sort` (`-key` sorts descending) and `limit`."""
        sort = params.get("sort", default_sort)
        limit = number(params, "limit", DEFAULT_LIMIT)
        if not 1 <= limit <= MAX_LIMIT:
            raise BadQuery(f"limit={limit}: a number from 1 to {MAX_LIMIT} expected")
        words = tuple(params.get("q", "").casefold().split())
        return cls(words, sort.removeprefix("-"), sort.startswith("-"), limit)


def number(params: Mapping[str, str], name: str, default: int | None = None) -> int:
    """Return a parameter as a whole number; raise BadQuery for any other text."""
    text = params.get(name, "")
    if not text and default is not None:
        return default
    try:
        return int(text)
    except ValueError:
        raise BadQuery(f"{name}={text!r}: a whole number expected") from None


def text(params: Mapping[str, str], name: str) -> str:
    """Return a parameter that must be given; raise BadQuery without it."""
    if not params.get(name):
        raise BadQuery(f"the parameter {name} is missing")
    return params[name]


def window(rows: Sequence[Document], query: TableQuery) -> Document:
    """Return at most `limit` matching rows in the requested order, and counts of rows.

    A row matches if each word of the query occurs in one of the row's texts. Rows without a value
    of the key by which rows are sorted come last.
    """
    found = [row for row in rows if _matches(row, query.words)] if query.words else list(rows)
    key = query.sort
    known = [row for row in found if row.get(key) is not None]
    if known:
        known.sort(key=lambda row: _order(row[key]), reverse=query.descending)
        found = known + [row for row in found if row.get(key) is None]
    return {"rows": found[: query.limit], "matching": len(found), "total": len(rows)}


def _matches(row: Document, words: Sequence[str]) -> bool:
    texts = "\n".join(_text(value) for value in row.values()).casefold()
    return all(word in texts for word in words)


def _text(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(_text, value))
    return "" if value is None or isinstance(value, (bool, dict)) else str(value)


def _order(value: Any) -> tuple[int, Any]:
    if isinstance(value, (int, float)):
        return (0, value)
    return (1, _text(value).casefold())
