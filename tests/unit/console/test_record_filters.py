"""Filters of records: headers, places in JSON, and texts that are no filter."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidelog.console.record_filters import RecordFilter
from tidelog.console.views.tables import BadQuery
from tidelog.records.reader import Record

FLIGHT = {
    "origin": "JFK",
    "delay": 30,
    "cancelled": False,
    "code": "7",
    "note": None,
    "flight id": 'A"1',
    "legs": [{"to": "BOS", "km": 300}, {"to": "LAX", "km": 4_000.5}],
}


def record(value: bytes | None, headers: list[tuple[str, bytes | None]] | None = None) -> Record:
    return Record(0, 0, b"key", value, headers or [])


def accepts(text: str, value: Any = FLIGHT) -> bool:
    found = RecordFilter.from_params({"json": text})
    return found.accepts(record(value if isinstance(value, bytes) else json.dumps(value).encode()))


@pytest.mark.parametrize(
    "text",
    [
        "$.origin",
        "origin",
        '$.origin = "JFK"',
        "$.origin=JFK",
        "$.origin != LGA",
        "$.origin ~ FK",
        '$.origin >= "JF"',
        "$.delay = 30",
        "$.delay < 30.5",
        "$.delay <= 30",
        "$.cancelled = false",
        "$.code = 7",
        "$.note = null",
        '$["flight id"] = "A\\"1"',
        "$.legs[1].to = LAX",
        "$.legs[*].km > 4000",
        "$.legs ~ BOS",
        "$[*] = JFK",
    ],
)
def test_a_place_that_satisfies_its_condition(text: str) -> None:
    assert accepts(text)


@pytest.mark.parametrize(
    "text",
    [
        "$.destination",
        "$.destination != JFK",
        "$.origin = jfk",
        "$.origin[0]",
        "$.origin > 3",
        "$.delay < 30",
        "$.delay ~ 4",
        "$.cancelled = 0",
        "$.cancelled >= false",
        "$.legs[2]",
        "$.legs.to",
        "$.note > 1",
    ],
)
def test_a_place_that_does_not(text: str) -> None:
    assert not accepts(text)


@pytest.mark.parametrize("value", [b"", b"plain", b"\xff\xfe", b"[" * 100_000, b"3", b'"JFK"'])
def test_a_value_without_the_place_does_not_match(value: bytes) -> None:
    assert not accepts("$.origin", value)
    assert not RecordFilter.from_params({"json": "$.origin"}).accepts(record(None))


@pytest.mark.parametrize(
    "text", ["$", "= 3", "$.delay is 3", "$.delay 3", "$..x", "$.a[", "$.a[-1] = 2", "$.a" * 40]
)
def test_a_text_that_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(BadQuery, match="a place and a condition expected, as"):
        RecordFilter.from_params({"json": text})


def test_a_text_that_is_too_long_or_wrongly_escaped_is_refused() -> None:
    with pytest.raises(BadQuery, match="at most 1000 characters"):
        RecordFilter.from_params({"json": "$.a = " + "x" * 1_000})
    with pytest.raises(BadQuery, match="with JSON's escapes"):
        RecordFilter.from_params({"json": r'$["\x"]'})


def test_a_header_is_found_by_its_name_and_value() -> None:
    sent = record(b"", [("trace", b"7"), ("trace", b"8"), ("empty", None)])
    for text, is_found in {
        "trace": True,
        "trace=8": True,
        " trace = 7 ": True,
        "trace=9": False,
        "trace=": False,
        "empty": True,
        "empty=": False,
        "Trace": False,
    }.items():
        assert RecordFilter.from_params({"header": text}).accepts(sent) is is_found, text
    with pytest.raises(BadQuery, match="a name, or name=value, expected"):
        RecordFilter.from_params({"header": "=7"})


def test_all_conditions_must_hold() -> None:
    params = {"key": "key", "q": "JFK", "header": "h", "json": "$.delay = 30"}
    value = json.dumps(FLIGHT).encode()
    sent = record(value, [("h", b"")])
    assert RecordFilter.from_params(params).accepts(sent)
    assert RecordFilter.from_params({}).accepts(record(None))
    for name, other in {"key": "k", "q": "LGA", "header": "x", "json": "$.delay = 3"}.items():
        assert not RecordFilter.from_params({**params, name: other}).accepts(sent), name
