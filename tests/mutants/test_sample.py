"""A sample of line mutants is killed by the tests of their rules; `make mutants` tries all."""

from __future__ import annotations

import random

import pytest
from tests.support import draws
from tests.support.mutants import LINES, LineMutant
from tests.support.mutants.trials import TrialError, check_healthy, is_killed

SEED = draws.SEED or "sample"
SAMPLE = 10


def sample() -> list[LineMutant]:
    """One mutant of each of ten rules, the same ones for a seed."""
    draw = random.Random(SEED)
    by_rule: dict[str, list[LineMutant]] = {}
    for mutant in LINES.values():
        by_rule.setdefault(mutant.rule, []).append(mutant)
    rules = draw.sample(list(by_rule), min(SAMPLE * draws.FACTOR, len(by_rule)))
    return [draw.choice(by_rule[rule]) for rule in rules]


def test_the_tests_of_the_sample_pass_without_mutants() -> None:
    check_healthy([mutant.rule for mutant in sample()])


@pytest.mark.parametrize("mutant", sample(), ids=lambda mutant: mutant.name)
def test_a_line_mutant_is_killed_by_the_tests_of_its_rule(mutant: LineMutant) -> None:
    assert is_killed(mutant), f"survived: {mutant} (seed {SEED!r})"


def test_a_mutant_that_only_crashes_proves_nothing() -> None:
    """`self.broker` is none of the runtime's attributes; tests of V40 fail, by that alone."""
    crash = LineMutant(
        "crash",
        "V40",
        "tidelog/broker/controller/runtime.py",
        "if not self._claim_changed or self._closing or not self.services.identity.is_registered:",
        "if not self._claim_changed or self._closing or self.broker.broker_id != 1:",
    )
    with pytest.raises(TrialError, match="no assertion of a test failed.*AttributeError"):
        is_killed(crash)


def test_a_mutant_whose_line_is_gone_proves_nothing() -> None:
    gone = LineMutant("gone", "V40", "tidelog/core/errors.py", "no such line", "another")
    with pytest.raises(TrialError, match="has 'no such line' 0 times, not once"):
        is_killed(gone)
