"""The JSON of documents: whole numbers that JavaScript would round are strings."""

from __future__ import annotations

import json

import pytest

from tidelog.console.json_documents import MAX_EXACT, json_text


@pytest.mark.parametrize("value", [0, 1, -1, MAX_EXACT, -MAX_EXACT, True, None, 1.5, 1e300, "x"])
def test_what_javascript_represents_stays_as_it_is(value: object) -> None:
    text = json_text({"value": value, "beside": [MAX_EXACT + 1]})
    assert json.loads(text) == {"value": value, "beside": ["9007199254740992"]}
    assert type(json.loads(text)["value"]) is type(value)
    assert json_text([value]) == json.dumps([value])


@pytest.mark.parametrize("value", [2**53, 2**53 + 1, -(2**53), 2**63 - 1])
def test_larger_numbers_are_strings_of_all_their_digits(value: int) -> None:
    assert json.loads(json_text({"rows": [(1, value)]})) == {"rows": [[1, str(value)]]}


def test_digits_in_a_text_change_nothing() -> None:
    document = {"key": "9007199254740993", "offset": 7}
    assert json.loads(json_text(document)) == document
