"""Whole runs of seeds that several tests look at."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache

from tests.support.mutants.kills import RECOVERY_S, SOUND_SEED, recovers_soon, recovery_within

from tidelog.sim.results import RunResult
from tidelog.sim.run import run_seed


@cache
def result_of(seed: int, profile: str = "default") -> RunResult:
    """Return what `run_seed` returns for a seed, made once; it is shared: nobody may change it.

    The cluster of `SOUND_SEED` must recover as soon as those that mutants break.
    """
    is_soon = seed == SOUND_SEED and recovers_soon(profile)
    with recovery_within(RECOVERY_S) if is_soon else nullcontext():
        return run_seed(seed, profile)
