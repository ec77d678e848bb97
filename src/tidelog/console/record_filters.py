"""Filters of records: by key, words, a header, and a condition on a place in a JSON value.

A place is written as in JSONPath, of which this module reads names, indexes and `[*]`:
`$.flight.legs[0].origin = "JFK"`. A record whose value is no JSON, or lacks the place, does not
match. A filter may be applied to megabytes of records. The text of the filter is therefore parsed
once, and the JSON of a record that fails a cheap condition is not parsed at all.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tidelog.console.record_forms import matches
from tidelog.console.views.tables import BadQuery
from tidelog.core.dataclass import dataclass
from tidelog.records.reader import Record

#: Maximum number of characters of a filter; `_STEPS` is the maximum number of steps (names and
#: indexes) of a place.
_CHARACTERS: Final = 1_000
_STEPS: Final = 32
_STEP: Final = re.compile(
    r"\.?([A-Za-z_][\w-]*)|\[([0-9]{1,9})\]|\[(\*)\]|\[\"((?:[^\"\\]|\\.)*)\"\]"
)
_OPERATOR: Final = re.compile(r"\s*(!=|<=|>=|=|<|>|~)\s*")
_COMPARED: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ANY: Final = object()
_EXAMPLE: Final = '$.delay >= 30, $.origin = "JFK", $.legs[*].to ~ "NY", or $.cancelled'


@dataclass(frozen=True, slots=True)
class PlaceCondition:
    """A condition on the values at a place; without an operator, the place must exist."""

    steps: tuple[Any, ...]
    operator: str
    wanted: Any
    text: str

    def holds(self, value: bytes | memoryview | None) -> bool:
        """Return whether any value at the place in a JSON document satisfies the condition."""
        if value is None:
            return False
        try:
            document = json.loads(bytes(value))
        except (ValueError, RecursionError):
            return False
        return any(self._satisfied(each) for each in _values_at(document, self.steps))

    def _satisfied(self, value: Any) -> bool:
        if not self.operator:
            return True
        if self.operator == "~":
            shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            return self.text in shown
        if self.operator in ("=", "!="):
            return _is_equal(value, self.wanted, self.text) is (self.operator == "=")
        both_numbers = _is_number(value) and _is_number(self.wanted)
        both_texts = isinstance(value, str) and isinstance(self.wanted, str)
        return (both_numbers or both_texts) and _COMPARED[self.operator](value, self.wanted)


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """The conditions of one search, all of which a record must satisfy."""

    key: bytes | None
    words: tuple[bytes, ...]
    #: Name and value of a header that a record must have; the value None matches any value.
    header: tuple[str, bytes | None] | None
    place: PlaceCondition | None

    @classmethod
    def from_params(cls, params: Mapping[str, str]) -> RecordFilter:
        """Return the filter that a page's parameters `key`, `q`, `header` and `json` describe.

        `header` is `name` or `name=value`.

        Raises BadQuery.
        """
        return cls(
            key=params["key"].encode() if params.get("key") else None,
            words=tuple(word.encode() for word in params.get("q", "").split()),
            header=_header(params.get("header", "").strip()),
            place=_place_condition(params.get("json", "").strip()),
        )

    def accepts(self, record: Record) -> bool:
        """Return whether a record satisfies all conditions."""
        if not matches(record, self.key, self.words):
            return False
        if self.header is not None and not _has_header(record, *self.header):
            return False
        return self.place is None or self.place.holds(record.value)


def _header(text: str) -> tuple[str, bytes | None] | None:
    if not text:
        return None
    name, equals, value = text.partition("=")
    if not name.strip():
        raise BadQuery(f"header={text!r}: a name, or name=value, expected")
    return name.strip(), value.strip().encode() if equals else None


def _has_header(record: Record, name: str, value: bytes | None) -> bool:
    return any(
        key == name and (value is None or (found is not None and bytes(found) == value))
        for key, found in record.headers
    )


def _place_condition(text: str) -> PlaceCondition | None:
    """Return the condition that a text describes; None for an empty text.

    Raises BadQuery for any other text.
    """
    if not text:
        return None
    if len(text) > _CHARACTERS:
        raise BadQuery(f"json: at most {_CHARACTERS} characters expected")
    steps: list[Any] = []
    position = 1 if text.startswith("$") else 0
    while (match := _STEP.match(text, position)) is not None:
        name, index, star, quoted = match.groups()
        if star:
            steps.append(_ANY)
        elif index is not None:
            steps.append(int(index))
        else:
            steps.append(name if quoted is None else _unquoted(text, quoted))
        position = match.end()
    rest = text[position:]
    found = _OPERATOR.match(rest)
    if not steps or len(steps) > _STEPS or (rest.strip() and found is None):
        raise BadQuery(f"json={text[:80]!r}: a place and a condition expected, as {_EXAMPLE}")
    if found is None:
        return PlaceCondition(tuple(steps), "", None, "")
    wanted = rest[found.end() :].strip()
    try:
        value = json.loads(wanted)
    except (ValueError, RecursionError):
        value = wanted
    return PlaceCondition(
        tuple(steps), found[1], value, value if isinstance(value, str) else wanted
    )


def _unquoted(text: str, quoted: str) -> str:
    try:
        return str(json.loads(f'"{quoted}"'))
    except ValueError:
        raise BadQuery(f'json={text[:80]!r}: ["name"] expected, with JSON\'s escapes') from None


def _values_at(document: Any, steps: tuple[Any, ...]) -> Iterator[Any]:
    values = [document]
    for step in steps:
        values = [each for value in values for each in _inside(value, step)]
    yield from values


def _inside(value: Any, step: Any) -> Iterator[Any]:
    if step is _ANY:
        if isinstance(value, list):
            yield from value
        elif isinstance(value, dict):
            yield from value.values()
    elif isinstance(step, int):
        if isinstance(value, list) and step < len(value):
            yield value[step]
    elif isinstance(value, dict) and step in value:
        yield value[step]


def _is_equal(value: Any, wanted: Any, text: str) -> bool:
    """Return whether a JSON value equals `wanted`; unlike in Python, true is not equal to 1.

    A string is also equal if it is the same as `text`, which the viewer typed without quotes.
    """
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted
    return bool(value == wanted) or (isinstance(value, str) and value == text)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
