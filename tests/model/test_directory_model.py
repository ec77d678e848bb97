"""Replicas on log directories that fail and are replaced: none is led by that lacks a record (D3).

Larger bounds are in `python -m tests.model.soak`.
"""

from __future__ import annotations

import pytest
from tests.model.test_models import LIMIT, show
from tests.support.models.directory_model import DirectoryModel
from tests.support.models.directory_states import Bounds
from tests.support.models.directory_variants import DIRECTORY_VARIANTS
from tests.support.models.explorer import explore
from tests.support.models.variants import Variant, in_force

BOUNDS = [
    Bounds(controller_deaths=0),
    Bounds(failures=0),
    Bounds(replacements=0, restarts=0),
    Bounds(late=(2,), controller_deaths=0, replacements=0, restarts=0, lost_answers=1),
    Bounds(minimum=2, is_begun=True, controller_deaths=0, replacements=0, restarts=2, cuts=1),
    Bounds((1, 2, 3), failures=0, replacements=0, restarts=0),
]


@pytest.mark.rule("A15", "D3", "D4", "D8", "E6")
@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_all_that_can_be_reached_holds(bounds: Bounds, capsys: pytest.CaptureFixture[str]) -> None:
    explored = explore(DirectoryModel(bounds), LIMIT)
    show(capsys, explored)
    assert explored.violations == {}, explored.story
    assert explored.exhaustive


@pytest.mark.parametrize("variant", DIRECTORY_VARIANTS.values(), ids=list(DIRECTORY_VARIANTS))
def test_a_broken_rule_is_found(variant: Variant, capsys: pytest.CaptureFixture[str]) -> None:
    with in_force(variant):
        explored = explore(DirectoryModel(variant.bounds), LIMIT, until=variant.breaks)
        show(capsys, explored)
    assert set(variant.breaks) <= set(explored.violations)
