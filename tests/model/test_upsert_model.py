"""Commits of upserts in every order of runs and lost answers."""

from __future__ import annotations

import pytest
from tests.model.test_models import LIMIT, show
from tests.support.models.explorer import explore
from tests.support.models.upsert_model import UpsertBounds, UpsertModel
from tests.support.models.upsert_variants import UPSERT_VARIANTS
from tests.support.models.variants import Variant, in_force

BOUNDS = [UpsertBounds(2), UpsertBounds(2, 1, compactions=1)]


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_all_that_can_be_reached_holds(
    bounds: UpsertBounds, capsys: pytest.CaptureFixture[str]
) -> None:
    explored = explore(UpsertModel(bounds), LIMIT)
    show(capsys, explored)
    assert explored.violations == {}, explored.story
    assert explored.exhaustive


@pytest.mark.parametrize("variant", UPSERT_VARIANTS.values(), ids=list(UPSERT_VARIANTS))
def test_a_broken_rule_is_found(variant: Variant, capsys: pytest.CaptureFixture[str]) -> None:
    with in_force(variant):
        explored = explore(UpsertModel(variant.bounds), LIMIT, until=variant.breaks)
        show(capsys, explored)
    assert set(variant.breaks) <= set(explored.violations)
