"""The number of examples that a test draws: few in `make check`, many times as many in `make fuzz`.

TIDELOG_TEST_EXAMPLES is the factor. At 1 every run draws the same examples; above, every run draws
others, and a failure prints the TIDELOG_TEST_SEED that draws them again.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from random import Random

from hypothesis import HealthCheck, settings

FACTOR = int(os.environ.get("TIDELOG_TEST_EXAMPLES", "1"))
SEED = os.environ.get("TIDELOG_TEST_SEED") or ("" if FACTOR == 1 else secrets.token_hex(4))


def examples(count: int, *suppressed: HealthCheck) -> settings:
    """The settings of a hypothesis test that draws so many examples, times the factor."""
    return settings(
        max_examples=count * FACTOR,
        deadline=None,  # a busy machine is no defect
        derandomize=FACTOR == 1,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, *suppressed],
    )


def load_profile() -> None:
    """Settings for hypothesis tests that name no number."""
    settings.register_profile("tests", examples(50))
    settings.load_profile("tests")


def for_draws(count: int, name: object, check: Callable[[Random], None]) -> None:
    """Run a check on a number of seeded sources, times the factor; an error names its source."""
    for number in range(count * FACTOR):
        try:
            check(Random(f"{SEED} {name} {number}"))
        except BaseException as error:
            error.add_note(f"draw {number} of {name}, TIDELOG_TEST_SEED={SEED!r}")
            raise
