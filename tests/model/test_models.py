"""Every state that the models can reach at their bounds holds the invariants of rule A15.

Larger bounds, and fetches that are messages of their own, are `python -m tests.model.soak`.
"""

from __future__ import annotations

import sys

import pytest
from tests.support.models import bounce_model, direct_model, failover_model, isr_model, log_model
from tests.support.models.explorer import Explored, Model, TooManyStatesError, explore

LIMIT = 1_000_000
MODELS: list[Model] = [
    log_model.LogModel(log_model.Bounds(2, 2, 1)),
    log_model.LogModel(log_model.Bounds(2, 1, 2)),
    isr_model.IsrModel(isr_model.Bounds(2, 3, minimum=1)),
    isr_model.IsrModel(isr_model.Bounds(2, 3, minimum=2)),
    isr_model.IsrModel(isr_model.superseding()),
    isr_model.IsrModel(isr_model.Bounds(1, 1, superseded=1, loses=False)),
    isr_model.IsrModel(isr_model.superseding(minimum=2)),
    direct_model.DirectIsrModel(isr_model.Bounds(2, 2, minimum=1)),
    direct_model.DirectIsrModel(isr_model.Bounds(1, 2, minimum=2)),
    direct_model.DirectIsrModel(isr_model.Bounds(1, 2, minimum=2), is_mixed=True),
    failover_model.FailoverModel(failover_model.Bounds(2, 1, 1)),
    bounce_model.BounceModel(bounce_model.Bounds(1, 1, losses=1, stops=0)),
    bounce_model.BounceModel(bounce_model.Bounds(1, 1, losses=1, stops=0), tells_lives=False),
]


def show(capsys: pytest.CaptureFixture[str], explored: Explored) -> None:
    """States and depths are told, and not required."""
    with capsys.disabled():
        sys.stdout.write(f"\n{explored}\n")


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_all_that_can_be_reached_holds(model: Model, capsys: pytest.CaptureFixture[str]) -> None:
    explored = explore(model, LIMIT)
    show(capsys, explored)
    assert explored.violations == {}, explored.story
    assert explored.exhaustive


def test_a_model_that_is_too_large_proves_nothing() -> None:
    with pytest.raises(TooManyStatesError, match="more than 100 states"):
        explore(log_model.LogModel(), 100)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_renamings_of_a_state_are_one_state_and_hold_the_same(model: Model) -> None:
    """What a canonical state leads to is what the state itself leads to."""
    level = {model.canonical(model.first()): model.first()}
    for _ in range(5):
        found = {}
        for canonical, state in level.items():
            assert model.canonical(canonical) == canonical
            assert model.broken(canonical) == model.broken(state)
            after = {model.canonical(one): one for _, one in model.successors(state)}
            assert after.keys() == {model.canonical(one) for _, one in model.successors(canonical)}
            found.update(after)
        level = dict(list(found.items())[:500])
