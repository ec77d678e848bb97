"""Runs of seeds: whole ones that several tests look at, and of clusters that never recover."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytest

from tidelog.sim.loop import NS_PER_S
from tidelog.sim.phases import Stage
from tidelog.sim.results import RunResult
from tidelog.sim.run import run_seed


@cache
def result_of(seed: int, profile: str = "default") -> RunResult:
    """Return what `run_seed` returns for a seed, made once; it is shared: nobody may change it."""
    return run_seed(seed, profile)


@contextmanager
def recovery_within(limit_s: int) -> Iterator[None]:
    """Runs inside must recover from their faults in so many virtual seconds instead of a minute.

    Clusters recover in a few. One that is broken and never does costs less time so.
    """
    after_ns = Stage.after_ns

    def sooner_ns(stage: Stage, time_ns: int) -> int:
        return after_ns(stage, min(time_ns, limit_s * NS_PER_S))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stage, "after_ns", sooner_ns)
        yield
