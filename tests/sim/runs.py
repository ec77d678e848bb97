"""Whole runs of seeds that several tests look at."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache

from tests.support.mutants.kills import RECOVERY_S, SOUND_SEED, recovers_soon, recovery_within

from tidelog.sim.results import RunResult
from tidelog.sim.run import run_seed


@cache
def result_of(seed: int, profile: str = "default") -> RunResult:
    """Return what `run_seed` returns for a seed, made once; it is shared: nobody may change it.

    The cluster of `SOUND_SEED` must recover as soon as those that mutants break.
    """
    with _recovery_of(seed, profile):
        return run_seed(seed, profile)


def beginning_of(seed: int, profile: str, limit_events: int) -> RunResult:
    """Return the result of the first events of the run that `result_of` makes."""
    with _recovery_of(seed, profile):
        return run_seed(seed, profile, limit_events=limit_events)


def _recovery_of(seed: int, profile: str) -> AbstractContextManager[None]:
    is_soon = seed == SOUND_SEED and recovers_soon(profile)
    return recovery_within(RECOVERY_S) if is_soon else nullcontext()
