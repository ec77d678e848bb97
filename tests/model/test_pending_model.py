"""Pending reads in every order of reads, deaths and time: safe, and no dead follower is kept."""

from __future__ import annotations

from typing import Any

import pytest
from tests.model.test_models import LIMIT, show
from tests.support.models.explorer import explore
from tests.support.models.pending_model import LED_ON, Bounds, PendingModel
from tests.support.models.variants import PENDING_VARIANTS, Variant, in_force

from tidelog.replication.progress import FollowerProgress

MODEL_LIMIT = LIMIT


@pytest.mark.rule("A15", "F5", "F7", "F8")
@pytest.mark.parametrize("bounds", [Bounds(), LED_ON], ids=["one epoch", "led on"])
def test_all_that_can_be_reached_holds(bounds: Bounds, capsys: pytest.CaptureFixture[str]) -> None:
    explored = explore(PendingModel(bounds), MODEL_LIMIT)
    show(capsys, explored)
    assert explored.violations == {}, explored.story
    assert explored.exhaustive


@pytest.mark.parametrize("variant", PENDING_VARIANTS.values(), ids=list(PENDING_VARIANTS))
def test_a_broken_rule_is_found(variant: Variant, capsys: pytest.CaptureFixture[str]) -> None:
    with in_force(variant):
        explored = explore(PendingModel(LED_ON), MODEL_LIMIT, until=variant.breaks)
        show(capsys, explored)
    assert set(variant.breaks) <= set(explored.violations)


@pytest.mark.parametrize(
    ("kept", "known", "breaks"),
    [
        # The repeated fetch would have to reach what the leader has appended meanwhile.
        ("last_fetch_leader_end_offset", "last_fetch_leader_end_offset", "HealthyFollowerStays"),
        # The follower may have none of the records that were read for it.
        ("log_end_offset", "last_fetch_leader_end_offset", "ValidHighWatermark"),
    ],
)
def test_a_leader_that_leads_on_must_keep_neither_more_nor_less(
    kept: str,
    known: str,
    breaks: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    keep_reads = FollowerProgress.keep_reads

    def keep(progress: Any, former: Any, now_ms: int) -> None:
        keep_reads(progress, former, now_ms)
        setattr(progress, kept, getattr(former, known))

    monkeypatch.setattr(FollowerProgress, "keep_reads", keep)
    explored = explore(PendingModel(LED_ON), MODEL_LIMIT, until=(breaks,))
    show(capsys, explored)
    assert breaks in explored.violations
