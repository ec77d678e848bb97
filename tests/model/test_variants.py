"""Broken replication is found broken, with a story: the verdicts of the published specification,
and of every rule taken away from our own functions. Depths and counts are told, not required."""

from __future__ import annotations

import pytest
from tests.model.test_models import LIMIT, show
from tests.support.models import bounce_model, direct_model, failover_model, isr_model, log_model
from tests.support.models.explorer import Model, explore
from tests.support.models.variants import (
    DIRECT_VARIANTS,
    FAILOVER_VARIANTS,
    ISR_VARIANTS,
    LOG_VARIANTS,
    SUPERSEDED_VARIANTS,
    UNTOLD,
    VARIANTS,
    Variant,
    in_force,
    variant,
)
from tests.support.mutants import MutantGoneError

#: What holds is as large as the healthy model: at smaller bounds here, at full ones in the soak.
SOUND_BOUNDS = log_model.Bounds(2, 2, 1)
#: What is broken shows at the smallest bounds that let it: two leaders after the first, or two
#: records.
TERMS_BOUNDS = log_model.Bounds(1, 1, 2)
RECORDS_BOUNDS = log_model.Bounds(2, 2, 1)
NEEDS_RECORDS = ("expand_without_epoch_rule",)
#: Where answers to fetches come again: what one truncation needs, and no more.
SPLIT_BOUNDS = log_model.Bounds(1, 2, 1, split=True)
#: Where a change comes when its leader leads no more, and is not refused.
VOID_BOUNDS = isr_model.Bounds(2, 2, keeps_void=True)


def model_of(variant: Variant) -> Model:
    if "stale_fetch_answer_applied" in variant.names:
        return log_model.LogModel(SPLIT_BOUNDS)
    if variant.name in LOG_VARIANTS:
        needs_records = variant.name in NEEDS_RECORDS
        broken_bounds = RECORDS_BOUNDS if needs_records else TERMS_BOUNDS
        return log_model.LogModel(broken_bounds if variant.breaks else SOUND_BOUNDS)
    if variant.name in ISR_VARIANTS:
        is_fenced = "deposed_leader_alters_isr" not in variant.names
        return isr_model.IsrModel(isr_model.DEFAULT if is_fenced else VOID_BOUNDS)
    if variant.name in SUPERSEDED_VARIANTS:
        bounds = isr_model.superseding(variant.max_version, variant.minimum)
        return isr_model.IsrModel(bounds)
    if variant.name in DIRECT_VARIANTS:
        return direct_model.DirectIsrModel(isr_model.Bounds(1, 2))
    if variant.name in FAILOVER_VARIANTS:
        return failover_model.FailoverModel(failover_model.Bounds(2, 1, variant.max_version))
    lives = bounce_model.Bounds(1, 1, losses=1, stops=0)
    return bounce_model.BounceModel(lives, tells_lives=variant.name != UNTOLD)


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=list(VARIANTS))
def test_the_verdict_on_a_variant(variant: Variant, capsys: pytest.CaptureFixture[str]) -> None:
    with in_force(variant):
        explored = explore(model_of(variant), LIMIT, until=variant.breaks)
        show(capsys, explored)
    assert set(variant.breaks) <= set(explored.violations)
    assert variant.breaks or explored.exhaustive, explored.story
    assert bool(explored.violations) == bool(variant.breaks)


def test_a_violation_is_told_as_the_shortest_story() -> None:
    with in_force(LOG_VARIANTS["truncate_to_high_watermark"]):
        explored = explore(log_model.LogModel(), LIMIT)
    [violation] = explored.violations.values()
    lines = explored.story.splitlines()
    assert lines[0].startswith(f"WeakIsr is broken after {violation.depth} steps")
    # Each step is who did what, and what everybody has then; before the first, how it began.
    assert len(lines) == 2 + 2 * violation.depth
    assert any("client -> " in line for line in lines)
    assert all("[" in line and "HW" in line for line in lines[1::2])


def test_a_variant_whose_target_is_gone_is_an_error() -> None:
    gone = variant("gone", (), ("tidelog.replication.isr:no_such", id))
    with pytest.raises(MutantGoneError, match="no_such"), in_force(gone):
        pass
