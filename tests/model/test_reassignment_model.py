"""Reassignments, with every step cut off by the death of a controller: safe, exact, and they end.

Larger bounds are in `python -m tests.model.soak`.
"""

from __future__ import annotations

import pytest
from tests.model.test_models import LIMIT, show
from tests.support.models.explorer import explore
from tests.support.models.reassignment_model import ReassignmentModel
from tests.support.models.reassignment_states import Bounds
from tests.support.models.reassignment_variants import REASSIGNMENT_VARIANTS
from tests.support.models.variants import Variant, in_force

BOUNDS = [
    Bounds(),
    Bounds(second=(2, 3), controller_deaths=0),
    Bounds(second=(1, 3), controller_deaths=0, by_nodes=True),
    Bounds((1, 2), (2, 3)),
    Bounds((1, 2), (2, 3), controller_deaths=0, mortal=3),
    Bounds((1, 2), (2, 1)),
    Bounds((1, 2, 3), (1, 4, 2), minimum=2, controller_deaths=0, drops=1),
]


@pytest.mark.rule("A15", "R3", "R10", "R14", "V52")
@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_all_that_can_be_reached_holds(bounds: Bounds, capsys: pytest.CaptureFixture[str]) -> None:
    explored = explore(ReassignmentModel(bounds), LIMIT)
    show(capsys, explored)
    assert explored.violations == {}, explored.story
    assert explored.exhaustive


@pytest.mark.parametrize("variant", REASSIGNMENT_VARIANTS.values(), ids=list(REASSIGNMENT_VARIANTS))
def test_a_broken_rule_is_found(variant: Variant, capsys: pytest.CaptureFixture[str]) -> None:
    with in_force(variant):
        explored = explore(ReassignmentModel(variant.bounds), LIMIT, until=variant.breaks)
        show(capsys, explored)
    assert set(variant.breaks) <= set(explored.violations)
