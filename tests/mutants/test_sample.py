"""A sample of line mutants is killed by the tests of their rules; `make mutants` tries all."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from tests.support import draws
from tests.support.mutants.line_mutants import LineMutant, SourceCopy, read_table

SEED = draws.SEED or "sample"
SAMPLE = 10


def sample() -> list[LineMutant]:
    """One mutant of each of ten rules, the same ones for a seed."""
    draw = random.Random(SEED)
    by_rule: dict[str, list[LineMutant]] = {}
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


@pytest.mark.parametrize("mutant", sample(), ids=lambda one: one.rule)
def test_a_line_mutant_is_killed_by_the_tests_of_its_rule(
    sources: SourceCopy, mutant: LineMutant
) -> None:
    assert sources.is_killed(mutant), f"survived: {mutant} (seed {SEED!r})"
