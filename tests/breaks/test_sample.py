"""A sample of broken rules is noticed by their tests; `make breaks` tries all of them."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from tests.breaks.broken_rules import Break, SourceCopy, read_table
from tests.support import draws

SEED = draws.SEED or "sample"
SAMPLE = 10


def sample() -> list[Break]:
    """One break of each of ten rules, the same ones for a seed."""
    draw = random.Random(SEED)
    by_rule: dict[str, list[Break]] = {}
    for one in read_table():
        if not one.survives:
            by_rule.setdefault(one.rule, []).append(one)
    rules = draw.sample(list(by_rule), min(SAMPLE * draws.FACTOR, len(by_rule)))
    return [draw.choice(by_rule[rule]) for rule in rules]


@pytest.fixture(scope="module")
def sources() -> Iterator[SourceCopy]:
    with SourceCopy() as made:
        made.check_healthy([one.rule for one in sample()])
        yield made


@pytest.mark.parametrize("broken", sample(), ids=lambda one: one.rule)
def test_a_broken_rule_is_noticed_by_its_tests(sources: SourceCopy, broken: Break) -> None:
    assert sources.is_caught(broken), f"survived: {broken} (seed {SEED!r})"
