"""Columns that are declared by the attributes of rows."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tidelog.core.columns import Column, cells, headings


@dataclass
class Row:
    topic: str
    leader_epoch: int


ROWS = [Row("flights", 3), Row("trains", 0)]
COLUMNS: tuple[Column, ...] = (
    "topic",
    "leader epoch",
    ("epoch", "leader_epoch"),
    ("text", "leader_epoch", str),
    ("both", lambda row: f"{row.topic} {row.leader_epoch}"),
)


def test_headings_are_the_first_words() -> None:
    assert headings(COLUMNS) == ("topic", "leader epoch", "epoch", "text", "both")


def test_cells_are_attributes_shown_values_and_results_of_functions() -> None:
    assert cells(ROWS, COLUMNS) == (
        ("flights", 3, 3, "3", "flights 3"),
        ("trains", 0, 0, "0", "trains 0"),
    )


def test_mappings_have_keys_in_place_of_attributes() -> None:
    assert cells([{"topic": "flights"}], ("topic",)) == (("flights",),)


def test_an_attribute_that_is_not_there_is_an_error() -> None:
    with pytest.raises(AttributeError):
        cells(ROWS, ("partition",))
