"""Whole runs of seeds that several tests look at."""

from __future__ import annotations

from functools import cache

from tidelog.sim.results import RunResult
from tidelog.sim.run import run_seed


@cache
def result_of(seed: int, profile: str = "default") -> RunResult:
    """Return what `run_seed` returns for a seed, made once; it is shared: nobody may change it."""
    return run_seed(seed, profile)
