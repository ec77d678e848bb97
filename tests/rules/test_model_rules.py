"""Rule A15 in small: models that `tests/model` explores further, at the least bounds."""

from __future__ import annotations

import pytest
from tests.support.models.explorer import Model, explore
from tests.support.models.failover_model import Bounds as FailoverBounds
from tests.support.models.failover_model import FailoverModel
from tests.support.models.isr_model import Bounds as IsrBounds
from tests.support.models.isr_model import IsrModel
from tests.support.models.log_model import Bounds as LogBounds
from tests.support.models.log_model import LogModel

LIMIT = 20_000


@pytest.mark.rule("A15")
@pytest.mark.parametrize(
    "model",
    [
        LogModel(LogBounds(1, 1, 1)),
        IsrModel(IsrBounds(1, 2)),
        FailoverModel(FailoverBounds(1, 1, 1)),
    ],
    ids=lambda model: model.name,
)
def test_the_invariants_hold_in_every_state_that_can_be_reached(model: Model) -> None:
    explored = explore(model, LIMIT)
    assert explored.violations == {}, explored.story
    assert explored.exhaustive
