"""Pending reads in every order of reads, deaths and time: safe, and no dead follower is kept."""

from __future__ import annotations

import pytest
from tests.model.test_models import LIMIT, show
from tests.support.models.explorer import explore
from tests.support.models.pending_model import PendingModel
from tests.support.mutants import applied

MODEL_LIMIT = LIMIT


@pytest.mark.rule("A15", "F5", "F7", "F8")
def test_all_that_can_be_reached_holds(capsys: pytest.CaptureFixture[str]) -> None:
    explored = explore(PendingModel(), MODEL_LIMIT)
    show(capsys, explored)
    assert explored.violations == {}, explored.story
    assert explored.exhaustive


@pytest.mark.parametrize(
    ("mutant", "breaks"),
    [
        ("pending_moves_watermark", "ValidHighWatermark"),
        ("pending_kept_after_disconnect", "HeardDeathCounts"),
    ],
)
def test_a_broken_rule_is_found(
    mutant: str, breaks: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with applied(mutant):
        explored = explore(PendingModel(), MODEL_LIMIT, until=(breaks,))
        show(capsys, explored)
    assert breaks in explored.violations
