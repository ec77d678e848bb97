"""Commits of lake tables in every order of runs, deaths, lost answers and vacuums.

Larger bounds are in `python -m tests.model.soak`.
"""

from __future__ import annotations

import pytest
from tests.model.test_models import LIMIT, show
from tests.support.models.explorer import explore
from tests.support.models.lake_model import Bounds, LakeModel
from tests.support.models.lake_variants import LAKE_VARIANTS
from tests.support.models.variants import Variant, in_force

BOUNDS = [
    Bounds(1, 2),
    Bounds(2, 1),
    Bounds(2, 1, compactions=1),
    Bounds(2, 1, compactions=2, vacuums=0),
]


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_all_that_can_be_reached_holds(bounds: Bounds, capsys: pytest.CaptureFixture[str]) -> None:
    explored = explore(LakeModel(bounds), LIMIT)
    show(capsys, explored)
    assert explored.violations == {}, explored.story
    assert explored.exhaustive


@pytest.mark.parametrize("variant", LAKE_VARIANTS.values(), ids=list(LAKE_VARIANTS))
def test_a_broken_rule_is_found(variant: Variant, capsys: pytest.CaptureFixture[str]) -> None:
    with in_force(variant):
        explored = explore(LakeModel(variant.bounds), LIMIT, until=variant.breaks)
        show(capsys, explored)
    assert set(variant.breaks) <= set(explored.violations)
