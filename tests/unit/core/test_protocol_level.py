"""Levels of the protocol between brokers, and what each gates."""

from __future__ import annotations

import itertools

import pytest

from tidelog.core import protocol_level


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("", "3.9-IV0"),
        ("3.9", "3.9-IV0"),
        ("3.9.1", "3.9-IV0"),
        ("2.7", "2.7-IV2"),
        ("2.7-IV1", "2.7-IV1"),
        ("2.6-IV0", "2.6-IV0"),
        ("3.3", "3.3-IV3"),
    ],
)
def test_a_release_stands_for_its_last_level(text: str, level: str) -> None:
    assert protocol_level.level_of(text) == level


@pytest.mark.parametrize("text", ["2.5", "4.0", "0.11.0", "2.6-IV1", "3", "x.y", "2.6 ", "-1.0"])
def test_other_texts_are_no_level(text: str) -> None:
    assert not protocol_level.is_level(text)
    with pytest.raises(ValueError):
        protocol_level.level_of(text)


def test_leaders_write_themselves_below_the_level_with_alter_partition() -> None:
    direct = [level for level in protocol_level.LEVELS if protocol_level.is_direct(level)]
    assert direct == ["2.6-IV0", "2.7-IV0", "2.7-IV1"]


def test_versions_rise_with_levels_and_stay_above_those_that_rules_need() -> None:
    versions = [protocol_level.request_versions(level) for level in protocol_level.LEVELS]
    for below, above in itertools.pairwise(versions):
        assert all(old <= new for old, new in zip(below, above, strict=True))
    assert versions[0] == (15, 5, 6, 8, 3)
    assert versions[-1] == (17, 9, 7, 8, 4)
