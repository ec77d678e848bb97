"""A mutant by its importable name, as jobs name it."""

from __future__ import annotations

import pytest
from tests.support.mutants import LINES, MUTANTS, importable

from tidelog.replication import truncation
from tidelog.sim.mutation import MutantNotFoundError, applied, load


def test_a_mutant_is_in_force_within_and_only_there() -> None:
    assert truncation.offset_on_becoming_follower(5, 3) == 5
    with applied(importable("truncate_to_high_watermark")):
        assert truncation.offset_on_becoming_follower(5, 3) == 3
    assert truncation.offset_on_becoming_follower(5, 3) == 5


def test_no_name_changes_nothing() -> None:
    with applied(""):
        pass


@pytest.mark.parametrize("name", [*MUTANTS, "V1_1"])
def test_every_mutant_is_importable_by_its_name(name: str) -> None:
    assert load(importable(name)) is {**LINES, **MUTANTS}[name]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("kip101_only", r"MODULE:NAME is expected, .* tests\.support\.mutants:kip101_only"),
        ("tests.support.mutants:", "MODULE:NAME is expected"),
        (":kip101_only", "MODULE:NAME is expected"),
        ("..mutants:kip101_only", "MODULE:NAME is expected"),
        ("tests.no_mutants:kip101_only", "No module named 'tests.no_mutants'"),
        ("tests.support.mutants:kip101", "no mutant 'kip101'; there are kip101_only"),
        ("tests.support.mutants:MUTANTS", "an object with `profile` and `in_force` is one"),
        ("json:nothing", "module 'json' has no attribute 'nothing'"),
    ],
)
def test_a_name_that_leads_to_no_mutant_is_told_with_what_would_be_right(
    name: str, told: str
) -> None:
    with pytest.raises(MutantNotFoundError, match=told):
        load(name)
